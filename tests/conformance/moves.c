/* Collectives that only move data. */
#include "conformance.h"
#ifdef CONFORMANCE_ON_DEVICE
#include "on_device.h"
#endif

/* Elements of a part. */
static const size_t counts[] = {0, 1, 7, 1031, 17003};
enum { COUNTS = sizeof counts / sizeof *counts };

static const tt_dtype dtypes[] = {TT_U8, TT_F32, TT_BF16, TT_I64, TT_BOOL};

typedef void (*case_fn)(ctx *c, size_t count, tt_dtype dtype, int root);

/* Counts x roots; the type and the kind of memory change from case to case. */
static void run_cases(ctx *c, case_fn run, bool has_root) {
    for (int n = 0; n < COUNTS; n++)
        for (int root = 0; root < (has_root ? c->world : KINDS); root++) {
            next_case(c);
            tt_dtype dtype = dtypes[c->cases % 5];
            if (counts[n] * tt_dtype_size(dtype) * (size_t)c->world <= MAX_BYTES)
                run(c, counts[n], dtype, root);
        }
}

static void make_input(ctx *c, int r, size_t bytes) { fill_bytes(c->inputs[r], bytes, r, c->cases); }

static void make_inputs(ctx *c, size_t bytes) {
    for (int r = 0; r < c->world; r++)
        make_input(c, r, bytes);
}

static bool same(const void *got, const void *want, size_t bytes) { return !bytes || !memcmp(got, want, bytes); }

static void broadcast(ctx *c, size_t count, tt_dtype dtype, int root) {
    size_t bytes = count * tt_dtype_size(dtype);
    void *buf = buffer(c, 0);
    make_input(c, c->rank, bytes);
    make_input(c, root, bytes);
    memcpy(buf, c->inputs[c->rank], bytes);
    CALL(c, tt_broadcast, c->group, buf, count, dtype, root);
    CHECK(same(buf, c->inputs[root], bytes));
}

/* The part of this rank lies where it belongs, or elsewhere. */
static unsigned char *own_part(ctx *c, unsigned char *whole, size_t at) {
    return c->cases % 4 == 1 ? whole + at : buffer(c, 1);
}

static void all_gather(ctx *c, size_t count, tt_dtype dtype, int root) {
    size_t bytes = count * tt_dtype_size(dtype);
    unsigned char *recv = buffer(c, 0), *send = own_part(c, recv, (size_t)c->rank * bytes);
    (void)root;
    make_inputs(c, bytes);
    memcpy(send, c->inputs[c->rank], bytes);
    CALL(c, tt_all_gather, c->group, send, recv, count, dtype);
    for (int r = 0; r < c->world; r++)
        CHECK(same(recv + (size_t)r * bytes, c->inputs[r], bytes));
}

/* Uneven: rank r has r % 3 times as much; every other time with gaps. */
static void all_gather_v(ctx *c, size_t count, tt_dtype dtype, int root) {
    size_t element = tt_dtype_size(dtype);
    int64_t sizes[MAX_RANKS], offsets[MAX_RANKS], at = 0;
    bool gaps = c->cases % 2;
    unsigned char *recv = buffer(c, 0);
    (void)root;
    for (int r = 0; r < c->world; r++) {
        sizes[r] = (int64_t)count / 3 * (r % 3) + (r == 0);
        offsets[r] = at;
        at += sizes[r] + (gaps ? 5 : 0);
    }
    unsigned char *send = own_part(c, recv, (size_t)offsets[c->rank] * element);
    make_inputs(c, count * element + element);
    memcpy(send, c->inputs[c->rank], (size_t)sizes[c->rank] * element);
    CALL(c, tt_all_gather_v, c->group, send, recv, sizes, gaps ? offsets : NULL, dtype);
    for (int r = 0; r < c->world; r++)
        CHECK(same(recv + (size_t)offsets[r] * element, c->inputs[r], (size_t)sizes[r] * element));
}

static void gather(ctx *c, size_t count, tt_dtype dtype, int root) {
    size_t bytes = count * tt_dtype_size(dtype);
    bool is_root = c->rank == root;
    unsigned char *recv = is_root ? buffer(c, 0) : NULL;
    unsigned char *send = is_root ? own_part(c, recv, (size_t)c->rank * bytes) : buffer(c, 1);
    for (int r = 0; r < c->world; r++)
        if (is_root || r == c->rank)
            make_input(c, r, bytes);
    memcpy(send, c->inputs[c->rank], bytes);
    CALL(c, tt_gather, c->group, send, recv, count, dtype, root);
    for (int r = 0; r < c->world && is_root; r++)
        CHECK(same(recv + (size_t)r * bytes, c->inputs[r], bytes));
}

static void scatter(ctx *c, size_t count, tt_dtype dtype, int root) {
    size_t bytes = count * tt_dtype_size(dtype);
    bool is_root = c->rank == root;
    unsigned char *send = is_root ? buffer(c, 0) : NULL;
    unsigned char *recv = is_root ? own_part(c, send, (size_t)c->rank * bytes) : buffer(c, 1);
    make_input(c, root, bytes * (size_t)c->world);
    if (is_root)
        memcpy(send, c->inputs[root], bytes * (size_t)c->world);
    CALL(c, tt_scatter, c->group, send, recv, count, dtype, root);
    CHECK(same(recv, c->inputs[root] + (size_t)c->rank * bytes, bytes));
}

static void all_to_all(ctx *c, size_t count, tt_dtype dtype, int root) {
    size_t bytes = count * tt_dtype_size(dtype);
    unsigned char *send = buffer(c, 0), *recv = buffer(c, 1);
    (void)root;
    make_inputs(c, bytes * (size_t)c->world);
    memcpy(send, c->inputs[c->rank], bytes * (size_t)c->world);
    CALL(c, tt_all_to_all, c->group, send, recv, count, dtype);
    for (int r = 0; r < c->world; r++)
        CHECK(same(recv + (size_t)r * bytes, c->inputs[r] + (size_t)c->rank * bytes, bytes));
}

/* Rank a sends to rank b: nothing, some, or twice as much. */
static int64_t share(int a, int b, size_t count) { return (int64_t)count / 2 * ((a + 2 * b) % 3); }

static void all_to_all_v(ctx *c, size_t count, tt_dtype dtype, int root) {
    size_t element = tt_dtype_size(dtype);
    int64_t out[MAX_RANKS], in[MAX_RANKS], from[MAX_RANKS], to[MAX_RANKS];
    int64_t sent = 0, received = 0;
    bool gaps = c->cases % 2;
    unsigned char *send = buffer(c, 0), *recv = buffer(c, 1);
    (void)root;
    for (int r = 0; r < c->world; r++) {
        out[r] = share(c->rank, r, count);
        in[r] = share(r, c->rank, count);
        from[r] = sent;
        to[r] = received;
        sent += out[r] + (gaps ? 3 : 0);
        received += in[r] + (gaps ? 1 : 0);
    }
    make_inputs(c, (count + 3) * element * (size_t)c->world);
    memcpy(send, c->inputs[c->rank], (size_t)sent * element);
    CALL(c, tt_all_to_all_v, c->group, send, out, gaps ? from : NULL, recv, in, gaps ? to : NULL, dtype);
    for (int r = 0; r < c->world; r++) {
        int64_t at = 0; /* of rank r's part for this one, in its buffer */
        for (int b = 0; b < c->rank; b++)
            at += share(r, b, count) + (gaps ? 3 : 0);
        CHECK(same(recv + (size_t)to[r] * element, c->inputs[r] + (size_t)at * element, (size_t)in[r] * element));
    }
}

void test_broadcast(ctx *c) { run_cases(c, broadcast, true); }
void test_all_gather(ctx *c) { run_cases(c, all_gather, false); }
void test_all_gather_v(ctx *c) { run_cases(c, all_gather_v, false); }
void test_gather(ctx *c) { run_cases(c, gather, true); }
void test_scatter(ctx *c) { run_cases(c, scatter, true); }
void test_all_to_all(ctx *c) { run_cases(c, all_to_all, false); }
void test_all_to_all_v(ctx *c) { run_cases(c, all_to_all_v, false); }
