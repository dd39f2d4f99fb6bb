/* A rank that lies of itself where the workers of a group join: the others' tt_rpc_init() fails, and says who lies. */
#include "support/ranks.h"

#include "rpc/workers/network.h"

#include <tutti/rpc.h>

enum { WORLD = 3 };

/* As network_group.c has it. */
typedef struct card {
    char name[TT__RPC_NAME_SIZE];
    uint64_t functions;
    uint64_t functions_bytes;
    int64_t any_functions;
} card;

typedef struct lie {
    int rank; /* of who lies */
    card card;
    const char *expected;
} lie;

static void tell_lie(tt_group *group, const lie *lie) {
    card all[WORLD];
    tt_group *own = NULL;
    CHECK_OK(tt_new_group_with(
        TT_ARGS(tt_new_group_args, &own, group, ((const int[]){0, 1, 2}), WORLD, .file = "tt_rpc_init")));
    CHECK_OK(tt_all_gather_with(
        TT_ARGS(tt_all_gather_args, own, &lie->card, all, (int64_t)sizeof *all, TT_U8, .file = "tt_rpc_init")));
    tt_destroy_process_group(own);
}

static int join_with_liar(tt_store *store, int rank, int world, void *arg) {
    const lie *lie = arg;
    tt_group *group = NULL;
    tt_rpc *rpc = NULL;
    CHECK_OK(tt_init_process_group(&group, .store = store, .rank = rank, .world_size = world, .timeout_ms = PATIENCE_MS,
                                   .heartbeat_ms = CALM_MS));
    if (rank == lie->rank) {
        tell_lie(group, lie);
    } else {
        CHECK(tt_rpc_init(&rpc, rank ? "honest1" : "honest0", .group = group) == TT_ERR_MISMATCH && !rpc);
        CHECK(strstr(tt_last_error(), lie->expected));
    }
    tt_destroy_process_group(group);
    return 0;
}

static void liars_are_named(void **state) {
    static const lie lies[] = {
        {2, {.name = "\x1b[2Jx"}, "rank 2 says"},
        {2, {.name = ""}, "rank 2 says"},
        {0, {.name = "w", .functions = 1, .functions_bytes = UINT64_MAX}, "rank 0 says"},
        {0, {.name = "w", .functions = 1, .functions_bytes = UINT64_C(1) << 36}, "rank 0 says"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        lie lie = lies[i];
        with_ranks(WORLD, join_with_liar, &lie);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(liars_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
