/* Conformance of the collectives: all of them, over element types, reduce ops, counts, worlds and kinds of memory,
 * compared bit by bit with a naive reference that sums in the documented order. */
#include "support/ranks.h"

#include "comm/group.h"

#include <math.h>

enum { SYMMETRIC, PLAIN, MIXED, KINDS };

/* Around: nothing, one, a cache line, the inline limit, one staging piece, several. In bytes, rounded to elements. */
static const size_t byte_counts[] = {0, 1, 3 * 8, 56, 4088, 4096, 4104, 10007, 262144, 262152, 1000008};
enum { BYTE_COUNTS = sizeof byte_counts / sizeof *byte_counts, MAX_BYTES = 1000008 };

/* Element i of rank r: small numbers and fractions, so that order matters for floats; a few NaN, infinities and zeros
 * of both signs. */
static double element(int r, size_t i, tt_reduce_op op, tt_dtype dtype) {
    uint32_t x = (uint32_t)(i * 2654435761U) ^ (uint32_t)(r * 40503 + 977);
    x ^= x >> 15;
    x *= 2246822519U;
    x ^= x >> 13;
    if (dtype != TT_F32 && dtype != TT_F64)
        return dtype == TT_U8 ? (double)(x % 256) : (double)(int32_t)x;
    if (x % 97 == 0)
        return op == TT_PRODUCT ? 1.0 : NAN;
    if (x % 89 == 0)
        return x & 1024 ? 0.0 : -0.0;
    return ((double)(x % 100000) - 50000.0) / 3e4;
}

static void fill(void *buf, size_t count, tt_dtype dtype, tt_reduce_op op, int r) {
    for (size_t i = 0; i < count; i++) {
        double x = element(r, i, op, dtype);
        switch (dtype) {
        case TT_F32:
            ((float *)buf)[i] = (float)x;
            break;
        case TT_F64:
            ((double *)buf)[i] = x;
            break;
        case TT_I32:
            ((int32_t *)buf)[i] = (int32_t)x;
            break;
        case TT_I64:
            ((int64_t *)buf)[i] = (int64_t)x * 4294967311LL;
            break;
        case TT_U8:
            ((uint8_t *)buf)[i] = (uint8_t)x;
            break;
        default:
            CHECK(!"an element type of this test");
        }
    }
}

/* The reference: recursion on the definition, one element at a time. Units lo..hi-1 of p, of which the first `folded`
 * are pairs. */
#define REFERENCE(T, U)                                                                                        \
    static T join_##T(T x, T y, tt_reduce_op op) {                                                             \
        switch (op) {                                                                                          \
        case TT_PRODUCT:                                                                                       \
            return (T)((U)x * (U)y);                                                                           \
        case TT_MIN:                                                                                           \
            return x != x ? x : y != y ? y : x < y ? x : y;                                                    \
        case TT_MAX:                                                                                           \
            return x != x ? x : y != y ? y : x > y ? x : y;                                                    \
        default:                                                                                               \
            return (T)((U)x + (U)y);                                                                           \
        }                                                                                                      \
    }                                                                                                          \
    static T leaf_##T(int r, size_t i, int n, tt_reduce_op op, tt_dtype dtype, const void *const *of) {        \
        (void)dtype;                                                                                           \
        T x = ((const T *)of[r])[i];                                                                           \
        return op == TT_AVG ? (T)(x * (T)(1.0 / n)) : x;                                                       \
    }                                                                                                          \
    static T tree_##T(int lo, int hi, int folded, size_t i, int n, tt_reduce_op op, tt_dtype dtype,            \
                      const void *const *of) {                                                                 \
        if (hi - lo > 1) {                                                                                     \
            int middle = lo + (hi - lo) / 2;                                                                   \
            return join_##T(tree_##T(lo, middle, folded, i, n, op, dtype, of),                                 \
                            tree_##T(middle, hi, folded, i, n, op, dtype, of), op);                            \
        }                                                                                                      \
        if (lo >= folded)                                                                                      \
            return leaf_##T(lo + folded, i, n, op, dtype, of);                                                 \
        return join_##T(leaf_##T(2 * lo, i, n, op, dtype, of), leaf_##T(2 * lo + 1, i, n, op, dtype, of), op); \
    }

REFERENCE(float, float)
REFERENCE(double, double)
REFERENCE(int32_t, uint32_t)
REFERENCE(int64_t, uint64_t)
REFERENCE(uint8_t, uint32_t)

static void reference(void *out, const void *const *of, int n, size_t count, tt_dtype dtype, tt_reduce_op op) {
    int p = 1;
    while (2 * p <= n)
        p *= 2;
#define CASE(D, T)                                                      \
    case D:                                                             \
        for (size_t i = 0; i < count; i++)                              \
            ((T *)out)[i] = tree_##T(0, p, n - p, i, n, op, dtype, of); \
        break
    switch (dtype) {
        CASE(TT_F32, float);
        CASE(TT_F64, double);
        CASE(TT_I32, int32_t);
        CASE(TT_I64, int64_t);
        CASE(TT_U8, uint8_t);
    default:
        CHECK(!"an element type of this test");
    }
}

/* Bitwise, but any NaN equals any NaN: which of two comes through depends on operand order alone, which the compiler of
 * the reference may swap. */
static bool same_f32(float x, float y) {
    uint32_t a, b;
    memcpy(&a, &x, sizeof a);
    memcpy(&b, &y, sizeof b);
    return a == b || (isnan(x) && isnan(y));
}

static bool same_f64(double x, double y) {
    uint64_t a, b;
    memcpy(&a, &x, sizeof a);
    memcpy(&b, &y, sizeof b);
    return a == b || (isnan(x) && isnan(y));
}

static bool same(const void *a, const void *b, size_t count, tt_dtype dtype) {
    size_t i = 0;
    if (dtype == TT_F32)
        while (i < count && same_f32(((const float *)a)[i], ((const float *)b)[i]))
            i++;
    else if (dtype == TT_F64)
        while (i < count && same_f64(((const double *)a)[i], ((const double *)b)[i]))
            i++;
    else
        return !memcmp(a, b, count * tt_dtype_size(dtype));
    return i == count;
}

/* Memory of one rank of a case. */
typedef struct bench {
    tt_group *group;
    int rank, world;
    unsigned char *symmetric, *plain; /* MAX_BYTES each */
    unsigned char *want;
    void *inputs[8];
} bench;

static void *buffer(const bench *b, int kind) {
    bool symmetric = kind == SYMMETRIC || (kind == MIXED && b->rank % 2 == 0);
    return symmetric ? b->symmetric : b->plain;
}

static void reduce_as(const bench *b, tt_dtype dtype, tt_reduce_op op, size_t count, int kind, int root) {
    unsigned char *buf = buffer(b, kind);
    memcpy(buf, b->inputs[b->rank], count * tt_dtype_size(dtype));
    CHECK_OK(tt_all_reduce(b->group, buf, count, dtype, op));
    CHECK(same(buf, b->want, count, dtype));
    memcpy(buf, b->inputs[b->rank], count * tt_dtype_size(dtype));
    CHECK_OK(tt_reduce(b->group, buf, count, dtype, op, root));
    CHECK(same(buf, b->rank == root ? b->want : b->inputs[b->rank], count, dtype));
}

static void reductions(const bench *b, tt_dtype dtype, tt_reduce_op op, size_t bytes) {
    size_t count = bytes / tt_dtype_size(dtype);
    for (int r = 0; r < b->world; r++)
        fill(b->inputs[r], count, dtype, op, r);
    reference(b->want, (const void *const *)b->inputs, b->world, count, dtype, op);
    for (int kind = 0; kind < KINDS; kind++)
        reduce_as(b, dtype, op, count, kind, (int)(bytes % (size_t)b->world));
}

static bench make_bench(tt_store *store, int rank, int world) {
    bench b = {.group = join_group(store, rank, world), .rank = rank, .world = world};
    CHECK(tt_get_rank(b.group) == rank && tt_get_world_size(b.group) == world);
    CHECK_OK(tt_group_alloc((void **)&b.symmetric, b.group, MAX_BYTES));
    CHECK((b.plain = malloc(MAX_BYTES)) && (b.want = malloc(MAX_BYTES)));
    for (int r = 0; r < world; r++)
        CHECK((b.inputs[r] = malloc(MAX_BYTES)) != NULL);
    return b;
}

static void free_bench(bench *b) {
    CHECK_OK(tt_group_free(b->group, b->symmetric));
    tt_destroy_process_group(b->group);
    free(b->plain);
    free(b->want);
    for (int r = 0; r < b->world; r++)
        free(b->inputs[r]);
}

/* Every type and op at the small counts; the large ones, whose paths don't look at the type, for float averages. */
static int reduce_body(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    bench b = make_bench(store, rank, world);
    for (int dtype = TT_F32; dtype <= TT_U8; dtype++)
        for (int op = TT_SUM; op <= TT_MAX; op++)
            for (int n = 0; n < BYTE_COUNTS; n++) {
                bool floats = dtype == TT_F32 || dtype == TT_F64, large = byte_counts[n] > 20000;
                if ((op == TT_AVG && !floats) || (large && (dtype != TT_F32 || op != TT_AVG)))
                    continue;
                reductions(&b, (tt_dtype)dtype, (tt_reduce_op)op, byte_counts[n]);
            }
    free_bench(&b);
    return 0;
}

static void broadcasts(const bench *b, size_t bytes, int kind, int root) {
    unsigned char *buf = buffer(b, kind);
    for (size_t i = 0; i < bytes; i++)
        buf[i] = (unsigned char)(i * 7 + (size_t)b->rank * 31);
    CHECK_OK(tt_broadcast(b->group, buf, bytes, TT_U8, root));
    for (size_t i = 0; i < bytes; i++)
        CHECK(buf[i] == (unsigned char)(i * 7 + (size_t)root * 31));
}

static void gathers(const bench *b, size_t bytes, int kind, bool in_place) {
    unsigned char *recv = buffer(b, kind), *send = buffer(b, kind == PLAIN ? SYMMETRIC : kind);
    size_t share = bytes / (size_t)b->world;
    if (in_place)
        send = recv + (size_t)b->rank * share;
    else if (send == recv)
        recv = b->want;
    for (size_t i = 0; i < share; i++)
        send[i] = (unsigned char)(i * 13 + (size_t)b->rank * 59);
    CHECK_OK(tt_all_gather(b->group, send, recv, share, TT_U8));
    for (int r = 0; r < b->world; r++)
        for (size_t i = 0; i < share; i++)
            CHECK(recv[(size_t)r * share + i] == (unsigned char)(i * 13 + (size_t)r * 59));
}

static int move_body(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    bench b = make_bench(store, rank, world);
    for (int n = 0; n < BYTE_COUNTS; n++)
        for (int kind = 0; kind < KINDS; kind++) {
            for (int root = 0; root < world; root++)
                broadcasts(&b, byte_counts[n], kind, root);
            gathers(&b, byte_counts[n], kind, false);
            gathers(&b, byte_counts[n], kind, true);
            CHECK_OK(tt_barrier(b.group));
        }
    free_bench(&b);
    return 0;
}

/* Several asynchronous works in the queue, of different sizes, waited for out of order; then the same synchronously:
 * the same bits. */
static int async_body(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    enum { WORKS = 5 };
    static const size_t counts[WORKS] = {100000, 3, 2000, 1, 70001};
    tt_group *group = join_group(store, rank, world);
    float *buf[WORKS], *plain = malloc(counts[0] * 4);
    CHECK(plain);
    for (int w = 0; w < WORKS; w++)
        CHECK_OK(tt_group_alloc((void **)&buf[w], group, counts[w] * 4));
    for (int round = 0; round < 20; round++) {
        tt_work *works[WORKS];
        for (int w = 0; w < WORKS; w++) {
            fill(buf[w], counts[w], TT_F32, TT_AVG, rank + round);
            CHECK_OK(tt_all_reduce(group, buf[w], counts[w], TT_F32, TT_AVG, .work = &works[w]));
        }
        if (round % 2) {
            CHECK_OK(tt_work_wait(works[3]));
            CHECK(tt_work_is_completed(works[0]) && tt_work_is_completed(works[2]));
        }
        CHECK_OK(tt__group_progress(group));
        if (round % 3)
            CHECK_OK(tt_work_wait(works[WORKS - 1]));
        fill(plain, counts[0], TT_F32, TT_AVG, rank + round);
        CHECK_OK(tt_all_reduce(group, plain, counts[0], TT_F32, TT_AVG)); /* drains first */
        for (int w = 0; w < WORKS; w++) {
            CHECK(tt_work_is_completed(works[w]));
            CHECK_OK(tt_work_wait(works[w]));
            tt_work_free(works[w]);
        }
        CHECK(!memcmp(plain, buf[0], counts[0] * 4));
        CHECK_OK(tt_barrier(
            group)); /* nobody fills while another compares: buffers are the rank's own, works were waited for */
    }
    tt_work *bad = (tt_work *)(void *)plain;
    CHECK(tt_all_reduce(group, NULL, 8, TT_F32, TT_SUM, .work = &bad) == TT_ERR_INVALID && !bad);
    CHECK(tt_work_wait(bad) == TT_ERR_INVALID);
    tt_work_free(bad);
    tt_destroy_process_group(group);
    free(plain);
    return 0;
}

static uint32_t next_random(uint32_t *state) {
    *state = *state * 1664525U + 1013904223U;
    return *state >> 8;
}

/* One random call, the same on all ranks; each rank checks its first and last element. */
static void random_call(const bench *b, uint32_t *shared, int round) {
    uint32_t op = next_random(shared) % 6, n = next_random(shared) % (next_random(shared) % 4 ? 300 : 150000) + 1;
    int kind = (int)(next_random(shared) % KINDS), root = (int)(next_random(shared) % (uint32_t)b->world);
    int32_t *x = op == 4 ? (int32_t *)(void *)b->symmetric : buffer(b, kind);
    tt_work *work;
    int32_t sum = b->world * round + b->world * (b->world - 1) / 2;
    x[0] = x[n - 1] = round + b->rank;
    switch (op) {
    case 0:
        CHECK_OK(tt_barrier(b->group));
        break;
    case 1:
        CHECK_OK(tt_broadcast(b->group, x, n, TT_I32, root));
        CHECK(x[0] == round + root && x[n - 1] == round + root);
        break;
    case 2:
        CHECK_OK(tt_reduce(b->group, x, n, TT_I32, TT_SUM, root));
        CHECK(x[n - 1] == (b->rank == root ? sum : round + b->rank));
        break;
    case 3:
        CHECK_OK(tt_all_gather(b->group, x, b->want, 1, TT_I32));
        CHECK(((int32_t *)(void *)b->want)[root] == round + root);
        break;
    case 4:
        CHECK_OK(tt_all_reduce(b->group, x, n, TT_I32, TT_SUM, .work = &work));
        CHECK_OK(tt_work_wait(work));
        tt_work_free(work);
        CHECK(x[0] == sum && x[n - 1] == sum);
        break;
    default:
        CHECK_OK(tt_all_reduce(b->group, x, n, TT_I32, TT_SUM));
        CHECK(x[0] == sum && x[n - 1] == sum);
    }
}

/* Random calls, and ranks that are late by so much or so little that peers wait busily, yielding, or asleep. */
static int dawdle_body(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    bench b = make_bench(store, rank, world);
    uint32_t shared = 1, own = (uint32_t)rank + 100;
    for (int round = 0; round < 1500; round++) {
        uint32_t late = next_random(&own) % 200;
        if (late < 10)
            usleep(late * 300);
        random_call(&b, &shared, round);
    }
    free_bench(&b);
    return 0;
}

static void at_worlds(rank_body body) {
    static const int worlds[] = {1, 2, 3, 4, 5, 8};
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++)
        if (world_is_tried(worlds[i]))
            with_ranks(worlds[i], body, NULL);
}

static void reductions_match_the_reference(void **state) {
    (void)state;
    at_worlds(reduce_body);
}

/* The ranks, forked from here, choose their kernels by this variable. */
static void every_cpu_level_gives_the_same_bits(void **state) {
    (void)state;
    static const char *const levels[] = {"base", "avx2"};
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        assert_int_equal(setenv("TT_CPU_LEVEL", levels[i], 1), 0);
        with_ranks(2, reduce_body, NULL);
        with_ranks(3, reduce_body, NULL);
    }
    unsetenv("TT_CPU_LEVEL");
}

static void data_moves_unchanged(void **state) {
    (void)state;
    at_worlds(move_body);
}

static void asynchronous_works_give_the_same_bits(void **state) {
    (void)state;
    at_worlds(async_body);
}

static void ranks_may_dawdle(void **state) {
    (void)state;
    with_ranks(2, dawdle_body, NULL);
    with_ranks(5, dawdle_body, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reductions_match_the_reference),
        cmocka_unit_test(every_cpu_level_gives_the_same_bits),
        cmocka_unit_test(data_moves_unchanged),
        cmocka_unit_test(asynchronous_works_give_the_same_bits),
        cmocka_unit_test(ranks_may_dawdle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
