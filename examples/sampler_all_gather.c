/* Which examples does each rank get, and how do all ranks see all of them? Mirrors the PyTorch script
 *
 *     sampler = DistributedSampler(dataset, shuffle=True)              # dataset[i] = 10 * i for i in range(16)
 *     loader = DataLoader(dataset, batch_size=4, sampler=sampler)
 *     for epoch in range(2):
 *         sampler.set_epoch(epoch)
 *         for batch in loader:
 *             dist.all_gather(gathered, batch)
 *
 *   tutti run --nproc-per-node=2 build/examples/sampler_all_gather
 *
 * With two ranks and seed 0, PyTorch's default, these are PyTorch's batches to the index. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

#include "usage.h"

enum { EXAMPLES = 16, BATCH = 4, EPOCHS = 2 };

static tt_dataset *multiples_of_ten(void) {
    tt_tensor *x = tt_arange(EXAMPLES);
    for (int64_t i = 0; x && i < EXAMPLES; i++)
        tt_tensor_i64(x)[i] *= 10;
    return tt_tensor_dataset(x, NULL);
}

/* "[120, 90, 110, 130]" */
static void print_list(const int64_t *values, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        printf("%s%" PRId64, i ? ", " : "[", values[i]);
    printf("]");
}

static tt_status visit(tt_group *world, int epoch, const tt_batch *batch, int64_t *gathered) {
    int rank = tt_get_rank(world), ranks = tt_get_world_size(world);
    int64_t *mine = tt_tensor_i64(batch->x);
    if (tt_all_gather(world, mine, gathered, batch->size, TT_I64))
        return tt_last_status();
    printf("epoch %d rank %d: batch ", epoch, rank);
    print_list(mine, batch->size);
    printf(", all ranks:");
    for (int r = 0; r < ranks; r++) {
        printf(" ");
        print_list(gathered + r * batch->size, batch->size);
    }
    printf("\n");
    return TT_OK;
}

static const char usage[] = "usage: tutti run --nproc-per-node=N sampler_all_gather\n"
                            "Which examples each rank gets.\n";

int main(int argc, char **argv) {
    int rc = EXIT_FAILURE;
    tt_group *world = NULL;
    tt_dataset *dataset = NULL;
    tt_sampler *sampler = NULL;
    tt_loader *loader = NULL;
    int64_t *gathered = NULL;

    if (argc > 1)
        return tell_usage(usage, argv[1]);
    if (tt_init_process_group(&world))
        goto out;
    dataset = multiples_of_ten();
    sampler = tt_distributed_sampler(EXAMPLES, tt_get_world_size(world), tt_get_rank(world));
    loader = tt_loader_new(dataset, BATCH, sampler);
    gathered = calloc((size_t)tt_get_world_size(world) * BATCH, sizeof *gathered);
    if (!dataset || !sampler || !loader || !gathered)
        goto out;
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        tt_batch batch;
        int more;
        tt_sampler_set_epoch(sampler, epoch); /* another order in each epoch, the same on every rank */
        while ((more = tt_loader_next(loader, &batch)) > 0)
            if (visit(world, epoch, &batch, gathered))
                goto out;
        if (more < 0)
            goto out;
    }
    rc = EXIT_SUCCESS;
out:
    if (rc)
        tt_report();
    free(gathered);
    tt_loader_free(loader);
    tt_sampler_free(sampler);
    tt_dataset_free(dataset);
    tt_destroy_process_group(world);
    return rc;
}
