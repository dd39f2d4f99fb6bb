/* Ranks with different numbers of batches: rank r has 4 + 3 r of them. Who has no more takes part in the others' steps,
 * so that nobody waits in vain. In PyTorch:
 *
 *     with Join([ddp_model]):
 *         for x, y in batches:
 *             optimizer.zero_grad()
 *             loss_fn(ddp_model(x), y).backward()
 *             optimizer.step()
 *
 * With --examples gradients are weighted: each rank's last batch is smaller, and the average is that of all examples.
 * PyTorch leaves the optimizers of ranks without data behind; here update() is called for the others' steps, too.
 *
 *   tutti run --nproc-per-node=2 build/examples/ddp_join [--examples] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

#include "usage.h"

static const char usage[] = "usage: tutti run --nproc-per-node=N ddp_join [--examples]\n"
                            "Ranks with different numbers of batches; --examples: the average of all examples.\n";

enum { FULL = 8, LAST = 3 };

static tt_status update(void *user) {
    tt_optimizer *sgd = user;
    tt_status status = tt_optimizer_step(sgd);
    tt_optimizer_zero_grad(sgd);
    return status;
}

static tt_status add_gradients(tt_module *ddp, int64_t examples) {
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_randn(TT_SHAPE(examples, 10), NULL), *y = tt_randn(TT_SHAPE(examples, 5), NULL);
    return tt_backward(tt_mse_loss(tt_module_forward(ddp, x), y));
}

static tt_status train(tt_module *ddp, tt_optimizer *sgd, tt_join *join, int rank, bool weighted) {
    int batches = 4 + 3 * rank;
    for (int i = 0; i < batches; i++) {
        int64_t examples = i + 1 < batches ? FULL : LAST;
        if ((weighted && tt_join_set_examples(join, examples)) || add_gradients(ddp, examples) || update(sgd))
            return tt_last_status();
    }
    printf("rank %d has no more after %d batches\n", rank, batches);
    return tt_join_wait(join);
}

int main(int argc, char **argv) {
    int rc = EXIT_FAILURE;
    bool weighted = argc == 2 && !strcmp(argv[1], "--examples");
    tt_group *world = NULL;
    tt_module *model = NULL, *ddp = NULL;
    tt_optimizer *sgd = NULL;
    tt_join *join = NULL;

    if (argc > 1 && !weighted)
        return tell_usage(usage, argv[argc - 1]);
    if (tt_init_process_group(&world))
        goto out;
    int rank = tt_get_rank(world);
    model = tt_nn_linear(10, 5);
    ddp = tt_ddp(model, world);
    sgd = tt_sgd(tt_module_parameters(ddp), 0.1, .momentum = 0.9);
    join = tt_join_new(ddp, .examples = weighted ? FULL : 0, .after_step = update, .user = sgd);
    if (!sgd || !join || train(ddp, sgd, join, rank, weighted))
        goto out;
    printf("rank %d: weight[0] is %.6f on all\n", rank,
           (double)tt_tensor_f32(tt_module_parameters(ddp)->tensors[0])[0]);
    rc = EXIT_SUCCESS;
out:
    if (rc)
        tt_report();
    tt_join_free(join);
    tt_optimizer_free(sgd);
    tt_module_free(ddp);
    tt_module_free(model);
    tt_destroy_process_group(world);
    return rc;
}
