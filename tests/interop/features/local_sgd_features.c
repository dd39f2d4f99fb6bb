/* What averages parameters, in the same program as local_sgd_features.py has in PyTorch:
 *
 *   local_sgd_features FOLDER
 *
 * trains for 50 steps with each, and writes its losses, and the parameters after them, to FOLDER/tutti.NAME.RANK. */
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

enum { STEPS = 50, IN = 20, HIDDEN = 16, OUT = 4, BATCH = 8, PERIOD = 4, WARMUP = 20, DILOCO_PERIOD = 5 };

typedef struct job {
    tt_group *world, *half; /* half: this rank's */
    tt_module *model, *ddp; /* ddp: NULL unless gradients are averaged, too */
    tt_optimizer *optimizer;
    tt_model_averager *averager;
} job;

static void must(tt_status status) {
    if (!status)
        return;
    tt_report();
    exit(1);
}

/* ---- kinds ---- */

static void momentum_sgd(job *j) { j->optimizer = tt_sgd(tt_module_parameters(j->model), 0.05, .momentum = 0.9); }

static void be_periodic(job *j) {
    momentum_sgd(j);
    must(tt_periodic_model_averager(&j->averager, j->world, tt_module_parameters(j->model), PERIOD,
                                    .warmup_steps = WARMUP));
}

static void be_hierarchical(job *j) {
    const int world = tt_get_world_size(j->world);
    const tt_averaging_level levels[] = {{2, world / 2}, {6, world}};
    momentum_sgd(j);
    must(tt_hierarchical_model_averager(&j->averager, j->world, tt_module_parameters(j->model), levels, 2,
                                        .warmup_steps = 7));
}

static void be_post_local(job *j, bool alone) {
    momentum_sgd(j);
    j->ddp = tt_ddp(j->model, j->world);
    must(tt_post_local_sgd(&j->averager, j->ddp, WARMUP, PERIOD, .subgroup = j->half, .no_local_averaging = alone));
}

static void be_post_local_by_half(job *j) { be_post_local(j, false); }
static void be_post_local_alone(job *j) { be_post_local(j, true); }

static void be_diloco(job *j) {
    j->optimizer = tt_adamw(tt_module_parameters(j->model), 0.01, 0.01);
    must(tt_diloco(&j->averager, j->world, tt_module_parameters(j->model), DILOCO_PERIOD, 0.7, 0.9));
}

static const struct {
    const char *name;
    void (*be)(job *);
} kinds[] = {
    {"periodic averaging", be_periodic},
    {"hierarchical averaging", be_hierarchical},
    {"post-local SGD", be_post_local_by_half},
    {"post-local SGD without local averages", be_post_local_alone},
    {"DiLoCo", be_diloco},
};

/* ---- training ---- */

static double train_step(const job *j) {
    TT_AUTO_SCOPE;
    double value;
    tt_tensor *x = tt_randn(TT_SHAPE(BATCH, IN), NULL), *y = tt_randn(TT_SHAPE(BATCH, OUT), NULL);
    tt_tensor *loss = tt_mse_loss(tt_module_forward(j->ddp ? j->ddp : j->model, x), y);
    tt_optimizer_zero_grad(j->optimizer);
    must(tt_backward(loss));
    must(tt_optimizer_step(j->optimizer));
    must(tt_model_averager_step(j->averager));
    must(tt_item(loss, &value));
    return value;
}

static void write_result(const job *j, FILE *out) {
    const tt_named_tensors *p = tt_module_parameters(j->model);
    for (int64_t i = 0; i < p->count; i++) {
        fprintf(out, "%s", p->names[i]);
        for (int64_t k = 0; k < tt_tensor_numel(p->tensors[i]); k++)
            fprintf(out, " %.9g", tt_tensor_f32(p->tensors[i])[k]);
        fprintf(out, "\n");
    }
}

static void play_kind(size_t kind, job *j, const char *folder) {
    char path[4096];
    int rank = tt_get_rank(j->world);
    snprintf(path, sizeof path, "%s/tutti.%s.%d", folder, kinds[kind].name, rank);
    FILE *out = fopen(path, "w");
    tt_manual_seed(0);
    j->model = tt_nn_sequential(tt_nn_linear(IN, HIDDEN), tt_nn_tanh(), tt_nn_linear(HIDDEN, OUT));
    if (!out || !j->model)
        exit(1);
    kinds[kind].be(j);
    tt_manual_seed(1000 + (uint64_t)rank);
    for (int step = 0; step < STEPS; step++)
        fprintf(out, "loss %.9g\n", train_step(j));
    write_result(j, out);
    fclose(out);
    tt_model_averager_free(j->averager);
    tt_optimizer_free(j->optimizer);
    tt_module_free(j->ddp);
    tt_module_free(j->model);
}

int main(int argc, char **argv) {
    tt_group *world = NULL, *half = NULL;
    if (argc != 2 || tt_init_process_group(&world))
        return 1;
    must(tt_group_split(&half, world, tt_get_rank(world) / (tt_get_world_size(world) / 2), 0));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        play_kind(i, &(job){.world = world, .half = half}, argv[1]);
    tt_destroy_process_group(half);
    tt_destroy_process_group(world);
    return 0;
}
