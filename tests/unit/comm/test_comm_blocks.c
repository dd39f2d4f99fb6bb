/* Collectives that hand blocks from rank to rank, and coalesced reductions: all of them over sizes around every limit,
 * worlds, roots and kinds of memory, in place and not, synchronous and not; what every rank must have is computed from
 * who sent it. */
#include "support/ranks.h"

#include "comm/group.h"
#include "comm/op.h"
#include "comm/reduce/reduce_tree.h"

enum { SYMMETRIC, PLAIN, MIXED, KINDS };

/* Of one block: nothing, one, around the inline limit, a piece of staging memory, several. Elements of i16. */
static const size_t counts[] = {0, 1, 7, 250, 2047, 2049, 16000, 131072, 131100, 300001};
enum { COUNTS = sizeof counts / sizeof *counts, MAX_WORLD = 8, MAX_BYTES = MAX_WORLD * 300001 * 2 };

typedef struct bench {
    tt_group *group;
    int rank, world;
    unsigned char *symmetric[2], *plain[2]; /* MAX_BYTES each: to send, to receive */
} bench;

static bench make_bench(tt_store *store, int rank, int world) {
    bench b = {.group = join_group(store, rank, world), .rank = rank, .world = world};
    for (int i = 0; i < 2; i++) {
        CHECK_OK(tt_group_alloc((void **)&b.symmetric[i], b.group, MAX_BYTES));
        CHECK((b.plain[i] = malloc(MAX_BYTES)) != NULL);
    }
    return b;
}

static void free_bench(bench *b) {
    tt_destroy_process_group(b->group);
    free(b->plain[0]);
    free(b->plain[1]);
}

static void *buffer(const bench *b, int which, int kind) {
    bool symmetric = kind == SYMMETRIC || (kind == MIXED && b->rank % 2 == 0);
    return symmetric ? b->symmetric[which] : b->plain[which];
}

/* Element i of what rank s has for rank d; d == 0 where all get the same. */
static int16_t element(int s, int d, size_t i) {
    return (int16_t)(i * 31 + (size_t)s * 1009 + (size_t)d * 77 + i / 1000);
}

static void fill(int16_t *to, int s, int d, size_t n) {
    for (size_t i = 0; i < n; i++)
        to[i] = element(s, d, i);
}

static void check(const int16_t *is, int s, int d, size_t n) {
    for (size_t i = 0; i < n; i++)
        CHECK(is[i] == element(s, d, i));
}

/* A call, synchronous or not. */
#define RUN(async, function, ...)                            \
    do {                                                     \
        tt_work *work_ = NULL;                               \
        if (async) {                                         \
            CHECK_OK(function(__VA_ARGS__, .work = &work_)); \
            CHECK_OK(tt_work_wait(work_));                   \
            tt_work_free(work_);                             \
        } else {                                             \
            CHECK_OK(function(__VA_ARGS__));                 \
        }                                                    \
    } while (0)

static void gathers(const bench *b, size_t n, int kind, int root, bool in_place, bool async) {
    int16_t *recv = buffer(b, 1, kind), *send = buffer(b, 0, kind);
    bool is_root = b->rank == root;
    if (in_place && is_root)
        send = recv + (size_t)root * n;
    fill(send, b->rank, 0, n);
    RUN(async, tt_gather, b->group, send, is_root ? recv : NULL, n, TT_I16, root);
    for (int s = 0; s < b->world && is_root; s++)
        check(recv + (size_t)s * n, s, 0, n);
    fill(send, b->rank + 1, 0, n); /* whoever still read it would see */
}

static void scatters(const bench *b, size_t n, int kind, int root, bool in_place, bool async) {
    int16_t *send = buffer(b, 0, kind), *recv = buffer(b, 1, kind);
    bool is_root = b->rank == root;
    for (int d = 0; d < b->world && is_root; d++)
        fill(send + (size_t)d * n, root, d, n);
    if (in_place && is_root)
        recv = send + (size_t)root * n;
    RUN(async, tt_scatter, b->group, is_root ? send : NULL, recv, n, TT_I16, root);
    check(recv, root, b->rank, n);
    if (is_root)
        memset(send, 0xff, (size_t)b->world * n * 2);
}

static void broadcasts(const bench *b, size_t n, int kind, int root, bool async) {
    int16_t *buf = buffer(b, 0, kind);
    fill(buf, b->rank, 0, n);
    RUN(async, tt_broadcast, b->group, buf, n, TT_I16, root);
    check(buf, root, 0, n);
    fill(buf, b->rank + 5, 0, n);
}

static void all_gathers(const bench *b, size_t n, int kind, bool in_place, bool async) {
    int16_t *recv = buffer(b, 1, kind), *send = in_place ? recv + (size_t)b->rank * n : buffer(b, 0, kind);
    fill(send, b->rank, 0, n);
    RUN(async, tt_all_gather, b->group, send, recv, n, TT_I16);
    for (int s = 0; s < b->world; s++)
        check(recv + (size_t)s * n, s, 0, n);
}

/* Rank s has n, n / 2, 0, ... elements; offsets leave a gap of 3. */
static void uneven_all_gathers(const bench *b, size_t n, int kind, bool offsets, bool async) {
    int16_t *recv = buffer(b, 1, kind), *send = buffer(b, 0, kind);
    int64_t of[MAX_WORLD], at[MAX_WORLD], end = 0;
    for (int s = 0; s < b->world; s++) {
        of[s] = s % 3 == 2 ? 0 : (int64_t)n / (s % 3 + 1);
        at[s] = end;
        end += of[s] + (offsets && end + of[s] + 3 < (int64_t)(MAX_BYTES / 2 - n) ? 3 : 0);
    }
    fill(send, b->rank, 0, (size_t)of[b->rank]);
    RUN(async, tt_all_gather_v, b->group, send, recv, of, offsets ? at : NULL, TT_I16);
    for (int s = 0; s < b->world; s++)
        check(recv + at[s], s, 0, (size_t)of[s]);
}

static void all_to_alls(const bench *b, size_t n, int kind, bool async) {
    int16_t *recv = buffer(b, 1, kind), *send = buffer(b, 0, kind);
    for (int d = 0; d < b->world; d++)
        fill(send + (size_t)d * n, b->rank, d, n);
    RUN(async, tt_all_to_all, b->group, send, recv, n, TT_I16);
    for (int s = 0; s < b->world; s++)
        check(recv + (size_t)s * n, s, b->rank, n);
    memset(send, 0xff, (size_t)b->world * n * 2);
}

static int64_t uneven(int s, int d, size_t n) { return (s + 2 * d) % 3 ? (int64_t)n / (1 + (s * 3 + d) % 4) : 0; }

/* Blocks in the buffers in reverse order of ranks, if offsets are given. */
static void uneven_all_to_alls(const bench *b, size_t n, int kind, bool offsets, bool async) {
    int16_t *recv = buffer(b, 1, kind), *send = buffer(b, 0, kind);
    int64_t to[MAX_WORLD], from[MAX_WORLD], to_at[MAX_WORLD], from_at[MAX_WORLD], end[2] = {0, 0};
    for (int i = 0; i < b->world; i++) {
        int r = offsets ? b->world - 1 - i : i;
        to[r] = uneven(b->rank, r, n);
        from[r] = uneven(r, b->rank, n);
        to_at[r] = end[0], end[0] += to[r];
        from_at[r] = end[1], end[1] += from[r];
    }
    for (int d = 0; d < b->world; d++)
        fill(send + to_at[d], b->rank, d, (size_t)to[d]);
    RUN(async, tt_all_to_all_v, b->group, send, to, offsets ? to_at : NULL, recv, from, offsets ? from_at : NULL,
        TT_I16);
    for (int s = 0; s < b->world; s++)
        check(recv + from_at[s], s, b->rank, (size_t)from[s]);
    memset(send, 0xff, (size_t)end[0] * 2);
}

/* ---- reductions */

static float number(int r, size_t i) { return (float)(((i * 7919 + (size_t)r * 104729) % 20011) / 7.0 - 1400); }

/* The same bits as an all_reduce, whose order is tested elsewhere. */
static void reduce_scatters(const bench *b, size_t n, int kind, bool in_place, bool async) {
    size_t part = n / 2, all = part * (size_t)b->world; /* floats */
    float *send = buffer(b, 0, kind), *recv = in_place ? send + (size_t)b->rank * part : buffer(b, 1, kind);
    float *want = malloc(all * 4 + 1);
    CHECK(want);
    for (size_t i = 0; i < all; i++)
        send[i] = want[i] = number(b->rank, i);
    CHECK_OK(tt_all_reduce(b->group, want, all, TT_F32, TT_PREMUL_SUM, .factor = 0.3 + b->rank));
    RUN(async, tt_reduce_scatter, b->group, send, recv, part, TT_F32, TT_PREMUL_SUM, .factor = 0.3 + b->rank);
    CHECK(!memcmp(recv, want + (size_t)b->rank * part, part * 4));
    for (size_t i = 0; i < all && !in_place; i++)
        CHECK(send[i] == number(b->rank, i));
    memset(send, 0xff, all * 4);
    free(want);
}

/* n floats in `pieces` buffers of different sizes, some empty. */
static void coalesced(const bench *b, size_t n, size_t pieces, int kind, bool async) {
    float *buf = buffer(b, 0, kind), *want = malloc(n * 4 + 1);
    void **bufs = malloc(pieces * sizeof *bufs);
    int64_t *of = malloc(pieces * sizeof *of);
    size_t at = 0;
    CHECK(want && bufs && of);
    for (size_t i = 0; i < n; i++)
        want[i] = number(b->rank, i);
    for (size_t p = 0; p < pieces; p++) {
        size_t left = n - at, some = p % 4 == 3 ? 0 : left / (pieces - p) + p % 2;
        of[p] = (int64_t)(p + 1 == pieces || some > left ? left : some);
        bufs[p] = buf + at + p * 3; /* with gaps */
        memcpy(bufs[p], want + at, (size_t)of[p] * 4);
        at += (size_t)of[p];
    }
    CHECK_OK(tt_all_reduce(b->group, want, n, TT_F32, TT_AVG));
    RUN(async, tt_all_reduce_coalesced, b->group, bufs, of, pieces, TT_F32, TT_AVG);
    at = 0;
    for (size_t p = 0; p < pieces; at += (size_t)of[p++])
        CHECK(!memcmp(bufs[p], want + at, (size_t)of[p] * 4));
    free(want);
    free(bufs);
    free(of);
}

/* ---- all of them */

static void all_operations(const bench *b, size_t n, int kind, bool async) {
    for (int root = 0; root<b->world; root += n> 10000 ? b->world : 1) {
        broadcasts(b, n, kind, root, async);
        for (int in_place = 0; in_place < 2; in_place++) {
            gathers(b, n, kind, root, in_place, async);
            scatters(b, n, kind, root, in_place, async);
        }
    }
    for (int which = 0; which < 2; which++) {
        all_gathers(b, n, kind, which, async);
        uneven_all_gathers(b, n, kind, which, async);
        uneven_all_to_alls(b, n, kind, which, async);
        reduce_scatters(b, n, kind, which, async);
    }
    all_to_alls(b, n, kind, async);
    coalesced(b, n, 1, kind, async);
    coalesced(b, n, 13, kind, async);
    if (n > 2000 && n < 20000)
        coalesced(b, n, 700, kind, async); /* more than their places fit a slot */
}

static int operations_body(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    bench b = make_bench(store, rank, world);
    for (int i = 0; i < COUNTS; i++)
        for (int kind = 0; kind < KINDS; kind++)
            all_operations(&b, counts[i], kind, (i + kind) % 2);
    free_bench(&b);
    return 0;
}

enum { MOST = 16700 };

/* Every element type and op through all_reduce and reduce, small, carried, in place, staged. The tree itself is tested
 * elsewhere. */
static void one_reduction(const bench *b, tt_dtype dtype, tt_reduce_op op, size_t n, int kind) {
    static unsigned char inputs[MAX_WORLD][MOST * 8], want[MOST * 8];
    const void *src[MAX_WORLD];
    double factors[MAX_WORLD];
    size_t bytes = n * tt_dtype_size(dtype);
    for (int r = 0; r < b->world; r++) {
        for (size_t i = 0; i < bytes; i++) /* any bits but large exponents: no NaN, whose payloads may differ */
            inputs[r][i] = (unsigned char)(((i * 37 + (size_t)r * 101) ^ (i >> 3)) & 0x3f);
        src[r] = inputs[r];
        factors[r] = 1.5 - r;
    }
    tt__reduce_tree_scaled(&(void *){want}, 1, src, factors, b->world, n, dtype, op);
    unsigned char *buf = buffer(b, 0, kind);
    memcpy(buf, inputs[b->rank], bytes);
    CHECK_OK(tt_all_reduce(b->group, buf, n, dtype, op, .factor = factors[b->rank]));
    CHECK(!memcmp(buf, want, bytes));
    memcpy(buf, inputs[b->rank], bytes);
    int root = (int)n % b->world;
    CHECK_OK(tt_reduce(b->group, buf, n, dtype, op, root, .factor = factors[b->rank]));
    CHECK(!memcmp(buf, b->rank == root ? want : inputs[b->rank], bytes));
}

static int types_body(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    bench b = make_bench(store, rank, world);
    for (int dtype = TT_F32; dtype <= TT_BOOL; dtype++)
        for (int op = TT_SUM; op < TT__REDUCE_OPS; op++)
            for (int kind = 0; kind < KINDS && !tt__reduce_refusal((tt_dtype)dtype, (tt_reduce_op)op); kind++) {
                one_reduction(&b, (tt_dtype)dtype, (tt_reduce_op)op, 1, kind);
                one_reduction(&b, (tt_dtype)dtype, (tt_reduce_op)op, 33, kind);
                one_reduction(&b, (tt_dtype)dtype, (tt_reduce_op)op, 4800, kind);
                if (op <= TT_AVG)
                    one_reduction(&b, (tt_dtype)dtype, (tt_reduce_op)op, MOST, kind);
            }
    CHECK(tt_all_reduce(b.group, b.plain[0], 1, TT_BOOL, TT_AVG) == TT_ERR_UNSUPPORTED);
    CHECK_TEXT("bools have no average");
    CHECK(tt_all_reduce(b.group, b.plain[0], 1, TT_BF16, TT_BXOR) == TT_ERR_UNSUPPORTED);
    CHECK_OK(tt_barrier(b.group)); /* refused before anything was sent */
    free_bench(&b);
    return 0;
}

/* Works of different operations, queued at once. */
static int queue_body(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    bench b = make_bench(store, rank, world);
    for (int round = 0; round < 30; round++) {
        size_t n = counts[(size_t)round % COUNTS] / 4;
        int16_t *send = buffer(&b, 0, round % KINDS), *recv = buffer(&b, 1, round % KINDS),
                *more = recv + n * (size_t)world;
        tt_work *works[3];
        for (int d = 0; d < world; d++)
            fill(send + (size_t)d * n, rank, d, n);
        CHECK_OK(tt_all_to_all(b.group, send, recv, n, TT_I16, .work = &works[0]));
        CHECK_OK(tt_scatter(b.group, send, more, n, TT_I16, round % world, .work = &works[1]));
        CHECK_OK(tt_gather(b.group, more, more + n, n, TT_I16, 0, .work = &works[2]));
        CHECK_OK(tt_work_wait_all(works, 3));
        for (int r = 0; r < world; r++) {
            check(recv + (size_t)r * n, r, rank, n);
            if (!rank)
                check(more + n + (size_t)r * n, round % world, r, n);
        }
        for (int w = 0; w < 3; w++)
            tt_work_free(works[w]);
        CHECK_OK(tt_barrier(b.group));
    }
    free_bench(&b);
    return 0;
}

static int places_logged;

static void see_line(tt_log_level level, const char *line, void *user) {
    (void)user;
    places_logged += level == TT_LOG_INFO && strstr(line, "on NUMA node") != NULL;
}

/* Large blocks on a machine made up for hwloc, whose caches say nothing about this one's: a rank asks once, and says
 * what it was told. */
static int place_body(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    bench b = make_bench(store, rank, world);
    tt_set_log(see_line, NULL);
    all_gathers(&b, 100, SYMMETRIC, false, false);
    CHECK(!places_logged);
    for (int kind = 0; kind < KINDS; kind++) {
        all_gathers(&b, 300001, kind, false, false);
        all_to_alls(&b, 131100, kind, false);
    }
    CHECK(places_logged <= 1); /* 0: there is no libhwloc */
    free_bench(&b);
    return 0;
}

/* Ranks that disagree about the size of one block: both are named, everywhere. */
static int unequal_body(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    tt_group *group = join_group(store, rank, world);
    int64_t to[3] = {1, 1, 1}, from[3] = {1, 1, 1};
    int16_t send[4] = {0}, recv[4];
    if (rank == 2)
        to[1] = 2;
    CHECK(tt_all_to_all_v(group, send, to, NULL, recv, from, NULL, TT_I16) == TT_ERR_MISMATCH);
    CHECK_TEXT("rank 2 sends 2 elements to rank 1, which expects 1 from it");
    tt_destroy_process_group(group);
    return 0;
}

/* Lists that differ are another call. */
static int unequal_lists_body(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    tt_group *group = join_group(store, rank, world);
    int64_t of[2] = {2, 3};
    int16_t buf[8] = {0};
    if (rank == 1)
        of[0] = 3, of[1] = 2;
    CHECK(tt_all_gather_v(group, buf, buf, of, NULL, TT_I16) == TT_ERR_MISMATCH);
    CHECK_TEXT("all_gather_v");
    tt_destroy_process_group(group);
    return 0;
}

/* Offsets at which no memory can be are refused before anything is sent; where nothing goes they don't count. */
static int offsets_body(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    tt_group *group = join_group(store, rank, world);
    int64_t of[2] = {1, 1}, nothing[2] = {0, 0}, at[2] = {0, 1}, beyond[2] = {0, INT64_MAX};
    int16_t send[2] = {0}, recv[2];
    CHECK(tt_all_gather_v(group, send, recv, of, beyond, TT_I16) == TT_ERR_INVALID);
    CHECK(tt_all_to_all_v(group, send, of, beyond, recv, of, at, TT_I16) == TT_ERR_INVALID);
    CHECK(tt_all_to_all_v(group, send, of, at, recv, of, beyond, TT_I16) == TT_ERR_INVALID);
    CHECK_TEXT("all_to_all_v: offset 9223372036854775807, of rank 1, is beyond what memory can hold");
    CHECK(tt_all_gather_v(group, NULL, NULL, nothing, beyond, TT_I16) == TT_OK);
    tt_destroy_process_group(group);
    return 0;
}

static void blocks_arrive(void **state) {
    (void)state;
    static const int worlds[] = {1, 2, 3, 4, 8};
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++)
        if (world_is_tried(worlds[i]))
            with_ranks(worlds[i], operations_body, NULL);
}

static void ranks_turn_to_neighbours_first(void **state) {
    (void)state;
    assert_int_equal(setenv("HWLOC_SYNTHETIC", "pack:2 [numa] l3:2 core:4 pu:1", 1), 0);
    with_ranks(4, place_body, NULL);
    unsetenv("HWLOC_SYNTHETIC");
}

static void types_and_ops_reduce_everywhere(void **state) {
    (void)state;
    for (int world = 1; world <= 3; world++)
        if (world_is_tried(world))
            with_ranks(world, types_body, NULL);
}

static void works_of_different_operations_queue(void **state) {
    (void)state;
    with_ranks(2, queue_body, NULL);
    with_ranks(3, queue_body, NULL);
}

static void unequal_blocks_are_named(void **state) {
    (void)state;
    with_ranks(3, unequal_body, NULL);
    with_ranks(2, unequal_lists_body, NULL);
}

static void impossible_offsets_are_refused(void **state) {
    (void)state;
    with_ranks(2, offsets_body, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_arrive),
        cmocka_unit_test(ranks_turn_to_neighbours_first),
        cmocka_unit_test(types_and_ops_reduce_everywhere),
        cmocka_unit_test(works_of_different_operations_queue),
        cmocka_unit_test(unequal_blocks_are_named),
        cmocka_unit_test(impossible_offsets_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
