/* Each collective, with one number a rank: rank 0 prints the results, and at the end receives messages from any rank.
 * Mirrors the list of collectives in PyTorch's tutorial "Writing Distributed Applications with PyTorch":
 *
 *     dist.broadcast(tensor, src)                     dist.all_gather(tensor_list, tensor)
 *     dist.reduce(tensor, dst, op)                    dist.reduce_scatter(output, input_list, op)
 *     dist.all_reduce(tensor, op)                     dist.all_reduce_coalesced([a, b], op)
 *     dist.scatter(tensor, scatter_list, src)         dist.monitored_barrier(timeout=timedelta(seconds=5))
 *     dist.gather(tensor, gather_list, dst)           sender = dist.recv(tensor)         # from anybody
 *
 *   tutti run --nproc-per-node=3 build/examples/bare_collectives */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <tutti/comm.h>

#include "usage.h"

enum { MOST = 8 }; /* ranks */

/* "gather: 1 2 3", on rank 0. */
static void show(const tt_group *world, const char *what, const int64_t *values, int n) {
    if (tt_get_rank(world) != 0)
        return;
    printf("%s:", what);
    for (int i = 0; i < n; i++)
        printf(" %" PRId64, values[i]);
    printf("\n");
}

/* Collectives with a root: one rank gives to all, or all to one. */
static tt_status rooted(tt_group *world) {
    int ranks = tt_get_world_size(world);
    int64_t x = tt_get_rank(world) + 1, all[MOST] = {10, 20, 30, 40, 50, 60, 70, 80};
    int64_t from_last = x, sum = x, part = 0;
    if (tt_broadcast(world, &from_last, 1, TT_I64, /* root */ ranks - 1) ||
        tt_reduce(world, &sum, 1, TT_I64, TT_SUM, /* root */ 0) ||
        tt_scatter(world, all, &part, 1, TT_I64, /* root */ 0) || tt_gather(world, &x, all, 1, TT_I64, /* root */ 0))
        return tt_last_status();
    show(world, "broadcast", &from_last, 1);
    show(world, "reduce", &sum, 1);
    show(world, "scatter", &part, 1);
    show(world, "gather", all, ranks);
    return TT_OK;
}

/* Collectives in which every rank gets a result. */
static tt_status mutual(tt_group *world) {
    int rank = tt_get_rank(world), ranks = tt_get_world_size(world);
    int64_t x = rank + 1, most = x, all[MOST] = {0}, parts[MOST], part = 0, a = x, b[2] = {10 * x, 100 * x};
    void *const bufs[] = {&a, b};
    for (int r = 0; r < ranks; r++)
        parts[r] = 10 * (r + 1) + x;
    if (tt_all_reduce(world, &most, 1, TT_I64, TT_MAX) || tt_all_gather(world, &x, all, 1, TT_I64) ||
        tt_reduce_scatter(world, parts, &part, 1, TT_I64, TT_SUM) ||
        tt_all_reduce_coalesced(world, bufs, ((int64_t[]){1, 2}), 2, TT_I64, TT_SUM))
        return tt_last_status();
    show(world, "all_reduce", &most, 1);
    show(world, "all_gather", all, ranks);
    show(world, "reduce_scatter", &part, 1);
    show(world, "all_reduce_coalesced", (int64_t[]){a, b[0], b[1]}, 3);
    return TT_OK;
}

/* Uneven collectives: rank r has r + 1 numbers for all. */
static tt_status uneven(tt_group *world) {
    int rank = tt_get_rank(world), ranks = tt_get_world_size(world);
    int64_t mine[MOST], all[MOST * (MOST + 1) / 2];
    int64_t counts[MOST];
    for (int r = 0; r < ranks; r++) {
        counts[r] = r + 1;
        mine[r] = 10 * rank + r;
    }
    if (tt_all_gather_v(world, mine, all, counts, NULL, TT_I64))
        return tt_last_status();
    show(world, "all_gather_v", all, ranks * (ranks + 1) / 2);
    return TT_OK;
}

/* Add up, on rank 0, the numbers that the others send, in the order in which they arrive. */
static tt_status from_anybody(tt_group *world) {
    int64_t x = tt_get_rank(world), sum = 0;
    int source = -1, sources = 0;
    if (x != 0)
        return tt_send(world, &x, 1, TT_I64, /* to */ 0);
    for (int i = 1; i < tt_get_world_size(world); i++) {
        if (tt_recv(world, &x, 1, TT_I64, TT_ANY_SOURCE, .source = &source))
            return tt_last_status();
        sum += x;
        sources += source;
    }
    show(world, "recv", (int64_t[]){sum, sources}, 2);
    return TT_OK;
}

static const char usage[] = "usage: tutti run --nproc-per-node=N bare_collectives\n"
                            "Each collective, with one number a rank.\n";

int main(int argc, char **argv) {
    int rc = EXIT_FAILURE;
    tt_group *world = NULL;

    if (argc > 1)
        return tell_usage(usage, argv[1]);
    if (tt_init_process_group(&world))
        goto out;
    if (tt_get_world_size(world) > MOST) {
        fprintf(stderr, "bare_collectives: at most %d ranks\n", MOST);
        goto out;
    }
    if (rooted(world) || mutual(world) || uneven(world) || from_anybody(world))
        goto out;
    if (tt_monitored_barrier(world, .timeout_ms = 5000)) /* whoever does not come is named on rank 0 */
        goto out;
    rc = EXIT_SUCCESS;
out:
    if (rc)
        tt_report();
    tt_destroy_process_group(world);
    return rc;
}
