/* Communication hooks, in the same program as hooks_features.py has in PyTorch:
 *
 *   hooks_features FOLDER
 *
 * trains for 50 steps with each, and writes its losses, and the parameters after them, to FOLDER/tutti.NAME.RANK. */
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

enum { STEPS = 50, IN = 20, WIDE = 32, OUT = 4, BATCH = 32 };

typedef struct feature {
    const char *name;
    tt_status (*hook)(tt_module *ddp);
    double lr;
} feature;

static tt_status power_1(tt_module *ddp) { return tt_powersgd_hook(ddp, .start = 30); }
static tt_status power_2(tt_module *ddp) { return tt_powersgd_hook(ddp, .rank = 2, .start = 35); }
static tt_status power_3(tt_module *ddp) {
    return tt_powersgd_hook(ddp, .rank = 3, .start = 20, .min_compression_rate = 1);
}
static tt_status power_4(tt_module *ddp) {
    return tt_powersgd_hook(ddp, .rank = 4, .start = 30, .seed = 5, .min_compression_rate = 1.5);
}
static tt_status power_cold(tt_module *ddp) {
    return tt_powersgd_hook(ddp, .rank = 1, .start = 2, .no_warm_start = true, .seed = 7);
}
static tt_status power_forgetful(tt_module *ddp) {
    return tt_powersgd_hook(ddp, .rank = 3, .start = 5, .no_error_feedback = true, .min_compression_rate = 1);
}
static tt_status power_epsilon(tt_module *ddp) {
    return tt_powersgd_hook(ddp, .rank = 2, .start = 3, .no_error_feedback = true, .orthogonalization_epsilon = 1e-8);
}

static const feature features[] = {
    {"all_reduce hook", tt_all_reduce_hook, 0.01},
    {"f16 hook", tt_f16_hook, 0.002},
    {"bf16 hook", tt_bf16_hook, 0.002},
    {"PowerSGD, rank 1 from step 30", power_1, 0.01},
    {"PowerSGD, rank 2 from step 35", power_2, 0.01},
    {"PowerSGD, rank 3 from step 20", power_3, 0.01},
    {"PowerSGD, rank 4 from step 30", power_4, 0.01},
    {"PowerSGD, rank 1, no warm start", power_cold, 0.01},
    {"PowerSGD, rank 3, no error feedback", power_forgetful, 0.01},
    {"PowerSGD, rank 2, an epsilon, no error feedback", power_epsilon, 0.01},
};

static tt_module *make_model(void) {
    return tt_nn_sequential(tt_nn_linear(IN, WIDE), tt_nn_tanh(), tt_nn_linear(WIDE, IN), tt_nn_tanh(),
                            tt_nn_linear(IN, WIDE), tt_nn_tanh(), tt_nn_linear(WIDE, OUT));
}

static double pass_of(tt_module *ddp) {
    TT_AUTO_SCOPE;
    double value;
    tt_tensor *x = tt_randn(TT_SHAPE(BATCH, IN), NULL), *y = tt_narrow(x, 1, 0, OUT);
    tt_tensor *loss = tt_mse_loss(tt_module_forward(ddp, x), y);
    if (tt_backward(loss) || tt_item(loss, &value))
        exit(1);
    return value;
}

static void write_parameters(tt_module *ddp, FILE *out) {
    const tt_named_tensors *p = tt_module_parameters(ddp);
    for (int64_t i = 0; i < p->count; i++) {
        fprintf(out, "%s", p->names[i]);
        for (int64_t k = 0; k < tt_tensor_numel(p->tensors[i]); k++)
            fprintf(out, " %.9g", (double)tt_tensor_f32(p->tensors[i])[k]);
        fprintf(out, "\n");
    }
}

static void play(const feature *f, tt_group *world, const char *folder) {
    char path[4096];
    int rank = tt_get_rank(world);
    snprintf(path, sizeof path, "%s/tutti.%s.%d", folder, f->name, rank);
    FILE *out = fopen(path, "w");
    tt_manual_seed(0);
    tt_module *model = make_model(), *ddp = tt_ddp(model, world);
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(ddp), f->lr, .momentum = 0.9);
    if (!out || !sgd || f->hook(ddp)) {
        tt_report();
        exit(1);
    }
    tt_manual_seed(1000 + (uint64_t)rank);
    for (int step = 0; step < STEPS; step++) {
        tt_optimizer_zero_grad(sgd);
        fprintf(out, "loss %.9g\n", pass_of(ddp));
        if (tt_optimizer_step(sgd))
            exit(1);
    }
    write_parameters(ddp, out);
    fclose(out);
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
