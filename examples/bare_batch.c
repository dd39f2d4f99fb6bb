/* Neighbours exchange the edges of their parts of a line, as a solver of a differential equation does in each step.
 * Mirrors the Python
 *
 *     ops = [dist.P2POp(dist.isend, part[1:2], left), dist.P2POp(dist.irecv, part[0:1], left),
 *            dist.P2POp(dist.isend, part[-2:-1], right), dist.P2POp(dist.irecv, part[-1:], right)]
 *     for req in dist.batch_isend_irecv(ops):
 *         req.wait()
 *
 *   tutti run --nproc-per-node=3 build/examples/bare_batch
 *
 * Heat flows along a rod whose left end is kept at 1 and whose right end at 0, until it falls evenly from one end to
 * the other. */
#include <stdio.h>
#include <stdlib.h>
#include <tutti/comm.h>

#include "usage.h"

enum { CELLS = 4, STEPS = 2000, TO_LEFT = 0, TO_RIGHT = 1 };

/* part (CELLS + 2): the first and the last belong to the neighbours, or are the ends of the rod. */
static tt_status exchange_edges(tt_group *world, float *part) {
    int left = tt_get_rank(world) - 1, right = tt_get_rank(world) + 1;
    tt_p2p_op ops[4];
    int n = 0;
    if (left >= 0) {
        ops[n++] = tt_send_op(&part[1], 1, TT_F32, left, .tag = TO_LEFT);
        ops[n++] = tt_recv_op(&part[0], 1, TT_F32, left, .tag = TO_RIGHT);
    }
    if (right < tt_get_world_size(world)) {
        ops[n++] = tt_send_op(&part[CELLS], 1, TT_F32, right, .tag = TO_RIGHT);
        ops[n++] = tt_recv_op(&part[CELLS + 1], 1, TT_F32, right, .tag = TO_LEFT);
    }
    return tt_batch_isend_irecv(world, ops, n); /* begins all, then waits for all: neighbours may come in any order */
}

/* Set every cell to the mean of its neighbours. */
static void diffuse(float *part) {
    float before = part[0];
    for (int i = 1; i <= CELLS; i++) {
        float mean = (before + part[i + 1]) / 2;
        before = part[i];
        part[i] = mean;
    }
}

static const char usage[] = "usage: tutti run --nproc-per-node=N bare_batch\n"
                            "Neighbours exchange the edges of their parts of a line.\n";

int main(int argc, char **argv) {
    int rc = EXIT_FAILURE;
    tt_group *world = NULL;
    float part[CELLS + 2] = {0};

    if (argc > 1)
        return tell_usage(usage, argv[1]);
    if (tt_init_process_group(&world))
        goto out;
    if (tt_get_rank(world) == 0)
        part[0] = 1;
    for (int step = 0; step < STEPS; step++) {
        if (exchange_edges(world, part))
            goto out;
        diffuse(part);
    }
    printf("rank %d: %.3f %.3f %.3f %.3f\n", tt_get_rank(world), (double)part[1], (double)part[2], (double)part[3],
           (double)part[4]);
    rc = EXIT_SUCCESS;
out:
    if (rc)
        tt_report();
    tt_destroy_process_group(world);
    return rc;
}
