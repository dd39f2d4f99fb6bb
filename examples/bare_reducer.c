/* A hand-written training loop, in plain C on plain arrays, with the gradients averaged by the reducer: it needs
 * libtutti-comm only. The reducer does for it what torch.nn.parallel.DistributedDataParallel does for a module. No
 * Python program is mirrored.
 *
 *   tutti run --nproc-per-node=2 bare_reducer
 *
 * It fits y = x^2 on [-1, 1] with H hidden units: y = sum over j of w2[j] relu(w1[j] x + b1[j]) + b2. Each rank draws
 * its own samples. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/reducer.h>

#include "usage.h"

enum { H = 32, BATCH = 64, STEPS = 2000 };

#define LEARNING_RATE 0.05f

/* The parameters in the order of the forward pass. */
enum { W1, B1, W2, B2, PARAMS };
static const tt_reducer_param params[PARAMS] = {
    {"w1", H, TT_F32}, {"b1", H, TT_F32}, {"w2", H, TT_F32}, {"b2", 1, TT_F32}};

/* One array holds all values, so that one broadcast and one comparison do; value[p] are its parts. */
typedef struct Net {
    float all[3 * H + 1];
    float *value[PARAMS];
    float *gradient[PARAMS]; /* in the reducer's buckets */
} Net;

/* Uniform in [-1, 1). */
static float draw(uint32_t *state) {
    *state = *state * 1664525 + 1013904223;
    return (float)(*state >> 8) / (float)(1 << 23) - 1;
}

static float relu(float x) { return x > 0 ? x : 0; }

/* Draw the parameters. Each rank draws other values: rank 0's are broadcast. */
static tt_status init(Net *net, tt_group *world, uint32_t *random) {
    for (int p = 0; p < PARAMS; p++)
        net->value[p] = net->all + p * H;
    for (int j = 0; j < H; j++) {
        net->value[W1][j] = draw(random);
        net->value[B1][j] = draw(random);
        net->value[W2][j] = draw(random) / 4;
    }
    return tt_broadcast(world, net->all, 3 * H + 1, TT_F32, 0);
}

/* x, error (BATCH): error := y - x^2. Returns the mean of error^2. */
static float forward(const Net *net, const float *x, float *error) {
    float loss = 0;
    for (int i = 0; i < BATCH; i++) {
        float y = net->value[B2][0];
        for (int j = 0; j < H; j++)
            y += net->value[W2][j] * relu(net->value[W1][j] * x[i] + net->value[B1][j]);
        error[i] = y - x[i] * x[i];
        loss += error[i] * error[i] / BATCH;
    }
    return loss;
}

/* d loss / d w2 and d b2: final first, so they are on their way to the other ranks while the rest is computed. */
static void backward_output(const Net *net, const float *x, const float *error) {
    for (int i = 0; i < BATCH; i++) {
        float dy = 2 * error[i] / BATCH;
        net->gradient[B2][0] += dy;
        for (int j = 0; j < H; j++)
            net->gradient[W2][j] += dy * relu(net->value[W1][j] * x[i] + net->value[B1][j]);
    }
}

static void backward_hidden(const Net *net, const float *x, const float *error) {
    for (int i = 0; i < BATCH; i++) {
        for (int j = 0; j < H; j++) {
            bool active = net->value[W1][j] * x[i] + net->value[B1][j] > 0;
            float dh = active ? 2 * error[i] / BATCH * net->value[W2][j] : 0;
            net->gradient[W1][j] += dh * x[i];
            net->gradient[B1][j] += dh;
        }
    }
}

/* Train one step: the gradients of this rank's batch, averaged over the ranks, then plain gradient descent. */
static tt_status step(Net *net, tt_reducer *reducer, uint32_t *random, float *loss) {
    float x[BATCH], error[BATCH];
    for (int i = 0; i < BATCH; i++)
        x[i] = draw(random);
    for (int p = 0; p < PARAMS; p++)
        memset(net->gradient[p], 0, (size_t)params[p].count * sizeof(float));
    *loss = forward(net, x, error);
    backward_output(net, x, error);
    if (tt_reducer_mark_ready(reducer, B2) || tt_reducer_mark_ready(reducer, W2))
        return tt_last_status();
    backward_hidden(net, x, error);
    if (tt_reducer_mark_ready(reducer, B1) || tt_reducer_mark_ready(reducer, W1) || tt_reducer_finish(reducer))
        return tt_last_status();
    for (int p = 0; p < PARAMS; p++)
        for (int64_t k = 0; k < params[p].count; k++)
            net->value[p][k] -= LEARNING_RATE * net->gradient[p][k];
    return TT_OK;
}

/* Check that the parameters are still bitwise equal on all ranks, as the averaged gradients are. */
static tt_status compare(const Net *net, tt_group *world) {
    enum { ALL = 3 * H + 1 };
    int n = tt_get_world_size(world);
    bool same = true;
    float *all = malloc((size_t)n * sizeof net->all);
    tt_status status = all ? tt_all_gather(world, net->all, all, ALL, TT_F32) : TT_ERR_MEMORY;
    for (int i = 0; i < n * ALL && !status; i++)
        same = same && all[i] == net->all[i % ALL];
    if (!status && tt_get_rank(world) == 0)
        printf("after %d steps the parameters of %d rank%s are %s\n", STEPS, n, n == 1 ? "" : "s",
               same ? "equal" : "DIFFERENT");
    free(all);
    return status;
}

static tt_status train(Net *net, tt_group *world, tt_reducer *reducer, uint32_t *random) {
    for (int p = 0; p < PARAMS; p++)
        net->gradient[p] = tt_reducer_gradient(reducer, p);
    for (int i = 1; i <= STEPS; i++) {
        float loss;
        if (step(net, reducer, random, &loss))
            return tt_last_status();
        if (i % (STEPS / 5) != 0)
            continue;
        if (tt_all_reduce(world, &loss, 1, TT_F32, TT_AVG))
            return tt_last_status();
        if (tt_get_rank(world) == 0)
            printf("step %4d, loss %.6f\n", i, (double)loss);
    }
    return compare(net, world);
}

static const char usage[] = "usage: tutti run --nproc-per-node=N bare_reducer\n"
                            "A training loop by hand, whose gradients are averaged.\n";

int main(int argc, char **argv) {
    tt_group *world = NULL;
    tt_reducer *reducer = NULL;
    Net net = {0};
    if (argc > 1)
        return tell_usage(usage, argv[1]);
    /* Without a launcher this process is a world of its own. */
    tt_status status = tt_init_process_group(&world, .or_alone = true);
    uint32_t random = 12345 + (uint32_t)tt_get_rank(world);
    if (!status)
        status = init(&net, world, &random);
    if (!status)
        status = tt_reducer_new(&reducer, world, params, PARAMS);
    if (!status)
        status = train(&net, world, reducer, &random);
    if (status)
        tt_report();
    tt_reducer_free(reducer);
    tt_destroy_process_group(world);
    return status ? EXIT_FAILURE : EXIT_SUCCESS;
}
