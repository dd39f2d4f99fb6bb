/* y = x / (1 - p) where an element is kept, else 0    dx = g / (1 - p) where it was, else 0
 * Which are kept is computed again in backward, from the key: no mask is stored. */
#include "autograd/record.h"

#include "base/args.h"
#include "base/error.h"

static const char who[] = "tt_dropout";

static tt_status dropout_backward(tt_node *node) {
    TT__GIVE_OVER(node, 0, dx, tt__dropout_out(who, dx, tt__grad_of(node, 0), tt__state(node)));
    return TT_OK;
}

static const tt__operator dropout_op = {.name = who, .backward = dropout_backward};

/* With p = 1 nothing is kept: what is below the limit but for one of 2^32 is scaled by 0. */
static tt__dropout draw_key(double p, tt_generator *generator) {
    double limit = p * 0x1p32;
    return (tt__dropout){.key = tt_generator_random64(generator),
                         .limit = limit < 0x1p32 - 1 ? (uint32_t)limit : UINT32_MAX,
                         .scale = p < 1 ? 1 / (1 - p) : 0};
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
    tt__dropout call = draw_key(o.p, o.generator);
    tt_tensor *y = tt__empty_like(who, o.x);
    y = TT__MADE(who, y, tt__dropout_out(who, y, o.x, &call));
    return tt__recorded(&dropout_op, y, TT__INPUTS(o.x), TT__NO_SAVES, TT__STATE(call));
}
