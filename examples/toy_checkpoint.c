/* Save on one rank, load on all. The twin of demo_checkpoint in PyTorch's tutorial "Getting Started with Distributed
 * Data Parallel":
 *
 *   tutti run --nproc-per-node=2 toy_checkpoint [FILE]
 *
 * Rank 0 saves the wrapped model's state_dict, all ranks wait for it, load it, and train one step; then rank 0
 * removes the file. */
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include "usage.h"

/* x (20,10) -> (20,5). PyTorch: class ToyModel, with the same parameter names. */
static tt_tensor *toy_forward(tt_module *self, tt_tensor *x) {
    tt_tensor *hidden = tt_relu(tt_module_forward(tt_module_child(self, "net1"), x));
    return tt_module_forward(tt_module_child(self, "net2"), hidden);
}

static const tt_module_class toy_class = TT_MODULE_CLASS(.name = "ToyModel", .forward = toy_forward);

static tt_module *toy_model(void) {
    tt_module *m = tt_module_new(&toy_class, NULL);
    if (m && !tt_module_add_module(m, "net1", tt_nn_linear(10, 10)) &&
        !tt_module_add_module(m, "net2", tt_nn_linear(10, 5)))
        return m;
    tt_module_free(m);
    return NULL;
}

/* The sum of all parameters, to see that two models are alike. */
static double sum(tt_module *m) {
    const tt_named_tensors *p = tt_module_parameters(m);
    double total = 0;
    for (int64_t i = 0; i < p->count; i++)
        for (int64_t k = 0; k < tt_tensor_numel(p->tensors[i]); k++)
            total += (double)tt_tensor_f32(p->tensors[i])[k];
    return total;
}

static tt_status train_step(tt_module *ddp, tt_optimizer *sgd) {
    TT_AUTO_SCOPE;
    tt_optimizer_zero_grad(sgd);
    tt_tensor *outputs = tt_module_forward(ddp, tt_randn(TT_SHAPE(20, 10), NULL));
    tt_tensor *labels = tt_randn(TT_SHAPE(20, 5), NULL);
    if (tt_backward(tt_mse_loss(outputs, labels)))
        return tt_last_status();
    return tt_optimizer_step(sgd);
}

static tt_status demo_checkpoint(tt_group *world, tt_module *ddp, tt_optimizer *sgd, const char *path) {
    int rank = tt_get_rank(world);
    printf("Running DDP checkpoint example on rank %d.\n", rank);

    /* All ranks have the same parameters, so saving them on one is enough. */
    if (rank == 0 && tt_checkpoint_save(path, ddp, NULL, NULL))
        return tt_last_status();
    double saved = sum(ddp);

    /* No rank may load before the save is whole; and training changes what was saved. */
    if (tt_barrier(world) || train_step(ddp, sgd) || tt_checkpoint_load(path, ddp, NULL, NULL))
        return tt_last_status();
    printf("Rank %d saved parameters of sum %.6f, loaded %.6f.\n", rank, saved, sum(ddp));

    /* The gradients of a step are averaged over the ranks: it ends after all have loaded. */
    if (train_step(ddp, sgd))
        return tt_last_status();
    if (rank == 0 && unlink(path))
        perror(path);
    printf("Rank %d finished with parameters of sum %.6f.\n", rank, sum(ddp));
    return TT_OK;
}

static const char usage[] = "usage: tutti run --nproc-per-node=N toy_checkpoint [FILE]\n"
                            "Save on one rank, in FILE (toy_checkpoint.safetensors), and load on all.\n";

int main(int argc, char **argv) {
    tt_group *world = NULL;
    tt_module *model = NULL, *ddp = NULL;
    tt_optimizer *sgd = NULL;
    if (argc > 2 || (argc > 1 && (!*argv[1] || *argv[1] == '-')))
        return tell_usage(usage, argv[argc - 1]);
    tt_status status = tt_init_process_group(&world);
    if (!status) {
        tt_manual_seed((uint64_t)tt_get_rank(world)); /* other weights on each rank, until they are wrapped */
        model = toy_model();
        ddp = tt_ddp(model, world);
        sgd = tt_sgd(tt_module_parameters(ddp), 0.001);
        status = ddp && sgd ? demo_checkpoint(world, ddp, sgd, argc > 1 ? argv[1] : "toy_checkpoint.safetensors")
                            : tt_last_status();
    }
    if (status)
        tt_report();
    tt_optimizer_free(sgd);
    tt_module_free(ddp);
    tt_module_free(model);
    tt_destroy_process_group(world);
    return status ? EXIT_FAILURE : EXIT_SUCCESS;
}
