/* The optimizer steps inside the backward pass: each bucket's parameters as soon as its averages are there. Nothing is
 * left to do behind it, and gradients take no memory between steps. In PyTorch:
 *
 *     _apply_optimizer_in_backward(torch.optim.AdamW, ddp_model.parameters(), {"lr": 1e-2})
 *     for step in range(3):
 *         loss_fn(ddp_model(x), y).backward()
 *
 * One layer, "own", is each rank's: DDP leaves it out (DistributedDataParallel._set_params_and_buffers_to_ignore_for_
 * model), and it is stepped when the pass has ended.
 *
 *   tutti run --nproc-per-node=2 build/examples/ddp_step_in_backward */
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

#include "usage.h"

static const char usage[] = "usage: tutti run --nproc-per-node=N ddp_step_in_backward\n"
                            "An optimizer that steps inside the backward pass.\n";

enum { STEPS = 3 };

static tt_tensor *net_forward(tt_module *self, tt_tensor *x) {
    tt_tensor *y = tt_relu(tt_module_forward(tt_module_child(self, "shared"), x));
    return tt_module_forward(tt_module_child(self, "own"), y);
}

static tt_module *make_net(void) {
    static const tt_module_class net = TT_MODULE_CLASS(.name = "Net", .forward = net_forward);
    tt_module *model = tt_module_new(&net, NULL);
    if (tt_module_add_module(model, "shared", tt_nn_linear(10, 8)) ||
        tt_module_add_module(model, "own", tt_nn_linear(8, 5))) {
        tt_module_free(model);
        return NULL;
    }
    return model;
}

static double first_of(tt_module *model, const char *name) {
    return (double)tt_tensor_f32(tt_module_parameters(tt_module_child(model, name))->tensors[0])[0];
}

static tt_status train_step(tt_module *ddp, tt_module *model, int rank, int step) {
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_randn(TT_SHAPE(8, 10), NULL), *y = tt_randn(TT_SHAPE(8, 5), NULL);
    if (tt_backward(tt_mse_loss(tt_module_forward(ddp, x), y))) /* averages, steps, and drops the gradients */
        return tt_last_status();
    printf("step %d: rank %d has %.6f as all, and %.6f of its own\n", step, rank, first_of(model, "shared"),
           first_of(model, "own"));
    return TT_OK;
}

int main(int argc, char **argv) {
    int rc = EXIT_FAILURE;
    tt_group *world = NULL;
    tt_module *model = NULL, *ddp = NULL;
    tt_optimizer *adamw = NULL;

    if (argc > 1)
        return tell_usage(usage, argv[1]);
    if (tt_init_process_group(&world))
        goto out;
    int rank = tt_get_rank(world);
    tt_manual_seed((uint64_t)rank);
    model = make_net();
    ddp = tt_ddp(model, world, .ignored = TT_NAMES("own"));
    adamw = tt_adamw(tt_module_parameters(ddp), 1e-2, 0.01);
    if (!adamw || tt_ddp_step_in_backward(ddp, adamw, .zero_grad = true))
        goto out;
    for (int step = 0; step < STEPS; step++)
        if (train_step(ddp, model, rank, step))
            goto out;
    rc = EXIT_SUCCESS;
out:
    if (rc)
        tt_report();
    tt_optimizer_free(adamw);
    tt_module_free(ddp);
    tt_module_free(model);
    tt_destroy_process_group(world);
    return rc;
}
