/* Limit: in-place sum of two ranks' floats where both buffers lie in shared memory. Each rank adds half of the elements
 * and stores the result to both, between two barriers: 2 reads and 2 writes for each element, nothing else.
 * Build: gcc -O3 -march=native shm_limit.c; run: ./shm_limit BYTES... */
#define _GNU_SOURCE
#include "limit.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 9 };

static void all_reduce(flags *f, int rank, unsigned *turn, float *restrict mine, float *restrict peer, long count) {
    long half = (count / 2 + 15) & ~15L; /* whole cache lines, if there are any */
    if (count <= 16)
        half = count / 2;
    else if (half > count)
        half = count;
    long begin = rank ? half : 0, end = rank ? count : half;
    meet(f, rank, ++*turn);
    for (long i = begin; i < end; i++) {
        float sum = mine[i] + peer[i];
        mine[i] = sum;
        peer[i] = sum;
    }
    meet(f, rank, ++*turn);
}

static void measure(flags *f, int rank, unsigned *turn, float *mine, float *peer, long bytes) {
    long count = bytes / (long)sizeof(float), calls = (long)(2e8 / (5.0 * (double)bytes + 2000));
    calls = calls < 5 ? 5 : calls > 50000 ? 50000 : calls;
    double seconds[BLOCKS];
    memset(mine, 0, (size_t)bytes);
    for (int block = 0; block < BLOCKS; block++) {
        meet(f, rank, ++*turn);
        double start = now();
        for (long i = 0; i < calls; i++)
            all_reduce(f, rank, turn, mine, peer, count);
        seconds[block] = (now() - start) / (double)calls;
    }
    double middle = median(seconds, BLOCKS);
    if (rank == 0)
        printf("{\"bench\":\"all_reduce\",\"peer\":\"limit\",\"world\":2,\"bytes\":%ld,\"usec_median\":%.3f,\"usec_"
               "min\":%.3f}\n",
               bytes, middle * 1e6, seconds[0] * 1e6);
}

int main(int argc, char **argv) {
    long most = 0;
    for (int i = 1; i < argc; i++)
        most = atol(argv[i]) > most ? atol(argv[i]) : most;
    if (most < 8) {
        fprintf(stderr, "usage: %s BYTES...\n", argv[0]);
        return 2;
    }
    float *buffers[2] = {shared((size_t)most), shared((size_t)most)};
    flags *f = shared(sizeof *f);
    int rank = fork() ? 0 : 1;
    unsigned turn = 0;
    pin(rank);
    for (int i = 1; i < argc; i++)
        measure(f, rank, &turn, buffers[rank], buffers[!rank], atol(argv[i]));
    if (rank == 0)
        wait(NULL);
    return 0;
}
