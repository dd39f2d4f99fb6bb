/* Models with batch norms under DDP, converted to SyncBatchNorm; sync_bn_features.py has the same in PyTorch, in one
 * process that sees the whole batch:
 *
 *   sync_bn_features FOLDER
 *
 * trains for 50 steps with each, and writes its losses, and parameters and buffers after them, to
 * FOLDER/tutti.NAME.RANK. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

enum { STEPS = 50, IN = 12, OUT = 4 };

static int64_t even(int step, int rank) { return (void)step, (void)rank, 4; }
static int64_t uneven(int step, int rank) { return 2 + (step + 2 * rank) % 5; }

static tt_module *rows(void) {
    return tt_nn_sequential(tt_nn_linear(IN, 16), tt_nn_batch_norm1d(16), tt_nn_relu(), tt_nn_linear(16, 8),
                            tt_nn_batch_norm1d(8, .momentum = 0.3), tt_nn_tanh(), tt_nn_linear(8, OUT));
}

static tt_module *images(void) {
    return tt_nn_sequential(tt_nn_conv2d(3, 8, 3), tt_nn_batch_norm2d(8), tt_nn_relu(),
                            tt_nn_conv2d(8, 6, 3, .no_bias = true), tt_nn_batch_norm2d(6), tt_nn_relu(),
                            tt_nn_flatten(), tt_nn_linear(6 * 4 * 4, OUT));
}

typedef struct feature {
    const char *name;
    tt_module *(*make)(void);
    int64_t (*size)(int step, int rank);
} feature;

static const feature features[] = {
    {"SyncBatchNorm of rows", rows, even},
    {"SyncBatchNorm of rows, uneven batches", rows, uneven},
    {"SyncBatchNorm of images", images, even},
    {"SyncBatchNorm of images, uneven batches", images, uneven},
};

static double step_of(const feature *f, tt_module *ddp, tt_generator *random, int64_t n) {
    TT_AUTO_SCOPE;
    double value;
    tt_tensor *x = tt_randn(f->make == rows ? TT_SHAPE(n, IN) : TT_SHAPE(n, 3, 8, 8), random);
    tt_tensor *y = tt_randn(TT_SHAPE(n, OUT), random);
    tt_tensor *loss = tt_mse_loss(tt_module_forward(ddp, x), y);
    if (tt_backward(loss) || tt_item(loss, &value))
        exit(1);
    return value;
}

static void write_state(tt_module *ddp, FILE *out) {
    const tt_named_tensors *p = tt_module_state_dict(ddp);
    for (int64_t i = 0; i < p->count; i++) {
        tt_tensor *x = tt_to(p->tensors[i], TT_F32);
        fprintf(out, "%s", p->names[i]);
        for (int64_t k = 0; k < tt_tensor_numel(x); k++)
            fprintf(out, " %.9g", (double)tt_tensor_f32(x)[k]);
        fprintf(out, "\n");
        if (x != p->tensors[i])
            tt_tensor_free(x);
    }
}

static void play(const feature *f, tt_group *world, const char *folder) {
    char path[4096];
    int rank = tt_get_rank(world);
    snprintf(path, sizeof path, "%s/tutti.%s.%d", folder, f->name, rank);
    FILE *out = fopen(path, "w");
    tt_manual_seed(0);
    tt_module *model = f->make(), *ddp = tt_ddp(tt_convert_sync_batchnorm(model, world), world);
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(ddp), 0.02, .momentum = 0.9);
    tt_generator *random = tt_generator_new(1000 + (uint64_t)rank);
    if (!out || !sgd || !random)
        exit(1);
    for (int step = 0; step < STEPS; step++) {
        tt_optimizer_zero_grad(sgd);
        fprintf(out, "loss %.9g\n", step_of(f, ddp, random, f->size(step, rank)));
        if (tt_optimizer_step(sgd))
            exit(1);
    }
    write_state(ddp, out);
    fclose(out);
    tt_generator_free(random);
    tt_optimizer_free(sgd);
    tt_module_free(ddp);
    tt_module_free(model);
}

int main(int argc, char **argv) {
    tt_group *world = NULL;
    if (argc != 2 || tt_init_process_group(&world))
        return 1;
    for (size_t i = 0; i < sizeof features / sizeof *features; i++)
        play(&features[i], world, argv[1]);
    tt_destroy_process_group(world);
    return 0;
}
