/* Training with sharded optimizers, in the same program as zero_features.py has in PyTorch:
 *
 *   zero_features FOLDER
 *
 * trains for 50 steps with each, and writes its losses, and the parameters after them, to FOLDER/tutti.NAME.RANK. */
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
    int stage;
    double clip; /* 0: not */
} feature;

static const feature features[] = {
    {"ZeRO-1, SGD with momentum", make_sgd, 1, 0},
    {"ZeRO-1, Adam", make_adam, 1, 0},
    {"ZeRO-1, AdamW", make_adamw, 1, 0},
    {"ZeRO-2, SGD with momentum", make_sgd, 2, 0},
    {"ZeRO-2, Adam", make_adam, 2, 0},
    {"ZeRO-2, AdamW, clipped", make_adamw, 2, 0.2},
};

static double train_step(const feature *f, tt_module *ddp, tt_optimizer *o) {
    TT_AUTO_SCOPE;
    double value;
    tt_optimizer_zero_grad(o);
    tt_tensor *x = tt_randn(TT_SHAPE(BATCH, IN), NULL), *y = tt_randn(TT_SHAPE(BATCH, OUT), NULL);
    tt_tensor *loss = tt_mse_loss(tt_module_forward(ddp, x), y);
    if (tt_backward(loss) || tt_item(loss, &value) || (f->clip > 0 && tt_zero_clip_grad_norm_(o, f->clip)) ||
        tt_optimizer_step(o))
        exit(1);
    return value;
}

static void write_parameters(tt_module *ddp, FILE *out) {
    const tt_named_tensors *p = tt_module_parameters(ddp);
    for (int64_t i = 0; i < p->count; i++) {
        fprintf(out, "%s", p->names[i]);
        for (int64_t k = 0; k < tt_tensor_numel(p->tensors[i]); k++)
            fprintf(out, " %.9g", tt_tensor_f32(p->tensors[i])[k]);
        fprintf(out, "\n");
    }
}

/* What rank 0 has of the consolidated state: PyTorch's names are dotted here. */
static void write_state(tt_optimizer *o, FILE *out) {
    const tt_named_tensors *state = tt_optimizer_state_dict(o);
    for (int64_t i = 0; state && i < state->count; i++) {
        if (strncmp(state->names[i], "state.", 6) != 0 || strstr(state->names[i], ".step"))
            continue;
        fprintf(out, "%s", state->names[i]);
        for (int64_t k = 0; k < tt_tensor_numel(state->tensors[i]); k++)
            fprintf(out, " %.9g", tt_tensor_f32(state->tensors[i])[k]);
        fprintf(out, "\n");
    }
}

static void play(const feature *f, tt_group *world, const char *folder) {
    char path[4096];
    int rank = tt_get_rank(world);
    snprintf(path, sizeof path, "%s/tutti.%s.%d", folder, f->name, rank);
    FILE *out = fopen(path, "w");
    tt_manual_seed(0);
    tt_module *model = tt_nn_sequential(tt_nn_linear(IN, HIDDEN), tt_nn_tanh(), tt_nn_linear(HIDDEN, OUT));
    tt_module *ddp = tt_ddp(model, world);
    tt_optimizer *o = tt_zero_optimizer(ddp, f->make, NULL, .stage = f->stage);
    if (!out || !o)
        exit(1);
    tt_manual_seed(1000 + (uint64_t)rank);
    for (int step = 0; step < STEPS; step++)
        fprintf(out, "loss %.9g\n", train_step(f, ddp, o));
    write_parameters(ddp, out);
    if (tt_zero_consolidate(o, 0))
        exit(1);
    if (rank == 0)
        write_state(o, out);
    fclose(out);
    tt_optimizer_free(o);
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
