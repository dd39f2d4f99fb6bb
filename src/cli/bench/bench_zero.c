/* tutti bench zero: what a step with a sharded optimizer takes beside one of DDP and the plain optimizer, and how much
 * memory the optimizer has on a rank.
 *
 * Both models are trained in the same processes, a step of each in turn: what the machine does meanwhile hits both. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/format.h"
#include "base/parse.h"
#include "cli/bench/bench.h"
#include "cli/bench/bench_models.h"
#include "cli/bench/bench_zero_memory.h"
#include "cli/bench/spawn.h"
#include "cli/cli.h"

#include <tutti/tutti.h>

/* A model, wrapped, and its optimizer. */
typedef struct zero_side {
    tt_module *model, *ddp;
    tt_optimizer *optimizer;
    double *ms;
    tt__bench_memory memory;
} zero_side;

typedef struct zero_trial {
    const tt__bench_model *kind;
    int64_t steps, stage, world_size;
    tt_group *world;
    tt_tensor *x, *y;
    zero_side plain, sharded;
} zero_trial;

static const tt__flag zero_flags[] = {{.name = "model",
                                       .id = 'm',
                                       .value = "NAME",
                                       .what = "as tutti bench step has them (default gpt)",
                                       .offer = "mlp conv gpt gpt2 resnet50"},
                                      {.name = "world", .id = 'w', .value = "N", .what = "ranks (default 4)"},
                                      {.name = "steps", .id = 's', .value = "N", .what = "pairs of steps (default 40)"},
                                      {.name = "stage",
                                       .id = 'g',
                                       .value = "N",
                                       .what = "1: state is sliced (default); 2: gradients too; 3: parameters too",
                                       .offer = "1 2 3"},
                                      {0}};

static int zero_main(int argc, char **argv);

const tt__command tt__bench_zero = {
    .name = "bench zero",
    .what = "a step with a sharded optimizer",
    .usage = "[FLAGS]",
    .text =
        "Train a model with DDP and AdamW, and with a sharded AdamW, a step of each in turn, and print one "
        "JSON object:\n"
        " {\"bench\":\"zero\",\"model\":\"gpt\",\"world\":4,\"stage\":1,\"ddp_ms\":..,\"zero_ms\":..,\"ratio\":..,\n"
        "  \"ddp_params_mb\":..,\"zero_params_mb\":..,\"ddp_grads_mb\":..,\"zero_grads_mb\":..,\n"
        "  \"ddp_state_mb\":..,\"zero_state_mb\":..}\n"
        "Times are medians, ratio that of the pairs' ratios. The rest is rank 0's memory between two steps: pages of "
        "parameters and of gradients that are there, and what the tensors of the optimizer's state have.",
    .flags = zero_flags,
    .notes = "OMP_NUM_THREADS is 1 a rank unless it is set.",
    .run = zero_main,
};

/* Parse the flags. Returns -1 to go on, else the exit code. */
static int zero_parse(zero_trial *t, int argc, char **argv) {
    const char *model = "gpt";
    *t = (zero_trial){.world_size = 4, .steps = 40, .stage = 1};
    for (int c; (c = tt__cli_next_flag(&tt__bench_zero, argc, argv, NULL)) != -1;) {
        tt_status status = TT_OK;
        if (c == 'm')
            model = optarg;
        else if (c == 'w')
            status = tt__parse_i64("--world", optarg, 1, 1024, &t->world_size);
        else if (c == 's')
            status = tt__parse_i64("--steps", optarg, 1, 1000000, &t->steps);
        else if (c == 'g')
            status = tt__parse_i64("--stage", optarg, 1, 3, &t->stage);
        else
            return c == 'h' ? TT__EXIT_OK : TT__EXIT_USAGE;
        if (status)
            return tt__cli_usage_error("bench zero", "%s", tt_last_error());
    }
    t->kind = tt__bench_model_find(model);
    if (!t->kind)
        return tt__cli_usage_error("bench zero", "--model: expected mlp, conv, gpt, gpt2 or resnet50, got \"%s\"",
                                   model);
    return -1;
}

/* Whatever the model is usually trained with: an optimizer without state leaves nothing to spread. */
static tt_optimizer *make_adamw(const tt_named_tensors *params, void *user) {
    (void)user;
    return tt_adamw(params, 3e-4, 0.01);
}

static tt_status make_side(const zero_trial *t, zero_side *s, int64_t stage) {
    tt_manual_seed(0);
    s->model = t->kind->make();
    s->ddp = stage == 3 ? tt_fully_shard(s->model, t->world) : tt_ddp(s->model, t->world);
    s->optimizer = !s->ddp  ? NULL
                   : !stage ? make_adamw(tt_module_parameters(s->ddp), NULL)
                            : tt_zero_optimizer(s->ddp, make_adamw, NULL, .stage = (int)stage);
    s->ms = calloc((size_t)t->steps, sizeof *s->ms);
    return s->optimizer && s->ms ? TT_OK : tt_last_status();
}

static tt_status zero_init(zero_trial *t) {
    tt_status status = tt_init_process_group(&t->world);
    if (status)
        return status;
    tt__bench_pin_to(tt_get_rank(t->world), tt_get_world_size(t->world));
    TT_NO_GRAD;
    tt_manual_seed(0);
    t->x = t->kind->inputs();
    t->y = t->kind->targets();
    status = t->x && t->y ? make_side(t, &t->plain, 0) : tt_last_status();
    return status ? status : make_side(t, &t->sharded, t->stage);
}

static void end_side(zero_side *s) {
    tt_optimizer_free(s->optimizer);
    tt_module_free(s->ddp);
    tt_module_free(s->model);
    free(s->ms);
}

static void zero_tear_down(zero_trial *t) {
    tt_tensor_free(t->x);
    tt_tensor_free(t->y);
    end_side(&t->plain);
    end_side(&t->sharded);
    tt_destroy_process_group(t->world);
}

static tt_status backward_of(const zero_trial *t, const zero_side *s) {
    TT_AUTO_SCOPE;
    tt_optimizer_zero_grad(s->optimizer);
    return tt_backward(t->kind->loss(tt_module_forward(s->ddp, t->x), t->y));
}

/* A step of one side, timed from when all ranks begin it. */
static tt_status timed_step(const zero_trial *t, const zero_side *s, double *ms) {
    tt_status status = tt_barrier(t->world);
    int64_t start = tt__now_ns();
    status = status ? status : backward_of(t, s);
    status = status ? status : tt_optimizer_step(s->optimizer);
    *ms = (double)(tt__now_ns() - start) * 1e-6;
    return status;
}

static tt_status first_step(const zero_trial *t, zero_side *s) {
    tt_status status = backward_of(t, s);
    return status ? status : tt_optimizer_step(s->optimizer);
}

static tt_status zero_measure(zero_trial *t) {
    double ms;
    tt_status status = first_step(t, &t->plain);
    status = status ? status : first_step(t, &t->sharded);
    status = status ? status : timed_step(t, &t->plain, &ms);
    status = status ? status : timed_step(t, &t->sharded, &ms);
    for (int64_t i = 0; i < t->steps && !status; i++) {
        status = timed_step(t, &t->plain, &t->plain.ms[i]);
        status = status ? status : timed_step(t, &t->sharded, &t->sharded.ms[i]);
    }
    status = status ? status : tt__bench_zero_memory(t->plain.ddp, t->plain.optimizer, &t->plain.memory);
    return status ? status : tt__bench_zero_memory(t->sharded.ddp, t->sharded.optimizer, &t->sharded.memory);
}

static double median_of(double *values, int64_t n) {
    tt__bench_sort(values, (size_t)n);
    return values[n / 2];
}

static tt_status zero_print(const zero_trial *t) {
    double *ratios = calloc((size_t)t->steps, sizeof *ratios);
    if (!ratios)
        return tt_fail(TT_ERR_MEMORY, "bench zero: no memory for %lld ratios", (long long)t->steps);
    for (int64_t i = 0; i < t->steps; i++)
        ratios[i] = t->sharded.ms[i] / t->plain.ms[i];
    tt__print(stdout,
              "{\"bench\":\"zero\",\"model\":\"%s\",\"world\":%d,\"stage\":%d,\"ddp_ms\":%.4f,\"zero_ms\":%.4f,"
              "\"ratio\":%.4f,\"ddp_params_mb\":%.3f,\"zero_params_mb\":%.3f,\"ddp_grads_mb\":%.3f,"
              "\"zero_grads_mb\":%.3f,\"ddp_state_mb\":%.3f,\"zero_state_mb\":%.3f}\n",
              t->kind->name, tt_get_world_size(t->world), (int)t->stage, median_of(t->plain.ms, t->steps),
              median_of(t->sharded.ms, t->steps), median_of(ratios, t->steps), t->plain.memory.params_mb,
              t->sharded.memory.params_mb, t->plain.memory.grads_mb, t->sharded.memory.grads_mb,
              t->plain.memory.state_mb, t->sharded.memory.state_mb);
    free(ratios);
    return TT_OK;
}

static int zero_main(int argc, char **argv) {
    zero_trial t;
    int code = zero_parse(&t, argc, argv);
    if (code >= 0)
        return code;
    if (!tt__bench_is_rank()) {
        setenv("OMP_NUM_THREADS", "1", 0);
        return tt__bench_spawn((int)t.world_size, argc, argv);
    }
    tt_status status = zero_init(&t);
    if (!status)
        status = zero_measure(&t);
    if (!status && tt_get_rank(t.world) == 0)
        status = zero_print(&t);
    if (status)
        tt_report();
    zero_tear_down(&t);
    return status ? TT__EXIT_FAILED : TT__EXIT_OK;
}
