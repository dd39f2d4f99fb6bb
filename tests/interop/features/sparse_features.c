/* Training a table of which each step reads some rows, in the same program as sparse_features.py has in PyTorch:
 *
 *   tutti run --nproc-per-node 2 sparse_features FOLDER
 *
 * trains for 50 steps with each optimizer, other rows on each rank, by tt_ddp() where there are several. Writes each
 * rank's losses, and the parameters and states after them, to FOLDER/tutti.NAME.RANK. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

enum { STEPS = 50, ROWS = 200, COLUMNS = 16, OUT = 4, BATCH = 8, LENGTH = 6 };

static const int64_t padding = 11;

static tt_optimizer *sparse_sgd(const tt_named_tensors *p) { return tt_sgd(p, 0.1); }
static tt_optimizer *sparse_adagrad(const tt_named_tensors *p) {
    return tt_adagrad(p, 0.1, .lr_decay = 0.01, .initial_accumulator_value = 0.1);
}
static tt_optimizer *sparse_adam(const tt_named_tensors *p) { return tt_sparse_adam(p, 0.01); }

typedef struct feature {
    const char *name;
    tt_optimizer *(*make)(const tt_named_tensors *params);
    bool padded;
    int passes; /* whose gradients are added up before a step */
} feature;

static const feature features[] = {
    {"SGD", sparse_sgd, false, 1},
    {"SGD, padding_idx, two passes a step", sparse_sgd, true, 2},
    {"Adagrad", sparse_adagrad, false, 1},
    {"SparseAdam", sparse_adam, false, 1},
    {"SparseAdam, padding_idx, two passes a step", sparse_adam, true, 2},
};

static tt_tensor *rows_read(int pass) {
    int64_t row[BATCH * LENGTH];
    for (int i = 0; i < BATCH * LENGTH; i++)
        row[i] = (pass * 37 + i * i * 11) % ROWS;
    return tt_from_data(row, TT_SHAPE(BATCH, LENGTH), TT_I64);
}

static double pass_forth_and_back(tt_module *model, int pass) {
    TT_AUTO_SCOPE;
    double value;
    tt_tensor *y = tt_randn(TT_SHAPE(BATCH, LENGTH, OUT), NULL);
    tt_tensor *loss = tt_mse_loss(tt_module_forward(model, rows_read(pass)), y);
    if (tt_backward(loss) || tt_item(loss, &value))
        exit(1);
    return value;
}

static void write_values(const char *name, const tt_tensor *x, FILE *out) {
    fprintf(out, "%s", name);
    for (int64_t k = 0; k < tt_tensor_numel(x); k++)
        fprintf(out, " %.9g", tt_tensor_f32(x)[k]);
    fprintf(out, "\n");
}

static tt_status train_a_step(const feature *f, tt_module *model, bool wrapped, int first, FILE *out) {
    for (int pass = 0; pass < f->passes; pass++) {
        if (wrapped && tt_ddp_set_sync(model, pass == f->passes - 1))
            return tt_last_status();
        fprintf(out, "loss %.9g\n", pass_forth_and_back(model, first + pass));
    }
    return TT_OK;
}

static void play(const feature *f, tt_group *world, const char *folder) {
    char path[4096];
    const int rank = tt_get_rank(world);
    const bool wrapped = tt_get_world_size(world) > 1;
    snprintf(path, sizeof path, "%s/tutti.%s.%d", folder, f->name, rank);
    FILE *out = fopen(path, "w");
    tt_manual_seed(0);
    tt_module *table = tt_nn_embedding(ROWS, COLUMNS, .padding_idx = f->padded ? &padding : NULL, .sparse = true);
    tt_module *head = tt_nn_linear(COLUMNS, OUT);
    tt_optimizer *rows = f->make(tt_module_parameters(table)), *whole = tt_sgd(tt_module_parameters(head), 0.1);
    tt_module *model = tt_nn_sequential(table, head), *ddp = wrapped ? tt_ddp(model, world) : NULL;
    if (!out || !rows || !whole || !model || (wrapped && !ddp))
        exit(1);
    tt_manual_seed(1000 + (uint64_t)rank);
    for (int step = 0; step < STEPS; step++) {
        tt_optimizer_zero_grad(rows);
        tt_optimizer_zero_grad(whole);
        if (train_a_step(f, wrapped ? ddp : model, wrapped, step * f->passes + 13 * rank, out))
            exit(1);
        if (tt_optimizer_step(rows) || tt_optimizer_step(whole))
            exit(1);
    }
    write_values("table", tt_module_parameters(table)->tensors[0], out);
    write_values("head", tt_module_parameters(head)->tensors[0], out);
    const tt_named_tensors *state = tt_optimizer_state_dict(rows);
    for (int64_t i = 0; i < state->count; i++)
        if (strncmp(state->names[i], "state.0.", 8) == 0 && !strstr(state->names[i], ".step"))
            write_values(state->names[i], state->tensors[i], out);
    fclose(out);
    tt_optimizer_free(rows);
    tt_optimizer_free(whole);
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
