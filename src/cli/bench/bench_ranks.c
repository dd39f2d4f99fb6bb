/* Ranks of this program itself: benchmarks of several ranks start them with its `run`. */
#include "cli/bench/bench_ranks.h"

#include "cli/cli.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool tt__bench_is_rank(void) { return getenv("TUTTI_BENCH_RANK") != NULL; }

bool tt__bench_self(char *path, unsigned size) {
    ssize_t n = readlink("/proc/self/exe", path, size - 1);
    if (n < 0)
        return false;
    path[n] = '\0';
    return true;
}

int tt__bench_spawn(int world, int argc, char **argv) { return tt__spawn_ranks(world, "bench", argc, argv); }

int tt__spawn_ranks(int world, char *command, int argc, char **argv) {
    char self[4096], nproc[40];
    char **args = calloc((size_t)argc + 8, sizeof *args);
    if (!args || !tt__bench_self(self, sizeof self) || setenv("TUTTI_BENCH_RANK", "1", 1)) {
        tt__cli_error("", "can't start the ranks: %s", strerror(errno));
        free(args);
        return TT__EXIT_FAILED;
    }
    snprintf(nproc, sizeof nproc, "--nproc-per-node=%d", world);
    int n = 0;
    args[n++] = self;
    args[n++] = "run";
    args[n++] = "--standalone";
    args[n++] = nproc;
    args[n++] = "--no-python";
    args[n++] = self;
    if (command)
        args[n++] = command;
    for (int i = 0; i < argc; i++)
        args[n++] = argv[i];
    execv(self, args);
    tt__cli_error("", "can't run %s: %s", self, strerror(errno));
    free(args);
    return TT__EXIT_FAILED;
}

void tt__bench_pin_to(int rank, int ranks) {
    cpu_set_t mine, one;
    if (sched_getaffinity(0, sizeof mine, &mine) || CPU_COUNT(&mine) < ranks)
        return;
    CPU_ZERO(&one);
    for (int cpu = 0, n = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &mine) && n++ == rank)
            CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one))
        tt__cli_error("", "rank %d could not be tied to a CPU", rank);
}

void tt__bench_pin(void) {
    const char *rank = getenv("LOCAL_RANK"), *world = getenv("LOCAL_WORLD_SIZE");
    if (rank && world)
        tt__bench_pin_to(atoi(rank), atoi(world));
}

bool tt__bench_is_member(void) {
    return tt__bench_is_rank() || getenv("RANK") || getenv("OMPI_COMM_WORLD_RANK") || getenv("PMI_RANK");
}
