/* Memory that runs out on one rank in a pass that exchanges sparse gradients, at each allocation in turn: the other
 * rank is told so, or done, without waiting for a timeout, and neither keeps anything. */
#include <string.h>
#include <tutti/tutti.h>

#include "support/ranks.h"
#include "unit/alloc_fail.h"

enum { ROWS = 40, COLUMNS = 6, READ = 5, FAILING = 1 };

/* How the other rank's passes have ended. */
typedef struct seen {
    int done, told, aborted, left;
} seen;

static tt_status pass_over_rows(tt_module *ddp, int rank) {
    TT_AUTO_SCOPE;
    int64_t row[READ];
    for (int i = 0; i < READ; i++)
        row[i] = (rank * 3 + i * 7) % ROWS;
    tt_tensor *x = tt_from_data(row, TT_SHAPE(READ), TT_I64);
    return tt_backward(tt_sum(tt_module_forward(ddp, x)));
}

static void note_end(seen *seen, tt_status status) {
    seen->done += status == TT_OK;
    seen->told += strstr(tt_last_error(), "rank 1 failed; its error says why") != NULL;
    seen->aborted += status == TT_ERR_ABORTED && strstr(tt_last_error(), "no memory");
    seen->left += status == TT_ERR_PEER && strstr(tt_last_error(), "rank 1");
}

/* Has an allocation failed in this round? */
static bool one_round(tt_group *all, int rank, long number, seen *seen) {
    tt_group *group;
    CHECK_OK(tt_group_split(&group, all, 0, rank));
    tt_module *model = tt_nn_sequential(tt_nn_embedding(ROWS, COLUMNS, .sparse = true), tt_nn_linear(COLUMNS, 2));
    tt_module *ddp = tt_ddp(model, group);
    CHECK(ddp);
    tt__pool_trim();
    tt_clear_error();
    if (rank == FAILING)
        alloc_fail_nth(number);
    tt_status status = pass_over_rows(ddp, rank);
    int64_t failed = rank == FAILING && alloc_fail_end();
    CHECK(rank != FAILING || !failed || !status || *tt_last_error());
    CHECK(rank != FAILING || failed || !status);
    tt_group *ended = status ? group : NULL; /* so that the other doesn't wait in a call that won't come */
    if (ended)
        tt_destroy_process_group(ended);
    if (rank != FAILING) {
        note_end(seen, status);
        if (status && status != TT_ERR_PEER && status != TT_ERR_ABORTED && status != TT_ERR_STATE)
            fprintf(stderr, "allocation %ld: %s\n", number, tt_last_error());
        CHECK(!status || status == TT_ERR_PEER || status == TT_ERR_ABORTED || status == TT_ERR_STATE);
    }
    tt_module_free(ddp);
    tt_module_free(model);
    if (!ended)
        tt_destroy_process_group(group);
    CHECK_OK(tt_all_reduce(all, &failed, 1, TT_I64, TT_MAX));
    return failed;
}

/* What a job keeps for its groups goes with its last one: blocks are counted around a whole job. */
static long play_job(tt_store *store, const char *name, int rank, bool fails, seen *seen) {
    tt_store *own = NULL;
    CHECK_OK(tt_prefix_store(&own, name, store));
    tt_group *all = join_group(own, rank, 2);
    long rounds = 0;
    for (bool failed = true; failed; rounds++)
        failed = one_round(all, rank, fails ? rounds + 1 : 1 << 30, seen);
    tt_destroy_process_group(all);
    tt_store_free(own);
    return rounds;
}

static int each_allocation(tt_store *store, int rank, int world, void *arg) {
    (void)world, (void)arg;
    seen seen = {0};
    play_job(store, "first", rank, false, &seen);
    play_job(store, "second", rank, false, &seen);
    const long before = alloc_in_use();
    const long rounds = play_job(store, "failing", rank, true, &seen);
    const long after = alloc_in_use();
    if (rank != FAILING)
        print_message("%ld rounds: %d done, %d told, %d aborted, %d left\n", rounds, seen.done, seen.told, seen.aborted,
                      seen.left);
    if (after != before)
        fprintf(stderr, "rank %d: blocks %ld -> %ld\n", rank, before, after);
    CHECK(after == before);
    CHECK(rank == FAILING || (seen.done > 2 && seen.aborted && seen.left));
    return 0;
}

static void the_other_rank_is_told(void **state) {
    (void)state;
    if (!alloc_count_works)
        skip();
    with_ranks(2, each_allocation, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_other_rank_is_told)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
