/* y = x / (1 - p) where an element is kept, else 0    dx = g / (1 - p) where it was, else 0
 * Which are kept is computed again in backward, from the key: no mask is stored. */
#include "autograd/record.h"

#include "base/args.h"
#include "base/error.h"
#include "tensor/device/capture.h"

static const char who[] = "tt_dropout";

static tt_status dropout_backward(tt_node *node) {
    TT__GIVE_OVER(node, 0, dx, tt__dropout_out(who, dx, tt__grad_of(node, 0), tt__state(node)));
    return TT_OK;
}

static const tt__operator dropout_op = {.name = who, .backward = dropout_backward};

/* Each replay draws, as each call would. */
static void give_key(const tt__graph_source *source, uint64_t *words) {
    *words = tt_generator_random64(source->object);
}

static tt_status choose_key(tt__dropout *call, const tt_tensor *x, tt_generator *generator) {
    tt__graph *graph = tt__capturing(tt__device_of(x));
    const void *at = NULL;
    if (!graph) {
        call->key = tt_generator_random64(generator);
        return TT_OK;
    }
    const tt__graph_source source = {.object = generator, .words = 1, .give = give_key};
    TT__TRY(tt__graph_add(graph, &source, &at));
    call->key_at = at;
    return TT_OK;
}

/* With p = 1 nothing is kept: what is below the limit but for one of 2^32 is scaled by 0. */
static tt__dropout dropout_of(double p) {
    double limit = p * 0x1p32;
    return (tt__dropout){.limit = limit < 0x1p32 - 1 ? (uint32_t)limit : UINT32_MAX, .scale = p < 1 ? 1 / (1 - p) : 0};
}

tt_tensor *tt_dropout_with(const tt_dropout_args *args, size_t size) {
    tt_dropout_args o;
    TT__ARGS_COPY(o, args, size);
    if (!o.x || !TT__CHECK_FLOATS(who, {"x", o.x}))
        return NULL;
    if (!(o.p >= 0 && o.p <= 1))
        return tt__tensor_fail(TT_ERR_INVALID, "%s: expected a probability p in 0..1, got %g", who, o.p);
    if (!o.training || o.p == 0)
        return o.x;
    tt__dropout call = dropout_of(o.p);
    if (choose_key(&call, o.x, o.generator))
        return tt__tensor_fail(tt_last_status(), "%s: %s", who, tt_last_error());
    tt_tensor *y = tt__empty_like(who, o.x);
    y = TT__MADE(who, y, tt__dropout_out(who, y, o.x, &call));
    return tt__recorded(&dropout_op, y, TT__INPUTS(o.x), TT__NO_SAVES, TT__STATE(call));
}
