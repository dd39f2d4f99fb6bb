/* What the workers of test_elastic.c do: they train a small network with dropout, momentum and a scheduler, and die
 * where E_FAULTS says so. Before each step they note in a common file what they are about to train on: a step was made
 * in the last round in which it was tried. */
#ifndef TESTS_FAULT_ELASTIC_WORKER_H
#define TESTS_FAULT_ELASTIC_WORKER_H

#include "fault/elastic/told_end.h"
#include "support/patience.h"

#include <tutti/tutti.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { SAMPLES = 96, BATCH = 4, EPOCHS = 3, FEATURES = 4, MAX_FAULTS = 4 };

typedef struct fault {
    char where[8];
    int rank, round, commit;
} fault;

typedef struct run {
    tt_elastic *e; /* NULL: a plain program */
    tt_group *world;
    tt_module *model, *ddp;
    tt_optimizer *sgd;
    tt_lr_scheduler *scheduler;
    tt_sampler *sampler;
    tt_loader *loader;
    int64_t epoch, steps, epochs;
    int signal;
    bool by_trainer;
    int audit;
    struct timespec pace; /* how long a step takes at least */
    int timeout_ms;       /* of calls; 0: as ever */
    fault faults[MAX_FAULTS];
    int fault_count;
} run;

static int run_round(const run *r) {
    const tt_elastic_change *change = tt_elastic_changed(r->e);
    static int round;
    const char *born = getenv("TT_ROUND");
    if (!round && born)
        round = atoi(born);
    if (change && change->round > round)
        round = change->round;
    return round;
}

/* commit < 0: whichever it is. */
static bool has_fault(const run *r, const char *where, int rank, int64_t commit) {
    for (int i = 0; i < r->fault_count; i++) {
        const fault *f = &r->faults[i];
        if (!strcmp(f->where, where) && f->rank == rank && f->round == run_round(r) &&
            (commit < 0 || f->commit == (int)commit))
            return true;
    }
    return false;
}

/* Die here, if that is what the test is about. */
static void may_die(const run *r, const char *where, int rank, int64_t commit) {
    if (has_fault(r, where, rank, commit))
        raise(SIGKILL);
}

/* Be late, so that the others' calls time out. */
static void may_nap(const run *r, int rank, int64_t commit) {
    const struct timespec nap = {.tv_sec = 2 * r->timeout_ms / 1000 + 1};
    if (has_fault(r, "nap", rank, commit))
        nanosleep(&nap, NULL);
}

/* "where:rank:round:commit,..." */
static void read_faults(run *r) {
    const char *text = getenv("E_FAULTS");
    for (; text && *text && r->fault_count < MAX_FAULTS; text += strcspn(text, ","), text += *text == ',') {
        fault *f = &r->faults[r->fault_count++];
        if (sscanf(text, "%7[a-z]:%d:%d:%d", f->where, &f->rank, &f->round, &f->commit) != 4)
            abort();
    }
}

static int own_rank(const run *r) { return tt_get_rank(r->e ? tt_elastic_group(r->e) : r->world); }

/* A part whose functions are places to die in. */
static tt_status fault_save(void *user, tt_elastic_writer *writer) {
    const run *r = user;
    if (tt_elastic_commits(r->e) >= 0)
        may_die(r, "save", own_rank(r), tt_elastic_commits(r->e) + 1);
    tt_elastic_write(writer, "x", 1);
    return TT_OK;
}

static tt_status fault_load(void *user, const void *data, size_t size) {
    const run *r = user;
    may_die(r, "load", own_rank(r), -1);
    return size == 1 && *(const char *)data == 'x' ? TT_OK : tt_fail(TT_ERR_FORMAT, "expected x");
}

static tt_status fault_bind(void *user, tt_group *group) {
    const run *r = user;
    if (group)
        may_die(r, "bind", tt_get_rank(group), -1);
    return TT_OK;
}

static tt_status fault_hook(tt_tensor *x, void *user) {
    const run *r = user;
    (void)x;
    may_die(r, "mid", own_rank(r), r->steps + 1);
    return TT_OK;
}

static tt_dataset *make_dataset(void) {
    tt_generator *g = tt_generator_new(5);
    tt_tensor *x = tt_keep(tt_randn(TT_SHAPE(SAMPLES, FEATURES), g)), *y = tt_keep(tt_randn(TT_SHAPE(SAMPLES, 2), g));
    tt_generator_free(g);
    return tt_tensor_dataset(x, y);
}

static tt_status register_parts(run *r) {
    static const tt_elastic_part_class faults = {.save = fault_save, .load = fault_load, .bind = fault_bind};
    tt_status status = tt_elastic_add(r->e, "epoch", &r->epoch, sizeof r->epoch);
    if (!status)
        status = tt_elastic_add(r->e, "steps", &r->steps, sizeof r->steps);
    if (!status && !(r->ddp = tt_elastic_ddp(r->e, "model", r->model, .bucket_cap_bytes = 64)))
        status = tt_last_status();
    if (!status)
        status = tt_elastic_add_part(r->e, "faults", &faults, r);
    if (!status)
        status = tt_elastic_add_optimizer(r->e, "optimizer", r->sgd);
    if (!status)
        status = tt_elastic_add_lr_scheduler(r->e, "scheduler", r->scheduler);
    return status ? status : tt_elastic_add_loader(r->e, "loader", r->loader);
}

static tt_status make_run(run *r) {
    tt_manual_seed((uint64_t)own_rank(r) + 11); /* different on each rank: rank 0's initial weights count */
    r->model = tt_nn_sequential(tt_nn_linear(FEATURES, 8), tt_nn_relu(), tt_nn_dropout(0.25), tt_nn_linear(8, 2));
    r->sgd = tt_sgd(tt_module_parameters(r->model), 0.05, .momentum = 0.9);
    r->scheduler = tt_exponential_lr(r->sgd, 0.97);
    tt_dataset *set = make_dataset();
    r->sampler = tt_distributed_sampler(SAMPLES, tt_get_world_size(r->world), tt_get_rank(r->world), .seed = 3);
    r->loader = tt_loader_new(set, BATCH, r->sampler, .workers = 1);
    tt_dataset_free(set);
    if (!r->loader || !r->scheduler)
        return tt_last_status();
    if (r->by_trainer)
        return TT_OK;
    if (r->e)
        return register_parts(r);
    r->ddp = tt_ddp(r->model, r->world, .bucket_cap_bytes = 64);
    return r->ddp ? TT_OK : tt_last_status();
}

/* "COMMIT ROUND RANK EPOCH: indices", in one write. */
static void note_batch(const run *r, const tt_batch *b) {
    char line[256];
    int n = snprintf(line, sizeof line, "%lld %d %d %lld:", (long long)r->steps + 1, run_round(r), own_rank(r),
                     (long long)r->epoch);
    for (int64_t i = 0; i < b->size; i++)
        n += snprintf(line + n, sizeof line - (size_t)n, " %lld", (long long)b->indices[i]);
    line[n++] = '\n';
    if (write(r->audit, line, (size_t)n) != n)
        abort();
}

static tt_status step(run *r, const tt_batch *b) {
    TT_AUTO_SCOPE;
    tt_manual_seed((uint64_t)(r->steps * 1000 + own_rank(r)));
    note_batch(r, b);
    may_die(r, "step", own_rank(r), r->steps + 1);
    may_nap(r, own_rank(r), r->steps + 1);
    if (!r->e || !told_end(&r->epochs, r->epoch))
        nanosleep(&r->pace, NULL);
    tt_tensor *loss = tt_mse_loss(tt_module_forward(r->ddp, b->x), b->y);
    tt_status status = tt_backward(loss);
    if (!status)
        status = tt_optimizer_step(r->sgd);
    if (!status)
        status = tt_lr_scheduler_step(r->scheduler);
    tt_optimizer_zero_grad(r->sgd); /* at the end, so that a step left in the middle leaves gradients */
    r->steps += !status;
    return status;
}

static tt_status train_epoch(run *r) {
    tt_batch b;
    int more;
    tt_sampler_set_epoch(r->sampler, r->epoch);
    while ((more = tt_loader_next(r->loader, &b)) > 0) {
        tt_status status = step(r, &b);
        if (!status && r->e)
            status = tt_elastic_commit(r->e);
        if (!status && r->e)
            status = tt_elastic_should_stop(r->e, &r->signal);
        if (status || r->signal)
            return status;
    }
    return more < 0 ? tt_last_status() : TT_OK;
}

static tt_status train(run *r) {
    while (r->epoch < r->epochs) {
        tt_status status = train_epoch(r);
        if (status || r->signal)
            return status;
        r->epoch++;
    }
    return tt_barrier(r->e ? tt_elastic_group(r->e) : r->world);
}

/* ---- the same by the library's trainer ---- */

static tt_tensor *trainer_step(tt_trainer *t, const tt_batch *b, void *user) {
    run *r = user;
    if (!tt_trainer_evaluating(t)) {
        r->steps = tt_trainer_steps(t);
        r->epoch = tt_trainer_epoch(t);
        note_batch(r, b);
        may_die(r, "step", own_rank(r), r->steps + 1);
    } else {
        may_die(r, "eval", own_rank(r), tt_trainer_steps(t));
    }
    return tt_mse_loss(tt_module_forward(tt_trainer_model(t), b->x), b->y);
}

/* rank 0 saves, too, and all evaluate after each epoch. */
static tt_status train_by_trainer(run *r) {
    tt_trainer_result result;
    tt_dataset *set = make_dataset();
    tt_sampler *share = tt_distributed_sampler(SAMPLES, tt_get_world_size(r->world), tt_get_rank(r->world),
                                               .no_shuffle = true, .exact = true);
    tt_loader *eval = tt_loader_new(set, 7, share);
    tt_ema *ema = tt_ema_new(tt_module_parameters(r->model), 0.9);
    tt_status status =
        tt_trainer_run(r->model, r->sgd, r->loader, trainer_step, .user = r, .group = r->e ? NULL : r->world,
                       .elastic = r->e, .sampler = r->sampler, .epochs = r->epochs, .step_seed = 9, .clip_norm = 1,
                       .scheduler = r->scheduler, .scheduler_when = TT_TRAINER_EACH_STEP, .ema = ema,
                       .eval_loader = eval, .checkpoint = "trainer.safetensors", .save_every = 1, .result = &result);
    r->signal = result.signal;
    r->steps = result.steps;
    tt_ema_free(ema);
    tt_loader_free(eval);
    tt_sampler_free(share);
    tt_dataset_free(set);
    return status;
}

static void write_parameters(const run *r) {
    char path[64];
    snprintf(path, sizeof path, "final.%d", own_rank(r));
    FILE *f = fopen(path, "wb");
    if (!f)
        abort();
    const tt_named_tensors *list = tt_module_parameters(r->model);
    for (int64_t i = 0; i < list->count; i++)
        fwrite(tt_tensor_data(list->tensors[i]), tt_dtype_size(TT_F32), (size_t)tt_tensor_numel(list->tensors[i]), f);
    fprintf(f, "%lld steps", (long long)r->steps);
    fclose(f);
}

static void write_error(tt_status status) {
    char path[64], text[2200];
    int n = snprintf(text, sizeof text, "%s: %s\n", tt_status_name(status), tt_last_error());
    snprintf(path, sizeof path, "error.%s", getenv("RANK"));
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (write(file, text, (size_t)n) != n)
        abort();
    close(file);
    if (!getenv("E_QUIET"))
        fprintf(stderr, "worker: rank %s: %s", getenv("RANK"), text);
}

static int run_worker(const char *mode);

static int run_child(int rank, void *mode) {
    (void)rank;
    return run_worker(mode);
}

/* Two ranks, without a launcher. */
static int run_spawned(void) {
    if (!tt_spawn(run_child, (char[]){"plain"}, 2, .rendezvous = true))
        return 0;
    tt_report();
    return 1;
}

static int run_worker(const char *mode) {
    if (!strcmp(mode, "spawn"))
        return run_spawned();
    run r = {.audit = open("audit", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)};
    const char *wait = getenv("E_WAIT"), *own = getenv("RANK"), *epochs = getenv("E_EPOCHS"),
               *pace = getenv("E_PACE_MS"), *timeout = getenv("E_TIMEOUT_MS"), *heartbeat = getenv("E_HEARTBEAT_MS");
    int heartbeat_ms = heartbeat ? atoi(heartbeat) : CALM_MS;
    bool plain = !strncmp(mode, "plain", 5);
    r.by_trainer = strstr(mode, "trainer") != NULL;
    tt_status status;
    r.epochs = epochs ? atoi(epochs) : EPOCHS;
    r.timeout_ms = timeout ? atoi(timeout) : 0;
    r.pace.tv_nsec = pace ? atol(pace) * 1000000 : 0;
    read_faults(&r);
    may_die(&r, "join", atoi(own), -1);
    if (plain)
        status = tt_init_process_group(&r.world, .heartbeat_ms = heartbeat_ms);
    else
        status = tt_elastic_new(&r.e, .timeout_ms = r.timeout_ms, .heartbeat_ms = heartbeat_ms,
                                .round_wait_ms = wait ? atoi(wait) : 0, .stop_on_signals = true);
    if (!status && !plain)
        r.world = tt_elastic_group(r.e);
    if (!status)
        status = make_run(&r);
    for (int64_t i = 0; !status && i < tt_module_parameters(r.model)->count; i++)
        status = tt_register_post_accumulate_grad_hook(tt_module_parameters(r.model)->tensors[i], fault_hook, &r);
    if (!status && r.by_trainer)
        status = train_by_trainer(&r);
    else if (!status && r.e)
        status = tt_elastic_restore(r.e);
    for (bool done = r.by_trainer; !status && !done;) {
        status = train(&r);
        done = !status;
        if (status && r.e)
            status = tt_elastic_restore(r.e);
    }
    if (!status || status == TT_ERR_ABORTED) /* a signal ended it while it waited: the state is whole */
        write_parameters(&r);
    if (status)
        write_error(status);
    int signal = r.signal;
    tt_elastic_free(r.e);
    tt_loader_free(r.loader);
    tt_sampler_free(r.sampler);
    tt_lr_scheduler_free(r.scheduler);
    tt_optimizer_free(r.sgd);
    tt_module_free(r.ddp);
    tt_module_free(r.model);
    if (plain)
        tt_destroy_process_group(r.world);
    return status ? 1 : signal ? 128 + signal : 0;
}

#endif
