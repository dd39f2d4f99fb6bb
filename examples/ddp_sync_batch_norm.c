/* Small batches on each rank, normalised by the statistics of all of them together. In PyTorch (on GPUs alone):
 *
 *     model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
 *     model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
 *     ddp_model = DistributedDataParallel(model)
 *     loss_fn(ddp_model(x), y).backward()
 *
 * Ranks have other numbers of examples, and the running statistics are the same on all of them.
 *
 *   tutti run --nproc-per-node=2 build/examples/ddp_sync_batch_norm */
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

#include "usage.h"

static const char usage[] = "usage: tutti run --nproc-per-node=N ddp_sync_batch_norm\n"
                            "A batch norm over the batches of all ranks.\n";

enum { STEPS = 5, FEATURES = 8, HIDDEN = 16 };

static tt_status train_step(tt_module *model, tt_optimizer *sgd, int rank, int step) {
    TT_AUTO_SCOPE;
    double value;
    const int64_t examples = 1 + (step + rank) % 3; /* a rank's batch alone may be too small for a BatchNorm */
    tt_optimizer_zero_grad(sgd);
    tt_tensor *x = tt_randn(TT_SHAPE(examples, FEATURES), NULL), *y = tt_randn(TT_SHAPE(examples, 2), NULL);
    tt_tensor *loss = tt_mse_loss(tt_module_forward(model, x), y);
    if (tt_backward(loss) || tt_item(loss, &value))
        return tt_last_status();
    printf("rank %d: step %d: %lld examples, loss %.4f\n", rank, step, (long long)examples, value);
    return tt_optimizer_step(sgd);
}

static void print_statistics(int rank, tt_module *model) {
    const tt_named_tensors *buffers = tt_module_buffers(model);
    const float *mean = tt_tensor_f32(tt_named_tensors_find(buffers, "1.running_mean"));
    const float *var = tt_tensor_f32(tt_named_tensors_find(buffers, "1.running_var"));
    printf("rank %d: a %s of mean %.6f and variance %.6f\n", rank, tt_module_class_name(tt_module_child(model, "1")),
           (double)mean[0], (double)var[0]);
}

int main(int argc, char **argv) {
    int rc = EXIT_FAILURE;
    tt_group *world = NULL;
    tt_module *model = NULL, *ddp = NULL;
    tt_optimizer *sgd = NULL;

    if (argc > 1)
        return tell_usage(usage, argv[1]);
    if (tt_init_process_group(&world))
        goto out;
    const int rank = tt_get_rank(world);
    model = tt_nn_sequential(tt_nn_linear(FEATURES, HIDDEN), tt_nn_batch_norm1d(HIDDEN), tt_nn_relu(),
                             tt_nn_linear(HIDDEN, 2));
    ddp = tt_ddp(tt_convert_sync_batchnorm(model, world), world);
    sgd = tt_sgd(tt_module_parameters(ddp), 0.05);
    tt_manual_seed((uint64_t)rank);
    for (int step = 0; sgd && step < STEPS; step++)
        if (train_step(ddp, sgd, rank, step))
            goto out;
    if (!sgd)
        goto out;
    print_statistics(rank, model);
    rc = EXIT_SUCCESS;
out:
    if (rc)
        tt_report();
    tt_optimizer_free(sgd);
    tt_module_free(ddp);
    tt_module_free(model);
    tt_destroy_process_group(world);
    return rc;
}
