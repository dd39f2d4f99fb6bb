/* Communication hooks: gradients are compressed before they are sent. In PyTorch:
 *
 *     from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
 *     ddp_model.register_comm_hook(None, default_hooks.bf16_compress_hook)
 *     state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=10)
 *     ddp_model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
 *     ddp_model.register_comm_hook(None, my_hook)
 *
 * Trains a 784-H-10 network on digits with the hook that --hook names, "own" being the one written out below.
 *
 *   tutti run --nproc-per-node=2 build/examples/ddp_hooks --hook powersgd */
#include "flags.h"
#include "job.h"

#include <math.h>
#include <time.h>
#include <unistd.h>

static const char program_name[] = "ddp_hooks";

static const char usage[] = "usage: tutti run --nproc-per-node=N ddp_hooks [FLAGS]\n"
                            "\n"
                            "  --hook NAME     none, all_reduce, f16, bf16, int8, top_k, powersgd or own (f16)\n"
                            "  --images FILE   an IDX file of images and\n"
                            "  --labels FILE   one of labels; without them digits are drawn on the spot\n"
                            "  --epochs N      (3)\n"
                            "  --hidden H      hidden units (256)\n"
                            "  --lr X          learning rate (0.1)\n"
                            "  --load PREFIX   begin with the hook's state of PREFIX.RANK.safetensors\n"
                            "  --save PREFIX   leave it there at the end\n";

enum { DRAWN = 6000, HELD_OUT = 1000, BATCH = 32 };

typedef struct Settings {
    const char *hook, *images, *labels, *load, *save;
    int64_t epochs, hidden;
    double lr;
} Settings;

/* ---- a hook of one's own: the average, and how long all gradients together are */

typedef struct Measured {
    double square; /* of the length, of the step under way */
    double length; /* of the last step's gradients */
} Measured;

/* Stage 0: begin the all-reduce of a bucket. Stage 1: it has ended. */
static tt_status measure_next(void *state, const tt_bucket *b, int stage, tt_work **work) {
    Measured *m = state;
    if (stage == 0)
        return tt_all_reduce(b->group, b->data, b->count, b->dtype, TT_AVG, .work = work);
    const float *x = b->data;
    for (int64_t i = 0; i < b->count; i++)
        m->square += (double)x[i] * (double)x[i];
    if (b->index + 1 == b->buckets) {
        m->length = sqrt(m->square);
        m->square = 0;
    }
    return TT_OK;
}

static const tt_comm_hook measure = {.size = sizeof measure, .name = "measure", .next = measure_next};

/* ---- the hooks by name */

static tt_status set_hook(tt_module *ddp, const char *name, Measured *measured) {
    if (!strcmp(name, "none"))
        return TT_OK;
    if (!strcmp(name, "all_reduce"))
        return tt_all_reduce_hook(ddp);
    if (!strcmp(name, "f16"))
        return tt_f16_hook(ddp);
    if (!strcmp(name, "bf16"))
        return tt_bf16_hook(ddp);
    if (!strcmp(name, "int8"))
        return tt_int8_hook(ddp);
    if (!strcmp(name, "top_k"))
        return tt_top_k_hook(ddp, .density = 0.01);
    if (!strcmp(name, "powersgd"))
        return tt_powersgd_hook(ddp, .rank = 4, .start = 10);
    if (!strcmp(name, "own"))
        return tt_ddp_register_comm_hook(ddp, &measure, measured);
    return tt_fail(TT_ERR_INVALID, "--hook: there is none named \"%s\" (see --help)", name);
}

/* Each rank keeps what its own hook remembers. Loading is collective, so that a rank without a file takes part, too:
 * it begins with nothing of its own. */
static tt_status load_state(tt_module *ddp, const char *prefix, int rank) {
    char path[4096];
    tt_safetensors *file = NULL;
    snprintf(path, sizeof path, "%s.%d.safetensors", prefix, rank);
    if (access(path, F_OK)) {
        fprintf(stderr, "%s: rank %d begins without a state: there is no %s\n", program_name, rank, path);
        return tt_comm_hook_load_state_dict(ddp, TT_NAMED_TENSORS(0, NULL, NULL));
    }
    tt_status failed = tt_safetensors_load(&file, path);
    if (failed)
        tt_report(); /* loading nothing then fails on all ranks */
    tt_status status = tt_comm_hook_load_state_dict(ddp, failed ? NULL : tt_safetensors_tensors(file));
    tt_safetensors_free(file);
    return status;
}

static tt_status save_state(tt_module *ddp, const char *prefix, int rank) {
    char path[4096];
    snprintf(path, sizeof path, "%s.%d.safetensors", prefix, rank);
    const tt_named_tensors *state = tt_comm_hook_state_dict(ddp);
    return state ? tt_safetensors_save(path, state, NULL, 0) : tt_last_status();
}

/* ---- training */

typedef struct Run {
    tt_dataset *all, *train, *test;
    tt_sampler *sampler;
    tt_loader *loader, *test_loader;
    tt_module *model, *ddp;
    tt_optimizer *sgd;
    Measured measured;
    double step_ms; /* of the last epoch's steps, on average */
} Run;

static tt_status make_data(Run *r, const Settings *s, tt_group *world) {
    r->all = s->images ? tt_image_dataset(s->images, s->labels) : tt_digits(DRAWN, 1);
    int64_t n = tt_dataset_size(r->all), held_out = n / 10 < HELD_OUT ? n / 10 : HELD_OUT;
    r->train = tt_subset(r->all, 0, n - held_out);
    r->test = tt_subset(r->all, n - held_out, n);
    if (!r->test || tt_dataset_normalize(r->train, 0.1307, 0.3081) || tt_dataset_normalize(r->test, 0.1307, 0.3081))
        return tt_last_status();
    r->sampler = tt_distributed_sampler(n - held_out, tt_get_world_size(world), tt_get_rank(world));
    r->loader = tt_loader_new(r->train, BATCH, r->sampler);
    r->test_loader = tt_loader_new(r->test, BATCH, tt_in_order());
    return r->loader && r->test_loader ? TT_OK : tt_last_status();
}

static tt_status make_model(Run *r, const Settings *s, tt_group *world) {
    tt_manual_seed(0);
    r->model =
        tt_nn_sequential(tt_nn_flatten(), tt_nn_linear(784, s->hidden), tt_nn_relu(), tt_nn_linear(s->hidden, 10));
    r->ddp = tt_ddp(r->model, world);
    r->sgd = tt_sgd(tt_module_parameters(r->ddp), s->lr);
    if (!r->sgd || set_hook(r->ddp, s->hook, &r->measured))
        return tt_last_status();
    return s->load ? load_state(r->ddp, s->load, tt_get_rank(world)) : TT_OK;
}

static double milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static tt_status train_epoch(Run *r, int64_t epoch) {
    double begun = milliseconds();
    tt_batch b;
    int more;
    tt_sampler_set_epoch(r->sampler, epoch);
    while ((more = tt_loader_next(r->loader, &b)) > 0) {
        TT_AUTO_SCOPE;
        tt_optimizer_zero_grad(r->sgd);
        if (tt_backward(tt_cross_entropy(tt_module_forward(r->ddp, b.x), b.y)) || tt_optimizer_step(r->sgd))
            return tt_last_status();
    }
    r->step_ms = (milliseconds() - begun) / (double)tt_loader_batches(r->loader);
    return more < 0 ? tt_last_status() : TT_OK;
}

/* All ranks have the same model, so one of them tests it. */
static tt_status test_model(Run *r, int64_t epoch, const Settings *s) {
    int64_t right = 0, all = 0;
    tt_batch b;
    int more;
    while ((more = tt_loader_next(r->test_loader, &b)) > 0) {
        TT_AUTO_SCOPE;
        TT_NO_GRAD;
        const int64_t *guess = tt_tensor_i64(tt_argmax(tt_module_forward(r->model, b.x), 1));
        const int64_t *label = tt_tensor_i64(b.y);
        if (!guess || !label)
            return tt_last_status();
        for (int64_t i = 0; i < b.size; i++)
            right += guess[i] == label[i];
        all += b.size;
    }
    if (more < 0)
        return tt_last_status();
    printf("%s, epoch %" PRId64 ": held-out accuracy %.2f %%, %.2f ms a step", s->hook, epoch + 1,
           100 * (double)right / (double)all, r->step_ms);
    if (!strcmp(s->hook, "own"))
        printf(", the last gradients' length %.4f", r->measured.length);
    printf("\n");
    return flush_output();
}

static tt_status run(Run *r, const Settings *s, tt_group *world) {
    tt_status status = make_data(r, s, world);
    if (!status)
        status = make_model(r, s, world);
    for (int64_t epoch = 0; epoch < s->epochs && !status; epoch++) {
        status = train_epoch(r, epoch);
        if (!status && tt_get_rank(world) == 0)
            status = test_model(r, epoch, s);
    }
    return !status && s->save ? save_state(r->ddp, s->save, tt_get_rank(world)) : status;
}

static void end(Run *r) {
    tt_optimizer_free(r->sgd);
    tt_module_free(r->ddp);
    tt_module_free(r->model);
    tt_loader_free(r->test_loader);
    tt_loader_free(r->loader);
    tt_sampler_free(r->sampler);
    tt_dataset_free(r->test);
    tt_dataset_free(r->train);
    tt_dataset_free(r->all);
}

int main(int argc, char **argv) {
    Settings s = {.hook = "f16", .epochs = 3, .hidden = 256, .lr = 0.1};
    const Flag flags[] = {
        {.name = "hook", .text = &s.hook},
        {.name = "images", .text = &s.images},
        {.name = "labels", .text = &s.labels},
        {.name = "load", .text = &s.load},
        {.name = "save", .text = &s.save},
        {.name = "epochs", .integer = &s.epochs, .min = 1},
        {.name = "hidden", .integer = &s.hidden, .min = 1},
        {.name = "lr", .real = &s.lr},
    };
    if (!parse_flags(flags, sizeof flags / sizeof *flags, usage, argc, argv))
        return EXIT_FAILURE;
    Run r = {0};
    tt_group *world = NULL;
    tt_status status = join_job(&world);
    if (!status)
        status = run(&r, &s, world);
    if (status)
        tt_report();
    end(&r);
    tt_destroy_process_group(world);
    return status ? EXIT_FAILURE : EXIT_SUCCESS;
}
