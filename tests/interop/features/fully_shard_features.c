/* Training with sharded modules, in the same program as fully_shard_features.py has in PyTorch:
 *
 *   fully_shard_features FOLDER
 *
 * trains for 50 steps with each, and writes its losses, and whole parameters and states after them, to
 * FOLDER/tutti.NAME.RANK. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

enum { STEPS = 50, IN = 20, HIDDEN = 48, OUT = 4, BATCH = 8 };

static tt_optimizer *make_sgd(const tt_named_tensors *p, void *user) {
    (void)user;
    return tt_sgd(p, 0.05, .momentum = 0.9);
}

static tt_optimizer *make_adam(const tt_named_tensors *p, void *user) {
    (void)user;
    return tt_adam(p, 1e-3);
}

static tt_optimizer *make_adamw(const tt_named_tensors *p, void *user) {
    (void)user;
    return tt_adamw(p, 1e-3, 0.01);
}

typedef struct feature {
    const char *name;
    tt_zero_make_fn make;
    bool keep;   /* units stay whole until the step */
    int passes;  /* a step */
    double clip; /* 0: not */
} feature;

static const feature features[] = {
    {"SGD with momentum", make_sgd, false, 1, 0},
    {"Adam", make_adam, false, 1, 0},
    {"AdamW, clipped", make_adamw, false, 1, 0.2},
    {"AdamW, kept whole after forward, clipped", make_adamw, true, 1, 0.2},
    {"Adam, two passes a step", make_adam, false, 2, 0},
};

static void must(tt_status status) {
    if (status) {
        tt_report();
        exit(1);
    }
}

static double train_pass(tt_module *sharded) {
    TT_AUTO_SCOPE;
    double value;
    tt_tensor *x = tt_randn(TT_SHAPE(BATCH, IN), NULL), *y = tt_randn(TT_SHAPE(BATCH, OUT), NULL);
    tt_tensor *loss = tt_mse_loss(tt_module_forward(sharded, x), y);
    must(tt_backward(loss));
    must(tt_item(loss, &value));
    return value;
}

static void train_step(const feature *f, tt_module *sharded, tt_optimizer *o, FILE *out) {
    tt_optimizer_zero_grad(o);
    for (int i = 0; i < f->passes; i++)
        fprintf(out, "loss %.9g\n", train_pass(sharded));
    if (f->clip > 0) {
        double norm;
        must(tt_zero_clip_grad_norm_(o, f->clip, .total_norm = &norm));
        fprintf(out, "norm %.9g\n", norm);
    }
    must(tt_optimizer_step(o));
}

static void write_list(const tt_named_tensors *list, const char *prefix, FILE *out) {
    for (int64_t i = 0; list && i < list->count; i++) {
        if (strncmp(list->names[i], prefix, strlen(prefix)) != 0 || strstr(list->names[i], ".step"))
            continue;
        fprintf(out, "%s", list->names[i]);
        for (int64_t k = 0; k < tt_tensor_numel(list->tensors[i]); k++)
            fprintf(out, " %.9g", tt_tensor_f32(list->tensors[i])[k]);
        fprintf(out, "\n");
    }
}

static void play(const feature *f, tt_group *world, const char *folder) {
    char path[4096];
    int rank = tt_get_rank(world);
    snprintf(path, sizeof path, "%s/tutti.%s.%d", folder, f->name, rank);
    FILE *out = fopen(path, "w");
    tt_manual_seed(0);
    tt_module *model = tt_nn_sequential(tt_nn_linear(IN, HIDDEN), tt_nn_tanh(), tt_nn_linear(HIDDEN, HIDDEN),
                                        tt_nn_tanh(), tt_nn_linear(HIDDEN, OUT));
    tt_module *sharded = tt_fully_shard(model, world, .keep_after_forward = f->keep);
    tt_optimizer *o = sharded ? tt_zero_optimizer(sharded, f->make, NULL) : NULL;
    must(out ? TT_OK : TT_ERR_IO);
    must(o ? TT_OK : tt_last_status());
    tt_manual_seed(1000 + (uint64_t)rank);
    for (int step = 0; step < STEPS; step++)
        train_step(f, sharded, o, out);
    must(tt_fully_shard_gather(sharded, TT_ALL_RANKS));
    must(tt_zero_consolidate(o, TT_ALL_RANKS));
    write_list(tt_module_parameters(model), "", out);
    write_list(tt_optimizer_state_dict(o), "state.", out);
    must(tt_fully_shard_scatter(sharded));
    fclose(out);
    tt_optimizer_free(o);
    tt_module_free(sharded);
    tt_module_free(model);
}

int main(int argc, char **argv) {
    tt_group *world = NULL;
    if (argc != 2)
        return 1;
    must(tt_init_process_group(&world));
    for (size_t i = 0; i < sizeof features / sizeof *features; i++)
        play(&features[i], world, argv[1]);
    tt_destroy_process_group(world);
    return 0;
}
