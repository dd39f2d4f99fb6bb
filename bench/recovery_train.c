/* A rank for recovery.py: trains 784-512-10, batches of 32, without end, and after each step appends "ROUND PID STEP"
 * to the file "steps". Starts from the checkpoint that rank 0 saves every SAVE steps:
 *   recovery_train SAVE
 * or, without a checkpoint, goes on when ranks are lost:
 *   recovery_train elastic */
#include <tutti/tutti.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCH = 32, PIXELS = 784, HIDDEN = 512, CLASSES = 10 };

typedef struct Run {
    tt_elastic *elastic; /* or NULL */
    tt_group *world;
    tt_module *model, *ddp;
    tt_optimizer *sgd;
    tt_tensor *x, *y; /* (BATCH, PIXELS), (BATCH) */
    tt_progress progress;
    int64_t save_every;
    int steps, stop; /* stop: never, as no signal is asked for */
} Run;

static tt_status say_step(const Run *r) {
    const tt_elastic_change *change = r->elastic ? tt_elastic_changed(r->elastic) : NULL;
    char line[80];
    int n = snprintf(line, sizeof line, "%d %d %lld\n", change ? change->round : 0, (int)getpid(),
                     (long long)r->progress.step);
    return write(r->steps, line, (size_t)n) == n ? TT_OK : tt_fail(TT_ERR_IO, "steps: can't be written");
}

static tt_status step(Run *r) {
    TT_AUTO_SCOPE;
    tt_optimizer_zero_grad(r->sgd);
    if (tt_backward(tt_cross_entropy(tt_module_forward(r->ddp, r->x), r->y)) || tt_optimizer_step(r->sgd))
        return tt_last_status();
    r->progress.step++;
    if (!r->elastic || tt_elastic_commit(r->elastic))
        return r->elastic ? tt_last_status() : TT_OK;
    return tt_elastic_should_stop(r->elastic, &r->stop);
}

static tt_status train(Run *r) {
    tt_status status = TT_OK;
    while (!status) {
        status = step(r);
        if (!status)
            status = say_step(r);
        if (!status && r->save_every && r->progress.step % r->save_every == 0 && tt_get_rank(r->world) == 0)
            status = tt_checkpoint_save("checkpoint.safetensors", r->ddp, r->sgd, &r->progress);
    }
    return status;
}

static tt_status set_up(Run *r) {
    tt_manual_seed(0);
    r->model = tt_nn_sequential(tt_nn_linear(PIXELS, HIDDEN), tt_nn_relu(), tt_nn_linear(HIDDEN, CLASSES));
    r->sgd = tt_sgd(tt_module_parameters(r->model), 1e-3);
    r->x = tt_keep(tt_randn(TT_SHAPE(BATCH, PIXELS), NULL));
    r->y = tt_keep(tt_zeros(TT_SHAPE(BATCH), TT_I64));
    r->progress = (tt_progress)TT_PROGRESS_INIT;
    if (!r->x || !r->y || !r->sgd)
        return tt_last_status();
    if (!r->elastic && access("checkpoint.safetensors", F_OK) == 0 &&
        tt_checkpoint_load("checkpoint.safetensors", r->model, r->sgd, &r->progress))
        return tt_last_status();
    r->ddp = r->elastic ? tt_elastic_ddp(r->elastic, "model", r->model) : tt_ddp(r->model, r->world);
    if (!r->ddp || !r->elastic)
        return r->ddp ? TT_OK : tt_last_status();
    if (tt_elastic_add_optimizer(r->elastic, "sgd", r->sgd) ||
        tt_elastic_add(r->elastic, "step", &r->progress.step, sizeof r->progress.step))
        return tt_last_status();
    return tt_elastic_restore(r->elastic);
}

int main(int argc, char **argv) {
    Run r = {.steps = open("steps", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)};
    bool elastic = argc == 2 && !strcmp(argv[1], "elastic");
    r.save_every = argc == 2 && !elastic ? atoll(argv[1]) : 0;
    if (!elastic && r.save_every < 1)
        return fprintf(stderr, "usage: recovery_train SAVE | elastic\n"), 2;
    tt_status status = elastic ? tt_elastic_new(&r.elastic) : tt_init_process_group(&r.world);
    if (!status)
        status = set_up(&r);
    while (!status) {
        status = train(&r);
        if (r.elastic)
            status = tt_elastic_restore(r.elastic);
    }
    tt_report();
    return 1; /* it never ends well */
}
