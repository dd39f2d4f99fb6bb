/* A large table of which each step reads a few rows: only these have a gradient, and only these travel. In PyTorch:
 *
 *     table = nn.Embedding(200_000, 64, sparse=True)
 *     ddp_model = DistributedDataParallel(nn.Sequential(table, nn.Linear(64, 5)))
 *     rows, rest = optim.SparseAdam(table.parameters()), optim.SGD(head.parameters(), lr=0.1)
 *     loss_fn(ddp_model(x), y).backward()
 *     table.weight.grad  # is_sparse: the rows that any rank read
 *
 *   tutti run --nproc-per-node=2 build/examples/ddp_sparse_embedding */
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

#include "usage.h"

static const char usage[] = "usage: tutti run --nproc-per-node=N ddp_sparse_embedding\n"
                            "A large table of which only the rows that are read travel.\n";

enum { STEPS = 3, ROWS = 200000, WIDTH = 64, READ = 16 };

static tt_status train_step(tt_module *ddp, const tt_tensor *table, int rank, int step) {
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_randint(0, ROWS, TT_SHAPE(READ), NULL), *y = tt_randn(TT_SHAPE(READ, 5), NULL);
    if (tt_backward(tt_mse_loss(tt_module_forward(ddp, x), y)))
        return tt_last_status();
    printf("step %d: rank %d read %d of %d rows, and has the gradients of %lld\n", step, rank, READ, ROWS,
           (long long)tt_tensor_numel(tt_sparse_grad_indices(table)));
    return TT_OK;
}

static tt_status update(tt_optimizer *o) {
    tt_status status = tt_optimizer_step(o);
    tt_optimizer_zero_grad(o);
    return status;
}

int main(int argc, char **argv) {
    int rc = EXIT_FAILURE;
    tt_group *world = NULL;
    tt_module *table = NULL, *head = NULL, *model = NULL, *ddp = NULL;
    tt_optimizer *rows = NULL, *rest = NULL;

    if (argc > 1)
        return tell_usage(usage, argv[1]);
    if (tt_init_process_group(&world))
        goto out;
    int rank = tt_get_rank(world);
    table = tt_nn_embedding(ROWS, WIDTH, .sparse = true);
    head = tt_nn_linear(WIDTH, 5);
    model = tt_nn_sequential(table, head); /* owns both */
    ddp = tt_ddp(model, world);
    if (!ddp)
        goto out;
    rows = tt_sparse_adam(tt_module_parameters(table), 1e-3);
    rest = tt_sgd(tt_module_parameters(head), 0.1);
    if (!rows || !rest)
        goto out;
    tt_manual_seed((uint64_t)rank);
    for (int step = 0; step < STEPS; step++)
        if (train_step(ddp, tt_module_parameters(table)->tensors[0], rank, step) || update(rows) || update(rest))
            goto out;
    rc = EXIT_SUCCESS;
out:
    if (rc)
        tt_report();
    tt_optimizer_free(rows);
    tt_optimizer_free(rest);
    tt_module_free(ddp);
    tt_module_free(model);
    tt_destroy_process_group(world);
    return rc;
}
