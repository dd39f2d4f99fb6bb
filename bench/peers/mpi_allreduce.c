/* Peer: MPI_Allreduce of floats, sum, in place.
 * Build: mpicc -O2 mpi_allreduce.c; run: mpirun -n 2 ./mpi_allreduce BYTES... */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCKS = 9 };

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(int rank, int world, long bytes) {
    int count = (int)(bytes / (long)sizeof(float));
    long calls = (long)(2e8 / (20.0 * (double)bytes + 10000));
    calls = calls < 5 ? 5 : calls > 20000 ? 20000 : calls;
    float *x = malloc((size_t)bytes);
    for (int i = 0; i < count; i++)
        x[i] = 0; /* zeros stay zeros: no overflow however often they are added */
    double seconds[BLOCKS];
    for (int block = -1; block < BLOCKS; block++) { /* block -1 warms up */
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        for (long i = 0; i < calls; i++)
            MPI_Allreduce(MPI_IN_PLACE, x, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        if (block >= 0)
            seconds[block] = (MPI_Wtime() - start) / (double)calls;
    }
    qsort(seconds, BLOCKS, sizeof *seconds, by_value);
    if (rank == 0)
        printf("{\"bench\":\"all_reduce\",\"peer\":\"mpi\",\"world\":%d,\"bytes\":%ld,\"usec_median\":%.3f,\"usec_"
               "min\":%.3f}\n",
               world, bytes, seconds[BLOCKS / 2] * 1e6, seconds[0] * 1e6);
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
