/* Peer: half a round trip of MPI_Send and MPI_Recv between ranks 0 and 1.
 * Build: mpicc -O2 mpi_send_recv.c; run: mpirun -n 2 ./mpi_send_recv BYTES... */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCKS = 9 };

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void there_and_back(int rank, void *buf, int bytes) {
    for (int i = 0; i < 2; i++)
        if (i == rank)
            MPI_Send(buf, bytes, MPI_BYTE, !rank, 0, MPI_COMM_WORLD);
        else
            MPI_Recv(buf, bytes, MPI_BYTE, !rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void measure(int rank, long bytes) {
    long calls = (long)(1e8 / (2.0 * (double)bytes + 10000));
    calls = calls < 5 ? 5 : calls > 10000 ? 10000 : calls;
    void *buf = calloc(1, (size_t)bytes);
    double seconds[BLOCKS];
    for (int block = -1; block < BLOCKS; block++) { /* block -1 warms up */
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        for (long i = 0; i < calls; i++)
            there_and_back(rank, buf, (int)bytes);
        if (block >= 0)
            seconds[block] = (MPI_Wtime() - start) / (double)(2 * calls);
    }
    qsort(seconds, BLOCKS, sizeof *seconds, by_value);
    if (rank == 0)
        printf("{\"bench\":\"send_recv\",\"peer\":\"mpi\",\"world\":2,\"bytes\":%ld,\"usec_median\":%.3f,\"usec_min\":%"
               ".3f}\n",
               bytes, seconds[BLOCKS / 2] * 1e6, seconds[0] * 1e6);
    free(buf);
}

int main(int argc, char **argv) {
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 1; i < argc; i++)
        measure(rank, atol(argv[i]));
    MPI_Finalize();
    return 0;
}
