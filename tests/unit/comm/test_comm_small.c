/* Small all_reduces, whose elements ride with the arrival word or are reduced where they lie: every element type around
 * every size at which the way changes, at odd addresses, with nothing but the call between writing a buffer and writing
 * it again. Groups are told that their ranks have a CPU each, so that large ones take the short way, too. All values
 * are small whole numbers, exact in every type. */
#include "support/ranks.h"

#include "base/dtype.h"
#include "comm/native/native.h"

enum { SYMMETRIC, PLAIN, MIXED, KINDS };
enum { GUARD = 64, GUARD_BYTE = 0xa5, ROOM = 16 << 10 };

/* One element, the word's own line, a line, what rides in groups of 5, 4, 3 and 2, the inline limit, several pages. */
static const size_t byte_counts[] = {8,   24,  32,  40,   64,   248,  256,  264,  328,  336,  344,
                                     504, 512, 520, 1016, 1024, 1032, 2056, 4088, 4096, 4104, 9000};
enum { BYTE_COUNTS = sizeof byte_counts / sizeof *byte_counts };

static const tt_reduce_op ops[] = {TT_SUM, TT_AVG, TT_PRODUCT, TT_MIN, TT_MAX};
enum { OPS = sizeof ops / sizeof *ops };

typedef struct place {
    tt_group *group;
    int rank, world;
    unsigned char *symmetric, *plain; /* ROOM each */
} place;

/* Element i of rank r in one round; 0 and 1 for bools. */
static int element(int r, size_t i, unsigned round, tt_dtype dtype, tt_reduce_op op) {
    unsigned x = (unsigned)i * 2654435761U ^ (unsigned)r * 40503U ^ round * 2246822519U;
    x ^= x >> 15;
    x *= 2246822519U;
    x ^= x >> 13;
    if (dtype == TT_BOOL || op == TT_PRODUCT)
        return (int)(x & 1);
    return dtype == TT_U8 ? (int)(x % 9) : (int)(x % 17) - 8;
}

static int join(int x, int y, tt_reduce_op op) {
    switch (op) {
    case TT_PRODUCT:
        return x * y;
    case TT_MIN:
        return x < y ? x : y;
    case TT_MAX:
        return x > y ? x : y;
    default:
        return x + y;
    }
}

static double wanted(int world, size_t i, unsigned round, tt_dtype dtype, tt_reduce_op op) {
    int all = element(0, i, round, dtype, op);
    for (int r = 1; r < world; r++)
        all = join(all, element(r, i, round, dtype, op), op);
    if (dtype == TT_BOOL)
        return all != 0;
    return op == TT_AVG ? (double)all / world : all;
}

static void put(unsigned char *at, double x, tt_dtype dtype) {
    float f32 = (float)x;
    uint16_t f16 = tt__f16_of_float(f32), bf16 = tt__bf16_of_float(f32);
    int64_t whole =
        dtype == TT_F32 || dtype == TT_F64 ? 0 : (int64_t)x; /* little-endian: its first bytes are the narrow ones */
    const void *from = dtype == TT_F32    ? (const void *)&f32
                       : dtype == TT_F64  ? (const void *)&x
                       : dtype == TT_F16  ? (const void *)&f16
                       : dtype == TT_BF16 ? (const void *)&bf16
                                          : (const void *)&whole;
    memcpy(at, from, tt_dtype_size(dtype));
}

/* `offset`: elements from an aligned address. */
static void reduce_once(const place *p, tt_dtype dtype, tt_reduce_op op, size_t bytes, int kind, size_t offset) {
    static unsigned round;
    size_t size = tt_dtype_size(dtype), count = bytes / size;
    unsigned char *memory = kind == SYMMETRIC || (kind == MIXED && p->rank % 2 == 0) ? p->symmetric : p->plain;
    unsigned char *buf = memory + GUARD + offset * size;
    round++;
    memset(buf - GUARD, GUARD_BYTE, count * size + 2 * (size_t)GUARD);
    for (size_t i = 0; i < count; i++)
        put(buf + i * size, element(p->rank, i, round, dtype, op), dtype);
    CHECK_OK(tt_all_reduce(p->group, buf, count, dtype, op));
    for (size_t i = 0; i < count; i++) {
        unsigned char want[8];
        put(want, wanted(p->world, i, round, dtype, op), dtype);
        CHECK(!memcmp(buf + i * size, want, size));
    }
    for (size_t i = 0; i < GUARD; i++)
        CHECK(buf[-1 - (ptrdiff_t)i] == GUARD_BYTE && buf[count * size + i] == GUARD_BYTE);
}

static bool is_float(tt_dtype dtype) {
    return dtype == TT_F32 || dtype == TT_F64 || dtype == TT_F16 || dtype == TT_BF16;
}

/* An average is exact only where the number of ranks is a power of two. */
static bool is_defined(int world, tt_dtype dtype, tt_reduce_op op) {
    return op != TT_AVG || (is_float(dtype) && !(world & (world - 1)));
}

static place take_place(tt_store *store, int rank, int world) {
    place p = {.group = join_group(store, rank, world), .rank = rank, .world = world};
    CHECK_OK(tt_group_alloc((void **)&p.symmetric, p.group, ROOM));
    CHECK((p.plain = malloc(ROOM)) != NULL);
    CHECK_OK(tt_barrier(p.group));
    p.group->native->spin = true;
    tt__all_reduce_fast_begin(p.group);
    return p;
}

static void leave(place *p) {
    CHECK_OK(tt_group_free(p->group, p->symmetric));
    tt_destroy_process_group(p->group);
    free(p->plain);
}

/* Of more than two ranks, each size with a third of the types and ops. */
static int every_kind(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    place p = take_place(store, rank, world);
    for (int dtype = TT_F32; dtype <= TT_BOOL; dtype++)
        for (int o = 0; o < OPS; o++)
            for (int n = world > 2 ? (dtype + o) % 3 : 0; n < BYTE_COUNTS && is_defined(world, (tt_dtype)dtype, ops[o]);
                 n += world > 2 ? 3 : 1)
                for (int kind = 0; kind < KINDS; kind++)
                    reduce_once(&p, (tt_dtype)dtype, ops[o], byte_counts[n], kind, (size_t)(n + kind) % 3);
    leave(&p);
    return 0;
}

/* Calls of all sizes follow each other without a pause: the slots' two halves, and steps between words. */
static int one_after_another(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    place p = take_place(store, rank, world);
    uint32_t shared = 1; /* the same on all ranks */
    for (int i = 0; i < 4000 / world; i++) {
        shared = shared * 1664525U + 1013904223U;
        size_t bytes = byte_counts[(shared >> 8) % BYTE_COUNTS];
        reduce_once(&p, TT_I32, TT_SUM, bytes, (int)(shared >> 16) % KINDS, (shared >> 24) % 17);
    }
    leave(&p);
    return 0;
}

/* Calls that say neither where they stand, as from another language, nor have elements, as the very first: some ranks
 * give no buffer. Counts that can't be are refused by all. */
static int no_elements(tt_store *store, int rank, int world, void *arg) {
    static const int64_t wrong[] = {-1, INT64_MIN, INT64_MAX, (int64_t)1 << 62};
    (void)arg;
    place p = take_place(store, rank, world);
    tt_all_reduce_args args = {.group = p.group, .buf = rank % 2 ? NULL : p.plain, .dtype = TT_F32, .op = TT_SUM};
    CHECK_OK(tt_all_reduce_with(&args, sizeof args));
    args.buf = p.plain;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        args.count = wrong[i];
        CHECK(tt_all_reduce_with(&args, sizeof args) == TT_ERR_INVALID);
    }
    reduce_once(&p, TT_F32, TT_SUM, 8, PLAIN, 0);
    leave(&p);
    return 0;
}

static void test_no_elements(void **state) {
    (void)state;
    with_ranks(2, no_elements, NULL);
    with_ranks(3, no_elements, NULL);
}

static void test_every_kind(void **state) {
    (void)state;
    for (int world = 1; world <= 8; world++)
        if (world_is_tried(world))
            with_ranks(world, every_kind, NULL);
}

static void test_one_after_another(void **state) {
    (void)state;
    for (int world = 2; world <= 8; world++)
        if (world_is_tried(world))
            with_ranks(world, one_after_another, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_kind), cmocka_unit_test(test_one_after_another),
                                       cmocka_unit_test(test_no_elements)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
