/* Attention with several heads: a module, and the module's forward with masks, which transformers use. */
#ifndef TT_NN_MULTIHEAD_ATTENTION_H
#define TT_NN_MULTIHEAD_ATTENTION_H

#include <tutti/nn.h>

/* Run the module: tt_multihead_attention()'s work. `who` is the class that errors name. */
tt_tensor *tt__multihead_attention_run(const char *who, tt_module *module, const tt_multihead_attention_args *a);

#endif
