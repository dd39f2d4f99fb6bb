/* Copies of a model that is itself divided: DDP over model-parallel replicas, on 2 x 2 ranks. Mirrors PyTorch's
 * tutorial "Getting Started with Distributed Data Parallel":
 *
 *     class ToyMpModel(nn.Module):
 *         def __init__(self, dev0, dev1):
 *             super(ToyMpModel, self).__init__()
 *             self.dev0 = dev0
 *             self.dev1 = dev1
 *             self.net1 = torch.nn.Linear(10, 10).to(dev0)
 *             self.relu = torch.nn.ReLU()
 *             self.net2 = torch.nn.Linear(10, 5).to(dev1)
 *
 *     def demo_model_parallel(rank, world_size):
 *         dev0 = rank * 2
 *         dev1 = rank * 2 + 1
 *         mp_model = ToyMpModel(dev0, dev1)
 *         ddp_mp_model = DDP(mp_model)
 *         loss_fn = nn.MSELoss()
 *         optimizer = optim.SGD(ddp_mp_model.parameters(), lr=0.001)
 *         optimizer.zero_grad()
 *         outputs = ddp_mp_model(torch.randn(20, 10))
 *         labels = torch.randn(20, 5).to(dev1)
 *         loss_fn(outputs, labels).backward()
 *         optimizer.step()
 *
 *   tutti run --nproc-per-node=4 build/examples/ddp_model_parallel
 *
 * Here each device is a rank of its own: the mesh has the copies along "dp" and the layers along "mp". Each layer is
 * wrapped on the ranks that have it. Afterwards both copies of a layer are the same. */
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

#include "usage.h"

static const char usage[] = "usage: tutti run --nproc-per-node=N ddp_model_parallel\n"
                            "Copies of a model that is divided over two ranks, N an even number.\n";

enum { STEPS = 5 };

static tt_status train_step(tt_module *layer, tt_optimizer *sgd, tt_group *mp, int copy) {
    TT_AUTO_SCOPE;
    double value;
    tt_optimizer_zero_grad(sgd);
    if (tt_get_rank(mp) == 0) {
        tt_tensor *activation = tt_relu(tt_module_forward(layer, tt_randn(TT_SHAPE(20, 10), NULL)));
        if (tt_backward(tt_send_activation(activation, mp, 1)))
            return tt_last_status();
    } else {
        tt_tensor *outputs = tt_module_forward(layer, tt_recv_activation(mp, 0));
        tt_tensor *loss = tt_mse_loss(outputs, tt_randn(TT_SHAPE(20, 5), NULL));
        if (tt_backward(loss) || tt_item(loss, &value))
            return tt_last_status();
        printf("copy %d: loss %.6f\n", copy, value);
    }
    return tt_optimizer_step(sgd);
}

static tt_status print_sums(tt_module *layer, const char *name, int copy) {
    TT_AUTO_SCOPE;
    TT_NO_GRAD;
    const tt_named_tensors *parameters = tt_module_parameters(layer);
    for (int64_t p = 0; p < parameters->count; p++) {
        double sum;
        if (tt_item(tt_sum(parameters->tensors[p]), &sum))
            return tt_last_status();
        printf("copy %d: %s.%s sums up to %.9g\n", copy, name, parameters->names[p], sum);
    }
    return TT_OK;
}

int main(int argc, char **argv) {
    int rc = EXIT_FAILURE;
    tt_group *world = NULL;
    tt_mesh *mesh = NULL;
    tt_module *layer = NULL, *ddp = NULL;
    tt_optimizer *sgd = NULL;

    if (argc > 1)
        return tell_usage(usage, argv[1]);
    if (tt_init_process_group(&world) || tt_init_device_mesh(&mesh, world, {"dp", -1}, {"mp", 2}))
        goto out;
    tt_group *mp = tt_mesh_get_group(mesh, "mp");
    int copy = tt_mesh_get_local_rank(mesh, "dp"), number = tt_mesh_get_local_rank(mesh, "mp");
    layer = number == 0 ? tt_nn_linear(10, 10) : tt_nn_linear(10, 5);
    ddp = tt_ddp(layer, tt_mesh_get_group(mesh, "dp"));
    sgd = tt_sgd(tt_module_parameters(ddp), 0.001);
    if (!sgd)
        goto out;
    for (int s = 0; s < STEPS; s++)
        if (train_step(ddp, sgd, mp, copy))
            goto out;
    if (print_sums(layer, number == 0 ? "net1" : "net2", copy))
        goto out;
    rc = EXIT_SUCCESS;
out:
    if (rc) { /* let those know that wait in another group */
        tt_report();
        tt_mesh_abort(mesh, tt_last_error());
    }
    tt_optimizer_free(sgd);
    tt_module_free(ddp);
    tt_module_free(layer);
    tt_mesh_free(mesh);
    tt_destroy_process_group(world);
    return rc;
}
