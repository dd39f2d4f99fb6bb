/* Ranks that one program starts itself, without a launcher. Mirrors PyTorch's tutorial "Getting Started with
 * Distributed Data Parallel":
 *
 *     def demo_basic(rank, world_size):
 *         setup(rank, world_size)             # MASTER_ADDR, MASTER_PORT, init_process_group()
 *         ddp_model = DDP(ToyModel())
 *         optimizer = optim.SGD(ddp_model.parameters(), lr=0.001)
 *         outputs = ddp_model(torch.randn(20, 10))
 *         nn.MSELoss()(outputs, torch.randn(20, 5)).backward()
 *         optimizer.step()
 *         dist.destroy_process_group()
 *
 *     mp.spawn(demo_basic, args=(world_size,), nprocs=world_size, join=True)
 *
 *   build/examples/spawn_ddp [WORLD_SIZE]
 *
 * .rendezvous takes the place of the tutorial's fixed port: the parent serves the store that the ranks meet through, on
 * a free one. Every rank draws other inputs and labels; the weights are the same on all of them before and after. */
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

#include "usage.h"

typedef struct settings {
    int world_size;
    double lr;
} settings;

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

static tt_status train_step(tt_module *model, tt_optimizer *optimizer, int rank) {
    TT_AUTO_SCOPE;
    double value;
    tt_manual_seed((uint64_t)rank + 1);
    tt_optimizer_zero_grad(optimizer);
    tt_tensor *outputs = tt_module_forward(model, tt_randn(TT_SHAPE(20, 10), NULL));
    tt_tensor *loss = tt_mse_loss(outputs, tt_randn(TT_SHAPE(20, 5), NULL));
    if (tt_backward(loss) || tt_item(loss, &value))
        return tt_last_status();
    printf("rank %d: loss %.6f\n", rank, value);
    return tt_optimizer_step(optimizer);
}

static tt_status print_weights(tt_module *model, int rank) {
    TT_AUTO_SCOPE;
    TT_NO_GRAD;
    const tt_named_tensors *parameters = tt_module_parameters(model);
    printf("rank %d: weights sum up to", rank);
    for (int64_t p = 0; p < parameters->count; p++) {
        double sum;
        if (tt_item(tt_sum(parameters->tensors[p]), &sum))
            return tt_last_status();
        printf(" %.9g", sum);
    }
    printf("\n");
    return TT_OK;
}

/* What each process runs. */
static int demo_basic(int rank, void *arg) {
    const settings *s = arg;
    int rc = EXIT_FAILURE;
    tt_group *world = NULL;
    tt_module *model = NULL, *ddp = NULL;
    tt_optimizer *sgd = NULL;

    printf("Running basic DDP example on rank %d of %d.\n", rank, s->world_size);
    if (tt_init_process_group(&world))
        goto out;
    model = toy_model();
    ddp = tt_ddp(model, world);
    sgd = tt_sgd(tt_module_parameters(ddp), s->lr);
    if (!sgd || train_step(ddp, sgd, rank) || print_weights(model, rank))
        goto out;
    printf("Finished running basic DDP example on rank %d.\n", rank);
    rc = EXIT_SUCCESS;
out: /* a last error goes to the parent */
    tt_optimizer_free(sgd);
    tt_module_free(ddp);
    tt_module_free(model);
    tt_destroy_process_group(world);
    return rc;
}

static const char usage[] = "usage: spawn_ddp [N]\n"
                            "N processes that the program starts itself, each a rank: 1 to 1024 (2).\n";

int main(int argc, char **argv) {
    settings s = {.world_size = 2, .lr = 0.001};
    char *end = argc > 1 ? argv[1] : "";
    if (argc > 1)
        s.world_size = (int)strtol(argv[1], &end, 10);
    if (argc > 2 || *end || (argc > 1 && end == argv[1]))
        return tell_usage(usage, argv[argc - 1]);
    if (tt_spawn(demo_basic, &s, s.world_size, .rendezvous = true)) {
        tt_report();
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
