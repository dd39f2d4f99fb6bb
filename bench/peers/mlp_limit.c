/* Limit: one training step of the 784-512-10 classifier as bare oneDNN sgemm calls and loops: forward, cross entropy,
 * backward, SGD. With two ranks all gradients are averaged in shared memory in one go, as shm_limit.c does, without any
 * overlap.
 * Build: gcc -O3 -march=native mlp_limit.c -ldnnl -lm; run: OMP_NUM_THREADS=1 ./mlp_limit RANKS STEPS */
#define _GNU_SOURCE
#include "limit.h"

#include <dnnl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* B batch, I inputs, H hidden, O classes. */
enum { B = 32, I = 784, H = 512, O = 10, W1 = H * I, B1 = H, W2 = O * H, B2 = O, N = W1 + B1 + W2 + B2, BLOCKS = 9 };

static int world, rank;
static unsigned turn;
static flags *meeting;
static float *gradients[2]; /* of both ranks, each (N): w1 (H,I), b1 (H), w2 (O,H), b2 (O) */
static float parameters[N], x[B * I], hidden[B * H], d_hidden[B * H], logits[B * O], d_logits[B * O];
static int labels[B];

static float uniform(void) { return (float)rand() / (float)RAND_MAX; }

static void start_values(void) {
    srand(1);
    for (int i = 0; i < N; i++)
        parameters[i] = (uniform() - .5f) * .07f;
    for (int i = 0; i < B * I; i++)
        x[i] = uniform();
    for (int b = 0; b < B; b++)
        labels[b] = rand() % O;
}

/* out (B,K) = in (B,C) w^T (K,C) + bias (K) */
static void linear(float *out, const float *in, const float *w, const float *bias, int C, int K) {
    for (int b = 0; b < B; b++)
        memcpy(out + b * K, bias, (size_t)K * sizeof(float));
    dnnl_sgemm('N', 'T', B, K, C, 1, in, C, w, C, 1, out, K);
}

/* d_w (K,C) = d_out^T (B,K) in (B,C); d_bias (K) = sum of d_out over B */
static void linear_gradients(float *d_w, float *d_bias, const float *d_out, const float *in, int C, int K) {
    dnnl_sgemm('T', 'N', K, C, B, 1, d_out, K, in, C, 0, d_w, C);
    memset(d_bias, 0, (size_t)K * sizeof(float));
    for (int b = 0; b < B; b++)
        for (int k = 0; k < K; k++)
            d_bias[k] += d_out[b * K + k];
}

/* d_logits = (softmax(logits) - one hot) / B; returns the mean loss. */
static float cross_entropy(void) {
    float loss = 0;
    for (int b = 0; b < B; b++) {
        const float *z = logits + b * O;
        float *d = d_logits + b * O, most = z[0], sum = 0;
        for (int k = 1; k < O; k++)
            most = z[k] > most ? z[k] : most;
        for (int k = 0; k < O; k++)
            sum += d[k] = expf(z[k] - most);
        for (int k = 0; k < O; k++)
            d[k] = (d[k] / sum - (float)(k == labels[b])) / B;
        loss += logf(sum) + most - z[labels[b]];
    }
    return loss / B;
}

static void average(float *restrict mine, float *restrict peer) {
    int half = (N / 2) & ~15, begin = rank ? half : 0, end = rank ? N : half;
    meet(meeting, rank, ++turn);
    for (int i = begin; i < end; i++) {
        float mean = mine[i] * .5f + peer[i] * .5f;
        mine[i] = mean;
        peer[i] = mean;
    }
    meet(meeting, rank, ++turn);
}

static float step(void) {
    float *w1 = parameters, *b1 = w1 + W1, *w2 = b1 + B1, *b2 = w2 + W2;
    float *g = gradients[rank], *g_w1 = g, *g_b1 = g_w1 + W1, *g_w2 = g_b1 + B1, *g_b2 = g_w2 + W2;
    linear(hidden, x, w1, b1, I, H);
    for (int i = 0; i < B * H; i++)
        hidden[i] = hidden[i] > 0 ? hidden[i] : 0;
    linear(logits, hidden, w2, b2, H, O);
    float loss = cross_entropy();
    linear_gradients(g_w2, g_b2, d_logits, hidden, H, O);
    dnnl_sgemm('N', 'N', B, H, O, 1, d_logits, O, w2, H, 0, d_hidden, H);
    for (int i = 0; i < B * H; i++)
        d_hidden[i] = hidden[i] > 0 ? d_hidden[i] : 0;
    linear_gradients(g_w1, g_b1, d_hidden, x, I, H);
    if (world == 2)
        average(g, gradients[!rank]);
    for (int i = 0; i < N; i++)
        parameters[i] -= 1e-3f * g[i];
    return loss;
}

int main(int argc, char **argv) {
    world = argc > 1 ? atoi(argv[1]) : 1;
    int steps = argc > 2 ? atoi(argv[2]) : 200;
    if (world < 1 || world > 2 || steps < 1) {
        fprintf(stderr, "usage: %s RANKS(1 or 2) STEPS\n", argv[0]);
        return 2;
    }
    meeting = shared(sizeof *meeting);
    gradients[0] = shared(N * sizeof(float));
    gradients[1] = shared(N * sizeof(float));
    rank = world == 2 && fork() == 0;
    if (world == 2)
        pin(rank);
    start_values();
    double seconds[BLOCKS], loss = 0;
    for (int i = 0; i < 20; i++)
        step();
    for (int block = 0; block < BLOCKS; block++) {
        double start = now();
        for (int i = 0; i < steps; i++)
            loss = step();
        seconds[block] = (now() - start) / steps;
    }
    double middle = median(seconds, BLOCKS);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    if (rank == 0) {
        printf("{\"bench\":\"step\",\"peer\":\"limit\",\"model\":\"mlp\",\"world\":%d,\"ms_median\":%.4f,\"ms_min\":%."
               "4f,\"rss_mb\":%ld,"
               "\"loss\":%.4f}\n",
               world, middle * 1e3, seconds[0] * 1e3, usage.ru_maxrss / 1024, loss);
        if (world == 2)
            wait(NULL);
    }
    return 0;
}
