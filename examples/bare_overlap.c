/* Sum over the ranks while computing something else. Mirrors the Python
 *
 *     work = dist.all_reduce(gradient, async_op=True)
 *     y = compute(x)
 *     work.wait()
 *
 *   tutti run --nproc-per-node=2 build/examples/bare_overlap
 *
 * Between hosts a thread moves the bytes meanwhile. Inside a host ranks that have a CPU each move them themselves, in
 * any call of Tutti's: so a long computation tests now and then whether the work is done. */
#include <stdio.h>
#include <stdlib.h>
#include <tutti/comm.h>

#include "usage.h"

enum { N = 1 << 20, PIECES = 64, PIECE = 1 << 14 };

/* The sum of 1 / k^2, in pieces. Tends to pi^2 / 6. */
static double compute(tt_work *work) {
    double sum = 0;
    for (int piece = 0; piece < PIECES; piece++) {
        for (int i = 1; i <= PIECE; i++) {
            double k = (double)piece * PIECE + i;
            sum += 1 / (k * k);
        }
        tt_work_is_completed(work); /* advances it; waits for nobody */
    }
    return sum;
}

static const char usage[] = "usage: tutti run --nproc-per-node=N bare_overlap\n"
                            "A sum over the ranks beside another computation.\n";

int main(int argc, char **argv) {
    int rc = EXIT_FAILURE;
    tt_group *world = NULL;
    tt_work *work = NULL;
    void *memory = NULL;

    if (argc > 1)
        return tell_usage(usage, argv[1]);
    /* Symmetric memory: the other ranks read and write it where it is, so nothing is copied. Any other memory would
     * do. */
    if (tt_init_process_group(&world) || tt_group_alloc(&memory, world, N * sizeof(float)))
        goto out;
    float *gradient = memory;
    for (int i = 0; i < N; i++)
        gradient[i] = (float)(i % 100 + tt_get_rank(world));

    if (tt_all_reduce(world, gradient, N, TT_F32, TT_AVG, .work = &work))
        goto out;
    double y = compute(work);
    if (tt_work_wait(work)) /* from here on gradient is ours again */
        goto out;
    printf("rank %d: computed %.4f, mean of the last element %g\n", tt_get_rank(world), y, (double)gradient[N - 1]);
    rc = EXIT_SUCCESS;
out:
    if (rc)
        tt_report();
    tt_work_free(work);
    tt_destroy_process_group(world); /* gives the memory back, too */
    return rc;
}
