/* A model that is too large for one device: two layers on two devices, between which the activation moves. Mirrors
 * PyTorch's tutorial "Single-Machine Model Parallel Best Practices":
 *
 *     class ToyModel(nn.Module):
 *         def __init__(self):
 *             super(ToyModel, self).__init__()
 *             self.net1 = torch.nn.Linear(10, 10).to('cuda:0')
 *             self.relu = torch.nn.ReLU()
 *             self.net2 = torch.nn.Linear(10, 5).to('cuda:1')
 *
 *         def forward(self, x):
 *             x = self.relu(self.net1(x.to('cuda:0')))
 *             return self.net2(x.to('cuda:1'))
 *
 *     model = ToyModel()
 *     loss_fn = nn.MSELoss()
 *     optimizer = optim.SGD(model.parameters(), lr=0.001)
 *     optimizer.zero_grad()
 *     outputs = model(torch.randn(20, 10))
 *     labels = torch.randn(20, 5).to('cuda:1')
 *     loss_fn(outputs, labels).backward()
 *     optimizer.step()
 *
 *   build/examples/model_parallel                                 one process, two devices
 *   tutti run --nproc-per-node=2 build/examples/model_parallel    a process for each layer
 *
 * On two ranks the devices are processes: rank 0 has net1, and sends its activation to rank 1, which has net2 and the
 * loss, and whose backward pass sends the gradient back. Both print the same losses and weights. */
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

#include "usage.h"

static const char usage[] = "usage: [tutti run --nproc-per-node=2] model_parallel\n"
                            "Two layers on two devices, or on two ranks.\n";

enum { STEPS = 5 };

/* ---- one process ---- */

typedef struct devices {
    const tt_device *first, *second;
} devices;

static tt_tensor *toy_forward(tt_module *self, tt_tensor *x) {
    const devices *d = tt_module_user(self);
    x = tt_relu(tt_module_forward(tt_module_child(self, "net1"), tt_to_device(x, d->first)));
    return tt_module_forward(tt_module_child(self, "net2"), tt_to_device(x, d->second));
}

static tt_module *toy_model(devices *d) {
    static const tt_module_class toy = TT_MODULE_CLASS(.name = "ToyModel", .forward = toy_forward);
    tt_module *model = tt_module_new(&toy, d);
    if (!tt_module_add_module(model, "net1", tt_nn_linear(10, 10)) &&
        !tt_module_add_module(model, "net2", tt_nn_linear(10, 5)) &&
        !tt_module_to_device(tt_module_child(model, "net1"), d->first) &&
        !tt_module_to_device(tt_module_child(model, "net2"), d->second))
        return model;
    tt_module_free(model);
    return NULL;
}

/* A group of parameters lies on one device: so each layer is one. */
static tt_optimizer *sgd_on_devices(tt_module *model) {
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(tt_module_child(model, "net1")), 0.001);
    if (sgd && !tt_optimizer_add_param_group(sgd, tt_module_parameters(tt_module_child(model, "net2"))))
        return sgd;
    tt_optimizer_free(sgd);
    return NULL;
}

static tt_status step_on_devices(tt_module *model, tt_optimizer *sgd, const tt_device *second) {
    TT_AUTO_SCOPE;
    double value;
    tt_optimizer_zero_grad(sgd);
    tt_tensor *outputs = tt_module_forward(model, tt_randn(TT_SHAPE(20, 10), NULL));
    tt_tensor *labels = tt_to_device(tt_randn(TT_SHAPE(20, 5), NULL), second);
    tt_tensor *loss = tt_mse_loss(outputs, labels);
    if (tt_backward(loss) || tt_item(loss, &value))
        return tt_last_status();
    printf("loss %.6f\n", value);
    return tt_optimizer_step(sgd);
}

/* ---- two processes ---- */

/* Both draw both layers and all batches, so that the numbers are those of one process, and keep what is theirs. */
static tt_module *own_layer(int rank) {
    tt_module *net1 = tt_nn_linear(10, 10), *net2 = tt_nn_linear(10, 5);
    tt_module_free(rank == 0 ? net2 : net1);
    return rank == 0 ? net1 : net2;
}

static tt_status step_of_stage(tt_module *layer, tt_optimizer *sgd, tt_group *world) {
    TT_AUTO_SCOPE;
    double value;
    tt_optimizer_zero_grad(sgd);
    tt_tensor *inputs = tt_randn(TT_SHAPE(20, 10), NULL), *labels = tt_randn(TT_SHAPE(20, 5), NULL);
    if (tt_get_rank(world) == 0) {
        tt_tensor *activation = tt_relu(tt_module_forward(layer, inputs));
        if (tt_backward(tt_send_activation(activation, world, 1)))
            return tt_last_status();
    } else {
        tt_tensor *loss = tt_mse_loss(tt_module_forward(layer, tt_recv_activation(world, 0)), labels);
        if (tt_backward(loss) || tt_item(loss, &value))
            return tt_last_status();
        printf("loss %.6f\n", value);
    }
    return tt_optimizer_step(sgd);
}

/* ---- both ---- */

static tt_status print_sums(tt_module *model, const char *prefix) {
    TT_AUTO_SCOPE;
    TT_NO_GRAD;
    const tt_named_tensors *parameters = tt_module_parameters(model);
    for (int64_t p = 0; p < parameters->count; p++) {
        double sum;
        if (tt_item(tt_sum(parameters->tensors[p]), &sum))
            return tt_last_status();
        printf("%s%s sums up to %.6f\n", prefix, parameters->names[p], sum);
    }
    return TT_OK;
}

int main(int argc, char **argv) {
    int rc = EXIT_FAILURE;
    tt_group *world = NULL;
    tt_module *model = NULL;
    tt_optimizer *sgd = NULL;
    devices d = {tt_device_get("cpu"), tt_device_get("reference")};

    if (argc > 1)
        return tell_usage(usage, argv[1]);
    if (tt_init_process_group(&world, .or_alone = true))
        goto out;
    int ranks = tt_get_world_size(world), rank = tt_get_rank(world);
    if (ranks > 2) {
        tt_ignore(tt_fail(TT_ERR_INVALID, "expected 1 or 2 ranks, one for each layer, got %d", ranks));
        goto out;
    }
    tt_manual_seed(1);
    model = ranks == 1 ? toy_model(&d) : own_layer(rank);
    sgd = ranks == 1 ? sgd_on_devices(model) : tt_sgd(tt_module_parameters(model), 0.001);
    if (!sgd)
        goto out;
    for (int s = 0; s < STEPS; s++)
        if (ranks == 1 ? step_on_devices(model, sgd, d.second) : step_of_stage(model, sgd, world))
            goto out;
    if (print_sums(model, ranks == 1 ? "" : rank == 0 ? "net1." : "net2."))
        goto out;
    rc = EXIT_SUCCESS;
out:
    if (rc)
        tt_report();
    tt_optimizer_free(sgd);
    tt_module_free(model);
    tt_destroy_process_group(world);
    return rc;
}
