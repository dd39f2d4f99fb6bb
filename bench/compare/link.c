/* tutti-bench link: the least time until gradients are averaged that a link allows, beside the time taken. Buckets
 * cross the link one after the other, each when its last gradient is ready: for every bucket, averaging takes at least
 * the time at which that bucket was ready, and the link's time for it and all later ones. The largest of these is the
 * least time. */
#include "base/error.h"
#include "base/machine/clock.h"
#include "base/text/format.h"
#include "base/text/parse.h"
#include "cli/bench/bench.h"
#include "compare/compare.h"

#include <tutti/tutti.h>

#include <stdlib.h>
#include <string.h>

enum { WARM_UP_STEPS = 4 };

typedef struct link_options {
    const tt__bench_model *model;
    int64_t world, steps, mbit;
    bool no_pin;
} link_options;

typedef struct link_trial {
    const link_options *o;
    tt_group *world;
    tt_module *model, *ddp;
    tt_optimizer *optimizer;
    tt_tensor *x, *y;
    tt_reducer *reducer;
    double ns_per_byte; /* that the link takes for a byte of a bucket */
    int64_t buckets, begin_ns;
    int64_t *ready_ns;                         /* (buckets): since the step began, when the last gradient was ready */
    double *least_ms, *averaged_ms, *of_least; /* (steps): of_least is averaged_ms by least_ms */
} link_trial;

/* ---- flags ---- */

static const tt__flag link_flags[] = {
    TT__VALUE("model", 'm', "NAME", "as tutti bench step has them (default mlp)",
              .offer = "mlp conv gpt gpt2 resnet50"),
    TT__VALUE("world", 'w', "N", "ranks (default 2)"),
    TT__VALUE("steps", 's', "N", "steps that are timed (default: five of tutti bench's blocks)"),
    TT__VALUE("mbit", 'l', "MBIT", "what each link carries, in Mbit/s each way (default 1000)"),
    TT__SWITCH("no-pin", 'p', "let the system move ranks between CPUs"),
    {0}};

static int link_main(int argc, char **argv);

const tt__command tt__compare_link = {
    .name = "link",
    .what = "a step until gradients are averaged beside what a link allows",
    .usage = "[FLAGS]",
    .text = "Train a model with DDP and print one JSON object of medians over steps:\n"
            " {\"bench\":\"link\",\"model\":\"conv\",\"world\":2,\"averaged_ms\":..,\"least_ms\":..,\"of_least\":..}\n"
            "averaged_ms is the time of forward and backward until gradients are averaged, least_ms the least that "
            "links of "
            "MBIT between the ranks allow by the same steps' traces, of_least how many times that it took.",
    .flags = link_flags,
    .notes =
        "OMP_NUM_THREADS is 1 a rank unless it is set. Under a launcher the job's ranks are measured, not --world.",
    .run = link_main,
};

static tt_status parse_link_flag(link_options *o, int c) {
    switch (c) {
    case 'm':
        o->model = tt__bench_model_find(optarg);
        return o->model
                   ? TT_OK
                   : tt__fail(TT_ERR_INVALID, "--model: expected mlp, conv, gpt, gpt2 or resnet50, got \"%s\"", optarg);
    case 'w':
        return tt__parse_i64("--world", optarg, 2, 1024, &o->world);
    case 's':
        return tt__parse_i64("--steps", optarg, 1, 1000000, &o->steps);
    case 'l':
        return tt__parse_i64("--mbit", optarg, 1, 1000000, &o->mbit);
    default:
        o->no_pin = true;
        return TT_OK;
    }
}

/* Returns -1 to go on, else the exit code. */
static int link_parse(link_options *o, int argc, char **argv) {
    *o = (link_options){.model = tt__bench_model_find("mlp"), .world = 2, .mbit = 1000};
    for (int c; (c = tt__cli_next_flag(&tt__compare_link, argc, argv, NULL)) != -1;) {
        if (c == 'h' || c == '?')
            return c == 'h' ? TT__EXIT_OK : TT__EXIT_USAGE;
        if (parse_link_flag(o, c))
            return tt__cli_usage_error("link", "%s", tt_last_error());
    }
    if (!o->steps)
        o->steps = 5 * o->model->steps;
    return -1;
}

/* ---- measuring ---- */

static void note_ready(const tt_reducer_event *event, void *user) {
    link_trial *t = user;
    if (event->kind == TT_REDUCER_READY)
        t->ready_ns[tt_reducer_bucket_of(t->reducer, event->index)] = event->time_ns - t->begin_ns;
}

static tt_status make_link_model(link_trial *t) {
    TT_NO_GRAD;
    tt_manual_seed(0);
    t->model = t->o->model->make();
    t->x = t->o->model->inputs();
    t->y = t->o->model->targets();
    t->optimizer = t->model ? t->o->model->optimizer(t->model) : NULL;
    t->ddp = tt_ddp(t->model, t->world);
    return t->x && t->y && t->optimizer && t->ddp ? TT_OK : tt_last_status();
}

/* Forward and backward; *ns: what they took. */
static tt_status average_gradients(link_trial *t, double *ns) {
    TT_AUTO_SCOPE;
    tt_optimizer_zero_grad(t->optimizer);
    t->begin_ns = tt__now_ns();
    TT__TRY(tt_backward(t->o->model->loss(tt_module_forward(t->ddp, t->x), t->y)));
    *ns = (double)(tt__now_ns() - t->begin_ns);
    return tt_optimizer_step(t->optimizer);
}

/* Start the trace: the buckets have been formed in the steps before. In an all-reduce over W ranks each sends
 * 2 (W - 1) / W times the bytes, and receives as many meanwhile; 8e3 / mbit are the ns that a byte takes. */
static tt_status trace_buckets(link_trial *t) {
    double world = tt_get_world_size(t->world);
    size_t steps = (size_t)t->o->steps;
    if (world < 2)
        return tt__fail(TT_ERR_INVALID, "link: one rank alone averages nothing: expected a job of two ranks or more");
    t->reducer = tt_ddp_reducer(t->ddp);
    t->buckets = tt_reducer_bucket_count(t->reducer);
    t->ns_per_byte = 2 * (world - 1) / world * 8e3 / (double)t->o->mbit;
    t->ready_ns = calloc((size_t)t->buckets, sizeof *t->ready_ns);
    t->least_ms = calloc(3 * steps, sizeof *t->least_ms);
    if (!t->ready_ns || !t->least_ms)
        return tt__fail(TT_ERR_MEMORY, "no memory to time %zu steps", steps);
    t->averaged_ms = t->least_ms + steps;
    t->of_least = t->averaged_ms + steps;
    tt_reducer_set_trace(t->reducer, note_ready, t);
    return TT_OK;
}

static double least_ns(const link_trial *t) {
    double left = 0, least = 0;
    for (int64_t b = t->buckets - 1; b >= 0; b--) {
        left += (double)tt_reducer_bucket_bytes(t->reducer, b) * t->ns_per_byte;
        if ((double)t->ready_ns[b] + left > least)
            least = (double)t->ready_ns[b] + left;
    }
    return least;
}

static tt_status link_measure(link_trial *t) {
    double took;
    for (int i = 0; i < WARM_UP_STEPS; i++)
        TT__TRY(average_gradients(t, &took));
    TT__TRY(trace_buckets(t));
    TT__TRY(tt_barrier(t->world));
    for (int64_t i = 0; i < t->o->steps; i++) {
        memset(t->ready_ns, 0, (size_t)t->buckets * sizeof *t->ready_ns);
        TT__TRY(average_gradients(t, &took));
        double least = least_ns(t);
        t->averaged_ms[i] = took * 1e-6;
        t->least_ms[i] = least * 1e-6;
        t->of_least[i] = took / least;
    }
    return TT_OK;
}

static double middle_of(double *values, int64_t n) {
    tt__bench_sort(values, (size_t)n);
    return values[n / 2];
}

static tt_status run_link_trial(link_trial *t) {
    const link_options *o = t->o;
    TT__TRY(tt_init_process_group(&t->world));
    if (!o->no_pin)
        tt__bench_pin_to(tt_get_rank(t->world), tt_get_world_size(t->world));
    TT__TRY(make_link_model(t));
    TT__TRY(link_measure(t));
    if (tt_get_rank(t->world) == 0)
        tt__print(stdout,
                  "{\"bench\":\"link\",\"model\":\"%s\",\"world\":%d,\"averaged_ms\":%.4f,\"least_ms\":%.4f,"
                  "\"of_least\":%.4f}\n",
                  o->model->name, tt_get_world_size(t->world), middle_of(t->averaged_ms, o->steps),
                  middle_of(t->least_ms, o->steps), middle_of(t->of_least, o->steps));
    return TT_OK;
}

static void end_link_trial(link_trial *t) {
    if (t->reducer)
        tt_reducer_set_trace(t->reducer, NULL, NULL);
    free(t->ready_ns);
    free(t->least_ms);
    tt_tensor_free(t->x);
    tt_tensor_free(t->y);
    tt_module_free(t->ddp);
    tt_optimizer_free(t->optimizer);
    tt_module_free(t->model);
    tt_destroy_process_group(t->world);
}

static int link_main(int argc, char **argv) {
    link_options o;
    int code = link_parse(&o, argc, argv);
    if (code >= 0)
        return code;
    setenv("OMP_NUM_THREADS", "1", 0);
    if (!tt__bench_is_member())
        return tt__spawn_ranks((int)o.world, NULL, argc, argv);
    link_trial t = {.o = &o};
    tt_status status = run_link_trial(&t);
    if (status)
        tt_report();
    end_link_trial(&t);
    return status ? TT__EXIT_FAILED : TT__EXIT_OK;
}
