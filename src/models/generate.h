/* The next token of a text, by the logits of a model. */
#ifndef TT_MODELS_GENERATE_H
#define TT_MODELS_GENERATE_H

#include <tutti/tensor.h>

typedef struct tt__token_choice {
    double temperature; /* 0: the likeliest token */
    int64_t top_k;      /* of the likeliest so many; 0: of all */
    double top_p;       /* of the likeliest that together have this probability; 0: of all */
    tt_generator *generator;
} tt__token_choice;

/* Choose from logits of V elements, in any shape; needs an open scope. TT_ERR_NAN if the largest is not a number or
 * infinite. */
tt_status tt__token_choose(int64_t *token, tt_tensor *logits, const tt__token_choice *how);

#endif
