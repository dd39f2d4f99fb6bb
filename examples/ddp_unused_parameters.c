/* A model of which each rank trains another part: a trunk that all use, a head a task, and a spare one that nobody uses
 * yet. In PyTorch:
 *
 *     class Heads(nn.Module):
 *         def __init__(self):
 *             self.trunk = nn.Linear(8, 8)
 *             self.heads = nn.ModuleList(nn.Linear(8, 2) for _ in range(3))
 *         def forward(self, x, task):
 *             return self.heads[task](torch.relu(self.trunk(x)))
 *
 *     ddp_model = DistributedDataParallel(Heads(), find_unused_parameters=True)
 *     loss_fn(ddp_model(x, rank % 2), y).backward()
 *
 * Here there is no flag: a head that some ranks leave out gets the average over all, one that all leave
 * out keeps the gradient that it has, here none.
 *
 *   tutti run --nproc-per-node=2 build/examples/ddp_unused_parameters */
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

#include "usage.h"

static const char usage[] = "usage: tutti run --nproc-per-node=N ddp_unused_parameters\n"
                            "Each rank trains another part of the model.\n";

enum { TASKS = 2, HEADS = 3 };
static const char *const head_names[HEADS] = {"head0", "head1", "spare"};

/* `user` of the module: which task this rank trains. */
static tt_tensor *heads_forward(tt_module *self, tt_tensor *x) {
    const int *task = tt_module_user(self);
    tt_tensor *shared = tt_relu(tt_module_forward(tt_module_child(self, "trunk"), x));
    return tt_module_forward(tt_module_child(self, head_names[*task]), shared);
}

static tt_module *heads_model(int *task) {
    static const tt_module_class heads = TT_MODULE_CLASS(.name = "Heads", .forward = heads_forward);
    tt_module *model = tt_module_new(&heads, task);
    tt_status status = tt_module_add_module(model, "trunk", tt_nn_linear(8, 8));
    for (int i = 0; i < HEADS && !status; i++)
        status = tt_module_add_module(model, head_names[i], tt_nn_linear(8, 2));
    if (!status)
        return model;
    tt_module_free(model);
    return NULL;
}

static void print_bias_gradients(int rank, tt_module *model) {
    const tt_named_tensors *parameters = tt_module_parameters(model);
    for (int64_t p = 1; p < parameters->count; p += 2) { /* weight, bias, weight, bias ... */
        tt_tensor *grad = tt_grad(parameters->tensors[p]);
        if (grad)
            printf("rank %d: %s has the gradient %.6f ...\n", rank, parameters->names[p],
                   (double)tt_tensor_f32(grad)[0]);
        else
            printf("rank %d: %s has no gradient\n", rank, parameters->names[p]);
    }
}

static tt_status train_step(tt_module *model, tt_optimizer *sgd, int rank) {
    TT_AUTO_SCOPE;
    tt_optimizer_zero_grad(sgd);
    tt_tensor *x = tt_randn(TT_SHAPE(16, 8), NULL), *y = tt_randn(TT_SHAPE(16, 2), NULL);
    if (tt_backward(tt_mse_loss(tt_module_forward(model, x), y)))
        return tt_last_status();
    print_bias_gradients(rank, model);
    return tt_optimizer_step(sgd);
}

int main(int argc, char **argv) {
    int rc = EXIT_FAILURE, task = 0;
    tt_group *world = NULL;
    tt_module *model = NULL, *ddp = NULL;
    tt_optimizer *sgd = NULL;

    if (argc > 1)
        return tell_usage(usage, argv[1]);
    if (tt_init_process_group(&world))
        goto out;
    int rank = tt_get_rank(world);
    task = rank % TASKS;
    printf("rank %d trains %s\n", rank, head_names[task]);
    model = heads_model(&task);
    ddp = tt_ddp(model, world);
    sgd = tt_sgd(tt_module_parameters(ddp), 0.01);
    if (!sgd || train_step(ddp, sgd, rank))
        goto out;
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
