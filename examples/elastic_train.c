/* Train while ranks are lost and come back, or others join: the counterpart of PyTorch's and Horovod's elastic
 * examples, but nothing is read from disk, and the processes that live stay up.
 *
 *   tutti run --nproc-per-node=2 elastic_train                                nobody is lost
 *   tutti run --nproc-per-node=2 --max-restarts=1 elastic_train --lose 20      rank 1 kills itself in step 20, and is
 *                                                                              replaced (docs/elastic.md)
 *
 * Learns y = 2 x + 1 from 1024 examples. SIGTERM and SIGUSR1 end all ranks after the same step, with exit code 143 and
 * 138. */
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

#include "usage.h"

enum { EXAMPLES = 1024, BATCH = 16, EPOCHS = 4 };

typedef struct Run {
    tt_elastic *elastic;
    tt_module *model, *ddp;
    tt_optimizer *sgd;
    tt_dataset *data;
    tt_sampler *sampler;
    tt_loader *loader;
    int64_t epoch; /* part of the state */
    int64_t lose;  /* in this step; 0: never */
    int stop;      /* the signal for which all ranks stop */
    double loss;
} Run;

static int rank_of(const Run *r) { return tt_get_rank(tt_elastic_group(r->elastic)); }

static tt_dataset *make_data(void) {
    tt_generator *fixed = tt_generator_new(1);
    tt_tensor *x = tt_keep(tt_rand(TT_SHAPE(EXAMPLES, 1), fixed)),
              *y = tt_keep(tt_zeros(TT_SHAPE(EXAMPLES, 1), TT_F32));
    tt_generator_free(fixed);
    for (int64_t i = 0; x && y && i < EXAMPLES; i++)
        tt_tensor_f32(y)[i] = 2 * tt_tensor_f32(x)[i] + 1;
    return tt_tensor_dataset(x, y);
}

/* Make everything without waiting for other ranks: who joins later does the same. */
static tt_status set_up(Run *r) {
    tt_group *world = tt_elastic_group(r->elastic);
    tt_manual_seed(0);
    r->model = tt_nn_linear(1, 1);
    r->sgd = tt_sgd(tt_module_parameters(r->model), 0.1, .momentum = 0.9);
    r->data = make_data();
    r->sampler = tt_distributed_sampler(EXAMPLES, tt_get_world_size(world), tt_get_rank(world));
    r->loader = tt_loader_new(r->data, BATCH, r->sampler);
    r->ddp = tt_elastic_ddp(r->elastic, "model", r->model);
    if (!r->ddp || !r->loader || tt_elastic_add_optimizer(r->elastic, "sgd", r->sgd) ||
        tt_elastic_add_loader(r->elastic, "loader", r->loader) ||
        tt_elastic_add(r->elastic, "epoch", &r->epoch, sizeof r->epoch))
        return tt_last_status();
    return TT_OK;
}

/* Begin, or go on after another rank was lost. */
static tt_status restore(Run *r) {
    if (tt_elastic_restore(r->elastic))
        return tt_last_status();
    const tt_elastic_change *now = tt_elastic_changed(r->elastic);
    if (!now)
        return TT_OK;
    char before[32] = "new";
    if (now->old_rank >= 0)
        snprintf(before, sizeof before, "was %d of %d", now->old_rank, now->old_world_size);
    printf("round %d: rank %d of %d (%s) goes on after step %" PRId64 "%s%s\n", now->round, now->rank, now->world_size,
           before, tt_elastic_commits(r->elastic), *now->reason ? ": " : "", now->reason);
    fflush(stdout);
    return TT_OK;
}

static tt_status step(Run *r, const tt_batch *b) {
    TT_AUTO_SCOPE;
    if (tt_elastic_commits(r->elastic) + 1 == r->lose && rank_of(r) == 1 && !tt_elastic_changed(r->elastic))
        raise(SIGKILL);
    tt_optimizer_zero_grad(r->sgd);
    tt_tensor *loss = tt_mse_loss(tt_module_forward(r->ddp, b->x), b->y);
    if (tt_backward(loss) || tt_optimizer_step(r->sgd) || tt_item(loss, &r->loss))
        return tt_last_status();
    return tt_elastic_commit(r->elastic);
}

static tt_status train_epoch(Run *r) {
    tt_batch b;
    int more;
    tt_sampler_set_epoch(r->sampler, r->epoch);
    while (!r->stop && (more = tt_loader_next(r->loader, &b)) != 0)
        if (more < 0 || step(r, &b) || tt_elastic_should_stop(r->elastic, &r->stop))
            return tt_last_status();
    return TT_OK;
}

static tt_status train(Run *r) {
    while (r->epoch < EPOCHS && !r->stop) {
        if (train_epoch(r)) {
            if (restore(r))
                return tt_last_status();
            continue; /* with the rest of the epoch that the state is in */
        }
        r->epoch += !r->stop;
        if (rank_of(r) == 0)
            printf("epoch %" PRId64 ", loss %.4f\n", r->epoch, r->loss);
    }
    return TT_OK;
}

static void tear_down(Run *r) {
    tt_loader_free(r->loader);
    tt_sampler_free(r->sampler);
    tt_dataset_free(r->data);
    tt_module_free(r->ddp);
    tt_optimizer_free(r->sgd);
    tt_module_free(r->model);
    tt_elastic_free(r->elastic);
}

static const char usage[] = "usage: tutti run --nproc-per-node=N [--max-restarts=1] elastic_train [--lose STEP]\n"
                            "Training that goes on when a rank is lost; --lose: rank 1 kills itself in that step.\n";

int main(int argc, char **argv) {
    Run run = {.lose = 0};
    int lose = 0;
    if (argc > 1 && (argc != 3 || strcmp(argv[1], "--lose") || !read_count(argv[2], INT_MAX, &lose)))
        return tell_usage(usage, argv[argc - 1]);
    run.lose = lose;
    tt_status status = tt_elastic_new(&run.elastic, .or_alone = true, .stop_on_signals = true);
    if (!status)
        status = set_up(&run);
    if (!status)
        status = restore(&run);
    if (!status)
        status = train(&run);
    if (!status && rank_of(&run) == 0)
        printf("y = %.2f x + %.2f after %" PRId64 " steps\n",
               (double)tt_tensor_f32(tt_module_parameters(run.model)->tensors[0])[0],
               (double)tt_tensor_f32(tt_module_parameters(run.model)->tensors[1])[0], tt_elastic_commits(run.elastic));
    if (status)
        tt_report();
    tear_down(&run);
    return status ? EXIT_FAILURE : run.stop ? 128 + run.stop : EXIT_SUCCESS;
}
