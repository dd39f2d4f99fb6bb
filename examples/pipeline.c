/* A model that is cut into stages, one a rank, through which a batch goes in micro-batches. In PyTorch:
 *
 *     model = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 8))
 *     stage = PipelineStage(model[:2] if rank == 0 else model[2:], rank, world, device)
 *     schedule = Schedule1F1B(stage, n_microbatches=8, loss_fn=nn.functional.cross_entropy)
 *     optimizer = optim.SGD(stage.submod.parameters(), lr=0.1)
 *     for step in range(40):
 *         optimizer.zero_grad()
 *         if rank == 0:
 *             schedule.step(x)
 *         else:
 *             losses = []
 *             schedule.step(target=y, losses=losses)
 *         optimizer.step()
 *
 * Here the ranks cut the model themselves, so that the slowest stage is as fast as can be, and say how idle they were.
 *
 *   tutti run --nproc-per-node=2 build/examples/pipeline
 *   tutti trace --pipeline pipeline_trace.json */
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

#include "usage.h"

static const char usage[] = "usage: tutti run --nproc-per-node=N pipeline\n"
                            "A model cut into a stage a rank; writes pipeline_trace.json.\n";

enum { STEPS = 40, BATCH = 64, MICRO_BATCHES = 8, FEATURES = 32, CLASSES = 8 };

static tt_module *make_model(void) {
    return tt_nn_sequential(tt_nn_linear(FEATURES, 128), tt_nn_relu(), tt_nn_linear(128, 128), tt_nn_relu(),
                            tt_nn_linear(128, CLASSES));
}

/* The first rank needs x, the last one y; here all make both, from one seed. */
static tt_status train(tt_pipeline *pipe, tt_optimizer *sgd, tt_tensor *x, tt_tensor *y, double *first, double *last) {
    for (int step = 0; step < STEPS; step++) {
        tt_optimizer_zero_grad(sgd);
        if (tt_pipeline_step(pipe, x, y, .loss = last) || tt_optimizer_step(sgd))
            return tt_last_status();
        if (step == 0)
            *first = *last;
    }
    return TT_OK;
}

int main(int argc, char **argv) {
    int rc = EXIT_FAILURE;
    double first = 0, last = 0;
    tt_group *world = NULL;
    tt_module *model = NULL;
    tt_pipeline *pipe = NULL;
    tt_optimizer *sgd = NULL;
    tt_tensor *x = NULL, *y = NULL;
    tt_pipeline_times times;

    if (argc > 1)
        return tell_usage(usage, argv[1]);
    if (tt_init_process_group(&world))
        goto out;
    int rank = tt_get_rank(world), ranks = tt_get_world_size(world);
    tt_manual_seed(0);
    model = make_model();
    x = tt_randn(TT_SHAPE(BATCH, FEATURES), NULL);
    y = tt_randint(0, CLASSES, TT_SHAPE(BATCH), NULL);
    if (tt_pipeline_new(&pipe, world, model, MICRO_BATCHES, .schedule = TT_PIPELINE_1F1B, .sample = x))
        goto out;
    sgd = tt_sgd(tt_module_parameters(tt_pipeline_module(pipe)), 0.1);
    if (!sgd || train(pipe, sgd, x, y, &first, &last) || tt_pipeline_get_times(pipe, &times) ||
        tt_pipeline_write_trace(pipe, "pipeline_trace.json") || tt_pipeline_gather(pipe))
        goto out;
    printf("rank %d: %lld of %lld parts, idle %.0f %% of the last step\n", rank,
           (long long)tt_pipeline_stage_parts(pipe, rank), (long long)tt_pipeline_part_count(model),
           100 * times.idle_share);
    if (rank == ranks - 1)
        printf("the loss went from %.4f to %.4f\n", first, last);
    rc = EXIT_SUCCESS;
out:
    if (rc)
        tt_report();
    tt_optimizer_free(sgd);
    tt_pipeline_free(pipe);
    tt_tensor_free(x);
    tt_tensor_free(y);
    tt_module_free(model);
    tt_destroy_process_group(world);
    return rc;
}
