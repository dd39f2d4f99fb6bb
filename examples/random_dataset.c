/* 90 random rows divided among the ranks, and the sizes of the model's inputs and outputs. Mirrors the RandomDataset
 * program of PyTorch's tutorial "Optional: Data Parallelism", in the form it takes with DistributedDataParallel:
 *
 *     loader = DataLoader(RandomDataset(5, 90), batch_size=30, sampler=DistributedSampler(dataset))
 *     model = DistributedDataParallel(nn.Linear(5, 2))
 *     for data in loader:
 *         output = model(data)
 *         print("Outside: input size", data.size(), "output_size", output.size())
 *
 *   tutti run --nproc-per-node=2 build/examples/random_dataset
 *
 * With two ranks each sees 45 rows, in a batch of 30 and one of 15, and no row is seen by both. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

#include "usage.h"

enum { ROWS = 90, INPUTS = 5, OUTPUTS = 2, BATCH = 30 };

/* The target of a row is its number, so that one can see which rows came. */
static tt_dataset *random_rows(void) {
    tt_manual_seed(0);
    return tt_tensor_dataset(tt_randn(TT_SHAPE(ROWS, INPUTS), NULL), tt_arange(ROWS));
}

static tt_status show_batch(tt_module *model, int rank, const tt_batch *batch) {
    TT_AUTO_SCOPE;
    TT_NO_GRAD;
    tt_tensor *output = tt_module_forward(model, batch->x);
    if (!output)
        return tt_last_status();
    printf("rank %d: input [%" PRId64 ", %" PRId64 "] -> output [%" PRId64 ", %" PRId64 "]; rows", rank,
           tt_tensor_size(batch->x, 0), tt_tensor_size(batch->x, 1), tt_tensor_size(output, 0),
           tt_tensor_size(output, 1));
    for (int64_t i = 0; i < batch->size; i++)
        printf(" %" PRId64, tt_tensor_i64(batch->y)[i]);
    printf("\n");
    return TT_OK;
}

static const char usage[] = "usage: tutti run --nproc-per-node=N random_dataset\n"
                            "90 random rows, divided among the ranks.\n";

int main(int argc, char **argv) {
    int rc = EXIT_FAILURE;
    tt_group *world = NULL;
    tt_dataset *dataset = NULL;
    tt_sampler *sampler = NULL;
    tt_loader *loader = NULL;
    tt_module *model = NULL, *ddp = NULL;
    tt_batch batch;
    int more;

    if (argc > 1)
        return tell_usage(usage, argv[1]);
    if (tt_init_process_group(&world))
        goto out;
    dataset = random_rows();
    sampler = tt_distributed_sampler(ROWS, tt_get_world_size(world), tt_get_rank(world));
    loader = tt_loader_new(dataset, BATCH, sampler);
    model = tt_nn_linear(INPUTS, OUTPUTS);
    ddp = tt_ddp(model, world);
    if (!dataset || !sampler || !loader || !ddp)
        goto out;
    while ((more = tt_loader_next(loader, &batch)) > 0)
        if (show_batch(ddp, tt_get_rank(world), &batch))
            goto out;
    if (more < 0)
        goto out;
    rc = EXIT_SUCCESS;
out:
    if (rc)
        tt_report();
    tt_module_free(ddp);
    tt_module_free(model);
    tt_loader_free(loader);
    tt_sampler_free(sampler);
    tt_dataset_free(dataset);
    tt_destroy_process_group(world);
    return rc;
}
