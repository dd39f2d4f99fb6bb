/* A training step done plainly, and another way, in turn in the same processes: only pairs that share a machine's
 * moment can be compared to a percent.
 *
 *   cc -O2 bench/step_pairs.c -o step_pairs -Iinclude -Lbuild/lib -ltutti -ltutti-comm -Wl,-rpath,$PWD/build/lib
 *   OMP_NUM_THREADS=1 ./step_pairs data_parallel conv 200
 *   tutti run --nproc-per-node=2 ./step_pairs join mlp 2000
 *   tutti run --nproc-per-node=2 ./step_pairs unused mlp 2000
 *   tutti run --nproc-per-node=2 ./step_pairs sparse table 200
 *
 * data_parallel: one process, a batch on one thread beside two replicas. join: a wrapper whose steps tell who has data
 * beside one whose don't. unused: a wrapper of a model with a layer that no step uses beside one without. sparse: a
 * table of 100,000 x 64 of which each rank reads 512 rows, with sparse gradients beside those of the whole. Rank 0
 * prints the medians and the median of the pairs' ratios. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <tutti/tutti.h>

enum { WARM_UP = 20, PAIRS_MAX = 100000, TABLE_ROWS = 100000, TOKENS = 512 };

typedef struct side {
    tt_module *model;
    tt_optimizer *sgd;
    double *ms;
} side;

static struct {
    bool is_gpt;
    tt_tensor *x, *y;
} data;

static void fail(const char *what) {
    if (what)
        fprintf(stderr, "step_pairs: %s\n", what);
    else
        tt_report();
    exit(EXIT_FAILURE);
}

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static tt_module *make_model(const char *name, bool sparse) {
    tt_manual_seed(0);
    if (!strcmp(name, "table"))
        return tt_nn_sequential(tt_nn_embedding(TABLE_ROWS, 64, .sparse = sparse), tt_nn_linear(64, 10));
    if (!strcmp(name, "mlp"))
        return tt_nn_sequential(tt_nn_linear(784, 512), tt_nn_relu(), tt_nn_linear(512, 10));
    if (!strcmp(name, "conv"))
        return tt_model_mnist_convnet(0.25, 0.5);
    if (!strcmp(name, "gpt"))
        return tt_model_gpt(65, 128, 256, 4, 4);
    fail("expected the model mlp, conv, gpt or table");
    return NULL;
}

static tt_tensor *net_forward(tt_module *self, tt_tensor *x) {
    return tt_module_forward(tt_module_child(self, "net"), x);
}

/* The model, and a layer that its forward leaves out. */
static tt_module *with_spare(tt_module *net) {
    static const tt_module_class spare = TT_MODULE_CLASS(.name = "WithSpare", .forward = net_forward);
    tt_module *model = tt_module_new(&spare, NULL);
    if (tt_module_add_module(model, "net", net) || tt_module_add_module(model, "spare", tt_nn_linear(10, 10)))
        fail(NULL);
    return model;
}

/* Tokens of this rank. */
static tt_tensor *make_tokens(int rank) {
    int64_t token[TOKENS];
    for (int i = 0; i < TOKENS; i++)
        token[i] = (int64_t)(rank * TOKENS + i) * 7919 % TABLE_ROWS;
    return tt_from_data(token, TT_SHAPE(TOKENS), TT_I64);
}

static void make_data(const char *name, int rank) {
    data.is_gpt = !strcmp(name, "gpt");
    data.x = data.is_gpt              ? tt_zeros(TT_SHAPE(8, 128), TT_I64)
             : !strcmp(name, "table") ? make_tokens(rank)
             : !strcmp(name, "conv")  ? tt_randn(TT_SHAPE(64, 1, 28, 28), NULL)
                                      : tt_randn(TT_SHAPE(32, 784), NULL);
    data.y = tt_zeros(data.is_gpt ? TT_SHAPE(8 * 128) : TT_SHAPE(tt_tensor_size(data.x, 0)), TT_I64);
    if (!data.x || !data.y)
        fail(NULL);
}

static void train_once(const side *s, int i) {
    TT_AUTO_SCOPE;
    double begin = now_ms();
    tt_optimizer_zero_grad(s->sgd);
    tt_tensor *y = tt_module_forward(s->model, data.x);
    if (data.is_gpt)
        y = tt_reshape(y, TT_SHAPE(8 * 128, 65));
    if (tt_backward(tt_cross_entropy(y, data.y)) || tt_optimizer_step(s->sgd))
        fail(NULL);
    if (i >= 0)
        s->ms[i] = now_ms() - begin;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, by_size);
    return x[n / 2];
}

static void compare(const side sides[2], const char *what, const char *model, int pairs, bool prints) {
    double *ratios = malloc((size_t)pairs * sizeof *ratios);
    if (!ratios)
        fail("no memory");
    for (int i = -WARM_UP; i < pairs; i++)
        for (int k = 0; k < 2; k++)
            train_once(&sides[(i + k) & 1], i);
    for (int i = 0; i < pairs; i++)
        ratios[i] = sides[1].ms[i] / sides[0].ms[i];
    if (prints)
        printf("{\"bench\":\"step_pairs\",\"what\":\"%s\",\"model\":\"%s\",\"pairs\":%d,\"plain_ms\":%.4f,"
               "\"other_ms\":%.4f,\"ratio\":%.4f}\n",
               what, model, pairs, median(sides[0].ms, pairs), median(sides[1].ms, pairs), median(ratios, pairs));
    free(ratios);
}

int main(int argc, char **argv) {
    int pairs = argc == 4 ? atoi(argv[3]) : 0;
    bool join = argc == 4 && !strcmp(argv[1], "join"), unused = argc == 4 && !strcmp(argv[1], "unused");
    bool sparse = argc == 4 && !strcmp(argv[1], "sparse"), ranks = join || unused || sparse;
    if (pairs < 1 || pairs > PAIRS_MAX || (!ranks && strcmp(argv[1], "data_parallel")))
        fail("usage: step_pairs data_parallel|join|unused|sparse mlp|conv|gpt|table PAIRS");
    tt_group *world = NULL;
    tt_join *joined = NULL;
    side sides[2];
    if (ranks && tt_init_process_group(&world))
        fail(NULL);
    make_data(argv[2], ranks ? tt_get_rank(world) : 0);
    for (int k = 0; k < 2; k++) {
        tt_module *model = make_model(argv[2], sparse && k);
        model = unused && k ? with_spare(model) : model;
        sides[k].model = ranks ? tt_ddp(model, world) : k ? tt_data_parallel(model, .replicas = 2) : model;
        sides[k].sgd = tt_sgd(tt_module_parameters(sides[k].model), 1e-3);
        sides[k].ms = calloc((size_t)pairs, sizeof(double));
        if (!sides[k].sgd || !sides[k].ms)
            fail(NULL);
    }
    if (join && !(joined = tt_join_new(sides[1].model)))
        fail(NULL);
    compare(sides, argv[1], argv[2], pairs, !ranks || tt_get_rank(world) == 0);
    tt_join_free(joined);
    for (int k = 0; k < 2; k++) {
        tt_optimizer_free(sides[k].sgd);
        tt_module_free(sides[k].model);
        free(sides[k].ms);
    }
    tt_destroy_process_group(world);
    return EXIT_SUCCESS;
}
