/* The smallest whole training step: a model of one's own, wrapped, one forward, one backward, one step of SGD. Mirrors
 * demo_basic() of PyTorch's tutorial "Getting Started with Distributed Data Parallel":
 *
 *     class ToyModel(nn.Module):
 *         def __init__(self):
 *             self.net1, self.relu, self.net2 = nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 5)
 *         def forward(self, x):
 *             return self.net2(self.relu(self.net1(x)))
 *
 *     ddp_model = DistributedDataParallel(ToyModel())
 *     optimizer = optim.SGD(ddp_model.parameters(), lr=0.001)
 *     outputs = ddp_model(torch.randn(20, 10))
 *     nn.MSELoss()(outputs, torch.randn(20, 5)).backward()
 *     optimizer.step()
 *
 *   tutti run --nproc-per-node=2 build/examples/toy_basic
 *
 * Every rank draws inputs and labels of its own, so the losses differ; when backward returns, the gradients are
 * equal on all ranks. */
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

#include "usage.h"

static tt_tensor *toy_forward(tt_module *self, tt_tensor *x) {
    x = tt_module_forward(tt_module_child(self, "net1"), x);
    x = tt_module_forward(tt_module_child(self, "relu"), x);
    return tt_module_forward(tt_module_child(self, "net2"), x);
}

static tt_module *toy_model(void) {
    static const tt_module_class toy = TT_MODULE_CLASS(.name = "ToyModel", .forward = toy_forward);
    tt_module *model = tt_module_new(&toy, NULL);
    if (tt_module_add_module(model, "net1", tt_nn_linear(10, 10)) ||
        tt_module_add_module(model, "relu", tt_nn_relu()) || tt_module_add_module(model, "net2", tt_nn_linear(10, 5))) {
        tt_module_free(model);
        return NULL;
    }
    return model;
}

static void print_gradients(int rank, double loss, tt_module *model) {
    const tt_named_tensors *parameters = tt_module_parameters(model);
    printf("rank %d: loss %.6f, gradients sum up to", rank, loss);
    for (int64_t p = 0; p < parameters->count; p++) {
        tt_tensor *grad = tt_grad(parameters->tensors[p]);
        double sum = 0;
        for (int64_t i = 0; i < tt_tensor_numel(grad); i++)
            sum += tt_tensor_f32(grad)[i];
        printf(" %s %.9g", parameters->names[p], sum);
    }
    printf("\n");
}

static tt_status train_step(tt_module *model, tt_optimizer *optimizer, int rank) {
    TT_AUTO_SCOPE;
    double value;
    tt_optimizer_zero_grad(optimizer);
    tt_tensor *outputs = tt_module_forward(model, tt_randn(TT_SHAPE(20, 10), NULL));
    tt_tensor *labels = tt_randn(TT_SHAPE(20, 5), NULL);
    tt_tensor *loss = tt_mse_loss(outputs, labels);
    if (tt_backward(loss) || tt_item(loss, &value))
        return tt_last_status();
    print_gradients(rank, value, model);
    return tt_optimizer_step(optimizer);
}

static const char usage[] = "usage: tutti run --nproc-per-node=N toy_basic\n"
                            "The smallest whole training step.\n";

int main(int argc, char **argv) {
    int rc = EXIT_FAILURE;
    tt_group *world = NULL;
    tt_module *model = NULL, *ddp = NULL;
    tt_optimizer *sgd = NULL;

    if (argc > 1)
        return tell_usage(usage, argv[1]);
    if (tt_init_process_group(&world))
        goto out;
    printf("Running basic DDP example on rank %d.\n", tt_get_rank(world));
    model = toy_model();
    ddp = tt_ddp(model, world);
    sgd = tt_sgd(tt_module_parameters(ddp), 0.001);
    if (!sgd || train_step(ddp, sgd, tt_get_rank(world)))
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
