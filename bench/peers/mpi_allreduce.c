/* Peer: MPI_Allreduce of floats, sum, in place.
 * Build: mpicc -O2 mpi_allreduce.c; run: mpirun -n 2 ./mpi_allreduce BYTES... */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCKS = 5, MOST_CALLS = 50000 }; /* and times as long as those of tutti bench */
static const double block_seconds = 0.06;

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double repeat(float *x, int count, long calls) {
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (long i = 0; i < calls; i++)
        MPI_Allreduce(MPI_IN_PLACE, x, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    return MPI_Wtime() - start;
}

/* How many calls take about as long as a block should, as rank 0 finds it: with few calls first, since a call may take
 * milliseconds where ranks share a CPU. */
static long choose_calls(float *x, int count) {
    long calls = 3;
    for (;;) {
        double took = repeat(x, count, calls);
        MPI_Bcast(&took, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        double want = (double)calls * block_seconds / (took > 0 ? took : 1e-9);
        if (took >= block_seconds / 8 || calls == MOST_CALLS)
            return want < 2 ? 2 : want > MOST_CALLS ? MOST_CALLS : (long)want;
        calls = calls * 4 < MOST_CALLS ? calls * 4 : MOST_CALLS;
    }
}

static void measure(int rank, int world, long bytes) {
    int count = (int)(bytes / (long)sizeof(float));
    float *x = malloc((size_t)bytes);
    for (int i = 0; i < count; i++)
        x[i] = 0; /* zeros stay zeros: no overflow however often they are added */
    long calls = choose_calls(x, count);
    double seconds[BLOCKS];
    for (int block = 0; block < BLOCKS; block++)
        seconds[block] = repeat(x, count, calls) / (double)calls;
    qsort(seconds, BLOCKS, sizeof *seconds, by_value);
    if (rank == 0) {
        printf("{\"bench\":\"all_reduce\",\"peer\":\"mpi\",\"world\":%d,\"bytes\":%ld,\"usec_median\":%.3f,\"usec_"
               "min\":%.3f}\n",
               world, bytes, seconds[BLOCKS / 2] * 1e6, seconds[0] * 1e6);
        fflush(stdout);
    }
    free(x);
}

int main(int argc, char **argv) {
    int rank, world;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    for (int i = 1; i < argc; i++)
        measure(rank, world, atol(argv[i]));
    MPI_Finalize();
    return 0;
}
