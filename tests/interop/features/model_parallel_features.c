/* Models that are divided among ranks, in the same program as model_parallel_features.py has in PyTorch:
 *
 *   model_parallel_features FOLDER
 *
 * trains each for 50 steps, and writes the losses that a rank sees, and the whole tensors of the parameters that it has
 * a part of, to FOLDER/tutti.NAME.RANK. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

enum { STEPS = 50, IN = 20, HIDDEN = 32, OUT = 4, BATCH = 8, WORDS = 32 };

/* A rank's place: one of `copies`, and its number in it. */
typedef struct place {
    tt_mesh *mesh;
    tt_group *parts; /* of one copy */
    int copy, number;
} place;

typedef struct feature {
    const char *name;
    int copies; /* -1: as many as there are pairs of ranks */
    bool staged, words;
} feature;

static const feature features[] = {
    {"two stages, in copies", -1, true, false},
    {"column- and row-parallel linear", 1, false, false},
    {"column- and row-parallel linear, in copies", 2, false, false},
    {"vocabulary-parallel embedding and cross_entropy", 1, false, true},
};

#define MUST(condition)                                                                          \
    do {                                                                                         \
        if (!(condition)) {                                                                      \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, tt_last_error()); \
            exit(1);                                                                             \
        }                                                                                        \
    } while (0)

/* ---- models ---- */

static tt_module *whole_model(const feature *f) {
    tt_manual_seed(0);
    if (f->words)
        return tt_nn_sequential(tt_nn_embedding(WORDS, IN), tt_nn_linear(IN, WORDS));
    return tt_nn_sequential(tt_nn_linear(IN, HIDDEN), tt_nn_tanh(), tt_nn_linear(HIDDEN, OUT));
}

/* Names stay those of the whole model. */
static tt_module *own_stage(const place *at) {
    tt_manual_seed(0);
    tt_module *first = tt_nn_linear(IN, HIDDEN), *second = tt_nn_linear(HIDDEN, OUT);
    tt_module_free(at->number == 0 ? second : first);
    return at->number == 0 ? tt_nn_sequential_named({"0", first}, {"1", tt_nn_tanh()})
                           : tt_nn_sequential_named({"2", second});
}

static tt_module *divided_model(const feature *f, const place *at) {
    if (f->staged)
        return own_stage(at);
    tt_manual_seed(0);
    if (f->words)
        return tt_nn_sequential(tt_nn_vocab_parallel_embedding(WORDS, IN, at->parts),
                                tt_nn_column_parallel_linear(IN, WORDS, at->parts));
    return tt_nn_sequential(tt_nn_column_parallel_linear(IN, HIDDEN, at->parts), tt_nn_tanh(),
                            tt_nn_row_parallel_linear(HIDDEN, OUT, at->parts));
}

/* ---- training ---- */

static tt_tensor *draw_input(const feature *f, bool is_target) {
    if (f->words)
        return tt_randint(0, WORDS, TT_SHAPE(BATCH), NULL);
    return tt_randn(TT_SHAPE(BATCH, is_target ? OUT : IN), NULL);
}

/* The loss, NULL on a stage that has none; *end is what backward begins from. */
static tt_tensor *forward_of(const feature *f, const place *at, tt_module *model, tt_tensor **end) {
    tt_tensor *x = draw_input(f, false), *y = draw_input(f, true);
    if (f->staged && at->number == 0) {
        *end = tt_send_activation(tt_module_forward(model, x), at->parts, 1);
        return NULL;
    }
    tt_tensor *out = tt_module_forward(model, f->staged ? tt_recv_activation(at->parts, 0) : x);
    return *end = f->words ? tt_tp_cross_entropy(out, y, at->parts) : tt_mse_loss(out, y);
}

static void step_of(const feature *f, const place *at, tt_module *model, tt_optimizer *sgd, FILE *out) {
    TT_AUTO_SCOPE;
    double value;
    tt_tensor *end;
    tt_optimizer_zero_grad(sgd);
    tt_tensor *loss = forward_of(f, at, model, &end);
    MUST(tt_backward(end) == TT_OK);
    if (loss) {
        MUST(tt_item(loss, &value) == TT_OK);
        fprintf(out, "loss %.9g\n", value);
    }
    MUST(tt_optimizer_step(sgd) == TT_OK);
}

static void write_list(const tt_named_tensors *list, FILE *out) {
    for (int64_t i = 0; i < list->count; i++) {
        fprintf(out, "%s", list->names[i]);
        for (int64_t k = 0; k < tt_tensor_numel(list->tensors[i]); k++)
            fprintf(out, " %.9g", tt_tensor_f32(list->tensors[i])[k]);
        fprintf(out, "\n");
    }
}

static void write_whole(const feature *f, tt_module *model, FILE *out) {
    if (f->staged) {
        write_list(tt_module_parameters(model), out);
        return;
    }
    tt_module *whole = whole_model(f);
    MUST(tt_tp_save_state_dict(model, tt_module_state_dict(whole)) == TT_OK);
    write_list(tt_module_parameters(whole), out);
    tt_module_free(whole);
}

static void play(const feature *f, tt_group *world, const char *folder) {
    char path[4096];
    place at = {NULL, NULL, 0, 0};
    int ranks = tt_get_world_size(world);
    MUST(tt_init_device_mesh(&at.mesh, world, {"copy", f->copies < 0 ? ranks / 2 : f->copies}, {"part", -1}) == TT_OK);
    at.parts = tt_mesh_get_group(at.mesh, "part");
    at.copy = tt_mesh_get_local_rank(at.mesh, "copy");
    at.number = tt_mesh_get_local_rank(at.mesh, "part");
    snprintf(path, sizeof path, "%s/tutti.%s.%d", folder, f->name, tt_get_rank(world));
    FILE *out = fopen(path, "w");
    tt_module *model = divided_model(f, &at), *ddp = tt_ddp(model, tt_mesh_get_group(at.mesh, "copy"));
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(ddp), 0.05, .momentum = 0.9);
    MUST(out && sgd);
    tt_manual_seed(1000 + (uint64_t)at.copy);
    for (int s = 0; s < STEPS; s++)
        step_of(f, &at, ddp, sgd, out);
    write_whole(f, model, out);
    fclose(out);
    tt_optimizer_free(sgd);
    tt_module_free(ddp);
    tt_module_free(model);
    tt_mesh_free(at.mesh);
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
