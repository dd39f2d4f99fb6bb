/* An all-reduce among some of the ranks. Mirrors "Collective Communication" of PyTorch's tutorial "Writing Distributed
 * Applications with PyTorch":
 *
 *     group = dist.new_group([0, 1])
 *     tensor = torch.ones(1)
 *     dist.all_reduce(tensor, op=dist.ReduceOp.SUM, group=group)
 *     print('Rank ', rank, ' has data ', tensor[0])
 *
 *   tutti run --nproc-per-node=3 build/examples/bare_group */
#include <stdio.h>
#include <stdlib.h>
#include <tutti/comm.h>

#include "usage.h"

static const char usage[] = "usage: tutti run --nproc-per-node=N bare_group\n"
                            "An all-reduce among ranks 0 and 1 of N, at least 2.\n";

int main(int argc, char **argv) {
    int rc = EXIT_FAILURE;
    tt_group *world = NULL, *pair = NULL;
    float tensor = 1;

    if (argc > 1)
        return tell_usage(usage, argv[1]);
    if (tt_init_process_group(&world))
        goto out;
    if (tt_new_group(&pair, world, ((int[]){0, 1}), 2)) /* called by all ranks; who is not in it gets NULL */
        goto out;
    if (pair && tt_all_reduce(pair, &tensor, 1, TT_F32, TT_SUM))
        goto out;
    printf("rank %d has %g\n", tt_get_rank(world), (double)tensor);
    rc = EXIT_SUCCESS;
out:
    if (rc)
        tt_report();
    tt_destroy_process_group(pair);
    tt_destroy_process_group(world);
    return rc;
}
