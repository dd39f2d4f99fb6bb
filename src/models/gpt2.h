/* GPT-2 before it has values. */
#ifndef TT_MODELS_GPT2_H
#define TT_MODELS_GPT2_H

#include "models/causal_lm.h"

#include <tutti/models.h>

/* Make a model whose matrices are yet to be drawn or loaded; `caller` begins errors. */
tt_module *tt__gpt2_new(const char *caller, const tt_model_gpt2_args *a);

/* Read what a config.json in memory says of a model into `a`, whose other fields stay; `name` stands for the path in
 * errors: TT_ERR_FORMAT no JSON, or not the numbers that are expected; TT_ERR_UNSUPPORTED another kind of model, or an
 * option that is not of GPT-2. */
tt_status tt__gpt2_config_parse(const void *data, size_t size, const char *name, tt_model_gpt2_args *a);

#endif
