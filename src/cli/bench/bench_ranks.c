/* Ranks of this program itself, which benchmarks start with its `run`, and the flags that several benchmarks have. */
#include "cli/bench/bench.h"

#include "base/error.h"
#include "base/text/parse.h"
#include "cli/cli.h"
#include "comm/native/native.h"
#include "net/secure/secret.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Read "64K" as bytes. Changes `text`. */
static tt_status parse_bench_size(char *text, size_t *bytes) {
    static const char suffixes[] = "KMG";
    size_t n = strlen(text);
    const char *suffix = n ? strchr(suffixes, text[n - 1]) : NULL;
    int64_t value;
    int shift = suffix ? 10 * (int)(suffix - suffixes + 1) : 0;
    if (suffix)
        text[n - 1] = '\0';
    tt_status status = tt__parse_i64("--sizes", text, 1, (INT64_C(1) << 40) >> shift, &value);
    if (!status)
        *bytes = (size_t)value << shift;
    return status;
}

static tt_status take_sizes(char *list, tt__bench_flags *flags) {
    char *rest = NULL;
    flags->size_count = 0;
    for (char *text = strtok_r(list, ",", &rest); text; text = strtok_r(NULL, ",", &rest)) {
        if (flags->size_count == TT__BENCH_SIZES)
            return TT_ERR_INVALID;
        TT__TRY(parse_bench_size(text, &flags->sizes[flags->size_count]));
        flags->size_count++;
    }
    return flags->size_count ? TT_OK : TT_ERR_INVALID;
}

tt_status tt__bench_flag_take(int c, char *value, int least_world, tt__bench_flags *flags) {
    tt__wire wire;
    switch (c) {
    case 'w':
        return tt__parse_i64("--world", value, least_world, 64, &flags->world);
    case 'i':
        return tt__parse_i64("--iterations", value, 1, 100000000, &flags->iterations);
    case 's':
        return take_sizes(value, flags);
    case 't':
        snprintf(flags->transport, sizeof flags->transport, "%.8s", value);
        return strcmp(value, "auto") && strcmp(value, "shm") && strcmp(value, "tcp") ? TT_ERR_INVALID : TT_OK;
    case 'W':
        return tt__wire_named(value, &wire) && !setenv("TT_WIRE", value, 1) ? TT_OK : TT_ERR_INVALID;
    default: /* 'n' */
        flags->no_pin = true;
        return TT_OK;
    }
}

int tt__bench_flags_read(const tt__command *command, int argc, char **argv,
                         tt_status (*take)(int c, char *value, void *settings), void *settings) {
    char value[4096];
    const char *flag;
    for (int c; (c = tt__cli_next_flag(command, argc, argv, &flag)) != -1;) {
        if (c == 'h' || c == '?')
            return c == 'h' ? TT__EXIT_OK : TT__EXIT_USAGE;
        int n = snprintf(value, sizeof value, "%s", optarg ? optarg : ""); /* argv stays whole: the ranks get it */
        if (n >= (int)sizeof value || take(c, value, settings))
            return tt__cli_usage_error(command->name, "%s: not understood: \"%s\"", flag, optarg);
    }
    return -1;
}

const char *tt__bench_wire(const tt_group *group) {
    return group->native && group->native->world->messages ? tt__messages_wire(group->native->world->messages) : "none";
}

bool tt__bench_is_rank(void) { return getenv("TUTTI_BENCH_RANK") != NULL; }

bool tt__bench_self(char *path, unsigned size) {
    ssize_t n = readlink("/proc/self/exe", path, size - 1);
    if (n < 0)
        return false;
    path[n] = '\0';
    return true;
}

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

/* Tie this rank to a CPU of its own, if its host has enough: before the group is made, which reads the ranks' CPUs. */
static void pin_rank(void) {
    const char *rank = getenv("LOCAL_RANK"), *world = getenv("LOCAL_WORLD_SIZE");
    if (rank && world)
        tt__bench_pin_to(atoi(rank), atoi(world));
}

bool tt__bench_is_member(void) {
    return tt__bench_is_rank() || getenv("RANK") || getenv("OMPI_COMM_WORLD_RANK") || getenv("PMI_RANK");
}

int tt__bench_run_rank(const tt__bench_flags *flags, const char *backend, const char *algorithms,
                       tt_status (*run)(tt_group *group, const void *user), const void *user) {
    tt_group *group = NULL;
    if (!flags->no_pin)
        pin_rank();
    tt_status status = tt_init_process_group(&group, .backend = *backend ? backend : NULL, .algorithms = algorithms,
                                             .transport = *flags->transport ? flags->transport : NULL);
    if (!status)
        status = run(group, user);
    if (status)
        tt_report();
    tt_destroy_process_group(group);
    return status ? TT__EXIT_FAILED : TT__EXIT_OK;
}
