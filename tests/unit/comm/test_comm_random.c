/* Random programs of legal calls, in worlds of 2 to 8 ranks: every collective, symmetric, plain and mixed memory at
 * places that differ between ranks, asynchronous works waited for in any order, ranks late by chance. Every rank draws
 * the same program from the seed and knows what all ranks pass, so each checks its own results, and that nothing else
 * was written. TT_RANDOM_CALLS=N makes the programs longer, TT_RANDOM_SEED=N others. */
#include "support/calls.h"
#include "support/ranks.h"

#include "comm/group.h"

#include <sched.h>
#include <time.h>

enum { AREAS = 4, AREA_BYTES = 1 << 20, GUARD = 64, WORKS = 5 };

typedef struct program {
    unsigned seed, calls;
} program;

typedef struct player {
    tt_group *group;
    int rank, world;
    uint64_t shared, own;             /* generators: the program; what this rank alone decides */
    unsigned char *symmetric, *plain; /* (AREAS, AREA_BYTES) each */
    unsigned call;
} player;

/* Small whole numbers, so that sums and products are exact in any order. */
static int64_t element(unsigned call, int rank, size_t i) {
    uint64_t state = (uint64_t)call << 40 ^ (uint64_t)rank << 34 ^ i;
    return (int64_t)(storm_draw(&state) % 7) - 3;
}

static double reduced(unsigned call, int world, size_t i, tt_dtype dtype, tt_reduce_op op) {
    int64_t all = drawn_held(element(call, 0, i), dtype);
    for (int r = 1; r < world; r++) {
        int64_t x = drawn_held(element(call, r, i), dtype);
        all = op == TT_PRODUCT ? all * x
              : op == TT_MIN   ? (x < all ? x : all)
              : op == TT_MAX   ? (x > all ? x : all)
                             /* TT_SUM, TT_AVG */
                             : all + x;
        all = drawn_held(all, dtype);
    }
    return op == TT_AVG ? (double)all / world : (double)all;
}

static void check_reduced(const player *p, unsigned call, const void *buf, size_t n, tt_dtype dtype, tt_reduce_op op) {
    size_t stride = n > 4096 ? 61 : 1; /* the first, the last, and enough between */
    for (size_t i = 0; i < n; i = i + stride < n || i == n - 1 ? i + stride : n - 1) {
        double want = reduced(call, p->world, i, dtype, op), have = drawn_get(buf, i, dtype);
        CHECK(op == TT_AVG ? fabs(want - have) < 1e-5 : want == have);
    }
}

static void fill(const player *p, unsigned call, void *buf, size_t n, tt_dtype dtype) {
    for (size_t i = 0; i < n; i++)
        drawn_put(buf, i, dtype, element(call, p->rank, i));
}

static void check_own(const player *p, unsigned call, int rank, const void *buf, size_t n, tt_dtype dtype) {
    (void)p;
    for (size_t i = 0; i < n; i += (n > 4096 ? 61 : 1))
        CHECK(drawn_get(buf, i, dtype) == (double)drawn_held(element(call, rank, i), dtype));
}

/* Bytes before and after a buffer that nobody may write. */
static void guard(unsigned char *buf, size_t bytes) {
    memset(buf - GUARD, 0xa5, GUARD);
    memset(buf + bytes, 0xa5, GUARD);
}

static void check_guard(const unsigned char *buf, size_t bytes) {
    for (int i = 0; i < GUARD; i++)
        CHECK(buf[i - GUARD] == 0xa5 && buf[bytes + (size_t)i] == 0xa5);
}

/* Where this rank's buffer lies is its own affair: symmetric or plain, in either area of a half, at any multiple of 8.
 * `kind`: 0 symmetric, 1 plain, 2 either. */
static unsigned char *place(player *p, size_t kind, size_t half) {
    size_t plain = kind == 2 ? storm_below(&p->own, 2) : kind,
           area = AREAS / 2 * half + storm_below(&p->own, AREAS / 2);
    return (plain ? p->plain : p->symmetric) + area * AREA_BYTES + GUARD + 8 * storm_below(&p->own, 64);
}

static void be_late(player *p) {
    size_t how = storm_below(&p->own, 40);
    if (how == 0)
        nanosleep(&(struct timespec){.tv_nsec = (long)storm_below(&p->own, 3000000)}, NULL);
    else if (how < 6)
        sched_yield();
}

static size_t draw_bytes(player *p) {
    static const size_t borders[] = {0, 8, 48, 56, 4088, 4096, 4104, 65536, 262144, 262152, 524288, 524296};
    size_t how = storm_below(&p->shared, 10);
    if (how < 4)
        return storm_below(&p->shared, 5000);
    if (how < 8)
        return borders[storm_below(&p->shared, sizeof borders / sizeof *borders)];
    return storm_below(&p->shared, 600000);
}

static tt_reduce_op draw_op(player *p, tt_dtype dtype) {
    tt_reduce_op op = (tt_reduce_op)storm_below(&p->shared, 5);
    return op == TT_AVG && dtype != TT_F32 && dtype != TT_F64 ? TT_SUM : op;
}

static void play_reduction(player *p, bool to_all) {
    tt_dtype dtype = (tt_dtype)storm_below(&p->shared, 5);
    tt_reduce_op op = draw_op(p, dtype);
    size_t n = draw_bytes(p) / tt_dtype_size(dtype), bytes = n * tt_dtype_size(dtype);
    int root = (int)storm_below(&p->shared, (size_t)p->world);
    unsigned char *buf = place(p, storm_below(&p->shared, 3), storm_below(&p->own, 2));
    guard(buf, bytes);
    fill(p, p->call, buf, n, dtype);
    be_late(p);
    if (to_all)
        CHECK_OK(tt_all_reduce(p->group, buf, n, dtype, op));
    else
        CHECK_OK(tt_reduce(p->group, buf, n, dtype, op, root));
    if (to_all || p->rank == root)
        check_reduced(p, p->call, buf, n, dtype, op);
    else
        check_own(p, p->call, p->rank, buf, n, dtype);
    check_guard(buf, bytes);
}

static void play_broadcast(player *p) {
    tt_dtype dtype = (tt_dtype)storm_below(&p->shared, 5);
    size_t n = draw_bytes(p) / tt_dtype_size(dtype), bytes = n * tt_dtype_size(dtype);
    int root = (int)storm_below(&p->shared, (size_t)p->world);
    unsigned char *buf = place(p, storm_below(&p->shared, 3), storm_below(&p->own, 2));
    guard(buf, bytes);
    fill(p, p->call, buf, n, dtype);
    be_late(p);
    CHECK_OK(tt_broadcast(p->group, buf, n, dtype, root));
    check_own(p, p->call, root, buf, n, dtype);
    check_guard(buf, bytes);
    if (storm_below(&p->own, 2)) /* the buffer is mine again, whoever still reads what I sent */
        memset(buf, 0x5a, bytes);
}

static void play_all_gather(player *p) {
    tt_dtype dtype = (tt_dtype)storm_below(&p->shared, 5);
    size_t share = draw_bytes(p) / (size_t)p->world, n = share / tt_dtype_size(dtype), bytes = n * tt_dtype_size(dtype);
    unsigned char *recv = place(p, storm_below(&p->shared, 3), 0), *send = recv + (size_t)p->rank * bytes;
    size_t kind = storm_below(&p->shared, 3);
    bool in_place = storm_below(&p->own, 2);
    if (!in_place)
        send = place(p, kind, 1);
    guard(recv, (size_t)p->world * bytes);
    if (!in_place)
        guard(send, bytes);
    fill(p, p->call, send, n, dtype);
    be_late(p);
    CHECK_OK(tt_all_gather(p->group, send, recv, n, dtype));
    for (int r = 0; r < p->world; r++)
        check_own(p, p->call, r, recv + (size_t)r * bytes, n, dtype);
    check_guard(recv, (size_t)p->world * bytes);
    if (!in_place)
        check_own(p, p->call, p->rank, send, n, dtype);
    if (storm_below(&p->own, 2))
        memset(send, 0x5a, bytes);
}

/* Several works on their way, other calls between them, waited for in an order of this rank's own. */
static void play_works(player *p) {
    tt_work *works[WORKS];
    unsigned char *bufs[WORKS];
    size_t counts[WORKS], n = 1 + storm_below(&p->shared, WORKS);
    tt_reduce_op ops[WORKS];
    for (size_t w = 0; w < n; w++) {
        counts[w] = storm_below(&p->shared, 2) ? storm_below(&p->shared, 30000) : storm_below(&p->shared, 900);
        ops[w] = (tt_reduce_op)storm_below(&p->shared, 5);
        bufs[w] = p->symmetric + (AREAS + w) * (size_t)AREA_BYTES / 4 + GUARD;
        guard(bufs[w], counts[w] * 4);
        fill(p, p->call + (unsigned)w, bufs[w], counts[w], TT_F32);
        be_late(p);
        CHECK_OK(tt_all_reduce(p->group, bufs[w], counts[w], TT_F32, ops[w], .work = &works[w]));
        if (storm_below(&p->own, 2))
            CHECK_OK(tt__group_progress(p->group));
    }
    switch (storm_below(&p->shared, 5)) {
    case 0:
        CHECK_OK(tt_barrier(p->group));
        break;
    case 1: {
        int64_t x = p->rank;
        CHECK_OK(tt_all_reduce(p->group, &x, 1, TT_I64, TT_SUM));
        CHECK(x == (int64_t)p->world * (p->world - 1) / 2);
        break;
    }
    default:
        break;
    }
    for (size_t first = storm_below(&p->own, n), i = 0; i < n; i++) {
        size_t w = (first + i) % n;
        be_late(p);
        CHECK_OK(tt_work_wait(works[w]));
        CHECK(tt_work_is_completed(works[w]));
        tt_work_free(works[w]);
        check_reduced(p, p->call + (unsigned)w, bufs[w], counts[w], TT_F32, ops[w]);
        check_guard(bufs[w], counts[w] * 4);
    }
    p->call += (unsigned)n;
}

static void play_alloc(player *p) {
    size_t bytes = storm_below(&p->shared, 100000), n = bytes / 8;
    void *a, *b;
    CHECK_OK(tt_group_alloc(&a, p->group, bytes));
    CHECK_OK(tt_group_alloc(&b, p->group, 10000));
    for (size_t i = 0; i < n; i++)
        CHECK(((int64_t *)a)[i] == 0);
    fill(p, p->call, a, n, TT_I64);
    CHECK_OK(tt_all_reduce(p->group, a, n, TT_I64, TT_SUM));
    check_reduced(p, p->call, a, n, TT_I64, TT_SUM);
    bool first = storm_below(&p->shared, 2);
    CHECK_OK(tt_group_free(p->group, first ? a : b));
    CHECK_OK(tt_group_free(p->group, first ? b : a));
}

static void play(player *p) {
    switch (storm_below(&p->shared, 10)) {
    case 0:
        be_late(p);
        CHECK_OK(tt_barrier(p->group));
        break;
    case 1:
    case 2:
        play_broadcast(p);
        break;
    case 3:
        play_reduction(p, false);
        break;
    case 4:
    case 5:
        play_all_gather(p);
        break;
    case 6:
    case 7:
        play_works(p);
        break;
    case 8:
        if (storm_below(&p->shared, 4) == 0)
            play_alloc(p);
        break;
    default:
        play_reduction(p, true);
        break;
    }
    p->call++;
}

static int random_program(tt_store *store, int rank, int world, void *arg) {
    const program *program = arg;
    player p = {.rank = rank, .world = world, .shared = program->seed, .own = program->seed + 1000U + (unsigned)rank};
    size_t bytes = (size_t)(AREAS + 2) * AREA_BYTES;
    void *symmetric;
    p.group = join_group(store, rank, world);
    CHECK_OK(tt_group_alloc(&symmetric, p.group, bytes));
    p.symmetric = symmetric;
    CHECK((p.plain = malloc(bytes)));
    while (p.call < program->calls)
        play(&p);
    free(p.plain);
    tt_destroy_process_group(p.group);
    return 0;
}

static unsigned from_env(const char *name, unsigned fallback) {
    const char *text = getenv(name);
    return text ? (unsigned)strtoul(text, NULL, 10) : fallback;
}

static void test_random_programs(void **state) {
    (void)state;
    for (int world = 2; world <= 8; world++) {
        program program = {from_env("TT_RANDOM_SEED", 1) * 100 + (unsigned)world, from_env("TT_RANDOM_CALLS", 120)};
        with_ranks(world, random_program, &program);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_programs)};
    return cmocka_run_group_tests_name("comm: random programs", tests, NULL, NULL);
}
