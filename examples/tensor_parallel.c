/* One layer's weights divided among the ranks. Mirrors PyTorch's example tensor_parallel_example.py:
 *
 *     class ToyModel(nn.Module):
 *         def __init__(self):
 *             super().__init__()
 *             self.in_proj = nn.Linear(10, 32)
 *             self.relu = nn.ReLU()
 *             self.out_proj = nn.Linear(32, 5)
 *
 *     mesh = init_device_mesh("cuda", (world_size,))
 *     tp_model = parallelize_module(ToyModel(), mesh, {"in_proj": ColwiseParallel(), "out_proj": RowwiseParallel()})
 *     optimizer = torch.optim.AdamW(tp_model.parameters(), lr=0.25, foreach=True)
 *     for i in range(num_iters):
 *         torch.manual_seed(i)                     # the input is the same on all ranks
 *         output = tp_model(torch.rand(20, 10))
 *         output.sum().backward()
 *         optimizer.step()
 *
 *   tutti run --nproc-per-node=2 build/examples/tensor_parallel [WIDTH [BATCH [STEPS]]]
 *
 * in_proj is WIDTH -> 4 WIDTH, out_proj goes back. The losses are the same on any number of ranks, one included, where
 * the layers are plain ones. Prints the median time of a step. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <tutti/tutti.h>

#include "usage.h"

static const char usage[] = "usage: tutti run --nproc-per-node=N tensor_parallel [WIDTH [BATCH [STEPS]]]\n"
                            "A layer that is divided over N ranks: its width (32), examples (20), steps (10).\n";

typedef struct settings {
    int64_t width, batch;
    int steps;
} settings;

static tt_module *toy_model(const settings *s, tt_group *tp) {
    return tt_nn_sequential_named({"in_proj", tt_nn_column_parallel_linear(s->width, 4 * s->width, tp)},
                                  {"relu", tt_nn_relu()},
                                  {"out_proj", tt_nn_row_parallel_linear(4 * s->width, s->width, tp)});
}

static double now_ms(void) {
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* The input is drawn alike on all ranks; the target is zero. */
static tt_status train_step(tt_module *model, tt_optimizer *sgd, const settings *s, double *loss) {
    TT_AUTO_SCOPE;
    tt_optimizer_zero_grad(sgd);
    tt_tensor *y = tt_module_forward(model, tt_randn(TT_SHAPE(s->batch, s->width), NULL));
    tt_tensor *l = tt_mse_loss(y, tt_zeros(TT_SHAPE(s->batch, s->width), TT_F32));
    if (tt_backward(l) || tt_item(l, loss))
        return tt_last_status();
    return tt_optimizer_step(sgd);
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static tt_status train(tt_module *model, tt_optimizer *sgd, const settings *s, bool prints) {
    double *ms = malloc((size_t)s->steps * sizeof *ms), loss;
    if (!ms)
        return tt_fail(TT_ERR_MEMORY, "no memory for the times of %d steps", s->steps);
    for (int i = 0; i < s->steps; i++) {
        double begin = now_ms();
        if (train_step(model, sgd, s, &loss)) {
            free(ms);
            return tt_last_status();
        }
        ms[i] = now_ms() - begin;
        if (prints && (i < 3 || i == s->steps - 1))
            printf("step %d: loss %.6f\n", i, loss);
    }
    qsort(ms, (size_t)s->steps, sizeof *ms, compare);
    if (prints)
        printf("a step takes %.3f ms\n", ms[s->steps / 2]);
    free(ms);
    return TT_OK;
}

int main(int argc, char **argv) {
    int rc = EXIT_FAILURE;
    int numbers[] = {32, 20, 10};
    tt_group *world = NULL;
    tt_module *model = NULL;
    tt_optimizer *sgd = NULL;

    for (int i = 1; i < argc; i++)
        if (i > 3 || !read_count(argv[i], 1000000, &numbers[i - 1]))
            return tell_usage(usage, argv[i]);
    const settings s = {.width = numbers[0], .batch = numbers[1], .steps = numbers[2]};
    if (tt_init_process_group(&world, .or_alone = true))
        goto out;
    tt_manual_seed(1); /* the same model and inputs on all ranks */
    model = toy_model(&s, world);
    sgd = tt_sgd(tt_module_parameters(model), 0.5);
    if (!sgd || train(model, sgd, &s, tt_get_rank(world) == 0))
        goto out;
    rc = EXIT_SUCCESS;
out:
    if (rc)
        tt_report();
    tt_optimizer_free(sgd);
    tt_module_free(model);
    tt_destroy_process_group(world);
    return rc;
}
