/* Topology: what hwloc says of machines made up for it, and the order in which ranks turn to each other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "comm/shared/placement.h"

static void synthetic(tt__topology *topology, const char *machine) {
    assert_int_equal(setenv("HWLOC_SYNTHETIC", machine, 1), 0);
    if (!tt__topology_read(topology))
        skip(); /* no libhwloc here */
}

/* Ranks on one CPU each, `stride` apart. */
static void place_ranks(const tt__topology *topology, int n, int stride, tt__place *places) {
    for (int r = 0; r < n; r++) {
        uint64_t mask[TT__TOPOLOGY_MASK_WORDS] = {0};
        mask[r * stride / 64] |= UINT64_C(1) << (r * stride % 64);
        places[r] = tt__topology_place(topology, mask);
    }
}

/* Fill the mask with the CPUs first..last. */
static const uint64_t *mask_of(uint64_t *mask, int first, int last) {
    memset(mask, 0, TT__CPU_MASK_WORDS * sizeof *mask);
    for (int cpu = first; cpu <= last; cpu++)
        mask[cpu / 64] |= UINT64_C(1) << cpu % 64;
    return mask;
}

static void ranks_share_the_cpus_that_they_may_use(void **state) {
    (void)state;
    uint64_t space[4][TT__CPU_MASK_WORDS];
    const uint64_t *masks[4];
    for (int r = 0; r < 4; r++) /* nobody is tied to a CPU */
        masks[r] = mask_of(space[r], 0, 127);
    assert_int_equal(tt__cpu_share_of(masks, 4, 2, 0, 128), 32);
    assert_int_equal(tt__cpu_share_of(masks, 3, 0, 0, 128), 42);
    assert_int_equal(tt__cpu_share_of(masks, 1, 0, 3, 128), 32);
    assert_int_equal(tt__cpu_share_of(masks, 4, 2, 0, 8), 2); /* a cgroup's limit holds for all of them */
    assert_int_equal(tt__cpu_share_of(masks, 4, 2, 0, 1), 1);
    for (int r = 0; r < 4; r++) /* srun --cpus-per-task=4 */
        masks[r] = mask_of(space[r], 4 * r, 4 * r + 3);
    for (int r = 0; r < 4; r++)
        assert_int_equal(tt__cpu_share_of(masks, 4, r, 0, 4), 4);
    for (int r = 0; r < 4; r++) /* mpirun --bind-to socket: three ranks on the first, one on the second */
        masks[r] = mask_of(space[r], r < 3 ? 0 : 8, r < 3 ? 7 : 15);
    assert_int_equal(tt__cpu_share_of(masks, 4, 0, 0, 8), 2);
    assert_int_equal(tt__cpu_share_of(masks, 4, 3, 0, 8), 8);
    for (int r = 0; r < 3; r++) /* three thirds are one */
        masks[r] = mask_of(space[r], 0, 2);
    assert_int_equal(tt__cpu_share_of(masks, 3, 1, 0, 3), 1);
    assert_int_equal(tt__cpu_share_of(masks, 4, 1, 4, 3), 1);
    masks[0] = mask_of(space[0], 1, 0); /* CPUs beyond those that masks have */
    masks[1] = masks[0];
    assert_int_equal(tt__cpu_share_of(masks, 2, 0, 0, 64), 32);
}

static void nodes_and_caches_are_numbered(void **state) {
    (void)state;
    static tt__topology t;
    synthetic(&t, "pack:2 [numa] l3:2 core:4 pu:1");
    assert_int_equal(t.nodes, 2);
    assert_int_equal(t.caches, 4);
    for (int cpu = 0; cpu < 16; cpu++) {
        assert_int_equal(t.node_of[cpu], cpu / 8);
        assert_int_equal(t.cache_of[cpu], cpu / 4);
    }
    assert_int_equal(t.node_of[16], TT__NOWHERE);
}

static void a_machine_without_l3_has_l2(void **state) {
    (void)state;
    static tt__topology t;
    synthetic(&t, "numa:1 l2:3 core:1 pu:2");
    assert_int_equal(t.nodes, 1);
    assert_int_equal(t.caches, 3);
    assert_int_equal(t.cache_of[5], 2);
}

static void a_rank_of_several_places_is_nowhere(void **state) {
    (void)state;
    static tt__topology t;
    synthetic(&t, "pack:2 [numa] l3:2 core:4 pu:1");
    uint64_t mask[TT__TOPOLOGY_MASK_WORDS] = {0x30}; /* CPUs 4, 5 */
    tt__place place = tt__topology_place(&t, mask);
    assert_int_equal(place.node, 0);
    assert_int_equal(place.cache, 1);
    mask[0] = 0x81; /* 0, 7: one node, two caches */
    place = tt__topology_place(&t, mask);
    assert_int_equal(place.node, 0);
    assert_int_equal(place.cache, TT__NOWHERE);
    mask[0] = 0xffff;
    place = tt__topology_place(&t, mask);
    assert_int_equal(place.node, TT__NOWHERE);
    mask[0] = 0;
    place = tt__topology_place(&t, mask);
    assert_int_equal(place.node, TT__NOWHERE);
}

/* Every rank turns to all, itself last, and in each round to another than everybody else. */
static void check_order(const tt__place *places, int n, uint8_t order[64][64]) {
    for (int r = 0; r < n; r++) {
        uint64_t seen = 0;
        tt__topology_order(places, n, r, order[r]);
        for (int i = 0; i < n; i++)
            seen |= UINT64_C(1) << order[r][i];
        assert_true(seen == (n == 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1));
        assert_int_equal(order[r][n - 1], r);
    }
    for (int i = 0; i < n; i++) {
        uint64_t asked = 0;
        for (int r = 0; r < n; r++)
            asked |= UINT64_C(1) << order[r][i];
        assert_int_equal(__builtin_popcountll(asked), n);
    }
}

static void neighbours_come_first(void **state) {
    (void)state;
    static tt__topology t;
    static uint8_t order[64][64];
    tt__place places[64];
    synthetic(&t, "pack:2 [numa] l3:2 core:4 pu:1");
    place_ranks(&t, 16, 1, places);
    check_order(places, 16, order);
    for (int i = 0; i < 3; i++)
        assert_int_equal(places[order[4][i]].cache, 1);
    for (int i = 0; i < 3; i++) /* the rest of the node comes before the other node */
        assert_int_equal(places[order[0][i]].cache, 0);
    for (int i = 3; i < 7; i++)
        assert_int_equal(places[order[0][i]].node, 0);
}

/* Ranks dealt out to the nodes in turn, as some launchers do. */
static void ranks_that_are_dealt_out_find_their_neighbours(void **state) {
    (void)state;
    static uint8_t order[64][64];
    tt__place places[8];
    for (int r = 0; r < 8; r++)
        places[r] = (tt__place){r % 2, r % 2};
    check_order(places, 8, order);
    static const uint8_t of_2[] = {4, 6, 1, 3, 5, 7, 0, 2};
    assert_memory_equal(order[2], of_2, sizeof of_2);
}

static void nothing_known_is_by_rank(void **state) {
    (void)state;
    static uint8_t order[64][64];
    static tt__place places[64];
    for (int r = 0; r < 64; r++)
        places[r] = (tt__place){TT__NOWHERE, TT__NOWHERE};
    check_order(places, 64, order);
    for (int i = 0; i < 64; i++)
        assert_int_equal(order[5][i], (6 + i) % 64);
}

static void text_names_places(void **state) {
    (void)state;
    static const tt__place places[] = {{0, 0}, {0, 0}, {0, 1}, {1, TT__NOWHERE}, {TT__NOWHERE, TT__NOWHERE}};
    char text[256], small[20];
    tt__topology_text(places, 5, text, sizeof text);
    assert_string_equal(text, "ranks 0-1 on NUMA node 0, cache 0; rank 2 on NUMA node 0, cache 1; "
                              "rank 3 on NUMA node 1, several caches; rank 4 on several NUMA nodes, several caches");
    tt__topology_text(places, 5, small, sizeof small);
    assert_string_equal(small, "ranks 0-1 on NUMA n");
}

static void this_machine_is_read(void **state) {
    (void)state;
    unsetenv("HWLOC_SYNTHETIC");
    const tt__topology *t = tt__topology_get();
    if (!t->nodes)
        skip(); /* no libhwloc here */
    assert_ptr_equal(tt__topology_get(), t);
    int known = 0;
    for (int cpu = 0; cpu < TT__TOPOLOGY_CPUS; cpu++)
        known += t->node_of[cpu] != TT__NOWHERE;
    assert_true(known > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_share_the_cpus_that_they_may_use),
        cmocka_unit_test(nodes_and_caches_are_numbered),
        cmocka_unit_test(a_machine_without_l3_has_l2),
        cmocka_unit_test(a_rank_of_several_places_is_nowhere),
        cmocka_unit_test(neighbours_come_first),
        cmocka_unit_test(ranks_that_are_dealt_out_find_their_neighbours),
        cmocka_unit_test(nothing_known_is_by_rank),
        cmocka_unit_test(text_names_places),
        cmocka_unit_test(this_machine_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
