/* Meshes of ranks: coordinates, groups, parts, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <tutti/mesh.h>

#include <cmocka.h>

#include "support/ranks.h"

/* Check that `group` has these global ranks, in this order. */
static void check_ranks(tt_group *group, const int *expected, int count) {
    CHECK(group && tt_get_world_size(group) == count);
    for (int r = 0; r < count; r++)
        CHECK(tt_get_global_rank(group, r) == expected[r]);
    int sum = 1;
    CHECK_OK(tt_all_reduce(group, &sum, 1, TT_I32, TT_SUM));
    CHECK(sum == count);
}

/* {"pp", 1}, {"dp", 2}, {"tp", 3}: rank = 3 dp + tp. */
static void two_by_three(tt_group *world, int rank, void *user) {
    (void)user;
    tt_mesh *mesh = NULL;
    int64_t at[3];
    CHECK_OK(tt_init_device_mesh(&mesh, world, {"pp", 1}, {"dp", -1}, {"tp", 3}));
    CHECK(tt_mesh_ndim(mesh) == 3 && strcmp(tt_mesh_dim_name(mesh, 1), "dp") == 0 && !tt_mesh_dim_name(mesh, 3));
    CHECK(tt_mesh_size(mesh, NULL) == 6 && tt_mesh_size(mesh, "dp") == 2 && tt_mesh_size(mesh, "tp") == 3);
    CHECK_OK(tt_mesh_get_coordinate(mesh, at));
    CHECK(at[0] == 0 && at[1] == rank / 3 && at[2] == rank % 3);
    CHECK(tt_mesh_get_local_rank(mesh, "dp") == rank / 3 && tt_mesh_get_local_rank(mesh, "tp") == rank % 3);
    CHECK(tt_get_rank(tt_mesh_get_group(mesh, "tp")) == rank % 3);
    check_ranks(tt_mesh_get_group(mesh, "pp"), (int[]){rank}, 1);
    check_ranks(tt_mesh_get_group(mesh, "dp"), (int[]){rank % 3, rank % 3 + 3}, 2);
    int first = rank / 3 * 3;
    check_ranks(tt_mesh_get_group(mesh, "tp"), (int[]){first, first + 1, first + 2}, 3);
    tt_mesh_free(mesh);
}

/* A slice has the groups of the mesh, and outlives it; what is flattened is numbered in the slice's order. */
static void parts(tt_group *world, int rank, void *user) {
    (void)user;
    tt_mesh *mesh = NULL, *flat = NULL;
    CHECK_OK(tt_init_device_mesh(&mesh, world, {"dp", 2}, {"cp", 2}, {"tp", 2}));
    tt_mesh *inner = tt_mesh_slice(mesh, "dp", "tp"), *line = tt_mesh_slice(mesh, "cp");
    CHECK(inner && line);
    tt_group *tp = tt_mesh_get_group(mesh, "tp");
    CHECK(tt_mesh_get_group(inner, "tp") == tp);
    CHECK(tt_mesh_ndim(inner) == 2 && tt_mesh_size(inner, NULL) == 4 && !tt_mesh_get_group(inner, "cp"));
    CHECK(tt_last_status() == TT_ERR_NOT_FOUND);
    CHECK_TEXT("no dimension \"cp\"; it has \"dp\", \"tp\"");
    CHECK(tt_mesh_get_group(line, NULL) == tt_mesh_get_group(mesh, "cp"));
    tt_mesh_free(mesh);
    CHECK_OK(tt_mesh_flatten(&flat, inner, "dp_tp"));
    int cp = rank / 2 % 2;
    check_ranks(tt_mesh_get_group(flat, NULL), (int[]){2 * cp, 2 * cp + 1, 2 * cp + 4, 2 * cp + 5}, 4);
    CHECK(tt_mesh_get_local_rank(flat, "dp_tp") == rank / 4 * 2 + rank % 2);
    tt_mesh *turned = tt_mesh_slice(inner, "tp", "dp"), *again = NULL;
    CHECK_OK(tt_mesh_flatten(&again, turned, "tp_dp"));
    check_ranks(tt_mesh_get_group(again, NULL), (int[]){2 * cp, 2 * cp + 4, 2 * cp + 1, 2 * cp + 5}, 4);
    check_ranks(tp, (int[]){rank / 2 * 2, rank / 2 * 2 + 1}, 2); /* the slices keep it */
    tt_mesh_free(inner), tt_mesh_free(flat), tt_mesh_free(line), tt_mesh_free(turned), tt_mesh_free(again);
}

/* Each refusal is the same error on every rank, and leaves the group usable. */
static void refused(tt_group *world, int rank, void *user) {
    (void)user;
    tt_mesh *mesh = (tt_mesh *)world;
    CHECK(tt_init_device_mesh(&mesh, world, {"dp", 2}, {"tp", 3}) == TT_ERR_INVALID && !mesh);
    CHECK_TEXT("a mesh of 2 x 3 does not fit the 4 ranks of the group");
    CHECK(tt_init_device_mesh(&mesh, world, {"dp", -1}, {"tp", 3}) == TT_ERR_INVALID);
    CHECK_TEXT("-1 x 3 does not fit");
    CHECK(tt_init_device_mesh(&mesh, world, {"dp", 2}, {"dp", 2}) == TT_ERR_INVALID);
    CHECK_TEXT("dimensions 0 and 1 have one name, \"dp\"");
    CHECK(tt_init_device_mesh(&mesh, world, {"dp", 4}, {NULL, 1}) == TT_ERR_INVALID);
    CHECK_TEXT("dimension 1 has no name");
    CHECK(tt_init_device_mesh(&mesh, world, {"dp", -1}, {"tp", -1}) == TT_ERR_INVALID);
    CHECK_TEXT("dimension \"tp\": expected a size of at least 1, or -1 in one dimension, got -1");
    CHECK(tt_init_device_mesh(&mesh, world, {"a", INT64_MAX}, {"b", INT64_MAX}) == TT_ERR_INVALID);
    CHECK(tt_init_device_mesh(&mesh, world, {"dp", 2}, {rank == 3 ? "mp" : "tp", 2}) == TT_ERR_MISMATCH);
    CHECK_TEXT("rank 3 has dimension 1 \"mp\" of 2 where rank 0 has dimension 1 \"tp\" of 2");
    CHECK_OK(tt_init_device_mesh(&mesh, world, {"dp", 2}, {"tp", 2}));
    CHECK(!tt_mesh_slice(mesh, "dp", "dp") && tt_last_status() == TT_ERR_INVALID);
    CHECK(!tt_mesh_get_group(mesh, NULL) && tt_mesh_get_local_rank(mesh, "x") == -1 && tt_mesh_size(mesh, "x") == -1);
    tt_mesh *flat = NULL;
    CHECK(tt_mesh_flatten(&flat, mesh, rank == 1 ? "other" : "all") == TT_ERR_MISMATCH && !flat);
    CHECK_TEXT("rank 1 has a dimension \"other\"");
    tt_mesh_free(mesh);
}

/* Other dimensions, or another order, of as many: named, where the groups would be of other ranks. */
static void flattened_apart(tt_group *world, int rank, void *user) {
    (void)user;
    tt_mesh *mesh = NULL, *flat = NULL;
    CHECK_OK(tt_init_device_mesh(&mesh, world, {"dp", 2}, {"cp", 1}, {"tp", 2}));
    tt_mesh *other = rank % 2 ? tt_mesh_slice(mesh, "dp", "cp") : tt_mesh_slice(mesh, "cp", "tp");
    CHECK(tt_mesh_flatten(&flat, other, "x") == TT_ERR_MISMATCH && !flat);
    CHECK_TEXT("rank 1 has dimension 0 \"dp\" of 2 where rank 0 has dimension 0 \"cp\" of 1");
    tt_mesh *turned = rank == 3 ? tt_mesh_slice(mesh, "tp", "dp") : tt_mesh_slice(mesh, "dp", "tp");
    CHECK(tt_mesh_flatten(&flat, turned, "x") == TT_ERR_MISMATCH && !flat);
    CHECK_TEXT("rank 3 has dimension 0 \"tp\" of 2 where rank 0 has dimension 0 \"dp\" of 2");
    tt_mesh_free(mesh), tt_mesh_free(other), tt_mesh_free(turned);
}

/* What is made of a mesh, also of a slice, waits no longer than it. */
static void flat_timeout(tt_group *world, int rank, void *user) {
    (void)user;
    tt_mesh *mesh = NULL, *flat = NULL;
    CHECK_OK(tt_init_device_mesh_with(TT_ARGS(tt_init_device_mesh_args, .out = &mesh, .group = world,
                                              .dims = (tt_mesh_dim[]){{"dp", 2}, {"tp", 1}}, .count = 2,
                                              .timeout_ms = 400)));
    tt_mesh *slice = tt_mesh_slice(mesh, "tp", "dp");
    CHECK_OK(tt_mesh_flatten(&flat, slice, "x"));
    int sum = 1;
    if (rank == 0) {
        CHECK(tt_all_reduce(tt_mesh_get_group(flat, NULL), &sum, 1, TT_I32, TT_SUM) == TT_ERR_TIMEOUT);
        CHECK_TEXT("400 ms");
        CHECK_OK(tt_send(world, &sum, 1, TT_I32, 1));
    } else {
        CHECK_OK(tt_recv(world, &sum, 1, TT_I32, 0));
    }
    tt_mesh_free(mesh), tt_mesh_free(slice), tt_mesh_free(flat);
}

static void test_mesh(void **state) {
    (void)state;
    assert_int_equal(run_ranks(6, two_by_three, NULL), 0);
}

static void test_slices(void **state) {
    (void)state;
    assert_int_equal(run_ranks(8, parts, NULL), 0);
}

static void test_refused_meshes(void **state) {
    (void)state;
    assert_int_equal(run_ranks(4, refused, NULL), 0);
    assert_int_equal(run_ranks(4, flattened_apart, NULL), 0);
    assert_int_equal(run_ranks(2, flat_timeout, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mesh),
        cmocka_unit_test(test_slices),
        cmocka_unit_test(test_refused_meshes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
