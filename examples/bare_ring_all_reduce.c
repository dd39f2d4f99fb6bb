/* An all-reduce of one's own, of sends and receives around a ring, compared with Tutti's. Mirrors "Our Own
 * Ring-Allreduce" of PyTorch's tutorial "Writing Distributed Applications with PyTorch":
 *
 *     def allreduce(send, recv):
 *         send_buff, recv_buff, accum = send.clone(), send.clone(), send.clone()
 *         left, right = (rank - 1 + size) % size, (rank + 1) % size
 *         for i in range(size - 1):
 *             if i % 2 == 0:
 *                 send_req = dist.isend(send_buff, right); dist.recv(recv_buff, left); accum[:] += recv_buff[:]
 *             else:
 *                 send_req = dist.isend(recv_buff, right); dist.recv(send_buff, left); accum[:] += send_buff[:]
 *             send_req.wait()
 *         recv[:] = accum[:]
 *
 *   tutti run --nproc-per-node=4 build/examples/bare_ring_all_reduce
 *
 * Each rank adds in another order, so with numbers less round than these the ranks' sums would differ in their last
 * bits. Tutti's never do. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/comm.h>

#include "usage.h"

enum { N = 1000 };

/* out (N) goes to the right, while in (N) comes from the left. */
static tt_status shift(tt_group *world, float *out, float *in) {
    int rank = tt_get_rank(world), size = tt_get_world_size(world);
    tt_work *sent = NULL;
    tt_status status = tt_isend(&sent, world, out, N, TT_F32, (rank + 1) % size);
    if (!status)
        status = tt_recv(world, in, N, TT_F32, (rank + size - 1) % size);
    if (!status)
        status = tt_work_wait(sent);
    tt_work_free(sent);
    return status;
}

/* buf (N) := its sum over all ranks: the numbers of each rank pass by once. */
static tt_status ring_all_reduce(tt_group *world, float *buf) {
    float two[2][N];
    memcpy(two[0], buf, sizeof two[0]);
    for (int i = 0; i < tt_get_world_size(world) - 1; i++) {
        float *out = two[i % 2], *in = two[(i + 1) % 2];
        if (shift(world, out, in))
            return tt_last_status();
        for (int k = 0; k < N; k++)
            buf[k] += in[k];
    }
    return TT_OK;
}

static const char usage[] = "usage: tutti run --nproc-per-node=N bare_ring_all_reduce\n"
                            "An all-reduce of sends and receives around a ring, beside Tutti's.\n";

int main(int argc, char **argv) {
    int rc = EXIT_FAILURE;
    tt_group *world = NULL;
    float mine[N], theirs[N];

    if (argc > 1)
        return tell_usage(usage, argv[1]);
    if (tt_init_process_group(&world))
        goto out;
    for (int k = 0; k < N; k++)
        mine[k] = theirs[k] = (float)(k + tt_get_rank(world));
    if (ring_all_reduce(world, mine) || tt_all_reduce(world, theirs, N, TT_F32, TT_SUM))
        goto out;
    printf("rank %d: last sum %g, %s\n", tt_get_rank(world), (double)mine[N - 1],
           memcmp(mine, theirs, sizeof mine) ? "DIFFERENT from all_reduce" : "the same as all_reduce");
    rc = EXIT_SUCCESS;
out:
    if (rc)
        tt_report();
    tt_destroy_process_group(world);
    return rc;
}
