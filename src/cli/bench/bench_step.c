/* tutti bench step: how long a training step takes, and how much memory a rank needs.
 *
 * Every step takes the same batch from memory. One rank trains the plain model; more ranks wrap it for data-parallel
 * training. There are five blocks of `--steps` steps; the time of a step is its block's mean. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/machine/clock.h"
#include "base/text/format.h"
#include "base/text/parse.h"
#include "cli/bench/bench.h"
#include "cli/cli.h"
#include "tensor/core/pool.h"
#include "tensor/device/device.h"

#include <tutti/tutti.h>

enum { BLOCKS = 5, MEGABYTE = 1 << 20 };

typedef struct options {
    int64_t world, steps; /* steps 0: the model's own number */
    int64_t replicas;     /* of tt_data_parallel(); 0: none */
    const tt__bench_model *model;
    bool no_pin;
    bool apart;
    bool amp;                    /* forward and loss in bf16 */
    bool graph;                  /* the step is captured, and replayed */
    const char *where, *backend; /* --device; --backend, or NULL */
    const tt_device *device;     /* this rank's */
} options;

typedef struct trial {
    const tt__bench_model *kind;
    tt_group *world;
    tt_module *model, *ddp; /* ddp is NULL on one rank */
    tt_optimizer *optimizer;
    tt_tensor *x, *y;
    bool amp;
    tt_graph *graph; /* NULL: steps are taken one by one */
    double block_ms[BLOCKS];
} trial;

static const tt__flag step_flags[] = {
    TT__VALUE("model", 'm', "NAME",
              "mlp: 784-512-10, batch 32 a rank, SGD (the default); conv: PyTorch's MNIST example, batch 64, Adadelta; "
              "gpt: 4 layers of 256 channels, 8 x 128 tokens, AdamW; gpt2: 124M parameters, 16 x 1024 tokens; "
              "resnet50: 64 pictures of 224 x 224, channels last",
              .offer = "mlp conv gpt gpt2 resnet50"),
    TT__VALUE("world", 'w', "N", "ranks; 1 trains the plain model (default 2)"),
    TT__VALUE("steps", 's', "N", "steps a block, of five blocks (default 400; conv 15; gpt 10; others 5)"),
    TT__VALUE("amp", 'a', "TYPE", "bf16: forward pass and loss run under autocast (default: all in f32)",
              .offer = "bf16"),
    TT__VALUE("device", 'D', "NAME",
              "where models lie and are trained: cpu (the default), cuda (a GPU for each rank), cuda:0 (one for all)"),
    TT__SWITCH("graph", 'g', "capture the step as a CUDA graph, and replay it: --world 1, with --device"),
    TT__VALUE("backend", 'e', "NAME",
              "what averages gradients: native (the default), gloo, mpi, nccl (with --device cuda)",
              .offer = "native gloo mpi nccl"),
    TT__SWITCH("apart", 'x',
               "each rank trains a model of its own: the same work without communication, to compare with"),
    TT__VALUE("data-parallel", 'd', "N",
              "one process with N threads, each a replica (tt_data_parallel()), in place of ranks; N at least 1"),
    TT__SWITCH("no-pin", 'p', "let the system move ranks between CPUs"),
    {0}};

static int step_main(int argc, char **argv);

const tt__command tt__bench_step = {
    .name = "bench step",
    .what = "a training step: time and memory",
    .usage = "[FLAGS]",
    .text =
        "Time training steps, and print one JSON object:\n"
        " {\"bench\":\"step\",\"model\":\"mlp\",\"world\":2,\"ms_median\":..,\"ms_min\":..,\"rss_mb\":..,\n"
        "  \"pool_mb\":..,\"needs_mb\":..}\n"
        "pool_mb is the most memory that tensors and oneDNN's scratchpads have had, needs_mb what the arithmetic "
        "needs at once: parameters, gradients, the optimizer's states, what backward reads again, gradients under "
        "way. With --amp it also has \"amp\":\"bf16\", with --device \"device\":\"cuda:0\" and \"device_mb\", the most "
        "memory there that tensors have had, with --graph \"graph\":true, with --apart \"apart\":true, with "
        "--data-parallel \"data_parallel\":N, behind the model.",
    .flags = step_flags,
    .notes = "OMP_NUM_THREADS is 1 a rank unless it is set. Under a launcher (tutti run, mpirun) the job's ranks are "
             "measured, not --world.",
    .run = step_main,
};

/* Do the flags fit together? Returns -1 to go on, else the exit code. */
static int check_step_flags(options *o, const char *model) {
    const bool on_cpu = !strcmp(o->where, "cpu");
    o->model = tt__bench_model_find(model);
    if (!o->model)
        return tt__cli_usage_error("bench step", "--model: expected mlp, conv, gpt, gpt2 or resnet50, got \"%s\"",
                                   model);
    if (!o->steps)
        o->steps = o->model->steps;
    if (o->replicas)
        o->world = 1;
    if (!on_cpu && o->replicas)
        return tt__cli_usage_error("bench step", "--device: replicas are trained on the cpu: leave out one of the two");
    if (o->graph && (o->world != 1 || on_cpu))
        return tt__cli_usage_error("bench step", "--graph captures the step of one rank on a GPU: add --world 1 and "
                                                 "--device cuda:0");
    if (o->backend && !strcmp(o->backend, "nccl") && on_cpu)
        return tt__cli_usage_error("bench step", "--backend nccl averages memory of GPUs: add --device cuda");
    return -1;
}

/* Parse the flags. Returns -1 to go on, else the exit code. */
static int step_parse(options *o, int argc, char **argv) {
    const char *model = "mlp";
    *o = (options){.world = 2, .where = "cpu"};
    for (int c; (c = tt__cli_next_flag(&tt__bench_step, argc, argv, NULL)) != -1;) {
        tt_status status = TT_OK;
        switch (c) {
        case 'm':
            model = optarg;
            break;
        case 'w':
            status = tt__parse_i64("--world", optarg, 1, 1024, &o->world);
            break;
        case 's':
            status = tt__parse_i64("--steps", optarg, 1, 1000000, &o->steps);
            break;
        case 'a':
            if (strcmp(optarg, "bf16") != 0)
                return tt__cli_usage_error("bench step", "--amp: expected bf16, got \"%s\"", optarg);
            o->amp = true;
            break;
        case 'D':
            o->where = optarg;
            break;
        case 'g':
            o->graph = true;
            break;
        case 'e':
            o->backend = optarg;
            break;
        case 'd':
            status = tt__parse_i64("--data-parallel", optarg, 1, 1024, &o->replicas);
            break;
        case 'x':
            o->apart = true;
            break;
        case 'p':
            o->no_pin = true;
            break;
        case 'h':
            return TT__EXIT_OK;
        default:
            return TT__EXIT_USAGE;
        }
        if (status)
            return tt__cli_usage_error("bench step", "%s", tt_last_error());
    }
    return check_step_flags(o, model);
}

/* Move x to the device, and free the original. */
static tt_tensor *moved(tt_tensor *x, const tt_device *device) {
    tt_tensor *there = tt_to_device(x, device);
    if (there != x)
        tt_tensor_free(x);
    return there;
}

/* "cuda" means a GPU of its own for each rank of a host. */
static tt_status choose_device(options *o) {
    o->device = !strcmp(o->where, "cuda") ? TT_CUDA(tt_get_node_local_rank(0)) : tt_device_get(o->where);
    return o->device ? TT_OK : tt_last_status();
}

static tt_status join_ranks(trial *t, options *o) {
    if (choose_device(o))
        return tt_last_status();
    bool far = o->device != TT_CPU && o->backend && !strcmp(o->backend, "nccl");
    return tt_init_process_group(&t->world, .backend = o->backend, .device = far ? o->device->type : TT_DEVICE_CPU,
                                 .device_index = far ? o->device->index : 0);
}

static tt_status trial_init(trial *t, options *o) {
    TT_NO_GRAD;
    tt_status status = join_ranks(t, o);
    if (status)
        return status;
    if (!o->no_pin && !o->replicas)
        tt__bench_pin_to(tt_get_rank(t->world), tt_get_world_size(t->world));
    tt_manual_seed(0);
    t->kind = o->model;
    t->amp = o->amp;
    t->model = t->kind->make();
    if (o->replicas)
        t->model = tt_data_parallel(t->model, .replicas = (int)o->replicas);
    if (t->model && tt_module_to_device(t->model, o->device))
        return tt_last_status();
    t->x = moved(t->kind->inputs(), o->device);
    t->y = moved(t->kind->targets(), o->device);
    t->optimizer = t->model ? t->kind->optimizer(t->model) : NULL;
    bool alone = o->apart || tt_get_world_size(t->world) == 1;
    t->ddp = alone ? NULL : tt_ddp(t->model, t->world);
    bool made = t->x && t->y && t->optimizer && (t->ddp || alone);
    return made ? TT_OK : tt_last_status();
}

static void tear_down(trial *t) {
    tt_graph_free(t->graph);
    tt_tensor_free(t->x);
    tt_tensor_free(t->y);
    tt_module_free(t->ddp);
    tt_optimizer_free(t->optimizer);
    tt_module_free(t->model);
    tt_destroy_process_group(t->world);
}

static tt_tensor *plain_loss(const trial *t) {
    return t->kind->loss(tt_module_forward(t->ddp ? t->ddp : t->model, t->x), t->y);
}

static tt_tensor *amp_loss(const trial *t) {
    TT_AUTOCAST(TT_BF16);
    return plain_loss(t);
}

static tt_status train_step(trial *t) {
    TT_AUTO_SCOPE;
    tt_optimizer_zero_grad(t->optimizer);
    tt_tensor *loss = t->amp ? amp_loss(t) : plain_loss(t);
    if (tt_backward(loss))
        return tt_last_status();
    return tt_optimizer_step(t->optimizer);
}

static tt_status captured_bench_step(void *t) { return train_step(t); }

static tt_status run_steps(trial *t, int64_t steps) {
    for (int64_t i = 0; i < steps; i++)
        if (t->graph ? tt_graph_replay(t->graph) : train_step(t))
            return tt_last_status();
    return TT_OK;
}

/* Capture the graph, if one is wanted, and take steps that are not timed. */
static tt_status warm_up(trial *t, const options *o) {
    TT_AUTO_SCOPE;
    const int64_t steps = o->steps / 10 > 3 ? o->steps / 10 : 3;
    if (o->graph && !(t->graph = tt_graph_capture(o->device, 3, captured_bench_step, t)))
        return tt_last_status();
    return run_steps(t, steps);
}

static tt_status step_measure(trial *t, const options *o) {
    int64_t steps = o->steps;
    tt_status status = warm_up(t, o);
    for (int b = 0; b < BLOCKS && !status; b++) {
        status = tt_barrier(t->world);
        int64_t start = tt__now_ns();
        status = status ? status : run_steps(t, steps);
        status = status ? status : tt_device_synchronize(o->device);
        t->block_ms[b] = (double)(tt__now_ns() - start) * 1e-6 / (double)steps;
    }
    tt__bench_sort(t->block_ms, BLOCKS);
    return status;
}

static void step_print(const trial *t, const options *o) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    char replicas[40] = "";
    if (o->replicas)
        snprintf(replicas, sizeof replicas, "\"data_parallel\":%lld,", (long long)o->replicas);
    char device[96] = "";
    tt_device_memory memory = TT_DEVICE_MEMORY_INIT;
    if (o->device != TT_CPU && !tt_device_memory_get(o->device, &memory))
        tt__format(device, sizeof device, "\"device\":\"%s\",\"device_mb\":%.1f,", tt_device_name(o->device),
                   (double)memory.peak / MEGABYTE);
    tt__print(stdout,
              "{\"bench\":\"step\",\"model\":\"%s\",%s%s%s%s%s\"world\":%d,\"ms_median\":%.4f,\"ms_min\":%.4f,"
              "\"rss_mb\":%.1f,\"pool_mb\":%.1f,\"needs_mb\":%.1f}\n",
              o->model->name, o->amp ? "\"amp\":\"bf16\"," : "", device, o->graph ? "\"graph\":true," : "",
              o->apart ? "\"apart\":true," : "", replicas, tt_get_world_size(t->world), t->block_ms[BLOCKS / 2],
              t->block_ms[0], (double)usage.ru_maxrss / 1024, (double)tt__pool_most() / MEGABYTE,
              (double)tt__bench_model_needs(t->kind, t->model) / MEGABYTE);
}

static int step_main(int argc, char **argv) {
    options o;
    int code = step_parse(&o, argc, argv);
    if (code >= 0)
        return code;
    setenv("OMP_NUM_THREADS", "1", 0);
    if (!tt__bench_is_member())
        return tt__spawn_ranks((int)o.world, "bench", argc, argv);
    trial t = {0};
    tt_status status = trial_init(&t, &o);
    if (!status)
        status = step_measure(&t, &o);
    if (!status && tt_get_rank(t.world) == 0)
        step_print(&t, &o);
    if (status)
        tt_report();
    tear_down(&t);
    return status ? TT__EXIT_FAILED : TT__EXIT_OK;
}
