/* tutti-bench zero: what a step with a sharded optimizer takes beside one of DDP and the plain optimizer, and how much
 * memory the optimizer has on a rank.
 *
 * Both models are trained in the same processes, a step of each in turn: what the machine does meanwhile hits both. */
#include "base/machine/clock.h"
#include "base/text/format.h"
#include "base/text/parse.h"
#include "cli/bench/bench.h"
#include "compare/compare.h"
#include "optim/optimizer.h"
#include "parallel/ddp/ddp_state.h"
#include "parallel/fully_shard/fully_shard.h"
#include "tensor/core/tensor.h"

#include <tutti/tutti.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* What a wrapped module and its optimizer occupy on this rank, in MiB. Parameters and gradients: their resident pages
 * (mincore); state: its tensors' sizes. */
typedef struct zero_memory {
    double params_mb; /* parameters: whole ones, slices, and the places where units are gathered */
    double grads_mb;  /* gradients: buckets, places of whole ones, and of slices */
    double state_mb;  /* the tensors of the optimizer's state */
} zero_memory;

/* A model, wrapped, and its optimizer. */
typedef struct zero_side {
    tt_module *model, *ddp;
    tt_optimizer *optimizer;
    double *ms;
    zero_memory memory;
} zero_side;

typedef struct zero_trial {
    const tt__bench_model *kind;
    int64_t steps, stage, world_size;
    tt_group *world;
    tt_tensor *x, *y;
    zero_side plain, sharded;
} zero_trial;

static const tt__flag zero_flags[] = {
    TT__VALUE("model", 'm', "NAME", "as tutti bench step has them (default gpt)",
              .offer = "mlp conv gpt gpt2 resnet50"),
    TT__VALUE("world", 'w', "N", "ranks (default 4)"),
    TT__VALUE("steps", 's', "N", "pairs of steps (default 40)"),
    TT__VALUE("stage", 'g', "N", "1: state is sliced (default); 2: gradients too; 3: parameters too", .offer = "1 2 3"),
    {0}};

static int zero_main(int argc, char **argv);

const tt__command tt__compare_zero = {
    .name = "zero",
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
    for (int c; (c = tt__cli_next_flag(&tt__compare_zero, argc, argv, NULL)) != -1;) {
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
            return tt__cli_usage_error("zero", "%s", tt_last_error());
    }
    t->kind = tt__bench_model_find(model);
    if (!t->kind)
        return tt__cli_usage_error("zero", "--model: expected mlp, conv, gpt, gpt2 or resnet50, got \"%s\"", model);
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

/* ---- memory ---- */

static const double MEBIBYTE = 1 << 20;

/* How many of the `bytes` at `data` lie in resident pages. */
static double resident_bytes(const void *data, size_t bytes) {
    enum { BATCH = 1024 };
    unsigned char there[BATCH];
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), end = (uintptr_t)data + bytes;
    size_t pages = 0;
    for (uintptr_t at = (uintptr_t)data & ~(page - 1); at < end; at += BATCH * page) {
        const size_t n = end - at < BATCH * page ? (end - at + page - 1) / page : BATCH;
        if (mincore((void *)at, n * page, there))
            return (double)bytes; /* it can't be told: all of it */
        for (size_t i = 0; i < n; i++)
            pages += there[i] & 1;
    }
    return pages * page < bytes ? (double)(pages * page) : (double)bytes;
}

static double resident_tensor(const tt_tensor *x) {
    return x ? resident_bytes(x->data, (size_t)x->numel * tt_dtype_size(x->dtype)) : 0;
}

static void add_ddp(const tt__ddp *d, const tt_named_tensors *params, zero_memory *m) {
    for (int64_t i = 0; i < params->count; i++)
        m->params_mb += resident_tensor(params->tensors[i]) / MEBIBYTE;
    for (size_t i = 0; i < d->reducer->bucket_count; i++) {
        const tt__reducer_bucket *b = &d->reducer->buckets[i];
        m->grads_mb += resident_bytes(b->data, b->count * tt_dtype_size(b->dtype)) / MEBIBYTE;
    }
}

static void add_sharded(const tt__fs *fs, zero_memory *m) {
    for (size_t i = 0; i < fs->bucket_count; i++) {
        const tt__fs_bucket *b = &fs->buckets[i];
        m->params_mb += resident_bytes(b->slices, (size_t)b->part * tt_dtype_size(b->dtype)) / MEBIBYTE;
    }
    for (size_t i = 0; i < fs->place_count; i++)
        m->params_mb += resident_bytes(fs->places[i].memory.data, fs->places[i].bytes) / MEBIBYTE;
    for (size_t i = 0; i < fs->grad_place_count; i++)
        m->grads_mb += resident_bytes(fs->grad_places[i].memory.data, fs->grad_places[i].bytes) / MEBIBYTE;
}

static bool lies_in_a_bucket(const tt__ddp *d, const tt_tensor *grad) {
    for (size_t i = 0; d && i < d->reducer->bucket_count; i++) {
        const tt__reducer_bucket *b = &d->reducer->buckets[i];
        const char *at = grad->data, *from = b->data;
        if (at >= from && at < from + b->count * tt_dtype_size(b->dtype))
            return true;
    }
    return false;
}

/* Gradients of slices that have memory of their own. */
static void add_slice_grads(const tt__ddp *d, const tt_optimizer *o, zero_memory *m) {
    for (size_t g = 0; g < o->group_count; g++)
        for (size_t i = 0; i < o->groups[g].count; i++) {
            const tt_tensor *grad = tt_grad(o->groups[g].params[i].tensor);
            if (grad && grad->numel && !lies_in_a_bucket(d, grad))
                m->grads_mb += resident_tensor(grad) / MEBIBYTE;
        }
}

/* Measure it, between two steps. `wrapper` is tt_ddp()'s or tt_fully_shard()'s, `optimizer` one of its parameters,
 * sharded or not. */
static tt_status measure_memory(tt_module *wrapper, tt_optimizer *optimizer, zero_memory *out) {
    *out = (zero_memory){0};
    const tt__ddp *d = tt__ddp_of(wrapper);
    if (d)
        add_ddp(d, tt_module_parameters(wrapper), out);
    else
        add_sharded(tt__fs_of(wrapper), out);
    add_slice_grads(d, optimizer, out);
    const tt_named_tensors *state = tt__optim_own_state_dict(optimizer);
    for (int64_t i = 0; state && i < state->count; i++)
        if (!strncmp(state->names[i], "state.", 6))
            out->state_mb += (double)tt_tensor_numel(state->tensors[i]) *
                             (double)tt_dtype_size(tt_tensor_dtype(state->tensors[i])) / MEBIBYTE;
    return state ? TT_OK : tt_last_status();
}

/* ---- time ---- */

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
    status = status ? status : measure_memory(t->plain.ddp, t->plain.optimizer, &t->plain.memory);
    return status ? status : measure_memory(t->sharded.ddp, t->sharded.optimizer, &t->sharded.memory);
}

static double median_of(double *values, int64_t n) {
    tt__bench_sort(values, (size_t)n);
    return values[n / 2];
}

static tt_status zero_print(const zero_trial *t) {
    double *ratios = calloc((size_t)t->steps, sizeof *ratios);
    if (!ratios)
        return tt_fail(TT_ERR_MEMORY, "zero: no memory for %lld ratios", (long long)t->steps);
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
        return tt__spawn_ranks((int)t.world_size, NULL, argc, argv);
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
