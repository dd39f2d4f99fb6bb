/* A view as a trace for Perfetto. */
#include "cli/look/job_view.h"

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/text/json.h"
#include "comm/collective/choose.h"

#include <stdlib.h>
#include <string.h>

enum { LANES = 32, BUFFER = 1 << 16 };

/* An arrow is drawn where it explains a wait, and not the usual jitter. */
static const int64_t ARROW_NS = 20000;

/* A row of slices that don't overlap: calls of one group, or work on one device. */
typedef struct lane {
    uint32_t of; /* the group's id, or the device */
    int64_t end_ns;
} lane;

typedef struct writer {
    const tt__view *view;
    tt__atomic_file file;
    tt_status status; /* the first failure */
    char buffer[BUFFER];
    size_t used;
    int64_t base_ns; /* ts 0 */
    bool comma;
    uint8_t *lanes; /* (ranks, TT__RECORDS): the lane of each call */
} writer;

static void writer_flush(writer *w) {
    if (!w->status)
        w->status = tt__atomic_write(&w->file, w->buffer, w->used);
    w->used = 0;
}

static void writer_put(writer *w, const char *text, size_t n) {
    for (size_t part; n; text += part, n -= part) {
        part = n < BUFFER - w->used ? n : BUFFER - w->used;
        memcpy(w->buffer + w->used, text, part);
        w->used += part;
        if (w->used == BUFFER)
            writer_flush(w);
    }
}

/* Write one event of traceEvents, which this takes over; NULL: there was no memory for it. */
static void put_event(writer *w, json_t *event) {
    char *text = event ? tt__json_dumps(event, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(event);
    if (!text) {
        w->status = w->status ? w->status : tt__fail(TT_ERR_MEMORY, "no memory for an event of the trace");
        return;
    }
    writer_put(w, w->comma ? ",\n" : "\n", w->comma ? 2 : 1);
    writer_put(w, text, strlen(text));
    w->comma = true;
    free(text);
}

static double trace_us(const writer *w, int64_t ns) { return (double)(ns - w->base_ns) / 1e3; }

/* Number a process from 1: Perfetto takes process 0 and thread 0 for the idle task and hides them. */
static int trace_pid(const tt__view_rank *rank) { return rank->rank.rank + 1; }
static int trace_tid(int lane) { return lane + 1; }
static int trace_device_tid(int lane) { return LANES + lane + 1; }
static int trace_rpc_tid(int lane) { return 2 * LANES + lane + 1; }

/* ---- lanes */

/* Find a lane of the rank for a slice; *added: it is a new one. Slices of a lane don't overlap. */
static int find_lane(lane *lanes, int *n, uint32_t of, int64_t begin_ns, int64_t end_ns, bool *added) {
    int i = 0;
    while (i < *n && (lanes[i].of != of || lanes[i].end_ns > begin_ns))
        i++;
    *added = i == *n && *n < LANES;
    *n += *added;
    if (i == LANES)
        i--;
    lanes[i] = (lane){of, end_ns};
    return i;
}

static void put_name(writer *w, const char *what, int pid, int tid, const char *name) {
    put_event(w, json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "ph", "M", "name", what, "pid", pid, "tid", tid, "args",
                           "name", name));
}

static void put_lane_name(writer *w, const tt__view_rank *rank, int lane, uint32_t group) {
    char name[96];
    snprintf(name, sizeof name, "group %s", tt__recorder_group_ranks(rank->recorder, group));
    put_name(w, "thread_name", trace_pid(rank), trace_tid(lane), name);
}

/* Rows stand in the order of their numbers: those of devices below those of groups. */
static void put_device_lane(writer *w, const tt__view_rank *rank, int lane, const tt__view_call *call) {
    char name[TT__DEVICE_NAME_SIZE];
    int pid = trace_pid(rank), tid = trace_device_tid(lane);
    put_name(w, "thread_name", pid, tid, tt__view_device_name(call, name));
    put_event(w, json_pack("{s:s, s:s, s:i, s:i, s:{s:i}}", "ph", "M", "name", "thread_sort_index", "pid", pid, "tid",
                           tid, "args", "sort_index", tid));
}

/* ---- events of one rank */

static void put_process(writer *w, const tt__view_rank *rank) {
    char name[256];
    snprintf(name, sizeof name, "rank %d", rank->rank.rank);
    put_name(w, "process_name", trace_pid(rank), trace_tid(0), name);
    snprintf(name, sizeof name, "%s, pid %lld on %s", rank->recorder ? rank->recorder->program : "?",
             (long long)(rank->recorder ? rank->recorder->pid : rank->rank.pid), rank->rank.hostname);
    put_event(w, json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "ph", "M", "name", "process_labels", "pid", trace_pid(rank),
                           "tid", trace_tid(0), "args", "labels", name));
    put_event(w, json_pack("{s:s, s:s, s:i, s:i, s:{s:i}}", "ph", "M", "name", "process_sort_index", "pid",
                           trace_pid(rank), "tid", trace_tid(0), "args", "sort_index", (int)rank->rank.rank));
}

static const char *state_name(unsigned state) {
    static const char *const names[] = {"", "queued", "under way", "done", "failed"};
    return state < sizeof names / sizeof *names ? names[state] : "?";
}

static json_t *call_args(const tt__view_rank *rank, const tt__view_call *call) {
    char site[TT__FILE_SIZE + 16], device[TT__DEVICE_NAME_SIZE];
    const tt__call_record *record = &call->record;
    snprintf(site, sizeof site, record->line ? "%s:%d" : "%s", rank->recorder->files[record->file], record->line);
    json_t *args =
        json_pack("{s:I, s:I, s:s, s:s, s:s, s:b}", "seq", (json_int_t)record->seq, "number", (json_int_t)record->call,
                  "group", tt__recorder_group_ranks(rank->recorder, record->group), "at", site, "state",
                  state_name(record->state), "async", record->flags & TT__RECORD_ASYNC ? 1 : 0);
    if (args && record->algorithm)
        json_object_set_new(args, "algorithm", json_string(tt__algorithm_name(record->algorithm)));
    if (args && call->on_device) {
        json_object_set_new(args, "device", json_string(tt__view_device_name(call, device)));
        json_object_set_new(args, "device_us", json_real((double)call->ran.duration_ns / 1e3));
    }
    uint64_t bytes = tt__record_bytes(record);
    if (!args || !bytes)
        return args;
    json_object_set_new(args, "dtype", json_string(tt_dtype_name((tt_dtype)record->dtype)));
    json_object_set_new(args, "count", json_integer((json_int_t)record->count));
    json_object_set_new(args, "bytes", json_integer((json_int_t)bytes));
    json_object_set_new(args, "symmetric", json_boolean(record->flags & TT__RECORD_SYMMETRIC));
    return args;
}

static void put_slice(writer *w, const tt__view_rank *rank, const tt__view_call *call, const char *category, int tid,
                      int64_t begin_ns, int64_t end_ns) {
    char text[256];
    json_t *event =
        json_pack("{s:s, s:s, s:s, s:i, s:i, s:f, s:f, s:o}", "ph", "X", "cat", category, "name",
                  tt_op_name((tt_op)call->record.op), "pid", trace_pid(rank), "tid", tid, "ts", trace_us(w, begin_ns),
                  "dur", (double)(end_ns - begin_ns) / 1e3, "args", call_args(rank, call));
    if (event)
        json_object_set_new(json_object_get(event, "args"), "call",
                            json_string(tt__record_text(rank->recorder, &call->record, text, sizeof text)));
    put_event(w, event);
}

static void put_instant(writer *w, const tt__view_rank *rank, int64_t ns, const char *name) {
    put_event(w, json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:f}", "ph", "i", "s", "p", "cat", "rank", "name", name,
                           "pid", trace_pid(rank), "tid", trace_tid(0), "ts", trace_us(w, ns)));
}

/* Write the rank's state if it has ended or is stopped, and which rank it waits for. */
static void put_state(writer *w, const tt__view_rank *rank) {
    char text[160];
    if (rank->state == TT__VIEW_ENDED || rank->state == TT__VIEW_GONE || rank->state == TT__VIEW_STOPPED)
        put_instant(w, rank, rank->now_ns, tt__view_state_text(rank, text, sizeof text));
    if (!rank->waits)
        return;
    if (rank->waiting.whom < 0)
        snprintf(text, sizeof text, "waits for any rank");
    else
        snprintf(text, sizeof text, "waits for rank %d", (int)rank->waiting.whom);
    put_instant(w, rank, rank->waits_since_ns, text);
}

/* Write the slices of work on devices. */
static void put_device_calls(writer *w, const tt__view_rank *rank) {
    lane lanes[LANES];
    int n = 0;
    for (int i = 0; i < rank->n && !w->status; i++) {
        const tt__view_call *call = &rank->calls[i];
        bool added;
        if (!call->on_device)
            continue;
        uint32_t of = (uint32_t)call->ran.type << 16 | call->ran.index;
        int which = find_lane(lanes, &n, of, call->ran_from_ns, call->ran_until_ns, &added);
        if (added)
            put_device_lane(w, rank, which, call);
        put_slice(w, rank, call, "device", trace_device_tid(which), call->ran_from_ns, call->ran_until_ns);
    }
}

static void put_rpc_slice(writer *w, const tt__view_rank *rank, const tt__view_rpc_call *call, int tid) {
    put_event(w, json_pack("{s:s, s:s, s:s, s:i, s:i, s:f, s:f, s:{s:i, s:I, s:s}}", "ph", "X", "cat", "rpc", "name",
                           tt__view_function(rank, call->record.function), "pid", trace_pid(rank), "tid", tid, "ts",
                           trace_us(w, call->begin_ns), "dur", (double)(call->end_ns - call->begin_ns) / 1e3, "args",
                           "to", (int)call->record.to, "bytes", (json_int_t)call->record.bytes, "state",
                           state_name(call->record.state)));
}

/* Write calls to workers, in rows below those of devices. */
static void put_rpc_calls(writer *w, const tt__view_rank *rank) {
    lane lanes[LANES];
    int n = 0;
    for (int i = 0; i < rank->rpc_n && !w->status; i++) {
        const tt__view_rpc_call *call = &rank->rpc_calls[i];
        bool added;
        int which = find_lane(lanes, &n, 0, call->begin_ns, call->end_ns, &added);
        if (added)
            put_name(w, "thread_name", trace_pid(rank), trace_rpc_tid(which), "calls to workers");
        put_rpc_slice(w, rank, call, trace_rpc_tid(which));
    }
}

static void put_rank(writer *w, int place) {
    const tt__view_rank *rank = &w->view->ranks[place];
    lane lanes[LANES];
    int n = 0;
    put_process(w, rank);
    for (int i = 0; i < rank->n && !w->status; i++) {
        bool added;
        const tt__view_call *call = &rank->calls[i];
        int which = find_lane(lanes, &n, call->record.group, call->begin_ns, call->end_ns, &added);
        w->lanes[(size_t)place * TT__RECORDS + (size_t)i] = (uint8_t)which;
        if (added)
            put_lane_name(w, rank, which, call->record.group);
        put_slice(w, rank, call, "comm", trace_tid(which), call->begin_ns, call->end_ns);
    }
    put_device_calls(w, rank);
    put_rpc_calls(w, rank);
    put_state(w, rank);
}

/* ---- arrows */

static void put_arrow_end(writer *w, const char *phase, int64_t id, int place, const tt__view_call *call, int64_t ns) {
    const tt__view_rank *rank = &w->view->ranks[place];
    int lane = w->lanes[(size_t)place * TT__RECORDS + (size_t)(call - rank->calls)];
    put_event(w, json_pack("{s:s, s:s, s:s, s:I, s:s, s:i, s:i, s:f}", "ph", phase, "cat", "late", "name", "came last",
                           "id", (json_int_t)id, "bp", "e", "pid", trace_pid(rank), "tid", trace_tid(lane), "ts",
                           trace_us(w, ns)));
}

/* Write arrows from the beginning of the last rank's slice to the end of each waiting rank's. */
static void put_arrows(writer *w, const tt__view_meeting *meeting, int64_t *id) {
    int from = 0;
    while (meeting->calls[from] != meeting->last)
        from++;
    for (int to = 0; to < w->view->n && !w->status; to++) {
        const tt__view_call *waiter = meeting->calls[to];
        int64_t ns = meeting->last->begin_ns;
        if (!waiter || waiter == meeting->last || ns - waiter->begin_ns < ARROW_NS || waiter->end_ns < ns)
            continue;
        ++*id;
        put_arrow_end(w, "s", *id, from, meeting->last, ns);
        put_arrow_end(w, "f", *id, to, waiter, waiter->end_ns);
    }
}

static tt_status put_all_arrows(writer *w) {
    tt__view_meeting *meetings;
    int n;
    int64_t id = 0;
    TT__TRY(tt__view_meetings(w->view, &meetings, &n));
    for (int i = 0; i < n && !w->status; i++)
        if (meetings[i].lateness_ns >= ARROW_NS)
            put_arrows(w, &meetings[i], &id);
    tt__view_meetings_free(meetings, n);
    return w->status;
}

/* ---- the file */

static int64_t earliest_ns(const tt__view *view) {
    int64_t base = INT64_MAX;
    for (int i = 0; i < view->n; i++) {
        for (int c = 0; c < view->ranks[i].rpc_n; c++)
            if (view->ranks[i].rpc_calls[c].begin_ns < base)
                base = view->ranks[i].rpc_calls[c].begin_ns;
        for (int c = 0; c < view->ranks[i].n; c++)
            if (view->ranks[i].calls[c].begin_ns < base)
                base = view->ranks[i].calls[c].begin_ns; /* work on a device began later */
    }
    return base == INT64_MAX ? view->now_ns : base;
}

static void put_text(writer *w, const char *text) { writer_put(w, text, strlen(text)); }

static tt_status write_all(writer *w) {
    char end[160];
    put_text(w, "{\"traceEvents\":[");
    for (int i = 0; i < w->view->n; i++)
        put_rank(w, i);
    TT__TRY(w->status);
    TT__TRY(put_all_arrows(w));
    snprintf(end, sizeof end, "\n],\"displayTimeUnit\":\"ns\",\"schemaVersion\":1,\"baseTimeNanoseconds\":%lld}\n",
             (long long)w->base_ns);
    put_text(w, end);
    writer_flush(w);
    return w->status;
}

tt_status tt__trace_write(const tt__view *view, const char *path) {
    writer *w = calloc(1, sizeof *w);
    uint8_t *lanes = malloc((size_t)(view->n + 1) * TT__RECORDS);
    tt_status status = w && lanes ? TT_OK : tt__fail(TT_ERR_MEMORY, "no memory for a trace of %d ranks", view->n);
    if (!status) {
        w->view = view;
        w->lanes = lanes;
        w->base_ns = earliest_ns(view);
        status = tt__atomic_open(&w->file, path);
    }
    if (!status) {
        status = write_all(w);
        if (!status)
            status = tt__atomic_commit(&w->file);
        tt__atomic_abort(&w->file);
    }
    free(lanes);
    free(w);
    return status;
}
