/* Collectives that reduce: all types, all ops. */
#include "conformance.h"
#ifdef CONFORMANCE_ON_DEVICE
#include "on_device.h"
#endif

/* In elements: none, one, odd, a prime number of several cache lines. */
static const size_t counts[] = {0, 1, 7, 331};
enum { COUNTS = sizeof counts / sizeof *counts, LARGE = 75001 };

typedef void (*case_fn)(ctx *c, size_t count, tt_dtype dtype, tt_reduce_op op);

/* The cases of one collective: every type and op at small counts; large ones, whose paths don't look at type and op, of
 * three types in all kinds of memory, synchronously and not. */
static void run_cases(ctx *c, case_fn run, size_t parts) {
    for (int dtype = TT_F32; dtype <= TT_BOOL; dtype++)
        for (int op = TT_SUM; op <= TT_PREMUL_SUM; op++)
            for (int n = 0; n < COUNTS && is_allowed((tt_dtype)dtype, (tt_reduce_op)op); n++) {
                next_case(c);
                run(c, counts[n], (tt_dtype)dtype, (tt_reduce_op)op);
            }
    for (int i = 0; i < 2 * KINDS; i++) {
        next_case(c);
        c->kind = i % KINDS;
        c->async = i / KINDS;
        run(c, LARGE / parts, TT_F32, TT_AVG);
        if (i % 4 == 0) {
            run(c, LARGE / parts, TT_BF16, TT_SUM);
            run(c, LARGE / parts, TT_I8, TT_MAX);
        }
    }
}

/* This rank's input, and of the others' what it checks: elements from `from` on. */
static void make_inputs(ctx *c, size_t count, size_t from, size_t checked, tt_dtype dtype, tt_reduce_op op) {
    for (int r = 0; r < c->world; r++)
        fill(c->inputs[r], r == c->rank ? 0 : from, r == c->rank ? count : checked, dtype, op, r, c->cases);
}

static void all_reduce(ctx *c, size_t count, tt_dtype dtype, tt_reduce_op op) {
    void *buf = buffer(c, 0);
    make_inputs(c, count, 0, count, dtype, op);
    memcpy(buf, c->inputs[c->rank], count * tt_dtype_size(dtype));
    CALL(c, tt_all_reduce, c->group, buf, count, dtype, op, .factor = factor_of(c->rank));
    CHECK(matches(buf, c->inputs, c->world, 0, count, dtype, op, c->native));
}

static void reduce(ctx *c, size_t count, tt_dtype dtype, tt_reduce_op op) {
    void *buf = buffer(c, 0);
    int root = (int)(c->cases % (unsigned)c->world);
    make_inputs(c, count, 0, c->rank == root ? count : 0, dtype, op);
    memcpy(buf, c->inputs[c->rank], count * tt_dtype_size(dtype));
    CALL(c, tt_reduce, c->group, buf, count, dtype, op, root, .factor = factor_of(c->rank));
    if (c->rank == root)
        CHECK(matches(buf, c->inputs, c->world, 0, count, dtype, op, c->native));
    else
        CHECK(!memcmp(buf, c->inputs[c->rank], count * tt_dtype_size(dtype)));
}

static void reduce_scatter(ctx *c, size_t count, tt_dtype dtype, tt_reduce_op op) {
    size_t part = count * tt_dtype_size(dtype);
    unsigned char *send = buffer(c, 0), *recv = buffer(c, 1);
    if (c->cases % 4 == 3)
        recv = send + (size_t)c->rank * part;
    make_inputs(c, count * (size_t)c->world, count * (size_t)c->rank, count, dtype, op);
    memcpy(send, c->inputs[c->rank], part * (size_t)c->world);
    CALL(c, tt_reduce_scatter, c->group, send, recv, count, dtype, op, .factor = factor_of(c->rank));
    CHECK(matches(recv, c->inputs, c->world, count * (size_t)c->rank, count, dtype, op, c->native));
    for (int r = 0; r < c->world; r++) /* all but the part in place is as it was */
        if (r != c->rank)
            CHECK(!memcmp(send + (size_t)r * part, c->inputs[c->rank] + (size_t)r * part, part));
}

void test_all_reduce(ctx *c) { run_cases(c, all_reduce, 1); }
void test_reduce(ctx *c) { run_cases(c, reduce, 1); }
void test_reduce_scatter(ctx *c) { run_cases(c, reduce_scatter, (size_t)c->world); }

/* Several arrays at once; one of them is empty. */
void test_coalesced(ctx *c) {
    static const int64_t sizes[] = {5, 0, 1031, 1, 20011};
    enum { ARRAYS = sizeof sizes / sizeof *sizes };
    static const tt_dtype dtypes[] = {TT_F32, TT_F16, TT_I64, TT_BOOL};
    for (int i = 0; i < 8; i++) {
        tt_dtype dtype = dtypes[i % 4];
        tt_reduce_op op = dtype == TT_BOOL ? TT_SUM : TT_AVG;
        size_t element = tt_dtype_size(dtype), at = 0;
        void *bufs[ARRAYS];
        next_case(c);
        make_inputs(c, 30000, 0, 30000, dtype, op);
        memcpy(buffer(c, 0), c->inputs[c->rank], 30000 * element);
        for (int a = 0; a < ARRAYS; at += (size_t)sizes[a++])
            bufs[a] = (unsigned char *)buffer(c, 0) + at * element;
        CALL(c, tt_all_reduce_coalesced, c->group, bufs, sizes, ARRAYS, dtype, op);
        at = 0;
        for (int a = 0; a < ARRAYS; at += (size_t)sizes[a++])
            CHECK(matches(bufs[a], c->inputs, c->world, at, (size_t)sizes[a], dtype, op, c->native));
    }
}
