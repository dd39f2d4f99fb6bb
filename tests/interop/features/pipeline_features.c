/* pipeline_features FOLDER: train by pipelines for 50 steps and write FOLDER/tutti.NAME: the last rank the losses, rank
 * 0 the parameters. pipeline_features.py trains the unsplit models in PyTorch; test_pipeline_torch.py compares. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

enum { STEPS = 50, BATCH = 14, MICROS = 6, FEATURES = 20, CLASSES = 5, SIDE = 8 };

static tt_module *make_mlp(void) {
    return tt_nn_sequential(tt_nn_linear(FEATURES, 32), tt_nn_relu(), tt_nn_linear(32, 32), tt_nn_tanh(),
                            tt_nn_linear(32, 16), tt_nn_relu(), tt_nn_linear(16, CLASSES));
}

static tt_module *make_conv(void) {
    return tt_nn_sequential(tt_nn_conv2d(3, 8, 3, .padding = 1), tt_nn_batch_norm2d(8), tt_nn_relu(),
                            tt_nn_conv2d(8, 8, 3), tt_nn_batch_norm2d(8), tt_nn_relu(), tt_nn_flatten(),
                            tt_nn_linear(8 * 36, CLASSES));
}

typedef struct feature {
    const char *name;
    bool conv;
    tt_pipeline_schedule schedule;
    int64_t chunks;
    bool recompute;
} feature;

static const feature features[] = {
    {"GPipe", false, TT_PIPELINE_GPIPE, 1, false},
    {"1F1B", false, TT_PIPELINE_1F1B, 1, false},
    {"interleaved 1F1B", false, TT_PIPELINE_INTERLEAVED_1F1B, 2, false},
    {"zero-bubble", false, TT_PIPELINE_ZERO_BUBBLE, 1, false},
    {"zero-bubble, recomputing, batch norm", true, TT_PIPELINE_ZERO_BUBBLE, 1, true},
};

static void must(bool good) {
    if (good)
        return;
    tt_report();
    exit(1);
}

static FILE *open_file(const char *folder, const char *what, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.%s", folder, what, name);
    FILE *out = fopen(path, "w");
    must(out != NULL);
    return out;
}

static void write_state(const char *folder, const feature *f, tt_module *model) {
    FILE *out = open_file(folder, "tutti.state", f->name);
    const tt_named_tensors *all = tt_module_parameters(model);
    for (int64_t i = 0; i < all->count; i++) {
        fprintf(out, "%s", all->names[i]);
        for (int64_t k = 0; k < tt_tensor_numel(all->tensors[i]); k++)
            fprintf(out, " %.9g", (double)tt_tensor_f32(all->tensors[i])[k]);
        fprintf(out, "\n");
    }
    must(!fclose(out));
}

static void step(const feature *f, tt_pipeline *pipe, tt_optimizer *sgd, FILE *losses) {
    TT_AUTO_SCOPE;
    double loss = 0;
    tt_tensor *x = f->conv ? tt_randn(TT_SHAPE(BATCH, 3, SIDE, SIDE), NULL) : tt_randn(TT_SHAPE(BATCH, FEATURES), NULL);
    tt_tensor *target = tt_randint(0, CLASSES, TT_SHAPE(BATCH), NULL);
    tt_optimizer_zero_grad(sgd);
    must(!tt_pipeline_step(pipe, x, target, .loss = &loss) && !tt_optimizer_step(sgd));
    if (losses)
        fprintf(losses, "loss %.9g\n", loss);
}

static void play(const feature *f, tt_group *world, const char *folder) {
    tt_pipeline *pipe = NULL;
    bool last = tt_get_rank(world) == tt_get_world_size(world) - 1;
    tt_manual_seed(0);
    tt_module *model = f->conv ? make_conv() : make_mlp();
    must(!tt_pipeline_new(&pipe, world, model, MICROS, .schedule = f->schedule, .chunks = f->chunks,
                          .recompute = f->recompute));
    const tt_named_tensors *mine = tt_module_parameters(tt_pipeline_module(pipe));
    tt_optimizer *sgd = tt_sgd(mine, 0.05, .momentum = 0.9);
    must(sgd != NULL);
    FILE *losses = last ? open_file(folder, "tutti.losses", f->name) : NULL;
    tt_manual_seed(1000);
    for (int i = 0; i < STEPS; i++)
        step(f, pipe, sgd, losses);
    must(!losses || !fclose(losses));
    must(!tt_pipeline_gather(pipe));
    if (tt_get_rank(world) == 0)
        write_state(folder, f, model);
    tt_optimizer_free(sgd);
    tt_pipeline_free(pipe);
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
