/* Trains one of three models with virtual ranks and saves its parameters, for those who compare the bits of runs, or
 * (cost=STEPS) takes steps with and without them in turn and tells the times: tests/dist/trainer/test_virtual_ranks.py
 * and bench/virtual_ranks.py. Arguments are name=value. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <tutti/tutti.h>
#include <unistd.h>

typedef struct Options {
    const char *model, *backend, *save, *checkpoint, *resume;
    int64_t real, virtual_ranks, batch, accumulate, examples, epochs, cap, every, die, workers, cost;
} Options;

typedef struct Run {
    Options o;
    tt_group *world;
    tt_dataset *set;
    tt_sampler *sampler;
    tt_loader *loader;
    tt_module *model;
    tt_optimizer *optimizer;
} Run;

static bool read_option(Options *o, const char *argument) {
    const struct {
        const char *name;
        const char **text;
        int64_t *number;
    } all[] = {
        {"model", &o->model, NULL},
        {"backend", &o->backend, NULL},
        {"save", &o->save, NULL},
        {"checkpoint", &o->checkpoint, NULL},
        {"resume", &o->resume, NULL},
        {"real", NULL, &o->real},
        {"virtual", NULL, &o->virtual_ranks},
        {"batch", NULL, &o->batch},
        {"accumulate", NULL, &o->accumulate},
        {"examples", NULL, &o->examples},
        {"epochs", NULL, &o->epochs},
        {"cap", NULL, &o->cap},
        {"every", NULL, &o->every},
        {"die", NULL, &o->die},
        {"workers", NULL, &o->workers},
        {"cost", NULL, &o->cost},
    };
    size_t length = strcspn(argument, "=");
    for (size_t i = 0; i < sizeof all / sizeof *all && argument[length]; i++)
        if (strlen(all[i].name) == length && !strncmp(all[i].name, argument, length)) {
            if (all[i].text)
                *all[i].text = argument + length + 1;
            else
                *all[i].number = strtoll(argument + length + 1, NULL, 10);
            return true;
        }
    fprintf(stderr, "virtual_train: what is \"%s\"?\n", argument);
    return false;
}

/* ---- models. B batch, T time, V vocabulary */

enum { VOCABULARY = 65, BLOCK = 16, REAL_BLOCK = 64 };

static int64_t block_of(const Options *o) { return o->real ? REAL_BLOCK : BLOCK; }

static tt_module *make_model(const Options *o) {
    if (!strcmp(o->model, "mlp"))
        return tt_nn_sequential(tt_nn_flatten(), tt_nn_linear(784, o->real ? 512 : 24), tt_nn_relu(),
                                tt_nn_linear(o->real ? 512 : 24, 10));
    if (!strcmp(o->model, "gpt"))
        return o->real ? tt_model_gpt(VOCABULARY, REAL_BLOCK, 256, 4, 4, .dropout = 0.1)
                       : tt_model_gpt(VOCABULARY, BLOCK, 16, 2, 2, .dropout = 0.1);
    int64_t narrow = o->real ? 32 : 3, wide = o->real ? 64 : 4, hidden = o->real ? 128 : 16;
    return tt_nn_sequential(tt_nn_conv2d(1, narrow, 3), tt_nn_batch_norm2d(narrow), tt_nn_relu(),
                            tt_nn_conv2d(narrow, wide, 3), tt_nn_batch_norm2d(wide), tt_nn_relu(), tt_nn_max_pool2d(2),
                            tt_nn_dropout(0.25), tt_nn_flatten(), tt_nn_linear(144 * wide, hidden), tt_nn_relu(),
                            tt_nn_dropout(0.5), tt_nn_linear(hidden, 10));
}

static tt_optimizer *make_optimizer(const Run *r) {
    const tt_named_tensors *all = tt_module_parameters(r->model);
    if (!strcmp(r->o.model, "mlp"))
        return tt_sgd(all, 0.05, .momentum = 0.9);
    return !strcmp(r->o.model, "gpt") ? tt_adamw(all, 1e-3, 0.1) : tt_adadelta(all, 1);
}

/* Texts: each token follows from the two before, and from a place in the whole. */
static tt_status draw_text(void *user, int64_t index, void *x, void *y) {
    int64_t *from = x, *to = y, length = *(const int64_t *)user;
    uint64_t state = (uint64_t)index * 0x9e3779b97f4a7c15u + 1;
    for (int64_t t = 0, a = 1, b = index % VOCABULARY; t <= length; t++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        int64_t next = (3 * a + 5 * b + (state >> 60 == 0)) % VOCABULARY;
        if (t < length)
            from[t] = b;
        if (t > 0)
            to[t - 1] = b;
        a = b;
        b = next;
    }
    return TT_OK;
}

static tt_dataset *make_set(const Options *o) {
    static int64_t length;
    length = block_of(o);
    if (strcmp(o->model, "gpt") != 0) {
        tt_dataset *digits = tt_digits(o->examples, 1);
        return digits && !tt_dataset_normalize(digits, 0.1307, 0.3081) ? digits : NULL;
    }
    return tt_dataset_from(o->examples, draw_text, tt_spec(TT_I64, TT_SHAPE(length)),
                           .y = tt_spec(TT_I64, TT_SHAPE(length)), .user = &length, .name = "drawn texts");
}

/* ---- the run */

static tt_tensor *step(tt_trainer *t, const tt_batch *b, void *user) {
    const Run *r = user;
    if (r->o.die && tt_trainer_steps(t) == r->o.die && tt_get_rank(r->world) == tt_get_world_size(r->world) - 1)
        raise(SIGKILL);
    tt_tensor *y = tt_module_forward(tt_trainer_model(t), b->x);
    if (strcmp(r->o.model, "gpt") != 0)
        return tt_cross_entropy(y, b->y);
    return tt_cross_entropy(tt_reshape(y, TT_SHAPE(-1, VOCABULARY)), tt_reshape(b->y, TT_SHAPE(-1)));
}

static tt_status set_up(Run *r) {
    const Options *o = &r->o;
    if (tt_init_process_group(&r->world, .or_alone = !o->backend, .backend = o->backend))
        return tt_last_status();
    tt_manual_seed((uint64_t)(7 + tt_get_rank(r->world))); /* all take rank 0's weights */
    r->set = make_set(o);
    r->model = make_model(o);
    r->optimizer = make_optimizer(r);
    r->sampler = tt_distributed_sampler(o->examples, tt_get_world_size(r->world), tt_get_rank(r->world), .seed = 3,
                                        .virtual_ranks = (int)o->virtual_ranks);
    r->loader = tt_loader_new(r->set, o->batch, r->sampler, .workers = (int)o->workers);
    return r->optimizer && r->loader ? TT_OK : tt_last_status();
}

static tt_status train(Run *r) {
    const Options *o = &r->o;
    tt_trainer_result result;
    tt_status status = tt_trainer_run(
        r->model, r->optimizer, r->loader, step, .user = r, .group = r->world, .sampler = r->sampler,
        .virtual_ranks = (int)o->virtual_ranks, .bucket_cap_bytes = (size_t)o->cap, .epochs = o->epochs,
        .accumulate = o->accumulate, .step_seed = 11, .clip_norm = strcmp(o->model, "gpt") ? 0 : 1,
        .checkpoint = o->checkpoint, .save_every_steps = o->every, .resume = o->resume, .result = &result);
    if (status || tt_get_rank(r->world) != 0)
        return status;
    printf("loss %a\n", result.loss);
    return o->save ? tt_safetensors_save(o->save, tt_module_state_dict(r->model), NULL, 0) : TT_OK;
}

/* ---- the cost: steps of the same examples, as one batch a rank and as one a shard, in turn */

/* One of the two ways. */
typedef struct Way {
    tt_module *ddp;
    tt_optimizer *optimizer;
    tt_sampler *sampler;
    tt_loader *loader;
    int passes;
    double *seconds; /* (steps) */
} Way;

static tt_status make_way(Way *w, Run *r, int virtual_ranks, int64_t steps) {
    int world = tt_get_world_size(r->world), rank = tt_get_rank(r->world);
    int64_t batch = r->o.batch * (virtual_ranks ? 1 : r->o.virtual_ranks / world);
    r->model = make_model(&r->o);
    r->optimizer = make_optimizer(r);
    w->optimizer = r->optimizer;
    w->ddp = tt_ddp(r->model, r->world, .virtual_ranks = virtual_ranks, .bucket_cap_bytes = (size_t)r->o.cap);
    w->passes = tt_ddp_shards(w->ddp, NULL);
    w->sampler = tt_distributed_sampler(r->o.examples, world, rank, .drop_last = true, .virtual_ranks = virtual_ranks);
    w->loader = tt_loader_new(r->set, batch, w->sampler, .drop_last = true);
    w->seconds = calloc((size_t)steps, sizeof *w->seconds);
    tt_module_free(r->model); /* the wrapper keeps it */
    r->model = NULL;
    r->optimizer = NULL;
    return w->ddp && w->loader && w->seconds ? TT_OK : tt_last_status();
}

static tt_status pass(Way *w, const Options *o, double *seconds) {
    TT_AUTO_SCOPE;
    tt_batch b;
    int more = tt_loader_next(w->loader, &b);
    if (!more)
        more = tt_loader_next(w->loader, &b);
    if (more < 0)
        return tt_last_status();
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    tt_tensor *y = tt_module_forward(w->ddp, b.x);
    bool text = !strcmp(o->model, "gpt");
    tt_tensor *loss = tt_cross_entropy(text ? tt_reshape(y, TT_SHAPE(-1, VOCABULARY)) : y,
                                       text ? tt_reshape(b.y, TT_SHAPE(-1)) : b.y);
    tt_status status = tt_backward(loss);
    clock_gettime(CLOCK_MONOTONIC, &to);
    *seconds += (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
    return status;
}

static tt_status take_step(Way *w, const Options *o, double *seconds) {
    struct timespec from, to;
    tt_optimizer_zero_grad(w->optimizer);
    for (int i = 0; i < w->passes; i++)
        if (pass(w, o, seconds))
            return tt_last_status();
    clock_gettime(CLOCK_MONOTONIC, &from);
    tt_status status = tt_optimizer_step(w->optimizer);
    clock_gettime(CLOCK_MONOTONIC, &to);
    *seconds += (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
    return status;
}

static int compare_times(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *times, int64_t n) {
    qsort(times, (size_t)n, sizeof *times, compare_times);
    return times[n / 2];
}

static tt_status tell_cost(Run *r) {
    enum { WARM = 5 };
    int64_t steps = r->o.cost;
    Way plain = {0}, shards = {0};
    tt_status status = make_way(&plain, r, 0, steps);
    if (!status)
        status = make_way(&shards, r, (int)r->o.virtual_ranks, steps);
    double *ratios = calloc((size_t)steps, sizeof *ratios);
    for (int64_t i = -WARM; i < steps && !status; i++) {
        double times[2] = {0, 0};
        for (int way = 0; way < 2 && !status; way++) { /* either is first every other time */
            bool second = (way + i) & 1;
            status = tt_barrier(r->world);
            if (!status)
                status = take_step(second ? &shards : &plain, &r->o, &times[second]);
        }
        if (i >= 0) {
            plain.seconds[i] = times[0];
            shards.seconds[i] = times[1];
            ratios[i] = times[1] / times[0];
        }
    }
    if (!status && tt_get_rank(r->world) == 0)
        printf("cost %.3f ms plain, %.3f ms with %" PRId64 " virtual ranks, ratio %.3f\n",
               1e3 * median(plain.seconds, steps), 1e3 * median(shards.seconds, steps), r->o.virtual_ranks,
               median(ratios, steps));
    Way *ways[] = {&plain, &shards};
    for (int w = 0; w < 2; w++) {
        tt_module_free(ways[w]->ddp);
        tt_optimizer_free(ways[w]->optimizer);
        tt_loader_free(ways[w]->loader);
        tt_sampler_free(ways[w]->sampler);
        free(ways[w]->seconds);
    }
    free(ratios);
    return status;
}

int main(int argc, char **argv) {
    Run r = {.o = {.model = "mlp", .virtual_ranks = 24, .batch = 2, .examples = 24 * 5 + 7, .epochs = 2}};
    for (int i = 1; i < argc; i++)
        if (!read_option(&r.o, argv[i]))
            return 2;
    tt_status status = set_up(&r);
    if (!status)
        status = r.o.cost ? tell_cost(&r) : train(&r);
    if (status)
        tt_report();
    tt_loader_free(r.loader);
    tt_sampler_free(r.sampler);
    tt_dataset_free(r.set);
    tt_optimizer_free(r.optimizer);
    tt_module_free(r.model);
    tt_destroy_process_group(r.world);
    return status ? EXIT_FAILURE : EXIT_SUCCESS;
}
