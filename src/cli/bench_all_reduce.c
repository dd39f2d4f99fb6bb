/* tutti bench all_reduce: time of one all-reduce (f32, sum, in place) by size. */
#include "base/clock.h"
#include "base/parse.h"
#include "cli/bench.h"
#include "cli/cli.h"

#include <tutti/comm.h>

#include <getopt.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SIZES = 64, REPETITIONS = 5, WARM_UP = 3 };

typedef struct settings {
    int64_t world, iterations; /* iterations: 0 = by size */
    size_t sizes[MAX_SIZES];
    int size_count;
    bool plain, no_pin;
} settings;

static int help(void) {
    printf("usage: tutti bench all_reduce [FLAGS]\n\n"
           "Time of one all-reduce (f32, sum, in place), median and least of %d repetitions, as rank 0 sees it.\n\n"
           "  --world N          ranks to start (default 2)\n"
           "  --sizes LIST       bytes, with K, M or G (default 8,1K,16K,64K,256K,1M,4M,16M)\n"
           "  --buffers KIND     symmetric (default) or plain\n"
           "  --iterations N     all-reduces in a repetition (default by size)\n"
           "  --no-pin           don't tie each rank to a CPU of its own\n",
           REPETITIONS);
    return TT__EXIT_OK;
}

/* "64K" as bytes; a multiple of 4. */
static tt_status parse_size(char *text, size_t *bytes) {
    static const char suffixes[] = "KMG";
    size_t n = strlen(text);
    const char *suffix = n ? strchr(suffixes, text[n - 1]) : NULL;
    int64_t value;
    int shift = suffix ? 10 * (int)(suffix - suffixes + 1) : 0;
    if (suffix)
        text[n - 1] = '\0';
    tt_status status = tt__parse_i64("--sizes", text, 1, (INT64_C(1) << 40) >> shift, &value);
    if (!status)
        *bytes = (((size_t)value << shift) + 3) & ~(size_t)3;
    return status;
}

static tt_status parse_sizes(char *list, settings *s) {
    char *rest = NULL;
    s->size_count = 0;
    for (char *text = strtok_r(list, ",", &rest); text; text = strtok_r(NULL, ",", &rest)) {
        tt_status status = s->size_count < MAX_SIZES ? parse_size(text, &s->sizes[s->size_count]) : TT_ERR_INVALID;
        if (status)
            return status;
        s->size_count++;
    }
    return s->size_count ? TT_OK : TT_ERR_INVALID;
}

/* Rank r on the r-th CPU this process may use, if there are enough. */
static void pin(int rank, int world) {
    cpu_set_t mine, one;
    if (sched_getaffinity(0, sizeof mine, &mine) || CPU_COUNT(&mine) < world)
        return;
    CPU_ZERO(&one);
    for (int cpu = 0, n = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &mine) && n++ == rank)
            CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one))
        fprintf(stderr, "tutti bench: rank %d could not be tied to a CPU\n", rank);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static tt_status repeat(tt_group *group, float *buf, size_t count, int64_t n) {
    tt_status status = TT_OK;
    for (int64_t i = 0; i < n && !status; i++)
        status = tt_all_reduce(group, buf, count, TT_F32, TT_SUM);
    return status;
}

static tt_status measure(tt_group *group, const settings *s, float *buf, size_t bytes) {
    double usec[REPETITIONS];
    int64_t n = s->iterations ? s->iterations : (int64_t)(4e8 / ((double)bytes * 10 + 20000));
    n = n < 5 ? 5 : n;
    tt_status status = repeat(group, buf, bytes / 4, WARM_UP);
    for (int i = 0; i < REPETITIONS && !status; i++) {
        status = tt_barrier(group);
        int64_t start = tt__now_ns();
        if (!status)
            status = repeat(group, buf, bytes / 4, n);
        usec[i] = (double)(tt__now_ns() - start) / 1e3 / (double)n;
    }
    if (status || tt_get_rank(group))
        return status;
    qsort(usec, REPETITIONS, sizeof *usec, by_value);
    double median = usec[REPETITIONS / 2];
    printf("{\"bench\":\"all_reduce\",\"backend\":\"native\",\"world\":%d,\"bytes\":%zu,\"dtype\":\"f32\",\"buffers\":"
           "\"%s\","
           "\"usec_median\":%.3f,\"usec_min\":%.3f,\"algbw_GBps\":%.3f}\n",
           tt_get_world_size(group), bytes, s->plain ? "plain" : "symmetric", median, usec[0],
           (double)bytes / median / 1e3);
    fflush(stdout);
    return TT_OK;
}

static tt_status measure_all(tt_group *group, const settings *s) {
    size_t largest = 0;
    void *buf = NULL;
    for (int i = 0; i < s->size_count; i++)
        largest = s->sizes[i] > largest ? s->sizes[i] : largest;
    tt_status status = s->plain ? TT_OK : tt_group_alloc(group, largest, &buf);
    if (s->plain && !(buf = calloc(1, largest))) {
        fprintf(stderr, "tutti bench: no memory for %zu bytes\n", largest);
        return TT_ERR_MEMORY;
    }
    for (int i = 0; i < s->size_count && !status; i++)
        status = measure(group, s, buf, s->sizes[i]);
    if (s->plain)
        free(buf);
    return status;
}

static int run_rank(const settings *s) {
    tt_group *group = NULL;
    const char *rank = getenv("RANK"), *world = getenv("WORLD_SIZE");
    if (!s->no_pin && rank && world) /* before the group is made, which looks at the ranks' CPUs */
        pin(atoi(rank), atoi(world));
    tt_status status = tt_init_process_group(&group);
    if (!status)
        status = measure_all(group, s);
    if (status)
        tt_report();
    tt_destroy_process_group(group);
    return status ? TT__EXIT_FAILED : TT__EXIT_OK;
}

static int parse_flag(int c, char *value, settings *s) {
    switch (c) {
    case 'w':
        return (int)tt__parse_i64("--world", value, 1, 64, &s->world);
    case 'i':
        return (int)tt__parse_i64("--iterations", value, 1, 100000000, &s->iterations);
    case 's':
        return (int)parse_sizes(value, s);
    case 'b':
        s->plain = !strcmp(value, "plain");
        return !s->plain && strcmp(value, "symmetric") != 0;
    default: /* 'n' */
        s->no_pin = true;
        return 0;
    }
}

int tt__bench_all_reduce(int argc, char **argv) {
    static const struct option options[] = {{"world", required_argument, NULL, 'w'},
                                            {"sizes", required_argument, NULL, 's'},
                                            {"buffers", required_argument, NULL, 'b'},
                                            {"iterations", required_argument, NULL, 'i'},
                                            {"no-pin", no_argument, NULL, 'n'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    settings s = {
        .world = 2, .sizes = {8, 1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20}, .size_count = 8};
    const char *flag;
    char value[1024];
    for (int c; (c = tt__cli_next_flag("bench all_reduce", argc, argv, options, &flag)) != -1;) {
        if (c == '?')
            return TT__EXIT_USAGE;
        if (c == 'h')
            return help();
        snprintf(value, sizeof value, "%s", optarg ? optarg : ""); /* argv stays whole: it is handed on to the ranks */
        if (parse_flag(c, value, &s))
            return tt__cli_usage_error("bench all_reduce", "%s: not understood: \"%s\"", flag, optarg);
    }
    return tt__bench_is_rank() || getenv("RANK") ? run_rank(&s) : tt__bench_spawn((int)s.world, argc, argv);
}
