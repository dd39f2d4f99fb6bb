/* Averages each rank's number with the back end that argv[1] names: tutti run --nproc-per-node 3 ./mean
 * ./libtutti-backend-star.so */
#include <tutti/comm.h>

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    tt_group *group = NULL;
    int rc = EXIT_FAILURE;
    if (argc != 2 || tt_init_process_group(&group, .backend = argv[1], .timeout_ms = 30000))
        goto out;
    float mean = (float)tt_get_rank(group), all[64];
    if (tt_all_reduce(group, &mean, 1, TT_F32, TT_AVG))
        goto out;
    printf("rank %d of %d: %s, mean %g\n", tt_get_rank(group), tt_get_world_size(group), tt_get_backend(group),
           (double)mean);
    /* What the engine lacks is refused by name, and the group goes on. */
    if (tt_all_gather(group, &mean, all, 1, TT_F32) == TT_ERR_UNSUPPORTED)
        printf("rank %d: %s\n", tt_get_rank(group), tt_last_error());
    if (!tt_barrier(group))
        rc = EXIT_SUCCESS;
out:
    if (rc)
        tt_report();
    tt_destroy_process_group(group);
    return rc;
}
