/* Two numbers are enough to see what DistributedDataParallel does. Mirrors the PyTorch script
 *
 *     model = nn.Linear(1, 1, bias=False)
 *     model.weight.data.fill_(2 if rank == 0 else 200)
 *     ddp = DistributedDataParallel(model)                             # takes rank 0's parameters
 *     optimizer = SGD(ddp.parameters(), lr=1)
 *     for step in 1, 2:
 *         optimizer.zero_grad()
 *         MSELoss()(ddp(torch.ones(1, 1)), torch.ones(1, 1)).backward() # averages the gradients
 *         optimizer.step()
 *
 *   tutti run --nproc-per-node=2 build/examples/linear_grads
 *
 * Every rank prints gradients 2 and -2, weights 0 and 2: loss = (w - 1)^2, so its gradient is 2 (w - 1). */
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

#include "usage.h"

static tt_status train_step(tt_module *model, tt_optimizer *optimizer) {
    TT_AUTO_SCOPE;
    tt_tensor *input = tt_ones(TT_SHAPE(1, 1), TT_F32), *label = tt_ones(TT_SHAPE(1, 1), TT_F32);
    tt_optimizer_zero_grad(optimizer);
    if (tt_backward(tt_mse_loss(tt_module_forward(model, input), label)))
        return tt_last_status();
    return tt_optimizer_step(optimizer);
}

static const char usage[] = "usage: tutti run --nproc-per-node=2 linear_grads\n"
                            "Two numbers that show what tt_ddp() does.\n";

int main(int argc, char **argv) {
    int rc = EXIT_FAILURE;
    tt_group *world = NULL;
    tt_module *model = NULL, *ddp = NULL;
    tt_optimizer *sgd = NULL;
    tt_tensor *weight;
    int rank;

    if (argc > 1)
        return tell_usage(usage, argv[1]);
    if (tt_init_process_group(&world))
        goto out;
    rank = tt_get_rank(world);
    model = tt_nn_linear(1, 1, .no_bias = true);
    if (!model)
        goto out;
    weight = tt_module_parameters(model)->tensors[0];
    *tt_tensor_f32(weight) = rank == 0 ? 2 : 200;
    printf("rank %d: starts with weight %g\n", rank, *tt_tensor_f32(weight));

    ddp = tt_ddp(model, world);
    sgd = tt_sgd(tt_module_parameters(ddp), 1);
    if (!ddp || !sgd)
        goto out;
    printf("rank %d: wrapped, weight %g\n", rank, *tt_tensor_f32(weight));
    for (int step = 1; step <= 2; step++) {
        if (train_step(ddp, sgd))
            goto out;
        printf("rank %d: step %d, gradient %g, weight %g\n", rank, step, *tt_tensor_f32(tt_grad(weight)),
               *tt_tensor_f32(weight));
    }
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
