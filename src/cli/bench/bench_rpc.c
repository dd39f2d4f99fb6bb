/* tutti bench rpc: how long a call to another worker takes, beside send and recv of the same bytes. */
#include "base/error.h"
#include "base/machine/clock.h"
#include "base/text/format.h"
#include "base/text/parse.h"
#include "cli/bench/bench.h"
#include "cli/cli.h"

#include <tutti/rpc_training.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CELLS = 2 * TT__BENCH_SIZES + 2, UNDER_WAY = 64, WARM_CALLS = 3 };
static const int64_t REPETITION_NS = 60000000, MOST_CALLS = 200000;

/* What is measured. */
typedef enum what {
    THERE,          /* calls with an argument of this size, without a result */
    THERE_AND_BACK, /* calls that return their argument */
    MANY            /* calls a second, with UNDER_WAY of them at a time */
} what;

/* A line of the output. */
typedef struct cell {
    what what;
    size_t bytes;
    int64_t calls, messages; /* how many calls, and pairs of send and recv, make a repetition; 0: not chosen yet */
    double call_us[TT__BENCH_REPETITIONS], message_us[TT__BENCH_REPETITIONS]; /* the mean time of one */
} cell;

typedef struct rpc_settings {
    tt__bench_flags flags;
    int64_t workers; /* processes that call one; 0: ranks call each other instead */
    bool tensors;
} rpc_settings;

/* One rank's state. */
typedef struct rpc_bench {
    const rpc_settings *settings;
    tt_group *group;
    int rank, peer; /* peer: the rank that it measures with; -1: none */
    cell cells[MAX_CELLS];
    int cell_count;
    unsigned char *bytes; /* of the largest size */
    tt_rpc *rpc;          /* while there is one */
    tt_tensor *tensor;    /* of the present size */
} rpc_bench;

static const tt__flag rpc_flags[] = {
    TT__BENCH_FLAG_WORLD,
    TT__BENCH_FLAG_SIZES(
        "bytes of an argument, with K, M or G (default 64,1K,64K,1M,16M); calls without one come first"),
    TT__VALUE("values", 'v', "KIND", "bytes (default) or tensor", .offer = "bytes tensor"),
    TT__BENCH_FLAG_TRANSPORT,
    TT__BENCH_FLAG_WIRE,
    TT__BENCH_FLAG_ITERATIONS,
    TT__VALUE("workers", 'm', "N",
              "instead: N processes call one for 3 s, over TCP; what that takes it, and how many calls it serves"),
    TT__BENCH_FLAG_NO_PIN,
    {0}};

static int bench_rpc_main(int argc, char **argv);

const tt__command tt__bench_rpc = {
    .name = "bench rpc",
    .what = "calls to another worker, beside send and recv",
    .usage = "[FLAGS]",
    .text = "Time of a call, until its result is there, from rank 0 to 1, 2 to 3, ..., and of send and recv of as many "
            "bytes there and back, in turns: one JSON object a size, as rank 0 sees it. Calls a second with 64 under "
            "way come last.",
    .flags = rpc_flags,
    .run = bench_rpc_main,
};

/* ---- what is called */

static tt_status bench_take(tt_rpc_call *call) {
    (void)call;
    return TT_OK;
}
TT_RPC_FUNCTION_NAMED(bench_take, "tutti.bench.take", "(any... values)");

static tt_status bench_echo(tt_rpc_call *call) {
    tt_rpc_value value;
    TT__TRY(tt_rpc_take_arg(call, 0, &value));
    return tt_rpc_return(call, value);
}
TT_RPC_FUNCTION_NAMED(bench_echo, "tutti.bench.echo", "(any value) -> any");

static tt_rpc_value argument_of(const rpc_bench *b, size_t bytes) {
    return b->settings->tensors ? tt_rpc_tensor(b->tensor) : tt_rpc_bytes(b->bytes, bytes);
}

static tt_status wait_and_free(tt_future *future) {
    tt_status status = future ? tt_future_wait(future, 0) : TT_OK;
    tt_future_free(future);
    return status;
}

static tt_status call_under_way(rpc_bench *b, tt_rpc_values args, int64_t n) {
    tt_future *futures[UNDER_WAY] = {NULL};
    tt_status status = TT_OK;
    for (int64_t i = 0; i < n && !status; i++) {
        tt_future **place = &futures[i % UNDER_WAY];
        status = wait_and_free(*place);
        *place = NULL;
        if (!status)
            status = tt_rpc_async(place, b->rpc, NULL, "tutti.bench.take", .to_id = b->peer, .args = args);
    }
    for (int i = 0; i < UNDER_WAY; i++) {
        tt_status last = wait_and_free(futures[i]);
        status = status ? status : last;
    }
    return status;
}

/* Make `n` calls of a cell. */
static tt_status repeat_calls_of(rpc_bench *b, const cell *c, int64_t n) {
    const tt_rpc_value value = argument_of(b, c->bytes);
    const tt_rpc_values args = {&value, c->bytes ? 1 : 0};
    tt_status status = TT_OK;
    if (c->what == MANY)
        return call_under_way(b, args, n);
    for (int64_t i = 0; i < n && !status; i++) {
        tt_rpc_value result = tt_rpc_none();
        if (c->what == THERE)
            status = tt_rpc_sync(b->rpc, NULL, "tutti.bench.take", .to_id = b->peer, .args = args);
        else
            status = tt_rpc_sync(b->rpc, NULL, "tutti.bench.echo", .to_id = b->peer, .args = args, .result = &result);
        tt_rpc_value_free(&result);
    }
    return status;
}

/* ---- send and recv */

/* Exchange `n` messages there and back, this rank first if it is the one that measures. */
static tt_status repeat_messages(rpc_bench *b, const cell *c, int64_t n) {
    int64_t there = c->bytes ? (int64_t)c->bytes : 1, back = c->what == THERE_AND_BACK ? there : 1;
    bool first = b->rank % 2 == 0;
    tt_status status = TT_OK;
    for (int64_t i = 0; i < n && !status; i++) {
        status = first ? tt_send(b->group, b->bytes, there, TT_U8, b->peer)
                       : tt_recv(b->group, b->bytes, there, TT_U8, b->peer);
        if (!status)
            status = first ? tt_recv(b->group, b->bytes, back, TT_U8, b->peer)
                           : tt_send(b->group, b->bytes, back, TT_U8, b->peer);
    }
    return status;
}

/* Tell the other rank how many messages follow, and exchange them. */
static tt_status lead_messages(rpc_bench *b, const cell *c, int64_t n) {
    TT__TRY(tt_send(b->group, &n, 1, TT_I64, b->peer));
    return repeat_messages(b, c, n);
}

/* ---- time */

static tt_status time_of(rpc_bench *b, const cell *c, tt_status (*repeat)(rpc_bench *b, const cell *c, int64_t n),
                         int64_t n, int64_t *ns) {
    int64_t start = tt__now_ns();
    TT__TRY(repeat(b, c, n));
    *ns = tt__now_ns() - start;
    return TT_OK;
}

/* Choose how many take about REPETITION_NS. This also warms up. */
static tt_status choose_count(rpc_bench *b, const cell *c, tt_status (*repeat)(rpc_bench *b, const cell *c, int64_t n),
                              int64_t *n) {
    int64_t ns = 0, calls = WARM_CALLS, want = b->settings->flags.iterations;
    for (;;) {
        TT__TRY(time_of(b, c, repeat, calls, &ns));
        if (want || ns >= REPETITION_NS / 8 || calls == MOST_CALLS)
            break;
        calls = calls * 4 < MOST_CALLS ? calls * 4 : MOST_CALLS;
    }
    if (!want)
        want = ns > 0 ? calls * REPETITION_NS / ns : MOST_CALLS;
    *n = want < 1 ? 1 : want > MOST_CALLS ? MOST_CALLS : want;
    return TT_OK;
}

static tt_status measure_cell(rpc_bench *b, const cell *c, tt_status (*repeat)(rpc_bench *b, const cell *c, int64_t n),
                              int64_t *n, double *usec) {
    int64_t ns = 0;
    if (!*n)
        TT__TRY(choose_count(b, c, repeat, n));
    TT__TRY(time_of(b, c, repeat, WARM_CALLS, &ns)); /* not counted */
    TT__TRY(time_of(b, c, repeat, *n, &ns));
    *usec = (double)ns / 1e3 / (double)*n;
    return TT_OK;
}

/* ---- a round: send and recv of all cells, then calls */

static tt_status serve_messages(rpc_bench *b, const cell *c) {
    for (;;) {
        int64_t n = 0;
        TT__TRY(tt_recv(b->group, &n, 1, TT_I64, b->peer));
        if (!n)
            return TT_OK;
        TT__TRY(repeat_messages(b, c, n));
    }
}

static tt_status round_of_messages(rpc_bench *b, int round) {
    static const int64_t none;
    for (int i = 0; i < b->cell_count && b->peer >= 0; i++) {
        cell *c = &b->cells[i];
        if (c->what == MANY)
            continue;
        if (b->rank % 2) {
            TT__TRY(serve_messages(b, c));
            continue;
        }
        TT__TRY(measure_cell(b, c, lead_messages, &c->messages, &c->message_us[round]));
        TT__TRY(tt_send(b->group, &none, 1, TT_I64, b->peer));
    }
    return TT_OK;
}

static tt_status measure_calls(rpc_bench *b, int round) {
    for (int i = 0; i < b->cell_count; i++) {
        cell *c = &b->cells[i];
        if (b->settings->tensors && !(b->tensor = tt_ones(TT_SHAPE((int64_t)(c->bytes ? c->bytes : 1)), TT_U8)))
            return tt_last_status();
        tt_status status = measure_cell(b, c, repeat_calls_of, &c->calls, &c->call_us[round]);
        tt_tensor_free(b->tensor);
        b->tensor = NULL;
        TT__TRY(status);
    }
    return TT_OK;
}

/* Workers that measure nothing serve the others until all leave. */
static tt_status round_of_calls(rpc_bench *b, int round) {
    char name[32];
    snprintf(name, sizeof name, "worker%d", b->rank);
    TT__TRY(tt_rpc_init(&b->rpc, name, .group = b->group));
    tt_status status = b->peer >= 0 && b->rank % 2 == 0 ? measure_calls(b, round) : TT_OK;
    tt_status ended = tt_rpc_shutdown(b->rpc, .at_once = status != TT_OK);
    b->rpc = NULL;
    return status ? status : ended;
}

/* ---- output */

static double median_us(double *usec) {
    tt__bench_sort(usec, TT__BENCH_REPETITIONS);
    return usec[TT__BENCH_REPETITIONS / 2];
}

static void rpc_print(const rpc_bench *b, cell *c) {
    static const char *const names[] = {"there", "there and back", "64 under way"};
    double call = median_us(c->call_us), message = median_us(c->message_us);
    tt__print(stdout,
              "{\"bench\":\"rpc\",\"call\":\"%s\",\"bytes\":%zu,\"values\":\"%s\",\"world\":%d,\"transport\":\"%s\","
              "\"wire\":\"%s\",\"usec_median\":%.3f,\"usec_min\":%.3f",
              c->bytes || c->what == MANY ? names[c->what] : "empty", c->bytes,
              b->settings->tensors ? "tensor" : "bytes", tt_get_world_size(b->group),
              *b->settings->flags.transport ? b->settings->flags.transport : "auto", tt__bench_wire(b->group), call,
              c->call_us[0]);
    if (c->what == MANY)
        tt__print(stdout, ",\"calls_per_sec\":%.0f}\n", 1e6 / call);
    else
        tt__print(stdout, ",\"send_recv_usec_median\":%.3f,\"send_recv_usec_min\":%.3f,\"of_send_recv\":%.3f}\n",
                  message, c->message_us[0], message / call);
}

/* ---- one rank */

static void list_cells(rpc_bench *b) {
    const tt__bench_flags *s = &b->settings->flags;
    b->cells[b->cell_count++] = (cell){.what = THERE};
    for (int i = 0; i < s->size_count; i++) {
        b->cells[b->cell_count++] = (cell){.what = THERE, .bytes = s->sizes[i]};
        b->cells[b->cell_count++] = (cell){.what = THERE_AND_BACK, .bytes = s->sizes[i]};
    }
    b->cells[b->cell_count++] = (cell){.what = MANY};
}

static tt_status run_rounds(rpc_bench *b) {
    size_t most = 1;
    for (int i = 0; i < b->settings->flags.size_count; i++)
        most = b->settings->flags.sizes[i] > most ? b->settings->flags.sizes[i] : most;
    if (!(b->bytes = malloc(most)))
        return tt__fail(TT_ERR_MEMORY, "no memory for %zu bytes", most);
    memset(b->bytes, 1, most);
    b->rank = tt_get_rank(b->group);
    b->peer = (b->rank ^ 1) < tt_get_world_size(b->group) ? b->rank ^ 1 : -1;
    list_cells(b);
    for (int round = 0; round < TT__BENCH_REPETITIONS; round++) {
        TT__TRY(round_of_messages(b, round));
        TT__TRY(round_of_calls(b, round));
    }
    for (int i = 0; i < b->cell_count && !b->rank && b->peer >= 0; i++)
        rpc_print(b, &b->cells[i]);
    return TT_OK;
}

static tt_status run_rpc_rank(tt_group *group, const void *settings) {
    rpc_bench b = {.settings = settings, .group = group};
    tt_status status = run_rounds(&b);
    free(b.bytes);
    return status;
}

/* ---- flags */

static tt_status take_rpc_flag(int c, char *value, void *settings) {
    rpc_settings *s = settings;
    switch (c) {
    case 'm':
        return tt__parse_i64("--workers", value, 1, 10000, &s->workers);
    case 'v':
        s->tensors = !strcmp(value, "tensor");
        return s->tensors || !strcmp(value, "bytes") ? TT_OK : TT_ERR_INVALID;
    default:
        return tt__bench_flag_take(c, value, 2, &s->flags);
    }
}

static int bench_rpc_main(int argc, char **argv) {
    rpc_settings s = {
        .flags = {.world = 2, .sizes = {64, 1 << 10, 64 << 10, 1 << 20, 16 << 20}, .size_count = 5},
    };
    int code = tt__bench_flags_read(&tt__bench_rpc, argc, argv, take_rpc_flag, &s);
    if (code >= 0)
        return code;
    if (s.workers)
        return tt__bench_rpc_workers((int)s.workers, s.flags.iterations);
    return tt__bench_is_member() ? tt__bench_run_rank(&s.flags, "", NULL, run_rpc_rank, &s)
                                 : tt__spawn_ranks((int)s.flags.world, "bench", argc, argv);
}
