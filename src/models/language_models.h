/* The models that write texts, and how they are known. */
#ifndef TT_MODELS_LANGUAGE_MODELS_H
#define TT_MODELS_LANGUAGE_MODELS_H

#include "models/causal_lm.h"

/* What their modules are made with; tt_module_user() is a tt__causal_lm. */
extern const tt_module_class tt__gpt_class, tt__gpt2_class;

/* The language model that a module is, also inside a wrapper; NULL and TT_ERR_INVALID if it is none. */
tt__causal_lm *tt__causal_lm_of(const char *who, const tt_module *model);

#endif
