/* One process that trains with a thread a replica. In PyTorch, where a replica is a GPU:
 *
 *     model = nn.DataParallel(model)
 *     for x, y in loader:
 *         optimizer.zero_grad()
 *         loss_fn(model(x), y).backward()
 *         optimizer.step()
 *
 * The batch is cut, the replicas' results are put together, their gradients summed: what one thread computes. The same
 * program prints how long a step takes with 1 thread and with N (default 2); `tutti run --nproc-per-node=N` and
 * tt_ddp() (ddp_no_sync.c) are the other way.
 *
 *   OMP_NUM_THREADS=1 build/examples/data_parallel [N] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <tutti/tutti.h>

#include "usage.h"

static const char usage[] = "usage: data_parallel [N]\n"
                            "N replicas of a model, each a thread, beside one: 1 to 1024 (2).\n";

enum { STEPS = 20, BATCH = 64 };

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static tt_module *convnet(void) {
    return tt_nn_sequential(tt_nn_conv2d(1, 16, 3), tt_nn_relu(), tt_nn_conv2d(16, 32, 3), tt_nn_relu(),
                            tt_nn_max_pool2d(2), tt_nn_flatten(), tt_nn_linear(32 * 12 * 12, 10));
}

/* The sum of all parameters: what both ways must agree on. */
static double parameter_sum(tt_module *model) {
    TT_AUTO_SCOPE;
    TT_NO_GRAD;
    const tt_named_tensors *p = tt_module_parameters(model);
    double sum = 0, one;
    for (int64_t i = 0; i < p->count; i++)
        if (!tt_item(tt_sum(tt_abs(p->tensors[i])), &one))
            sum += one;
    return sum;
}

/* Train the same model on the same batches. On failure NAN. */
static double train(int replicas) {
    tt_manual_seed(0);
    tt_module *model = tt_data_parallel(convnet(), .replicas = replicas);
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(model), 0.01);
    double value = NAN, start = seconds(), sum = NAN;
    for (int step = 0; sgd && step < STEPS; step++) {
        TT_AUTO_SCOPE;
        tt_tensor *x = tt_randn(TT_SHAPE(BATCH, 1, 28, 28), NULL), *y = tt_randint(0, 10, TT_SHAPE(BATCH), NULL);
        tt_optimizer_zero_grad(sgd);
        tt_tensor *loss = tt_cross_entropy(tt_module_forward(model, x), y);
        if (tt_backward(loss) || tt_optimizer_step(sgd) || tt_item(loss, &value)) {
            value = NAN;
            break;
        }
    }
    if (!isnan(value)) {
        sum = parameter_sum(model);
        printf("%d replica(s): last loss %.5f, parameters %.4f, %.1f ms a step; the first is \"%s\"\n", replicas, value,
               sum, (seconds() - start) * 1e3 / STEPS, tt_module_state_dict(model)->names[0]);
    }
    tt_optimizer_free(sgd);
    tt_module_free(model);
    return sum;
}

int main(int argc, char **argv) {
    int replicas = 2;
    if (argc > 1 && (argc > 2 || !read_count(argv[1], 1024, &replicas)))
        return tell_usage(usage, argv[argc - 1]);
    const double one = train(1), several = isnan(one) ? NAN : train(replicas);
    if (!isnan(one) && fabs(one - several) < 1e-4 * one)
        return EXIT_SUCCESS;
    tt_report();
    return EXIT_FAILURE;
}
