/* tutti bench: what runs how fast. This file chooses the benchmark and starts its ranks. */
#include "cli/bench.h"
#include "cli/bench_calls.h"
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *what;
} benches[] = {
    {"agreement", tt__bench_agreement, "what the check that all ranks make the same call costs"},
    {"store", tt__bench_store, "operations a second of the key-value store"},
    {"startup", tt__bench_startup, "a whole job: launcher, ranks, one all_reduce, end"},
    {"step", tt__bench_step, "a training step: time and memory"},
    {NULL, NULL, NULL},
};

static int help(void) {
    printf("usage: tutti bench NAME [FLAGS]\n\n"
           "Measure one thing and print JSON, one object a line. On a shared machine only ratios between runs mean "
           "much.\n\n");
    for (int i = 0; tt__bench_call_at(i); i++)
        printf("  %-20s %s\n", tt__bench_call_at(i)->name, tt__bench_call_at(i)->what);
    for (int i = 0; benches[i].name; i++)
        printf("  %-20s %s\n", benches[i].name, benches[i].what);
    printf("\n'tutti bench NAME --help' lists the flags of each.\n");
    return TT__EXIT_OK;
}

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
        fprintf(stderr, "tutti bench: can't start the ranks: %s\n", strerror(errno));
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
    fprintf(stderr, "tutti bench: can't run %s: %s\n", self, strerror(errno));
    free(args);
    return TT__EXIT_FAILED;
}

int tt__cmd_bench(int argc, char **argv) {
    tt__cli_normalise_flags(argc, argv);
    if (argc < 2)
        return tt__cli_usage_error("bench", "expected the name of a benchmark");
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
        return help();
    if (tt__bench_call_named(argv[1]))
        return tt__bench_collective(argc - 1, argv + 1);
    for (int i = 0; benches[i].name; i++)
        if (!strcmp(argv[1], benches[i].name))
            return benches[i].run(argc - 1, argv + 1);
    return tt__cli_usage_error("bench", "unknown benchmark \"%s\"", argv[1]);
}
