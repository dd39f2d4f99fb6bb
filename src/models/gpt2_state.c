/* State dicts of GPT-2 as they are found: published files have neither the leading "transformer." nor the head, which
 * is the table of tokens, and masks of attention among the tensors. */
#include "base/text/parse.h"
#include "models/gpt2.h"
#include "models/language_models.h"
#include "nn/module.h"

#include <stdlib.h>
#include <string.h>

static const char who[] = "tt_model_gpt2_load_state_dict";
static const char head_name[] = "lm_head.weight";

/* A state as the model has it. */
typedef struct gpt2_state {
    int64_t count;
    const char **names;
    tt_tensor **tensors;
} gpt2_state;

static bool is_mask(const char *name) {
    return tt__ends_with(name, ".attn.bias") || tt__ends_with(name, ".attn.masked_bias");
}

/* Is `name` this one, with or without "transformer." or what PyTorch's DDP puts before it? */
static bool is_named(const char *name, const char *end) {
    size_t n = strlen(name), m = strlen(end);
    return n >= m && !strcmp(name + n - m, end) && (n == m || name[n - m - 1] == '.');
}

static bool is_float(tt_dtype dtype) {
    return dtype == TT_F32 || dtype == TT_F64 || dtype == TT_F16 || dtype == TT_BF16;
}

/* Add a tensor, floats of another type converted to the model's. */
static tt_status gpt2_take_tensor(gpt2_state *s, const char *name, tt_tensor *x, tt_dtype dtype) {
    bool convert = is_float(tt_tensor_dtype(x)) && tt_tensor_dtype(x) != dtype;
    s->names[s->count] = name;
    s->tensors[s->count] = convert ? tt_to(x, dtype) : x;
    return s->tensors[s->count++] ? TT_OK : tt_last_status();
}

/* Take all but masks. A head that is missing is the table of tokens, if it is that in the model. */
static tt_status gpt2_take_state(gpt2_state *s, const tt_named_tensors *state, tt_dtype dtype, bool tied) {
    tt_tensor *tokens = NULL;
    bool head = false;
    for (int64_t i = 0; i < state->count; i++) {
        if (is_mask(state->names[i]))
            continue;
        TT__TRY(gpt2_take_tensor(s, state->names[i], state->tensors[i], dtype));
        head = head || is_named(state->names[i], head_name);
        if (is_named(state->names[i], "wte.weight"))
            tokens = s->tensors[s->count - 1];
    }
    return tokens && tied && !head ? gpt2_take_tensor(s, head_name, tokens, dtype) : TT_OK;
}

static tt_status load_taken(tt_module *model, const gpt2_state *s) {
    const tt_named_tensors list = {sizeof list, s->count, s->names, s->tensors};
    const tt_rename renames[] = {{"transformer.", "transformer."}, {"lm_head.", "lm_head."}, {"", "transformer."}};
    return tt_module_load_state_dict(model, &list, .renames = renames, .rename_count = 3);
}

/* Does the list have names and tensors? */
static tt_status list_check(const tt_named_tensors *state) {
    bool good = state && state->size >= sizeof *state && state->count >= 0 &&
                (!state->count || (state->names && state->tensors));
    for (int64_t i = 0; good && i < state->count; i++)
        good = state->names[i] && state->tensors[i];
    return good ? TT_OK : tt__fail_argument("%s: expected a list of tensors with names", who);
}

tt_status tt_model_gpt2_load_state_dict(tt_module *model, const tt_named_tensors *state) {
    const tt__causal_lm *lm = tt__causal_lm_of(who, model);
    if (!lm)
        return tt_last_status();
    if (tt__module_class(tt__module_unwrapped(model)) != &tt__gpt2_class)
        return tt__fail(TT_ERR_INVALID, "%s: expected a model of tt_model_gpt2(), got a %s", who,
                        tt_module_class_name(tt__module_unwrapped(model)));
    TT__TRY(list_check(state));
    TT_AUTO_SCOPE; /* of what is converted */
    gpt2_state s = {.names = calloc((size_t)state->count + 1, sizeof *s.names),
                    .tensors = calloc((size_t)state->count + 1, sizeof *s.tensors)};
    bool no_grad = tt_no_grad_begin(), tied = !tt_named_tensors_find(tt_module_parameters(model), head_name);
    tt_status status = TT_ERR_MEMORY;
    if (s.names && s.tensors)
        status = gpt2_take_state(&s, state, tt_tensor_dtype(lm->token_weight), tied);
    else
        tt__fail_null(status, "%s: no memory for %lld names", who, (long long)state->count);
    if (!status)
        status = load_taken(model, &s);
    tt_no_grad_end(no_grad);
    free(s.names);
    free(s.tensors);
    return status;
}
