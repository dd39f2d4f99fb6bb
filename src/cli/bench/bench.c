/* tutti bench: the table of benchmarks, and those of collectives and messages, one for each operation. */
#include "cli/bench/bench.h"

#include "base/error.h"
#include "base/text/format.h"
#include "comm/collective/choose.h"
#include "comm/op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_SIZE = 48 };

typedef struct settings {
    tt__bench_flags flags;
    const tt__bench_call *call;
    tt_dtype dtype;
    tt_reduce_op op;
    char backend[256], algorithm[64]; /* "": the library's default */
    bool plain, async, list;
} settings;

static const tt__flag collective_flags[] = {
    TT__BENCH_FLAG_WORLD,
    TT__BENCH_FLAG_SIZES("bytes, with K, M or G (default 8,1K,16K,64K,256K,1M,4M,16M): of the buffer, or of one block "
                         "where every rank has its own"),
    TT__VALUE("buffers", 'b', "KIND", "symmetric (default) or plain", .offer = "symmetric plain"),
    TT__VALUE("dtype", 'd', "TYPE", "f32 (default), f64, f16, bf16, i8, u8, i16, i32, i64 or bool",
              .offer = "f32 f64 f16 bf16 i8 u8 i16 i32 i64 bool"),
    TT__VALUE("op", 'o', "OP", "sum (default), avg, product, min, max, band, bor, bxor or premul_sum",
              .offer = "sum avg product min max band bor bxor premul_sum"),
    TT__BENCH_FLAG_TRANSPORT,
    TT__BENCH_FLAG_WIRE,
    TT__VALUE("backend", 'e', "NAME", "native (default), mpi, gloo, or the path of a plug-in",
              .offer = "native mpi gloo"),
    TT__VALUE("algorithm", 'g', "NAME", "force this one where it serves"),
    TT__SWITCH("list-algorithms", 'l', "print the algorithms there are"),
    TT__SWITCH("async", 'a', "several calls under way at a time"),
    TT__BENCH_FLAG_ITERATIONS,
    TT__BENCH_FLAG_NO_PIN,
    {0}};

static int collective_main(int argc, char **argv);

/* Make the command that measures one operation; its name is kept in `name`. */
static tt__command collective_command(const tt__bench_call *call, char name[NAME_SIZE]) {
    snprintf(name, NAME_SIZE, "bench %s", call->name);
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

static tt_status parse_dtype(const char *name, tt_dtype *dtype) {
    for (int i = 0; tt_dtype_size((tt_dtype)i); i++)
        if (!strcmp(tt_dtype_name((tt_dtype)i), name)) {
            *dtype = (tt_dtype)i;
            return TT_OK;
        }
    return TT_ERR_INVALID;
}

static tt_status parse_op(const char *name, tt_reduce_op *op) {
    for (int i = 0; i < TT__REDUCE_OPS; i++)
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

static tt_status take_collective_flag(int c, char *value, void *into) {
    settings *s = into;
    switch (c) {
    case 'b':
        s->plain = !strcmp(value, "plain");
        return s->plain || !strcmp(value, "symmetric") ? TT_OK : TT_ERR_INVALID;
    case 'd':
        return parse_dtype(value, &s->dtype);
    case 'o':
        return parse_op(value, &s->op);
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
    default:
        return tt__bench_flag_take(c, value, 1, &s->flags);
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

/* Return the algorithm of the last call: a forced one is not used where it can't serve. "auto": another engine
 * chose. */
static const char *algorithm_of(const settings *s, const tt_group *group) {
    const tt__recorder *recorder = group->native ? &tt__world_control(group->native->world)->recorder : NULL;
    tt__call_record record = {0};
    uint32_t last = 0;
    for (uint32_t i = 0; recorder && i < TT__RECORDS; i++) {
        tt__call_record other;
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
              *s->flags.transport ? s->flags.transport : "auto", tt__bench_wire(b->group), algorithm);
    if (s->call->reduces)
        printf(",\"op\":\"%s\"", tt_reduce_op_name(s->op));
    printf("%s}\n", s->async ? ",\"async\":true" : "");
    fflush(stdout);
}

static tt_status measure_size(const settings *s, tt__bench_buffers *b, size_t bytes) {
    double usec[TT__BENCH_REPETITIONS];
    const tt__bench_times times = {.async = s->async, .iterations = s->flags.iterations, .repetition_ns = 60000000};
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

static tt_status measure_sizes(tt_group *group, const void *settings_) {
    const settings *s = settings_;
    tt__bench_buffers b = {.group = group, .dtype = s->dtype, .op = s->op, .plain = s->plain};
    int sizes = s->call->send_blocks ? s->flags.size_count : 1; /* a barrier has none */
    size_t largest = 0;
    for (int i = 0; i < sizes; i++)
        largest = s->flags.sizes[i] > largest ? s->flags.sizes[i] : largest;
    tt_status status = tt__bench_buffers_make(&b, s->call, round_size(s, largest));
    for (int i = 0; i < sizes && !status; i++)
        status = measure_size(s, &b, s->call->send_blocks ? round_size(s, s->flags.sizes[i]) : 0);
    tt__bench_buffers_release(&b);
    return status;
}

static int collective_main(int argc, char **argv) {
    settings s = {.flags = {.world = 2,
                            .sizes = {8, 1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20},
                            .size_count = 8}};
    for (int i = 0; (s.call = tt__bench_call_at(i)) && strcmp(s.call->name, argv[0]) != 0; i++)
        ;
    char name[NAME_SIZE];
    const tt__command command = collective_command(s.call, name);
    int code = tt__bench_flags_read(&command, argc, argv, take_collective_flag, &s);
    if (code >= 0)
        return code;
    if (*s.algorithm && !has_algorithm(s.call->name, s.algorithm))
        return refuse_algorithm(name, s.call->name, s.algorithm);
    if (s.list)
        return print_algorithms(argv[0]);
    if (!tt__bench_is_member())
        return tt__spawn_ranks((int)s.flags.world, "bench", argc, argv);
    char algorithms[128];
    snprintf(algorithms, sizeof algorithms, "%s=%s", s.call->name, s.algorithm);
    return tt__bench_run_rank(&s.flags, s.backend, *s.algorithm ? algorithms : NULL, measure_sizes, &s);
}

/* ---- the table */

/* Return the subcommands. Those of operations are made by the first call. */
static const tt__command *const *bench_parts(void) {
    static const tt__command *parts[TT__PARTS_MAX + 1];
    static tt__command made[TT__PARTS_MAX];
    static char names[TT__PARTS_MAX][NAME_SIZE];
    static const tt__command *const others[] = {&tt__bench_store, &tt__bench_rpc, &tt__bench_startup, &tt__bench_step,
                                                NULL};
    int n = 0;
    if (*parts)
        return parts;
    for (const tt__bench_call *call; n < TT__PARTS_MAX - 4 && (call = tt__bench_call_at(n)); n++) {
        made[n] = collective_command(call, names[n]);
        parts[n] = &made[n];
    }
    for (int i = 0; others[i]; i++)
        parts[n++] = others[i];
    return parts;
}

static int bench_main(int argc, char **argv) {
    if (argc < 2)
        return tt__cli_usage_error("bench", "expected the name of a benchmark");
    return tt__cli_dispatch(&tt__cmd_bench, "benchmark", argc, argv);
}

const tt__command tt__cmd_bench = {
    .name = "bench",
    .what = "measure collectives, RPC, training steps, the store, start-up",
    .usage = "NAME [FLAGS]",
    .text =
        "Measure one thing and print JSON, one object a line. On a shared machine only ratios between runs mean much.",
    .notes = "'tutti bench NAME --help' lists the flags of each.",
    .parts = bench_parts,
    .run = bench_main,
};
