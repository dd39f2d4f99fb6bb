/* Joins with the back end that argv[1] names, from nothing but the environment; sums and tells. */
#include <tutti/comm.h>
#include <tutti/tensor.h>

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    tt_group *group = NULL, *odd = NULL;
    float sum = 1;
    int rc = EXIT_FAILURE;
    if (argc != 2 || tt_init_process_group(&group, .backend = argv[1], .timeout_ms = 100000))
        goto out;
    if (tt_all_reduce(group, &sum, 1, TT_F32, TT_SUM) || tt_group_split(&odd, group, tt_get_rank(group) % 2, 0) ||
        tt_barrier(odd))
        goto out;
    printf("rank %d of %d: %s, sum %g, %d alike, %d threads\n", tt_get_rank(group), tt_get_world_size(group),
           tt_get_backend(group), (double)sum, tt_get_world_size(odd), tt_get_num_threads());
    rc = EXIT_SUCCESS;
out:
    if (rc)
        tt_report();
    tt_destroy_process_group(odd);
    tt_destroy_process_group(group);
    return rc;
}
