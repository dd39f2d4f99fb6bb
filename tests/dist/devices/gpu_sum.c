/* Joins with the back end nccl, from nothing but the environment, each rank on its GPU; sums there and tells. */
#include "tensor/core/tensor.h"

#include <tutti/tutti.h>

#include <stdio.h>

static tt_status gpu_sum(tt_group *group, int index, double *sum) {
    TT_AUTO_SCOPE;
    const tt_device *device = TT_CUDA(index);
    tt_tensor *x = device ? tt_to_device(tt_full(TT_SHAPE(1000), TT_F32, tt_get_rank(group) + 1), device) : NULL;
    if (!x)
        return tt_last_status();
    tt_status status = tt_all_reduce(group, x->data, 1000, TT_F32, TT_SUM, .device = TT_DEVICE_CUDA,
                                     .device_index = index, .stream = tt_device_stream(device));
    return status ? status : tt_item(tt_mean(x), sum);
}

int main(void) {
    tt_group *group = NULL, *pair = NULL;
    double sum = 0, of_pair = 0;
    int index = tt_get_node_local_rank(0);
    tt_status status = tt_init_process_group(&group, .backend = "nccl", .timeout_ms = 100000, .device = TT_DEVICE_CUDA,
                                             .device_index = index);
    if (!status)
        status = gpu_sum(group, index, &sum);
    if (!status)
        status = tt_group_split(&pair, group, tt_get_rank(group) % 2, 0);
    if (!status)
        status = gpu_sum(pair, index, &of_pair);
    if (!status)
        printf("rank %d of %d: %s, sum %g, %g of %d\n", tt_get_rank(group), tt_get_world_size(group),
               tt_get_backend(group), sum, of_pair, tt_get_world_size(pair));
    else
        tt_report();
    tt_destroy_process_group(pair);
    tt_destroy_process_group(group);
    return status != TT_OK;
}
