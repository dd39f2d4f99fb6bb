/* The memory of a device (tensor/cuda/device/cuda_arena.h) beside a plain list of what is taken: nothing overlaps, all
 * lies in what is backed, and when all is given back the range is one block again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/storm.h"
#include "tensor/cuda/device/cuda_arena.h"

enum { TAKEN = 400, ROUNDS = 20000 };
static const uint64_t base = (uint64_t)1 << 40;
static const size_t step = (size_t)1 << 21, reserved = (size_t)1 << 28;

static size_t refuse_above;

static bool back(tt__arena *arena, size_t bytes) {
    assert_true(bytes > 0 && bytes % arena->step == 0);
    return arena->backed + bytes <= refuse_above;
}

static tt__arena new_arena(size_t memory) {
    refuse_above = memory;
    return (tt__arena){.base = base, .reserved = reserved, .step = step, .back = back};
}

typedef struct piece {
    uint64_t address;
    size_t bytes;
} piece;

static void check_apart(const tt__arena *arena, const piece *taken, int n, const piece *added) {
    assert_true(added->address % TT__ARENA_ALIGNMENT == 0);
    assert_true(added->address >= base && added->address + added->bytes <= base + arena->backed);
    for (int i = 0; i < n; i++)
        if (&taken[i] != added && taken[i].address)
            assert_true(taken[i].address + taken[i].bytes <= added->address ||
                        added->address + added->bytes <= taken[i].address);
}

static void what_is_taken_is_apart(void **state) {
    (void)state;
    tt__arena arena = new_arena(reserved);
    piece taken[TAKEN] = {{0, 0}};
    uint64_t draw = 7;
    for (int round = 0; round < ROUNDS; round++) {
        piece *one = &taken[storm_below(&draw, TAKEN)];
        if (one->address) {
            tt__arena_give(&arena, one->address);
            one->address = 0;
            continue;
        }
        one->bytes = 1 + storm_below(&draw, (size_t)1 << (4 + storm_below(&draw, 16)));
        one->address = tt__arena_take_for(&arena, NULL, one->bytes);
        assert_true(one->address != 0);
        check_apart(&arena, taken, TAKEN, one);
    }
    size_t backed = arena.backed;
    for (int i = 0; i < TAKEN; i++)
        if (taken[i].address)
            tt__arena_give(&arena, taken[i].address);
    assert_int_equal(arena.used, 0);
    assert_int_equal(arena.used_blocks, 0);
    assert_int_equal(tt__arena_largest_free(&arena), backed);
    tt__arena_end(&arena);
}

static void the_best_fit_is_taken(void **state) {
    (void)state;
    tt__arena arena = new_arena(step);
    uint64_t a = tt__arena_take_for(&arena, NULL, 4096), wall = tt__arena_take_for(&arena, NULL, 512),
             b = tt__arena_take_for(&arena, NULL, 1024), end = tt__arena_take_for(&arena, NULL, 512);
    assert_true(a == base && wall == a + 4096 && b == wall + 512 && end == b + 1024);
    tt__arena_give(&arena, a);
    tt__arena_give(&arena, b);
    assert_true(tt__arena_take_for(&arena, NULL, 1000) == b); /* though the other one is lower */
    assert_true(tt__arena_take_for(&arena, NULL, 1024) == a); /* what is over stays free */
    assert_true(tt__arena_take_for(&arena, NULL, 3072) == a + 1024);
    assert_int_equal(arena.most_used, 4096 + 512 + 1024 + 512);
    tt__arena_end(&arena);
}

static void memory_that_is_out_changes_nothing(void **state) {
    (void)state;
    tt__arena arena = new_arena(2 * step);
    uint64_t a = tt__arena_take_for(&arena, NULL, step + 1);
    assert_true(a == base);
    assert_int_equal(arena.backed, 2 * step);
    assert_true(tt__arena_take_for(&arena, NULL, step) == 0);
    assert_true(tt__arena_take_for(&arena, NULL, SIZE_MAX) == 0);
    assert_true(tt__arena_take_for(&arena, NULL, reserved + 1) == 0);
    assert_int_equal(tt__arena_largest_free(&arena), step - TT__ARENA_ALIGNMENT);
    assert_true(tt__arena_take_for(&arena, NULL, step - TT__ARENA_ALIGNMENT) == base + step + TT__ARENA_ALIGNMENT);
    assert_int_equal(tt__arena_largest_free(&arena), 0);
    tt__arena_give(&arena, a);
    tt__arena_give(&arena, a); /* of what is not taken nothing is given back */
    tt__arena_give(&arena, base + 1);
    assert_int_equal(arena.used_blocks, 1);
    tt__arena_end(&arena);
}

/* What is free at the end counts: it grows by what lacks. */
static void the_end_grows(void **state) {
    (void)state;
    tt__arena arena = new_arena(reserved);
    tt__arena_give(&arena, tt__arena_take_for(&arena, NULL, 1));
    assert_int_equal(arena.backed, step);
    assert_true(tt__arena_take_for(&arena, NULL, 3 * step) == base);
    assert_int_equal(arena.backed, 3 * step);
    tt__arena_end(&arena);
}

/* What is free at the end can be cut off, and be backed again. */
static void the_end_is_cut(void **state) {
    (void)state;
    tt__arena arena = new_arena(reserved);
    uint64_t a = tt__arena_take_for(&arena, NULL, 1), b = tt__arena_take_for(&arena, NULL, 3 * step);
    assert_int_equal(tt__arena_free_at_end(&arena), step - TT__ARENA_ALIGNMENT);
    tt__arena_give(&arena, b);
    assert_int_equal(tt__arena_free_at_end(&arena), 4 * step - TT__ARENA_ALIGNMENT);
    tt__arena_cut(&arena, 3 * step);
    assert_int_equal(arena.backed, step);
    assert_int_equal(tt__arena_largest_free(&arena), step - TT__ARENA_ALIGNMENT);
    assert_true(tt__arena_take_for(&arena, NULL, 3 * step) == b);
    tt__arena_give(&arena, b);
    tt__arena_give(&arena, a);
    tt__arena_cut(&arena, 4 * step); /* all of it */
    assert_int_equal(arena.backed, 0);
    assert_int_equal(tt__arena_free_at_end(&arena), 0);
    assert_true(tt__arena_take_for(&arena, NULL, 1) == a);
    tt__arena_end(&arena);
}

static void the_largest_are_counted(void **state) {
    (void)state;
    static const size_t sizes[] = {512, 4096, 1024, 4096, 2048, 512, 4096, 8192};
    size_t bytes[3], count[3];
    tt__arena arena = new_arena(reserved);
    assert_int_equal(tt__arena_largest_used(&arena, 3, bytes, count), 0);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        assert_true(tt__arena_take_for(&arena, NULL, sizes[i]) != 0);
    assert_int_equal(tt__arena_largest_used(&arena, 3, bytes, count), 3);
    assert_true(bytes[0] == 8192 && bytes[1] == 4096 && bytes[2] == 2048);
    assert_true(count[0] == 1 && count[1] == 3 && count[2] == 1);
    assert_int_equal(arena.takes, 8);
    tt__arena_end(&arena);
}

/* What a pool has had stays its own, and is used again by it alone, until it ends. */
static void a_pool_keeps_its_blocks(void **state) {
    (void)state;
    tt__arena arena = new_arena(step);
    tt__arena_pool pool = {{NULL}};
    uint64_t before = tt__arena_take_for(&arena, NULL, 1024), own = tt__arena_take_for(&arena, &pool, 4096),
             wall = tt__arena_take_for(&arena, NULL, 512), still = tt__arena_take_for(&arena, &pool, 512);
    tt__arena_give_to(&arena, &pool, before); /* another's, which work of the pool's may use */
    tt__arena_give(&arena, own);
    assert_int_equal(arena.used, 1024 + 4096 + 512 + 512);
    assert_true(tt__arena_take_for(&arena, NULL, 512) > still);    /* nothing of the pool's */
    assert_true(tt__arena_take_for(&arena, &pool, 512) == before); /* 1024 and 4096 are one block now */
    assert_true(tt__arena_take_for(&arena, &pool, 4096) == before + 512);
    tt__arena_give(&arena, before);
    tt__arena_give(&arena, before + 512);
    tt__arena_pool_end(&arena, &pool);
    assert_int_equal(arena.used, 3 * 512);
    tt__arena_give(&arena, wall);
    assert_true(tt__arena_take_for(&arena, NULL, 1024 + 4096 + 512) == before); /* one block with its neighbour */
    tt__arena_give(&arena, still); /* was the pool's, and is free for all */
    assert_true(tt__arena_take_for(&arena, NULL, 512) == still);
    tt__arena_end(&arena);
}

/* A pool's free end is neither grown nor cut. */
static void the_end_of_a_pool_stays(void **state) {
    (void)state;
    tt__arena arena = new_arena(3 * step);
    tt__arena_pool pool = {{NULL}};
    uint64_t a = tt__arena_take_for(&arena, &pool, step);
    tt__arena_give(&arena, a);
    assert_int_equal(tt__arena_free_at_end(&arena), 0);
    assert_true(tt__arena_take_for(&arena, NULL, 2 * step) == a + step);
    tt__arena_give(&arena, a + step);
    tt__arena_pool_end(&arena, &pool);
    assert_int_equal(tt__arena_largest_free(&arena), 3 * step);
    assert_int_equal(arena.used, 0);
    tt__arena_end(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_taken_is_apart),
        cmocka_unit_test(the_best_fit_is_taken),
        cmocka_unit_test(memory_that_is_out_changes_nothing),
        cmocka_unit_test(the_end_grows),
        cmocka_unit_test(the_end_is_cut),
        cmocka_unit_test(the_largest_are_counted),
        cmocka_unit_test(a_pool_keeps_its_blocks),
        cmocka_unit_test(the_end_of_a_pool_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
