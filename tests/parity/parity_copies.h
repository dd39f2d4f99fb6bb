/* Views of other kinds, copies, conversions, operators in place. */
#ifndef PARITY_COPIES_H
#define PARITY_COPIES_H

#include "parity.h"

enum { PARITY_PIECES = 32 };

static const tt_dtype parity_conversions[] = {TT_F64, TT_F16, TT_BF16, TT_I8, TT_I16, TT_I32, TT_I64, TT_U8, TT_BOOL};

/* The first `count` pieces in the opposite order. */
static inline void parity_reverse(tt_tensor **piece, int count) {
    for (int i = 0; i < count / 2; i++) {
        tt_tensor *other = piece[count - 1 - i];
        piece[count - 1 - i] = piece[i];
        piece[i] = other;
    }
}

static void parity_split(parity_call *c) {
    tt_tensor *piece[PARITY_PIECES] = {NULL};
    int count = INT("count", 1), dim = INT("dim", 0);
    tt_ignore(count <= PARITY_PIECES ? tt_split(piece, count, c->in[0], INT("size", 1), dim) : TT_OK);
    parity_reverse(piece, count);
    parity_give(c, tt_cat(piece, count, dim));
}
PARITY_OP(split)

static void parity_chunk(parity_call *c) {
    tt_tensor *piece[PARITY_PIECES] = {NULL};
    int count = INT("count", 1), dim = INT("dim", 0);
    tt_ignore(count <= PARITY_PIECES ? tt_chunk(piece, count, c->in[0], dim) : TT_OK);
    parity_reverse(piece, count);
    parity_give(c, tt_cat(piece, count, dim));
}
PARITY_OP(chunk)

static void parity_unbind(parity_call *c) {
    tt_tensor *piece[PARITY_PIECES] = {NULL};
    int count = INT("count", 1);
    tt_ignore(count <= PARITY_PIECES ? tt_unbind(piece, count, c->in[0], INT("dim", 0)) : TT_OK);
    parity_reverse(piece, count);
    parity_give(c, tt_stack(piece, count, 0));
}
PARITY_OP(unbind)

static void parity_copy(parity_call *c) { parity_give(c, tt_copy(c->in[0], c->in[1]) ? NULL : c->in[0]); }
PARITY_OP(copy)

PARITY(view, tt_view(tt_contiguous(in[0]), parity_shape(c, "size", INT("ndim", 0))))
PARITY(reshape, tt_reshape(in[0], parity_shape(c, "size", INT("ndim", 0))))
PARITY(movedim, tt_movedim(in[0], INT("source", 0), INT("destination", 0)))
PARITY(squeeze, tt_squeeze(in[0], INT("dim", 0)))
PARITY(squeeze_all, tt_squeeze_all(in[0]))
PARITY(contiguous, tt_contiguous(in[0]))
PARITY(clone, tt_clone(in[0]))
PARITY(to_memory_format, tt_to_memory_format(in[0], parity_bool(c, "channels_last") ? TT_CHANNELS_LAST : TT_CONTIGUOUS))
PARITY(to, tt_to(tt_to(in[0], parity_conversions[INT("dtype", 0)]), tt_tensor_dtype(in[0])))
PARITY(add_, tt_add_(tt_clone(in[0]), in[1]))
PARITY(sub_, tt_sub_(tt_clone(in[0]), in[1]))
PARITY(mul_, tt_mul_(tt_clone(in[0]), in[1]))
PARITY(div_, tt_div_(tt_clone(in[0]), in[1]))
PARITY(scale_, tt_scale_(tt_clone(in[0]), NUMBER("factor", 1)))
PARITY(relu_, tt_relu_(tt_clone(in[0])))
PARITY(fill_, tt_fill_(tt_clone(in[0]), NUMBER("value", 0)))
PARITY(zero_, tt_zero_(tt_clone(in[0])))

#endif
