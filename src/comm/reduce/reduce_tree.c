/* The one summation order. Every algorithm follows it, so a result depends on ranks, count and type alone, and not on
 * the transport or the timing.
 *
 * With p the largest power of two not above n, the first 2(n-p) ranks fold in adjacent pairs; that leaves p units,
 * which a balanced tree joins, adjacent ones first. n = 3: (r0+r1)+r2. n = 5: ((r0+r1)+r2)+(r3+r4). An average, and a
 * sum with factors, scales each rank's own elements while reading them, before anything is added. f16 and bf16 are
 * widened while read and rounded after the last join. An average of integers is their sum, divided after the last join.
 *
 * Long buffers go block by block, so that partials stay in the first-level cache. Units are visited from left to right
 * with a stack of partials not yet joined, as a binary counter carries: after unit u, as many joins as u has trailing
 * ones. */
#include "comm/reduce/reduce_tree.h"

#include "comm/reduce/pair_kernels.h"

#include <string.h>

/* The stack holds at most log2(n) + 1 operands, and a fold needs room for one more: blocks of more ranks are smaller,
 * so that they take no more of a small stack. */
enum { FEW = 16, FEW_DEPTH = 6, BLOCK_BYTES = 4096, MAX_DEPTH = 12, SCRATCH_BYTES = FEW_DEPTH * BLOCK_BYTES };

typedef struct operand {
    const unsigned char *data;
    bool leaf;    /* still to be multiplied by `scale` */
    double scale; /* of a leaf */
} operand;

typedef struct tree {
    const tt__pair_kernels *kernels;
    const tt__pair_kernel *joins; /* of the partials' type, by tt__pair_op */
    tt_dtype dtype;
    tt__pair_op op;
    bool scaled, wide;      /* leaves are multiplied; partials are f32, elements 16-bit */
    double scale;           /* of all leaves; unused if there are `factors` */
    const double *factors;  /* (n) of each leaf, or NULL */
    int divisor;            /* of the result */
    size_t count;           /* of this block */
    unsigned char *scratch; /* blocks of `block` bytes, for partials */
    size_t block;
} tree;

static const tt__pair_op pair_ops[] = {
    [TT_SUM] = TT__PAIR_SUM, [TT_AVG] = TT__PAIR_SUM,  [TT_PRODUCT] = TT__PAIR_PRODUCT,
    [TT_MIN] = TT__PAIR_MIN, [TT_MAX] = TT__PAIR_MAX,  [TT_BAND] = TT__PAIR_AND,
    [TT_BOR] = TT__PAIR_OR,  [TT_BXOR] = TT__PAIR_XOR, [TT_PREMUL_SUM] = TT__PAIR_SUM};

static bool tree_sum_is_float(tt_dtype dtype) { return dtype == TT_F32 || dtype == TT_F64 || tt__is_half(dtype); }

tt_dtype tt__partial_dtype(tt_dtype dtype) { return tt__is_half(dtype) ? TT_F32 : dtype; }

double tt__leaf_scale(tt_dtype dtype, tt_reduce_op op, int n, double factor) {
    return op == TT_AVG && tree_sum_is_float(dtype) ? 1.0 / n : op == TT_PREMUL_SUM ? factor : 1;
}

int tt__root_divisor(tt_dtype dtype, tt_reduce_op op, int n) {
    return op == TT_AVG && !tree_sum_is_float(dtype) ? n : 1;
}

/* Divide each element, an int at least: C's division rounds towards zero. */
#define DIVIDE(type)                   \
    for (size_t i = 0; i < count; i++) \
    ((type *)dst)[i] = (type)(((const type *)src)[i] / divisor)

/* dst (count integers) := src / divisor. dst may be src. */
static void divide(void *dst, const void *src, size_t count, tt_dtype dtype, int divisor) {
    switch (dtype) {
    case TT_I64:
        DIVIDE(int64_t);
        break;
    case TT_I32:
        DIVIDE(int32_t);
        break;
    case TT_I16:
        DIVIDE(int16_t);
        break;
    case TT_I8:
        DIVIDE(int8_t);
        break;
    default:
        DIVIDE(uint8_t);
    }
}

const char *tt__reduce_refusal(tt_dtype dtype, tt_reduce_op op) {
    if (op == TT_AVG && dtype == TT_BOOL)
        return "bools have no average";
    if (op == TT_PREMUL_SUM && !tree_sum_is_float(dtype))
        return "elements are multiplied with a factor only where they are floats";
    if ((op == TT_BAND || op == TT_BOR || op == TT_BXOR) && tree_sum_is_float(dtype))
        return "bitwise operations are for integers and bools";
    return NULL;
}

static size_t block_bytes(int n) { return n <= FEW ? BLOCK_BYTES : SCRATCH_BYTES / MAX_DEPTH; }

static unsigned char *scratch_at(const tree *t, int at) { return t->scratch + (size_t)at * t->block; }

static operand leaf_of(const tree *t, int r, const void *const *src, size_t offset, int at) {
    double scale = t->factors ? t->factors[r] : t->scale;
    operand x = {(const unsigned char *)src[r] + offset, t->scaled && !t->wide, scale};
    if (t->wide) {
        t->kernels->leaf[t->dtype](scratch_at(t, at), x.data, t->count, scale);
        x.data = scratch_at(t, at);
    }
    return x;
}

/* Choose the kernel by its operands. Folded pairs come first, so no leaf has a joined operand on its right. */
static const tt__pair_kernel *kernel_for(const tree *t, const operand *left, const operand *right) {
    return &t->joins[left->leaf ? TT__PAIR_SCALE_BOTH : right->leaf ? TT__PAIR_SCALE_RIGHT : t->op];
}

/* Join two operands into scratch block `at`, which may hold either. */
static operand tree_sum_join(const tree *t, int at, operand left, operand right) {
    unsigned char *to = scratch_at(t, at);
    kernel_for(t, &left, &right)->pair(to, left.data, right.data, t->count, left.scale, right.scale);
    return (operand){to, false, 1};
}

/* Reduce a block of src[r] (n ranks), read from byte `offset` on. The result lies at the begin of the scratch memory,
 * or is the only leaf. */
static const unsigned char *reduce_block(const tree *t, const void *const *src, int n, size_t offset) {
    operand stack[MAX_DEPTH];
    int p = 1, top = 0;
    while (2 * p <= n)
        p *= 2;
    int folded = n - p;
    for (int unit = 0; unit < p; unit++) {
        int r = unit < folded ? 2 * unit : unit + folded;
        operand x = leaf_of(t, r, src, offset, top);
        if (unit < folded)
            x = tree_sum_join(t, top, x, leaf_of(t, r + 1, src, offset, top + 1));
        for (int carry = unit; carry & 1; carry >>= 1) {
            top--;
            x = tree_sum_join(t, top, stack[top], x);
        }
        stack[top++] = x;
    }
    return stack[0].data;
}

/* Divide, round or copy a block's result to all destinations. */
static void tree_store(const tree *t, void *const *dst, int dsts, const unsigned char *sum, size_t offset) {
    size_t bytes = t->count * tt_dtype_size(t->dtype);
    if (t->divisor != 1)
        divide(t->scratch, sum, t->count, t->dtype, t->divisor);
    for (int d = 0; d < dsts; d++) {
        unsigned char *to = (unsigned char *)dst[d] + offset;
        if (t->wide)
            t->kernels->narrow[t->dtype](to, sum, t->count);
        else if (to != sum)
            memcpy(to, sum, bytes);
    }
}

/* Reduce one leaf. Its elements change only if they are scaled, or bools. */
static void reduce_one(const tree *t, void *const *dst, int dsts, const void *src, size_t count) {
    size_t size = tt_dtype_size(t->dtype), block = BLOCK_BYTES / 4;
    for (size_t i = 0; i < count; i += block) {
        size_t n = count - i < block ? count - i : block;
        const unsigned char *from = (const unsigned char *)src + i * size;
        if (t->kernels->leaf[t->dtype] && (t->scaled || t->dtype == TT_BOOL)) {
            t->kernels->leaf[t->dtype](t->scratch, from, n, t->factors ? t->factors[0] : t->scale);
            from = t->scratch;
        }
        for (int d = 0; d < dsts; d++) {
            unsigned char *to = (unsigned char *)dst[d] + i * size;
            if (from != to && t->scaled && t->wide)
                t->kernels->narrow[t->dtype](to, from, n);
            else if (from != to)
                memcpy(to, from, n * size);
        }
    }
}

static bool is_scaled(tt_dtype dtype, tt_reduce_op op, const double *factors) {
    return (op == TT_AVG && tree_sum_is_float(dtype)) || (op == TT_PREMUL_SUM && factors);
}

static void tree_sum_reduce_many(void *const *dst, int dsts, const void *const *src, const double *factors, int n,
                                 size_t count, tt_dtype dtype, tt_reduce_op op) {
    _Alignas(64) unsigned char scratch[SCRATCH_BYTES];
    const tt__pair_kernels *kernels = TT__LEVEL_CHOOSE(tt__pair_kernels);
    size_t size = tt_dtype_size(dtype), block = block_bytes(n) / tt_dtype_size(tt__partial_dtype(dtype));
    tree t = {.kernels = kernels,
              .joins = kernels->of[tt__partial_dtype(dtype)],
              .dtype = dtype,
              .op = pair_ops[op],
              .scaled = is_scaled(dtype, op, factors),
              .wide = tt__is_half(dtype),
              .scale = tt__leaf_scale(dtype, op, n, 1),
              .factors = op == TT_PREMUL_SUM ? factors : NULL,
              .divisor = tt__root_divisor(dtype, op, n),
              .count = count,
              .scratch = scratch,
              .block = block_bytes(n)};
    if (n == 1) {
        reduce_one(&t, dst, dsts, src[0], count);
        return;
    }
    for (size_t i = 0; i < count; i += block) {
        t.count = count - i < block ? count - i : block;
        tree_store(&t, dst, dsts, reduce_block(&t, src, n, i * size), i * size);
    }
}

/* Reduce two leaves, joined where they lie. */
static void reduce_two(void *const *dst, int dsts, const void *const *src, const double *factors, size_t count,
                       tt_dtype dtype, tt_reduce_op op) {
    bool scaled = is_scaled(dtype, op, factors);
    const tt__pair_kernel *kernel =
        &TT__LEVEL_CHOOSE(tt__pair_kernels)->of[dtype][scaled ? TT__PAIR_SCALE_BOTH : pair_ops[op]];
    double left = op == TT_PREMUL_SUM && factors ? factors[0] : 0.5;
    double right = op == TT_PREMUL_SUM && factors ? factors[1] : 0.5;
    if (dsts == 2)
        kernel->pair_two(dst[0], dst[1], src[0], src[1], count, left, right);
    else
        kernel->pair(dst[0], src[0], src[1], count, left, right);
}

tt__reduce_pair tt__reduce_pair_find(tt_dtype dtype, tt_reduce_op op) {
    tt__pair_op pair = op == TT_AVG ? TT__PAIR_SCALE_BOTH : pair_ops[op];
    const tt__pair_kernel *kernel = &TT__LEVEL_CHOOSE(tt__pair_kernels)->of[dtype][pair];
    return (tt__reduce_pair){kernel->pair, kernel->pair_two};
}

void tt__reduce_tree_scaled(void *const *dst, int dsts, const void *const *src, const double *factors, int n,
                            size_t count, tt_dtype dtype, tt_reduce_op op) {
    if (n == 2 && dsts <= 2 && !tt__is_half(dtype) && tt__root_divisor(dtype, op, n) == 1)
        reduce_two(dst, dsts, src, factors, count, dtype, op);
    else
        tree_sum_reduce_many(dst, dsts, src, factors, n, count, dtype, op);
}

void tt__reduce_tree(void *const *dst, int dsts, const void *const *src, int n, size_t count, tt_dtype dtype,
                     tt_reduce_op op) {
    tt__reduce_tree_scaled(dst, dsts, src, NULL, n, count, dtype, op);
}

void tt__reduce_leaf(void *dst, const void *src, size_t count, tt_dtype dtype, double scale) {
    const tt__pair_kernels *kernels = TT__LEVEL_CHOOSE(tt__pair_kernels);
    if (kernels->leaf[dtype] && (scale != 1 || !(dtype == TT_F32 || dtype == TT_F64)))
        kernels->leaf[dtype](dst, src, count, scale);
    else if (dst != src && count)
        memcpy(dst, src, count * tt_dtype_size(dtype));
}

void tt__reduce_join(void *dst, const void *left, const void *right, size_t count, tt_dtype dtype, tt_reduce_op op) {
    TT__LEVEL_CHOOSE(tt__pair_kernels)->of[tt__partial_dtype(dtype)][pair_ops[op]].pair(dst, left, right, count, 1, 1);
}

void tt__reduce_round(void *dst, const void *src, size_t count, tt_dtype dtype, int divisor) {
    if (divisor != 1)
        divide(dst, src, count, dtype, divisor);
    else if (tt__is_half(dtype))
        TT__LEVEL_CHOOSE(tt__pair_kernels)->narrow[dtype](dst, src, count);
    else if (dst != src && count)
        memcpy(dst, src, count * tt_dtype_size(dtype));
}
