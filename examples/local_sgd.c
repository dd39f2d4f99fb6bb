/* Ranks that step on their own, and average parameters now and then instead of gradients in each step. In PyTorch:
 *
 *     averager = PeriodicModelAverager(period=4, warmup_steps=8)           # --kind periodic
 *     averager = HierarchicalModelAverager({4: 2, 8: 4}, warmup_steps=8)   # --kind hierarchical
 *     for x, y in batches:
 *         optimizer.zero_grad()
 *         loss_fn(model(x), y).backward()
 *         optimizer.step()
 *         averager.average_parameters(model.parameters())
 *
 *     state = PostLocalSGDState(None, subgroup=None, start_localSGD_iter=8)    # --kind post_local
 *     ddp_model.register_comm_hook(state, post_localSGD_hook)
 *     optimizer = PostLocalSGDOptimizer(SGD(...), PeriodicModelAverager(period=4, warmup_steps=8))
 *
 * and --kind diloco, the default, which PyTorch has not: an outer step after each 8 of the ranks' own.
 *
 *   tutti run --nproc-per-node=4 build/examples/local_sgd [--kind KIND] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

#include "usage.h"

static const char usage[] = "usage: tutti run --nproc-per-node=N local_sgd [--kind KIND]\n"
                            "KIND, of averaging: periodic, hierarchical, post_local or diloco (diloco).\n";

enum { STEPS = 25, WARMUP = 8, PERIOD = 4, OUTER_PERIOD = 8 };

typedef struct job {
    tt_group *world;
    tt_module *model, *ddp; /* ddp: where gradients are averaged, too */
    tt_optimizer *optimizer;
    tt_model_averager *averager;
} job;

/* Pairs of neighbours, then all. */
static tt_status be_hierarchical(job *j) {
    int ranks = tt_get_world_size(j->world), pair = ranks % 2 ? 1 : 2;
    const tt_averaging_level levels[] = {{PERIOD, pair}, {2 * PERIOD, ranks}};
    bool two = pair < ranks;
    return tt_hierarchical_model_averager(&j->averager, j->world, tt_module_parameters(j->model),
                                          two ? levels : levels + 1, two ? 2 : 1, .warmup_steps = WARMUP);
}

static tt_status make_averager(job *j, const char *kind) {
    const tt_named_tensors *parameters = tt_module_parameters(j->model);
    if (!strcmp(kind, "periodic"))
        return tt_periodic_model_averager(&j->averager, j->world, parameters, PERIOD, .warmup_steps = WARMUP);
    if (!strcmp(kind, "hierarchical"))
        return be_hierarchical(j);
    if (!strcmp(kind, "diloco"))
        return tt_diloco(&j->averager, j->world, parameters, OUTER_PERIOD, 0.7, 0.9);
    if (strcmp(kind, "post_local") != 0)
        return tt_fail(TT_ERR_INVALID, "--kind: expected periodic, hierarchical, post_local or diloco, got %s", kind);
    j->ddp = tt_ddp(j->model, j->world);
    return tt_post_local_sgd(&j->averager, j->ddp, WARMUP, PERIOD);
}

static tt_status train_step(const job *j) {
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_randn(TT_SHAPE(8, 10), NULL), *y = tt_randn(TT_SHAPE(8, 5), NULL);
    tt_optimizer_zero_grad(j->optimizer);
    if (tt_backward(tt_mse_loss(tt_module_forward(j->ddp ? j->ddp : j->model, x), y)) ||
        tt_optimizer_step(j->optimizer))
        return tt_last_status();
    bool due = tt_model_averager_is_due(j->averager);
    if (tt_model_averager_step(j->averager))
        return tt_last_status();
    if (due)
        printf("rank %d, after step %lld: weight[0] %.6f\n", tt_get_rank(j->world),
               (long long)tt_model_averager_steps(j->averager),
               (double)tt_tensor_f32(tt_module_parameters(j->model)->tensors[0])[0]);
    return TT_OK;
}

static tt_status train(job *j, const char *kind) {
    if (tt_init_process_group(&j->world))
        return tt_last_status();
    tt_manual_seed((uint64_t)tt_get_rank(j->world)); /* all take rank 0's parameters */
    j->model = tt_nn_linear(10, 5);
    j->optimizer = tt_adamw(tt_module_parameters(j->model), 0.01, 0.01);
    if (!j->optimizer || make_averager(j, kind))
        return tt_last_status();
    for (int step = 0; step < STEPS; step++)
        if (train_step(j))
            return tt_last_status();
    if (tt_model_averager_average(j->averager))
        return tt_last_status();
    printf("rank %d ends with weight[0] %.6f\n", tt_get_rank(j->world),
           (double)tt_tensor_f32(tt_module_parameters(j->model)->tensors[0])[0]);
    return TT_OK;
}

int main(int argc, char **argv) {
    job j = {0};
    bool named = argc == 3 && !strcmp(argv[1], "--kind");
    if (argc > 1 && !named)
        return tell_usage(usage, argv[argc - 1]);
    tt_status status = train(&j, named ? argv[2] : "diloco");
    if (status)
        tt_report();
    tt_model_averager_free(j.averager);
    tt_optimizer_free(j.optimizer);
    tt_module_free(j.ddp);
    tt_module_free(j.model);
    tt_destroy_process_group(j.world);
    return status ? EXIT_FAILURE : EXIT_SUCCESS;
}
