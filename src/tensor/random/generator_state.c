/* Where a generator stands, as a tensor: its words, the next one, and the normal value that waits. */
#include "base/error.h"
#include "tensor/core/tensor.h"
#include "tensor/random/generator.h"

#include <string.h>

enum { NEXT = TT__MT_WORDS, HAS_CACHED, CACHED, STATE_SIZE };

static tt_generator *state_owner(tt_generator *g) { return g ? g : tt_default_generator(); }

tt_tensor *tt_generator_get_state(tt_generator *generator) {
    const tt_generator *g = state_owner(generator);
    tt_tensor *x = g ? tt__tensor_new("tt_generator_get_state", TT_SHAPE(STATE_SIZE), TT_I64) : NULL;
    if (!x)
        return NULL;
    int64_t *state = tt_tensor_data(x);
    for (int i = 0; i < TT__MT_WORDS; i++)
        state[i] = g->mt[i];
    state[NEXT] = g->next;
    state[HAS_CACHED] = g->has_cached;
    memcpy(&state[CACHED], &g->cached_normal, sizeof g->cached_normal);
    return x;
}

static tt_status generator_state_check(const tt_tensor *x) {
    static const char who[] = "tt_generator_set_state";
    if (!x)
        return tt__fail_argument("%s: the state is NULL", who);
    if (x->dtype != TT_I64)
        return tt__fail(TT_ERR_DTYPE, "%s: expected i64, got %s", who, TT__DESCRIBE(x));
    if (x->shape.ndim != 1 || x->numel != STATE_SIZE)
        return tt__fail(TT_ERR_SHAPE, "%s: expected %d numbers, got %s", who, STATE_SIZE, TT__DESCRIBE(x));
    if (!x->contiguous || !tt__device_is_host(tt__device_of(x)))
        return tt__fail(TT_ERR_INVALID, "%s: expected a contiguous tensor of the host, got %s", who, TT__DESCRIBE(x));
    const int64_t *state = x->data;
    for (int i = 0; i < TT__MT_WORDS; i++)
        if (state[i] < 0 || state[i] > UINT32_MAX)
            return tt__fail(TT_ERR_INVALID, "%s: word %d is no number of 32 bits", who, i);
    if (state[NEXT] < 0 || state[NEXT] > TT__MT_WORDS || (state[HAS_CACHED] | 1) != 1)
        return tt__fail(TT_ERR_INVALID, "%s: this is no generator's state", who);
    return TT_OK;
}

tt_status tt_generator_set_state(tt_generator *generator, const tt_tensor *state) {
    TT__TRY(generator_state_check(state));
    tt_generator *g = state_owner(generator);
    const int64_t *from = state->data;
    if (!g)
        return tt_last_status();
    for (int i = 0; i < TT__MT_WORDS; i++)
        g->mt[i] = (uint32_t)from[i];
    g->next = (int)from[NEXT];
    g->has_cached = from[HAS_CACHED] != 0;
    memcpy(&g->cached_normal, &from[CACHED], sizeof g->cached_normal);
    return TT_OK;
}
