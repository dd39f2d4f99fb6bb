/* Partial results: what ranks exchange where an algorithm joins step by step instead of bringing all ranks' elements,
 * the leaves, to one place.
 *
 * To end with the same bits, leaves are scaled (averages) and widened (f16, bf16 to f32) first, then only joined, and
 * rounded once at the end. */
#ifndef TT_COMM_COLLECTIVE_MESSAGE_PARTIAL_H
#define TT_COMM_COLLECTIVE_MESSAGE_PARTIAL_H

#include <tutti/backend.h>

typedef struct tt__partial {
    tt_dtype from;   /* of the call */
    tt_dtype dtype;  /* of partial results: f32 for f16 and bf16 */
    size_t size;     /* bytes of one */
    tt_reduce_op op; /* that joins two: a sum for averages */
    double scale;    /* of this rank's leaf */
    int divisor;     /* of the end's: an average of integers */
    bool as_is;      /* a leaf is a partial result as it is */
} tt__partial;

/* `ranks`: of the group. */
tt__partial tt__partial_of(const tt_call *call, int ranks);

/* Describe what algorithms send that bring leaves together: the elements as they are, with the call's op. Only the
 * sender knows the factor of a premultiplied sum, and applies it: so that travels as partial results. */
tt__partial tt__wire_of(const tt_call *call, int ranks);

/* dst (count) := this rank's leaf. dst may be leaf where sizes are equal. */
void tt__partial_leaf(const tt__partial *partial, void *dst, const void *leaf, size_t count);

/* dst (count) := left op right. dst may be one of them. */
void tt__partial_join(const tt__partial *partial, void *dst, const void *left, const void *right, size_t count);

/* dst (count) := partial results of all ranks, divided and rounded to the call's type. dst may be src. */
void tt__partial_finish(const tt__partial *partial, void *dst, const void *src, size_t count);

#endif
