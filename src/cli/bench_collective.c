/* tutti bench NAME: the time of one collective, or of a message, by size. */
#include "base/error.h"
#include "base/format.h"
#include "base/parse.h"
#include "cli/bench.h"
#include "cli/bench_calls.h"
#include "cli/cli.h"
#include "cli/spawn.h"
#include "comm/collective/algorithms.h"
#include "net/wire_choice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SIZES = 64 };

typedef struct settings {
    const tt__bench_call *call;
    int64_t world, iterations;
    size_t sizes[MAX_SIZES];
    int size_count;
    tt_dtype dtype;
    tt_reduce_op op;
    char backend[256], transport[16], algorithm[64]; /* "": the library's default */
    bool plain, no_pin, async, list;
} settings;

static const tt__flag collective_flags[] = {
    {.name = "world", .id = 'w', .value = "N", .what = "ranks to start (default 2)"},
    {.name = "sizes",
     .id = 's',
     .value = "LIST",
     .what = "bytes, with K, M or G (default 8,1K,16K,64K,256K,1M,4M,16M): of the buffer, or of one block where every "
             "rank has its own"},
    {.name = "buffers", .id = 'b', .value = "KIND", .what = "symmetric (default) or plain", .offer = "symmetric plain"},
    {.name = "dtype",
     .id = 'd',
     .value = "TYPE",
     .what = "f32 (default), f64, f16, bf16, i8, u8, i16, i32, i64 or bool",
     .offer = "f32 f64 f16 bf16 i8 u8 i16 i32 i64 bool"},
    {.name = "op",
     .id = 'o',
     .value = "OP",
     .what = "sum (default), avg, product, min, max, band, bor, bxor or premul_sum",
     .offer = "sum avg product min max band bor bxor premul_sum"},
    {.name = "transport", .id = 't', .value = "NAME", .what = "auto (default), shm or tcp", .offer = "auto shm tcp"},
    {.name = "wire",
     .id = 'W',
     .value = "HOW",
     .what = "of TCP: sealed, plain or tls (TT_WIRE; default on one machine: plain)",
     .offer = "sealed plain tls"},
    {.name = "backend",
     .id = 'e',
     .value = "NAME",
     .what = "native (default), mpi, gloo, or the path of a plug-in",
     .offer = "native mpi gloo"},
    {.name = "algorithm", .id = 'g', .value = "NAME", .what = "force this one where it serves"},
    {.name = "list-algorithms", .id = 'l', .what = "print the algorithms there are"},
    {.name = "async", .id = 'a', .what = "several calls under way at a time"},
    {.name = "iterations", .id = 'i', .value = "N", .what = "calls in a repetition (default by time)"},
    {.name = "no-pin", .id = 'n', .what = "don't tie each rank to a CPU of its own"},
    {0}};

static int collective_main(int argc, char **argv);

tt__command tt__bench_collective(const tt__bench_call *call, char name[TT__BENCH_NAME_SIZE]) {
    snprintf(name, TT__BENCH_NAME_SIZE, "bench %s", call->name);
    return (tt__command){.name = name,
                         .what = call->what,
                         .usage = "[FLAGS]",
                         .text =
                             "Time of the operation, median and least of several repetitions, as rank 0 sees it: one "
                             "JSON object a size.",
                         .flags = collective_flags,
                         .run = collective_main};
}

/* ---- flags */

static tt_status parse_collective_sizes(char *list, settings *s) {
    char *rest = NULL;
    s->size_count = 0;
    for (char *text = strtok_r(list, ",", &rest); text; text = strtok_r(NULL, ",", &rest)) {
        tt_status status =
            s->size_count < MAX_SIZES ? tt__bench_parse_size(text, &s->sizes[s->size_count]) : TT_ERR_INVALID;
        if (status)
            return status;
        s->size_count++;
    }
    return s->size_count ? TT_OK : TT_ERR_INVALID;
}

static tt_status parse_dtype(const char *name, tt_dtype *dtype) {
    for (int i = 0; tt_dtype_size((tt_dtype)i); i++)
        if (!strcmp(tt_dtype_name((tt_dtype)i), name)) {
            *dtype = (tt_dtype)i;
            return TT_OK;
        }
    return TT_ERR_INVALID;
}

static tt_status parse_op(const char *name, tt_reduce_op *op) {
    for (int i = 0; i <= TT_PREMUL_SUM; i++)
        if (!strcmp(tt_reduce_op_name((tt_reduce_op)i), name)) {
            *op = (tt_reduce_op)i;
            return TT_OK;
        }
    return TT_ERR_INVALID;
}

static bool has_algorithm(const char *op, const char *name) {
    for (size_t i = 0; i < tt__algorithm_count; i++)
        if (!strcmp(tt_op_name(tt__algorithms[i]->op), op) && !strcmp(tt__algorithms[i]->name, name))
            return true;
    return false;
}

static int refuse_algorithm(const char *command, const char *op, const char *name) {
    char names[256] = "";
    size_t n = 0;
    for (size_t i = 0; i < tt__algorithm_count && n < sizeof names; i++)
        if (!strcmp(tt_op_name(tt__algorithms[i]->op), op))
            n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", tt__algorithms[i]->name);
    return tt__cli_usage_error(command, "--algorithm: %s has no \"%s\"; expected one of %s", op, name, names);
}

static tt_status keep_value(char *to, size_t size, const char *value) {
    int n = snprintf(to, size, "%s", value);
    return n > 0 && (size_t)n < size ? TT_OK : TT_ERR_INVALID;
}

static tt_status parse_collective_flag(int c, char *value, settings *s) {
    tt__wire wire;
    switch (c) {
    case 'w':
        return tt__parse_i64("--world", value, 1, 64, &s->world);
    case 'i':
        return tt__parse_i64("--iterations", value, 1, 100000000, &s->iterations);
    case 's':
        return parse_collective_sizes(value, s);
    case 'b':
        s->plain = !strcmp(value, "plain");
        return s->plain || !strcmp(value, "symmetric") ? TT_OK : TT_ERR_INVALID;
    case 'd':
        return parse_dtype(value, &s->dtype);
    case 'o':
        return parse_op(value, &s->op);
    case 't':
        return strcmp(value, "auto") && strcmp(value, "shm") && strcmp(value, "tcp")
                   ? TT_ERR_INVALID
                   : keep_value(s->transport, sizeof s->transport, value);
    case 'W':
        return tt__wire_named(value, &wire) && !setenv("TT_WIRE", value, 1) ? TT_OK : TT_ERR_INVALID;
    case 'e':
        return keep_value(s->backend, sizeof s->backend, value);
    case 'g':
        return keep_value(s->algorithm, sizeof s->algorithm, value);
    case 'a':
        s->async = true;
        return TT_OK;
    case 'l':
        s->list = true;
        return TT_OK;
    default: /* 'n' */
        s->no_pin = true;
        return TT_OK;
    }
}

static int print_algorithms(const char *op) {
    for (size_t i = 0; i < tt__algorithm_count; i++) {
        const tt__algorithm *a = tt__algorithms[i];
        if (!strcmp(tt_op_name(a->op), op))
            printf("{\"op\":\"%s\",\"algorithm\":\"%s\",\"on\":\"%s\",\"order\":\"%s\"}\n", op, a->name,
                   a->shared ? "shared memory" : "messages", a->own_order ? "own" : "documented");
    }
    return TT__EXIT_OK;
}

/* ---- measuring */

/* Return the algorithm of the last call: a forced one is passed over where it can't serve. "auto": another engine chose
 * it. */
static const char *algorithm_of(const settings *s, const tt_group *group) {
    const tt__recorder *recorder = group->native ? &tt__world_control(group->native->world)->recorder : NULL;
    tt__record record = {0};
    uint32_t last = 0;
    for (uint32_t i = 0; recorder && i < TT__RECORDS; i++) {
        tt__record other;
        uint32_t number = atomic_load_explicit(&recorder->records[i].number, memory_order_relaxed);
        if (number > last && tt__record_read(recorder, number, &other) && other.group == group->id &&
            !strcmp(tt_op_name((tt_op)other.op), s->call->name)) {
            record = other;
            last = number;
        }
    }
    if (!last)
        return "auto";
    if (!record.algorithm) /* all_reduce at once */
        return record.flags & TT__RECORD_SYMMETRIC ? "symmetric" : "inline";
    return tt__algorithm_name(record.algorithm);
}

/* Return the wire of the TCP links; "none": there are none, or another engine has them. */
static const char *wire_of(const tt_group *group) {
    return group->native && group->native->world->messages ? tt__messages_wire(group->native->world->messages) : "none";
}

static void collective_print(const settings *s, const tt__bench_buffers *b, size_t bytes, double *usec) {
    double median = usec[TT__BENCH_REPETITIONS / 2];
    const char *algorithm = algorithm_of(s, b->group);
    if (*s->algorithm && strcmp(s->algorithm, algorithm) != 0)
        fprintf(stderr, "tutti bench %s: %s can't serve %zu bytes here; this is %s\n", s->call->name, s->algorithm,
                bytes, algorithm);
    tt__print(stdout,
              "{\"bench\":\"%s\",\"backend\":\"%s\",\"world\":%d,\"bytes\":%zu,\"dtype\":\"%s\",\"buffers\":\"%s\","
              "\"usec_median\":%.3f,\"usec_min\":%.3f,\"algbw_GBps\":%.3f,\"transport\":\"%s\",\"wire\":\"%s\","
              "\"algorithm\":\"%s\"",
              s->call->name, tt_get_backend(b->group), tt_get_world_size(b->group), bytes, tt_dtype_name(s->dtype),
              s->plain ? "plain" : "symmetric", median, usec[0], (double)bytes / median / 1e3,
              *s->transport ? s->transport : "auto", wire_of(b->group), algorithm);
    if (s->call->reduces)
        printf(",\"op\":\"%s\"", tt_reduce_op_name(s->op));
    printf("%s}\n", s->async ? ",\"async\":true" : "");
    fflush(stdout);
}

static tt_status measure_size(const settings *s, tt__bench_buffers *b, size_t bytes) {
    double usec[TT__BENCH_REPETITIONS];
    const tt__bench_times times = {.async = s->async, .iterations = s->iterations, .repetition_ns = 60000000};
    TT__TRY(tt__bench_time(s->call, b, (int64_t)(bytes / tt_dtype_size(s->dtype)), &times, usec));
    if (!tt_get_rank(b->group))
        collective_print(s, b, bytes, usec);
    return TT_OK;
}

/* Round bytes to whole elements, at least one. */
static size_t round_size(const settings *s, size_t bytes) {
    size_t size = tt_dtype_size(s->dtype);
    return (bytes + size - 1) / size * size;
}

static tt_status measure_sizes(tt_group *group, const settings *s) {
    tt__bench_buffers b = {.group = group, .dtype = s->dtype, .op = s->op, .plain = s->plain};
    int sizes = s->call->send_blocks ? s->size_count : 1; /* a barrier has none */
    size_t largest = 0;
    for (int i = 0; i < sizes; i++)
        largest = s->sizes[i] > largest ? s->sizes[i] : largest;
    tt_status status = tt__bench_buffers_make(&b, s->call, round_size(s, largest));
    for (int i = 0; i < sizes && !status; i++)
        status = measure_size(s, &b, s->call->send_blocks ? round_size(s, s->sizes[i]) : 0);
    tt__bench_buffers_release(&b);
    return status;
}

static const char *or_null(const char *text) { return *text ? text : NULL; }

static int run_collective_rank(const settings *s) {
    tt_group *group = NULL;
    char algorithms[128];
    if (!s->no_pin)
        tt__bench_pin();
    snprintf(algorithms, sizeof algorithms, "%s=%s", s->call->name, s->algorithm);
    tt_status status = tt_init_process_group(&group, .backend = or_null(s->backend), .transport = or_null(s->transport),
                                             .algorithms = *s->algorithm ? algorithms : NULL);
    if (!status)
        status = measure_sizes(group, s);
    if (status)
        tt_report();
    tt_destroy_process_group(group);
    return status ? TT__EXIT_FAILED : TT__EXIT_OK;
}

static int collective_main(int argc, char **argv) {
    settings s = {.world = 2,
                  .sizes = {8, 1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20},
                  .size_count = 8,
                  .call = tt__bench_call_named(argv[0])};
    char name[TT__BENCH_NAME_SIZE], value[1024];
    const char *flag;
    const tt__command command = tt__bench_collective(s.call, name);
    for (int c; (c = tt__cli_next_flag(&command, argc, argv, &flag)) != -1;) {
        if (c == '?')
            return TT__EXIT_USAGE;
        if (c == 'h')
            return TT__EXIT_OK;
        snprintf(value, sizeof value, "%s", optarg ? optarg : ""); /* argv stays whole: the ranks get it */
        if (parse_collective_flag(c, value, &s))
            return tt__cli_usage_error(name, "%s: not understood: \"%s\"", flag, optarg);
    }
    if (*s.algorithm && !has_algorithm(s.call->name, s.algorithm))
        return refuse_algorithm(name, s.call->name, s.algorithm);
    if (s.list)
        return print_algorithms(argv[0]);
    return tt__bench_is_member() ? run_collective_rank(&s) : tt__bench_spawn((int)s.world, argc, argv);
}
