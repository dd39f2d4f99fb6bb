/* tutti tune: measure the algorithms of every operation where the ranks are, and write the table that chooses among
 * them. */
#include "base/bytes.h"
#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/files/planted.h"
#include "base/text/format.h"
#include "cli/bench/bench.h"
#include "cli/cli.h"
#include "comm/collective/choose.h"
#include "comm/group.h"
#include "comm/reduce/reduce_tree.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TUNE_SIZES = 16, TUNE_ALGORITHMS = 16 };

/* Times of the algorithms of one operation. */
typedef struct tune_times {
    tt_op op;
    int ranks, hosts;
    int sizes, algorithms;
    size_t bytes[TUNE_SIZES]; /* ascending */
    const tt__algorithm *of[TUNE_ALGORITHMS];
    double usec[TUNE_SIZES][TUNE_ALGORITHMS];
} tune_times;

typedef struct settings {
    tt__bench_flags flags;
    char only[256], out[PATH_MAX];
} settings;

static const tt__flag tune_flags[] = {
    TT__VALUE("world", 'w', "N", "ranks to start (default 2)"),
    TT__VALUE("transport", 't', "NAME", "auto, or tcp (default where it starts the ranks itself)", .offer = "auto tcp"),
    TT__VALUE("only", 'o', "LIST", "these operations, \"all_reduce,broadcast\" (default all)"),
    TT__VALUE("out", 'p', "PATH",
              "the table (default $TT_TUNING, $XDG_CONFIG_HOME/tutti/tuning or ~/.config/tutti/tuning)",
              .offer = TT__OFFER_FILES),
    TT__VALUE("sizes", 's', "LIST", "ascending bytes, with K, M or G (default 8,256,1K,4K,16K,64K,256K,1M,4M)"),
    {0}};

static int tune_main(int argc, char **argv);

const tt__command tt__cmd_tune = {
    .name = "tune",
    .what = "measure the algorithms between hosts, write the table that chooses",
    .usage = "[FLAGS]",
    .text =
        "Measure every algorithm on messages, at each size, and write the table by which they are chosen. Under "
        "'tutti run [...] tutti tune' among its ranks and hosts; alone among ranks that it starts on this host. Prints "
        "what it measures as JSON.",
    .flags = tune_flags,
    .run = tune_main,
};

/* ---- from times to rules ---- */

/* Against noise: a winner must take less than this part of the time of the winner before. */
static const double hardly = 0.95;

static int fastest_algorithm(const tune_times *times, int size, int before) {
    int best = before;
    for (int a = 0; a < times->algorithms; a++)
        if (!times->of[a]->own_order &&
            (best < 0 || times->usec[size][a] < times->usec[size][best] * (best == before ? hardly : 1)))
            best = a;
    return best;
}

static void put_rule(tt__bytes *text, const tune_times *times, int algorithm, size_t up_to) {
    char line[256], bytes[32] = "*";
    if (up_to)
        snprintf(bytes, sizeof bytes, "%zu", up_to);
    int n = snprintf(line, sizeof line, "%-20s  %-5d  %-5d  %-9s  %s\n", tt_op_name(times->op), times->ranks,
                     times->hosts, bytes, times->of[algorithm]->name);
    tt__bytes_put(text, line, (size_t)n);
}

/* Add the rules for one operation: the fastest algorithm up to each size. Algorithms with a summation order of their
 * own never win, nor do those that are hardly faster than the winner at the size before. */
static void put_rules(tt__bytes *text, const tune_times *times) {
    int before = -1;
    for (int size = 0; size < times->sizes; size++) {
        int now = fastest_algorithm(times, size, before);
        if (before >= 0 && now != before) /* between the two sizes: their geometric mean if sizes grow fourfold */
            put_rule(text, times, before, times->bytes[size - 1] + (times->bytes[size] - times->bytes[size - 1]) / 3);
        before = now;
    }
    if (before >= 0)
        put_rule(text, times, before, 0);
}

static bool is_replaced(const char *line, const bool ops[TT_OPS], int ranks, int hosts) {
    char op[32], on_ranks[16], on_hosts[16], expected_ranks[16], expected_hosts[16];
    if (sscanf(line, "%31s %15s %15s", op, on_ranks, on_hosts) != 3)
        return true; /* empty */
    snprintf(expected_ranks, sizeof expected_ranks, "%d", ranks);
    snprintf(expected_hosts, sizeof expected_hosts, "%d", hosts);
    for (int i = 0; i < TT_OPS; i++)
        if (ops[i] && !strcmp(op, tt_op_name((tt_op)i)))
            return !strcmp(on_ranks, expected_ranks) && !strcmp(on_hosts, expected_hosts);
    return false;
}

/* Add the lines of `previous`, without comments and without rules for one of `ops` with the same ranks and hosts. */
static void put_previous_rules(tt__bytes *text, const char *previous, const bool ops[TT_OPS], int ranks, int hosts) {
    while (*previous) {
        char line[256];
        size_t n = strcspn(previous, "\n");
        snprintf(line, sizeof line, "%.*s", (int)n, previous);
        line[strcspn(line, "#")] = '\0';
        if (!is_replaced(line, ops, ranks, hosts)) {
            tt__bytes_put(text, line, strlen(line));
            tt__bytes_put(text, "\n", 1);
        }
        previous += n + (previous[n] == '\n');
    }
}

/* ---- measuring */

/* Force an algorithm: the world's table gets one more line at its top, for every call of its op. */
static void force_algorithm(tt_group *group, const tt__tuning *usual, const tt__algorithm *algorithm) {
    tt__tuning *tuning = group->native->world->tuning;
    *tuning = *usual;
    tuning->count = usual->count < TT__RULES ? usual->count + 1 : TT__RULES;
    memmove(tuning->rules + 1, usual->rules, (tuning->count - 1) * sizeof *tuning->rules);
    tuning->rules[0] = (tt__algorithm_rule){algorithm, {0, UINT32_MAX}, {0, UINT32_MAX}, UINT64_MAX};
}

static void tune_print(const tune_times *times, int size, int algorithm) {
    tt__print(stdout,
              "{\"tune\":\"%s\",\"algorithm\":\"%s\",\"world\":%d,\"hosts\":%d,\"bytes\":%zu,\"usec_min\":%.3f}\n",
              tt_op_name(times->op), times->of[algorithm]->name, times->ranks, times->hosts, times->bytes[size],
              times->usec[size][algorithm]);
    fflush(stdout);
}

/* Measure one algorithm: the fastest of many short repetitions, since other work on the machine disturbs longer
 * ones. */
static tt_status measure_one(tt__bench_buffers *b, const tt__bench_call *call, int64_t count, double *usec) {
    const tt__bench_times how = {.repetition_ns = 2000000};
    double found[TT__BENCH_REPETITIONS];
    *usec = 0;
    for (int i = 0; i < 3; i++) {
        TT__TRY(tt__bench_time(call, b, count, &how, found));
        *usec = i && *usec < found[0] ? *usec : found[0];
    }
    return TT_OK;
}

static tt_status tune_measure_size(tt__bench_buffers *b, const tt__bench_call *call, const tt__tuning *usual,
                                   tune_times *times, int size) {
    for (int a = 0; a < times->algorithms; a++) {
        force_algorithm(b->group, usual, times->of[a]);
        TT__TRY(measure_one(b, call, times->bytes[size] / 4, &times->usec[size][a]));
        if (!b->group->rank)
            tune_print(times, size, a);
    }
    return TT_OK;
}

/* Find the algorithms that serve here. */
static void find_algorithms(const tt_group *group, tune_times *times) {
    const int64_t none[TT__TREE_MAX] = {0};
    const tt_call call = {.op = times->op, .dtype = TT_F32, .count = 1, .recv_counts = none};
    for (size_t i = 0; i < tt__algorithm_count && times->algorithms < TUNE_ALGORITHMS; i++) {
        const tt__algorithm *a = tt__algorithms[i];
        if (a->op == times->op && !a->shared && (!a->serves || a->serves(group, &call)))
            times->of[times->algorithms++] = a;
    }
}

/* Fill in the sizes to measure: one for a barrier and for all_to_all_v, of which no rank knows all sizes; up to 1 MiB
 * for calls with a block for each rank. */
static void fill_sizes(const settings *s, const tt__bench_call *call, tune_times *times) {
    bool blocks = call->send_blocks == TT__BENCH_WORLD || call->recv_blocks == TT__BENCH_WORLD;
    bool none = !call->send_blocks || times->op == TT_OP_ALL_TO_ALL_V;
    times->sizes = none;
    for (int i = 0; i < s->flags.size_count && !none; i++)
        if (!blocks || s->flags.sizes[i] <= 1 << 20)
            times->bytes[times->sizes++] = (s->flags.sizes[i] + 3) & ~(size_t)3;
}

static tt_status measure_op(tt_group *group, const tt__bench_call *call, const tt__tuning *usual, tune_times *times) {
    tt__bench_buffers b = {.group = group, .dtype = TT_F32, .op = TT_SUM, .plain = true};
    tt_status status = tt__bench_buffers_make(&b, call, times->bytes[times->sizes - 1]);
    for (int i = 0; i < times->sizes && !status; i++)
        status = tune_measure_size(&b, call, usual, times, i);
    tt__bench_buffers_release(&b);
    *group->native->world->tuning = *usual;
    return status;
}

static tt_status find_op(const char *name, tt_op *op) {
    for (int i = 0; i < TT_OPS; i++)
        if (!strcmp(tt_op_name((tt_op)i), name)) {
            *op = (tt_op)i;
            return TT_OK;
        }
    return TT_ERR_NOT_FOUND;
}

/* "all_reduce" in "broadcast,all_reduce"; in an empty list everything is. */
static bool list_names(const char *list, const char *name) {
    size_t n = strlen(name);
    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',')
        if (!strncmp(at, name, n) && (at[n] == ',' || !at[n]))
            return true;
    return !*list;
}

static bool has_algorithms(const char *name, size_t length) {
    for (size_t i = 0; i < tt__algorithm_count; i++) {
        const char *op = tt_op_name(tt__algorithms[i]->op);
        if (!tt__algorithms[i]->shared && strlen(op) == length && !memcmp(op, name, length))
            return true;
    }
    return false;
}

/* Do all operations in `list` have algorithms on messages? */
static bool all_have_algorithms(const char *list) {
    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',')
        if (!has_algorithms(at, strcspn(at, ",")))
            return false;
    return *list;
}

/* Measure all operations that have a choice, and write their rules into `text`. */
static tt_status tune_measure(tt_group *group, const settings *s, tt__bytes *text, bool measured[TT_OPS]) {
    tt__tuning *usual = malloc(sizeof *usual);
    tt_status status = usual ? TT_OK : tt__fail(TT_ERR_MEMORY, "no memory for a table of algorithms");
    if (usual)
        *usual = *group->native->world->tuning;
    for (int i = 0; tt__bench_call_at(i) && !status; i++) {
        const tt__bench_call *call = tt__bench_call_at(i);
        tune_times times = {.ranks = group->size, .hosts = (int)tt__hosts_of(group)};
        if (!list_names(s->only, call->name) || find_op(call->name, &times.op))
            continue;
        find_algorithms(group, &times);
        fill_sizes(s, call, &times);
        if (times.algorithms < 2 || !times.sizes)
            continue;
        status = measure_op(group, call, usual, &times);
        measured[times.op] = true;
        put_rules(text, &times);
    }
    free(usual);
    return status;
}

/* ---- the table */

static tt_status make_folder_of(const char *path) {
    const char *name;
    char *folder = tt__path_split(path, &name);
    tt_status status = folder ? tt__make_folders(folder) : tt__fail(TT_ERR_MEMORY, "%s: no memory for its name", path);
    free(folder);
    return status;
}

static tt_status tune_write(const char *path, const tt__bytes *text) {
    tt__atomic_file file;
    TT__TRY(make_folder_of(path));
    TT__TRY(tt__atomic_open(&file, path));
    tt_status status = tt__atomic_write(&file, text->data, text->size);
    if (!status)
        return tt__atomic_commit(&file);
    tt__atomic_abort(&file);
    return status;
}

static tt_status write_table(const char *path, const tt__bytes *rules, const bool measured[TT_OPS],
                             const tt_group *group) {
    static const char head[] = "# made by tutti tune\n# op                  ranks  hosts  bytes      algorithm\n";
    tt__bytes text = {0};
    char *previous = NULL;
    tt_status status = tt__tuning_text("", &previous);
    tt__bytes_put(&text, head, strlen(head));
    tt__bytes_put(&text, rules->data, rules->size);
    if (!status)
        put_previous_rules(&text, previous, measured, group->size, (int)tt__hosts_of(group));
    if (!status && (text.failed || rules->failed))
        status = tt__fail(TT_ERR_MEMORY, "no memory for a table of algorithms");
    if (!status)
        status = tune_write(path, &text);
    if (!status)
        tt__cli_print(stderr, "tutti tune: wrote %s\n", path);
    free(previous);
    tt__bytes_free(&text);
    return status;
}

static bool find_path(const settings *s, char *path) {
    const char *named = *s->out ? s->out : secure_getenv("TT_TUNING");
    if (named && *named)
        return snprintf(path, PATH_MAX, "%s", named) < PATH_MAX;
    return tt__tuning_users_path(path, PATH_MAX);
}

static tt_status tune_run(tt_group *group, const void *settings_) {
    const settings *s = settings_;
    bool measured[TT_OPS] = {false};
    char path[PATH_MAX];
    tt__bytes rules = {0};
    if (!find_path(s, path))
        return tt__fail(TT_ERR_INVALID,
                        "expected --out, TT_TUNING, XDG_CONFIG_HOME or HOME: where shall the table go?");
    if (group->native->shared)
        return tt__fail(TT_ERR_STATE,
                        "these ranks share memory: nothing to choose. --transport tcp measures what they would do "
                        "over TCP");
    tt_status status = TT_OK;
    if (!group->rank) {
        status = make_folder_of(path);
        if (!status)
            status = tt__atomic_check(path);
    }
    if (!status)
        status = tune_measure(group, s, &rules, measured);
    if (!status && !group->rank)
        status = write_table(path, &rules, measured, group);
    tt__bytes_free(&rules);
    return status;
}

/* Check that the sizes ascend, as the limits in a table of rules do. */
static tt_status check_tune_sizes(const tt__bench_flags *f) {
    for (int i = 1; i < f->size_count; i++)
        if (f->sizes[i] <= f->sizes[i - 1])
            return TT_ERR_INVALID;
    return f->size_count <= TUNE_SIZES ? TT_OK : TT_ERR_INVALID;
}

static tt_status take_tune_flag(int c, char *value, void *into) {
    settings *s = into;
    switch (c) {
    case 'o':
        snprintf(s->only, sizeof s->only, "%s", value);
        return strlen(value) < sizeof s->only && all_have_algorithms(value) ? TT_OK : TT_ERR_INVALID;
    case 'p':
        snprintf(s->out, sizeof s->out, "%s", value);
        return TT_OK;
    default:
        if (c == 't' && !strcmp(value, "shm"))
            return TT_ERR_INVALID;
        TT__TRY(tt__bench_flag_take(c, value, 2, &s->flags));
        return check_tune_sizes(&s->flags);
    }
}

static int tune_main(int argc, char **argv) {
    settings s = {.flags = {.world = 2,
                            .sizes = {8, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20},
                            .size_count = 9}};
    int code = tt__bench_flags_read(&tt__cmd_tune, argc, argv, take_tune_flag, &s);
    if (code >= 0)
        return code;
    if (tt__bench_is_rank() && !*s.flags.transport)
        snprintf(s.flags.transport, sizeof s.flags.transport, "tcp");
    return tt__bench_is_member() ? tt__bench_run_rank(&s.flags, "", NULL, tune_run, &s)
                                 : tt__spawn_ranks((int)s.flags.world, NULL, argc, argv);
}
