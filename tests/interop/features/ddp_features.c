/* What DDP offers beside averaging, in the same program as ddp_features.py has in PyTorch:
 *
 *   ddp_features FOLDER
 *
 * trains for 50 steps with each, and writes its loss of each pass, and the parameters after them, to
 * FOLDER/tutti.NAME.RANK. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

enum { STEPS = 50, IN = 20, HIDDEN = 16, OUT = 4, BATCH = 8, LEFT = 1, RIGHT = 2 };

typedef struct feature {
    const char *name;
    unsigned (*heads)(int pass, int rank); /* which the pass takes */
    int passes;                            /* a step, of which only the last averages */
    const int *missing;                    /* steps that each rank has less; NULL: none */
    bool divide_by_present;
    bool in_backward;              /* the optimizer steps there */
    const char *ignored, *delayed; /* a layer that each rank has by itself; one that is averaged last */
} feature;

static unsigned both(int pass, int rank) { return (void)pass, (void)rank, LEFT | RIGHT; }
static unsigned by_rank(int pass, int rank) { return (unsigned)(pass * 7 + rank * 3) % 4; }
static unsigned by_pass(int pass, int rank) { return (void)rank, (unsigned)(pass / 3) % 4; }

static const int few[] = {0, 5, 1, 3}, first_few[] = {4, 0, 5, 2};

static const feature features[] = {
    {"averaging", both, 1, NULL, false, false, NULL, NULL},
    {"a static graph", both, 1, NULL, false, false, NULL, NULL},
    {"parameters that some ranks leave out", by_rank, 1, NULL, false, false, NULL, NULL},
    {"parameters that all ranks leave out", by_pass, 1, NULL, false, false, NULL, NULL},
    {"no_sync", both, 3, NULL, false, false, NULL, NULL},
    {"no_sync, and parameters that some ranks leave out", by_rank, 3, NULL, false, false, NULL, NULL},
    {"join", both, 1, few, false, false, NULL, NULL},
    {"join, of which rank 0 ends early", both, 1, first_few, false, false, NULL, NULL},
    {"join, divided by the ranks that have data", both, 1, few, true, false, NULL, NULL},
    {"step in backward", both, 1, NULL, false, true, NULL, NULL},
    {"step in backward, and no_sync", both, 3, NULL, false, true, NULL, NULL},
    {"a layer in .ignored", both, 1, NULL, false, false, "right", NULL},
    {"a layer in .delay_all_reduce", both, 1, NULL, false, false, NULL, "right"},
};

static unsigned heads;

static tt_tensor *head(tt_module *self, const char *name, tt_tensor *x) {
    return tt_module_forward(tt_module_child(self, name), x);
}

static tt_tensor *branches_forward(tt_module *self, tt_tensor *x) {
    tt_tensor *stem = tt_tanh(head(self, "stem", x)), *y = tt_narrow(stem, 1, 0, OUT);
    if (heads & LEFT)
        y = tt_add(y, head(self, "left", stem));
    if (heads & RIGHT)
        y = tt_add(y, head(self, "right", stem));
    return y;
}

static tt_module *make_branches(void) {
    static const tt_module_class cls = TT_MODULE_CLASS(.name = "Branches", .forward = branches_forward);
    tt_module *m = tt_module_new(&cls, NULL);
    if (tt_module_add_module(m, "stem", tt_nn_linear(IN, HIDDEN)) ||
        tt_module_add_module(m, "left", tt_nn_linear(HIDDEN, OUT)) ||
        tt_module_add_module(m, "right", tt_nn_linear(HIDDEN, OUT)) ||
        tt_module_add_module(m, "idle", tt_nn_linear(HIDDEN, OUT)))
        exit(1);
    return m;
}

static double pass_of(tt_module *ddp) {
    TT_AUTO_SCOPE;
    double value;
    tt_tensor *x = tt_randn(TT_SHAPE(BATCH, IN), NULL), *y = tt_randn(TT_SHAPE(BATCH, OUT), NULL);
    tt_tensor *loss = tt_mse_loss(tt_module_forward(ddp, x), y);
    if (tt_backward(loss) || tt_item(loss, &value))
        exit(1);
    return value;
}

static void train(const feature *f, tt_module *ddp, tt_optimizer *sgd, int rank, FILE *out) {
    tt_join *join = f->missing ? tt_join_new(ddp, .divide_by_present = f->divide_by_present) : NULL;
    if (f->in_backward && tt_ddp_step_in_backward(ddp, sgd, .zero_grad = true))
        exit(1);
    int steps = STEPS - (f->missing ? f->missing[rank] : 0);
    for (int step = 0, pass = 0; step < steps; step++) {
        if (!f->in_backward)
            tt_optimizer_zero_grad(sgd);
        for (int i = 1; i <= f->passes; i++, pass++) {
            heads = f->heads(pass, rank);
            if (tt_ddp_set_sync(ddp, i == f->passes))
                exit(1);
            fprintf(out, "loss %.9g\n", pass_of(ddp));
        }
        if (!f->in_backward && tt_optimizer_step(sgd))
            exit(1);
    }
    if (join && tt_join_wait(join))
        exit(1);
    tt_join_free(join);
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

static void play(const feature *f, tt_group *world, const char *folder) {
    char path[4096];
    int rank = tt_get_rank(world);
    snprintf(path, sizeof path, "%s/tutti.%s.%d", folder, f->name, rank);
    FILE *out = fopen(path, "w");
    tt_manual_seed(0);
    tt_module *model = make_branches();
    tt_module *ddp = tt_ddp(model, world, .ignored = f->ignored ? TT_NAMES(f->ignored) : NULL,
                            .delay_all_reduce = f->delayed ? TT_NAMES(f->delayed) : NULL);
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(ddp), 0.05, .momentum = 0.9);
    if (!out || !sgd)
        exit(1);
    tt_manual_seed(1000 + (uint64_t)rank);
    train(f, ddp, sgd, rank, out);
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
