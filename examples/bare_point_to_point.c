/* Rank 0 sends a number to rank 1: blocking, then non-blocking. Mirrors "Point-to-Point Communication" of PyTorch's
 * tutorial "Writing Distributed Applications with PyTorch":
 *
 *     if rank == 0:
 *         dist.send(tensor=tensor, dst=1)             # and req = dist.isend(tensor=tensor, dst=1)
 *     else:
 *         dist.recv(tensor=tensor, src=0)             # and req = dist.irecv(tensor=tensor, src=0)
 *     req.wait()
 *     print('Rank ', rank, ' has data ', tensor[0])
 *
 *   tutti run --nproc-per-node=2 build/examples/bare_point_to_point */
#include <stdio.h>
#include <stdlib.h>
#include <tutti/comm.h>

#include "usage.h"

static tt_status blocking(tt_group *world, float *tensor) {
    if (tt_get_rank(world) == 0)
        return tt_send(world, tensor, 1, TT_F32, /* to */ 1);
    if (tt_get_rank(world) == 1)
        return tt_recv(world, tensor, 1, TT_F32, /* from */ 0);
    return TT_OK;
}

/* Between the call and the wait the buffer belongs to Tutti: a sender must not write it, a receiver not read it. */
static tt_status non_blocking(tt_group *world, float *tensor) {
    tt_work *work = NULL;
    tt_status status = TT_OK;
    if (tt_get_rank(world) == 0)
        status = tt_isend(&work, world, tensor, 1, TT_F32, /* to */ 1);
    else if (tt_get_rank(world) == 1)
        status = tt_irecv(&work, world, tensor, 1, TT_F32, /* from */ 0);
    if (work) /* here is time for other things */
        status = tt_work_wait(work);
    tt_work_free(work);
    return status;
}

static const char usage[] = "usage: tutti run --nproc-per-node=2 bare_point_to_point\n"
                            "Rank 0 sends a number to rank 1.\n";

int main(int argc, char **argv) {
    int rc = EXIT_FAILURE;
    tt_group *world = NULL;
    float tensor = 0;

    if (argc > 1)
        return tell_usage(usage, argv[1]);
    if (tt_init_process_group(&world))
        goto out;
    int rank = tt_get_rank(world);
    tensor = rank == 0 ? 1 : 0;
    if (blocking(world, &tensor))
        goto out;
    printf("blocking: rank %d has %g\n", rank, (double)tensor);
    tensor = rank == 0 ? 2 : 0;
    if (non_blocking(world, &tensor))
        goto out;
    printf("non-blocking: rank %d has %g\n", rank, (double)tensor);
    rc = EXIT_SUCCESS;
out:
    if (rc)
        tt_report();
    tt_destroy_process_group(world);
    return rc;
}
