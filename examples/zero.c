/* Adam whose state is spread over the ranks: each keeps an equal part of it, and updates that part of the model. In
 * PyTorch:
 *
 *     ddp_model = DistributedDataParallel(model)
 *     optimizer = ZeroRedundancyOptimizer(ddp_model.parameters(), optimizer_class=torch.optim.Adam, lr=1e-3)
 *     for x, y in batches:
 *         optimizer.zero_grad()
 *         loss_fn(ddp_model(x), y).backward()
 *         optimizer.step()
 *     optimizer.consolidate_state_dict(to=0)
 *     if rank == 0:
 *         torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "zero.pt")
 *
 * With .stage = 2 gradients are spread, too. The checkpoint is that of a plain Adam.
 *
 *   tutti run --nproc-per-node=4 build/examples/zero */
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

#include "usage.h"

static const char usage[] = "usage: tutti run --nproc-per-node=N zero\n"
                            "Adam whose state is spread over the ranks.\n";

enum { STEPS = 50, WIDTH = 64, BATCH = 32 };
static const char path[] = "zero.safetensors";

/* Called once, with this rank's slices of the parameters. */
static tt_optimizer *make_adam(const tt_named_tensors *slices, void *user) {
    const double *lr = user;
    return tt_adam(slices, *lr);
}

/* How many numbers of the model this rank updates. */
static int64_t count_own(tt_optimizer *adam) {
    const tt_named_tensors *slices = tt_optimizer_master_params(adam);
    int64_t count = 0;
    for (int64_t i = 0; slices && i < slices->count; i++)
        count += tt_tensor_numel(slices->tensors[i]);
    return count;
}

static tt_status train_step(tt_module *ddp, tt_optimizer *adam, double *loss) {
    TT_AUTO_SCOPE;
    tt_optimizer_zero_grad(adam);
    tt_tensor *x = tt_randn(TT_SHAPE(BATCH, WIDTH), NULL), *y = tt_tanh(tt_narrow(x, 1, 0, 8));
    tt_tensor *error = tt_mse_loss(tt_module_forward(ddp, x), y);
    tt_status status = tt_backward(error);
    if (!status)
        status = tt_optimizer_step(adam); /* on all ranks: it exchanges what they updated */
    return status ? status : tt_item(error, loss);
}

static tt_status train(tt_module *ddp, tt_optimizer *adam, int rank) {
    double loss = 0;
    tt_manual_seed(1 + (uint64_t)rank);
    for (int step = 0; step < STEPS; step++) {
        if (train_step(ddp, adam, &loss))
            return tt_last_status();
        if (rank == 0 && step % 10 == 9)
            printf("step %d: loss %.4f\n", step + 1, loss);
    }
    return TT_OK;
}

/* Rank 0 writes what it gathers from all, and reads it into a plain Adam. */
static tt_status save_and_load(tt_module *model, tt_optimizer *adam, int rank) {
    tt_status status = tt_zero_consolidate(adam, 0);
    if (status || rank != 0)
        return status;
    tt_optimizer *plain = tt_adam(tt_module_parameters(model), 1e-3);
    status = tt_checkpoint_save(path, model, adam, NULL);
    if (!status)
        status = tt_checkpoint_load(path, model, plain, NULL);
    if (!status)
        printf("a plain Adam goes on from %s\n", path);
    tt_optimizer_free(plain);
    remove(path);
    return status;
}

int main(int argc, char **argv) {
    int rc = EXIT_FAILURE;
    double lr = 1e-2;
    tt_group *world = NULL;
    tt_module *model = NULL, *ddp = NULL;
    tt_optimizer *adam = NULL;

    if (argc > 1)
        return tell_usage(usage, argv[1]);
    if (tt_init_process_group(&world))
        goto out;
    int rank = tt_get_rank(world);
    tt_manual_seed(0);
    model = tt_nn_sequential(tt_nn_linear(WIDTH, WIDTH), tt_nn_tanh(), tt_nn_linear(WIDTH, 8));
    ddp = tt_ddp(model, world);
    adam = tt_zero_optimizer(ddp, make_adam, &lr, .stage = 1);
    if (!adam)
        goto out;
    printf("rank %d updates %lld numbers\n", rank, (long long)count_own(adam));
    if (train(ddp, adam, rank) || save_and_load(model, adam, rank))
        goto out;
    rc = EXIT_SUCCESS;
out:
    if (rc)
        tt_report();
    tt_optimizer_free(adam);
    tt_module_free(ddp);
    tt_module_free(model);
    tt_destroy_process_group(world);
    return rc;
}
