/* The one summation order.
 *
 * With p the largest power of two not above n, the first 2(n-p) ranks fold in adjacent pairs; that leaves p units, which a balanced
 * tree joins, adjacent ones first. n = 3: (r0+r1)+r2. n = 5: ((r0+r1)+r2)+(r3+r4). An average scales each rank's own element
 * while reading it, before anything is added.
 *
 * Long buffers go block by block, so that what is between the leaves and the root stays in the first-level cache. Units are visited from
 * left to right with a stack of what is not yet joined, as a binary counter carries: after unit u, as many joins as u has trailing ones. */
#include "comm/reduce_tree.h"

#include "comm/pair_kernels.h"

#include <string.h>

enum { BLOCK_BYTES = 4096, MAX_DEPTH = 8 };

typedef struct operand {
    const unsigned char *data;
    bool leaf; /* a rank's own elements: not yet scaled */
} operand;

typedef struct tree {
    const tt__pair_kernel *kernels; /* of the dtype, by tt__pair_op */
    tt_reduce_op op;
    double scale;
    size_t count; /* of this block */
    unsigned char (*scratch)[BLOCK_BYTES];
} tree;

static tt__pair_op pair_op(tt_reduce_op op, bool left_leaf, bool right_leaf) {
    switch (op) {
    case TT_PRODUCT:
        return TT__PAIR_PRODUCT;
    case TT_MIN:
        return TT__PAIR_MIN;
    case TT_MAX:
        return TT__PAIR_MAX;
    case TT_AVG: /* folded pairs come first, so no leaf has a joined operand on its right */
        return left_leaf ? TT__PAIR_AVG_LEAVES : right_leaf ? TT__PAIR_AVG_RIGHT : TT__PAIR_SUM;
    default:
        return TT__PAIR_SUM;
    }
}

/* Join two operands into scratch block `at`, which may hold either. */
static operand join(const tree *t, int at, operand left, operand right) {
    tt__pair_op op = pair_op(t->op, left.leaf, right.leaf);
    t->kernels[op].pair(t->scratch[at], left.data, right.data, t->count, t->scale);
    return (operand){t->scratch[at], false};
}

/* src[r] (n ranks), read from byte `offset` on. */
static const unsigned char *reduce_block(const tree *t, const void *const *src, int n, size_t offset) {
    operand stack[MAX_DEPTH];
    int p = 1, top = 0;
    while (2 * p <= n)
        p *= 2;
    int folded = n - p;
    for (int unit = 0; unit < p; unit++) {
        int r = unit < folded ? 2 * unit : unit + folded;
        operand x = {(const unsigned char *)src[r] + offset, true};
        if (unit < folded)
            x = join(t, top, x, (operand){(const unsigned char *)src[r + 1] + offset, true});
        for (int carry = unit; carry & 1; carry >>= 1) {
            top--;
            x = join(t, top, stack[top], x);
        }
        stack[top++] = x;
    }
    return stack[0].data;
}

static void reduce_two(const tree *t, void *const *dst, int dsts, const void *const *src) {
    const tt__pair_kernel *kernel = &t->kernels[pair_op(t->op, true, true)];
    if (dsts == 2 && dst[0] == src[0] && dst[1] == src[1]) {
        kernel->pair_both(dst[0], dst[1], t->count, t->scale);
        return;
    }
    kernel->pair(dst[0], src[0], src[1], t->count, t->scale);
}

void tt__reduce_tree(void *const *dst, int dsts, const void *const *src, int n, size_t count, tt_dtype dtype,
                     tt_reduce_op op) {
    _Alignas(64) unsigned char scratch[MAX_DEPTH][BLOCK_BYTES];
    size_t size = tt_dtype_size(dtype), block = BLOCK_BYTES / size;
    tree t = {TT__LEVEL_CHOOSE(tt__pair_kernels)->of[dtype], op, 1.0 / n, count, scratch};
    if (n == 2 && (dsts == 1 || (dst[0] == src[0] && dst[1] == src[1]))) {
        reduce_two(&t, dst, dsts, src);
        return;
    }
    for (size_t i = 0; i < count; i += block) {
        t.count = count - i < block ? count - i : block;
        const unsigned char *sum = reduce_block(&t, src, n, i * size);
        for (int d = 0; d < dsts; d++)
            if ((unsigned char *)dst[d] + i * size != sum)
                memcpy((unsigned char *)dst[d] + i * size, sum, t.count * size);
    }
}
