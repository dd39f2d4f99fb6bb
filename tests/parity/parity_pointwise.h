/* Element by element, choices, activations, reductions, softmax. */
#ifndef PARITY_POINTWISE_H
#define PARITY_POINTWISE_H

#include "parity.h"

#define UNARY(name, ...) PARITY(name, tt_##name(in[0]))
#define BINARY(name, formula) PARITY(name, tt_##name(in[0], in[1]))
#include "autograd/operators.def"

PARITY(add_scalar, tt_add_scalar(in[0], NUMBER("number", 0)))
PARITY(pow, tt_pow(in[0], NUMBER("exponent", 1)))
PARITY(clamp, tt_clamp(in[0], NUMBER("min", 0), NUMBER("max", 1)))
PARITY(where, tt_where(in[0], in[1], in[2]))
PARITY(masked_fill, tt_masked_fill(in[0], in[1], NUMBER("value", 0)))
PARITY(leaky_relu, tt_leaky_relu(in[0], NUMBER("negative_slope", 0)))
PARITY(gelu, tt_gelu(in[0], .tanh = INT("tanh", 0) != 0))
PARITY(softmax, tt_softmax(in[0], INT("dim", -1)))

/* dims=0b1011: dimensions 0, 1 and 3. */
static inline tt_dims parity_dims(const parity_call *c) {
    unsigned wanted = (unsigned)parity_int(c, "dims", 0);
    tt_dims dims = {0};
    for (int d = 0; d < TT_MAX_DIMS; d++)
        if (wanted >> d & 1)
            dims.dim[dims.ndim++] = d;
    return dims;
}

PARITY(sum_dim, tt_sum(in[0], .dim = parity_dims(c), .keepdim = INT("keepdim", 0) != 0))
PARITY(mean_dim, tt_mean(in[0], .dim = parity_dims(c), .keepdim = INT("keepdim", 0) != 0))
PARITY(var, tt_var(in[0], NUMBER("correction", 1), .dim = parity_dims(c), .keepdim = INT("keepdim", 0) != 0))
PARITY(norm, tt_norm(in[0], NUMBER("p", 2), .dim = parity_dims(c), .keepdim = INT("keepdim", 0) != 0))

PARITY(amax, tt_amax(in[0], .dim = parity_dims(c), .keepdim = INT("keepdim", 0) != 0))
PARITY(amin, tt_amin(in[0], .dim = parity_dims(c), .keepdim = INT("keepdim", 0) != 0))

static void parity_max(parity_call *c) {
    tt_tensor *indices = NULL;
    parity_give(c, tt_max(c->in[0], .dim = TT_DIMS(INT("dim", 0)), .indices = &indices));
    parity_give(c, indices);
}
PARITY_OP(max)

static void parity_min(parity_call *c) {
    tt_tensor *indices = NULL;
    parity_give(c, tt_min(c->in[0], .dim = TT_DIMS(INT("dim", 0)), .indices = &indices));
    parity_give(c, indices);
}
PARITY_OP(min)

#endif
