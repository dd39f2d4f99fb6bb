/* A view as one line of JSON. */
#include "base/text/json.h"
#include "cli/look/job_view.h"

#include "base/error.h"
#include "launch/local/report.h"

#include <math.h>
#include <stdlib.h>

static double seconds_of(int64_t ns) { return (double)ns / 1e9; }

static json_t *call_json(const tt__view_rank *rank) {
    char text[256], device[TT__DEVICE_NAME_SIZE];
    const tt__view_call *call = rank->current;
    if (!call)
        return json_null();
    json_t *object = json_pack("{s:s, s:s, s:i, s:i, s:s, s:b, s:b, s:f}", "op", tt_op_name((tt_op)call->record.op),
                               "text", tt__record_text(rank->recorder, &call->record, text, sizeof text), "seq",
                               (int)call->record.seq, "number", (int)call->record.call, "group",
                               tt__recorder_group_ranks(rank->recorder, call->record.group), "open", (int)call->open,
                               "failed", (int)(call->record.state == TT__CALL_FAILED), "seconds",
                               seconds_of(rank->now_ns - (call->open ? call->begin_ns : call->end_ns)));
    if (object && call->on_device) {
        json_object_set_new(object, "device", json_string(tt__view_device_name(call, device)));
        json_object_set_new(object, "device_seconds", json_real(seconds_of(call->ran.duration_ns)));
    }
    return object ? object : json_null();
}

static json_t *waits_json(const tt__view_rank *rank) {
    if (!rank->waits)
        return json_null();
    return json_pack("{s:i, s:i, s:s, s:f}", "for_rank", (int)rank->waiting.whom, "seq", (int)rank->waiting.seq,
                     "group", tt__recorder_group_ranks(rank->recorder, rank->waiting.group), "seconds",
                     seconds_of(rank->now_ns - rank->waits_since_ns));
}

/* Make a number; unknown ones are null. */
static json_t *json_known(int64_t number) { return number ? json_integer((json_int_t)number) : json_null(); }

static json_t *progress_json(const tt__view_rank *rank) {
    const tt__progress *p = &rank->progress;
    if (!rank->progresses)
        return json_null();
    return json_pack("{s:o, s:o, s:I, s:o, s:o, s:I, s:f, s:f}", "epoch", json_known(p->epoch), "epochs",
                     json_known(p->epochs), "step", (json_int_t)p->step, "steps", json_known(p->steps), "loss",
                     isfinite(p->loss) ? json_real(p->loss) : json_null(), "samples", (json_int_t)p->samples,
                     "samples_per_sec", rank->samples_per_s, "seconds", seconds_of(rank->now_ns - rank->progress_ns));
}

static json_t *averaging_json(const tt__view_rank *rank) {
    const tt__averaging *a = &rank->averaging;
    if (!rank->averages)
        return json_null();
    return json_pack("{s:I, s:I, s:I, s:f, s:f, s:f, s:f}", "steps", (json_int_t)a->steps, "bytes",
                     (json_int_t)a->bytes, "buckets", (json_int_t)a->buckets, "forward", seconds_of(a->forward_ns),
                     "backward", seconds_of(a->backward_ns), "averaging", seconds_of(a->averaging_ns), "overlap",
                     seconds_of(a->overlap_ns));
}

static json_t *worker_call_json(const tt__view_rank *rank) {
    const tt__view_rpc_call *open = tt__view_rpc_open(rank);
    if (!open)
        return json_null();
    return json_pack("{s:s, s:i, s:I, s:f}", "function", tt__view_function(rank, open->record.function), "to",
                     (int)open->record.to, "bytes", (json_int_t)open->record.bytes, "seconds",
                     seconds_of(rank->now_ns - open->begin_ns));
}

static json_t *makers_json(const tt__view_rank *rank) {
    json_t *object = json_object();
    for (int i = 0; i < TT__RPC_MAKERS && rank->worker.makers[i].count > 0; i++)
        json_object_set_new(object, tt__view_function(rank, rank->worker.makers[i].function),
                            json_integer((json_int_t)rank->worker.makers[i].count));
    return object;
}

/* Make the object of a worker of tutti/rpc.h. */
static json_t *worker_json(const tt__view_rank *rank) {
    const tt__rpc_shown *w = &rank->worker;
    double made, served;
    if (!rank->is_worker)
        return json_null();
    tt__rpc_shown_rates(w, &made, &served);
    return json_pack("{s:s, s:i, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "name",
                     w->name, "id", (int)w->id, "calls_per_sec", made, "served_per_sec", served, "calls",
                     (json_int_t)w->calls, "calls_made", (json_int_t)w->calls_made, "serving", (json_int_t)w->serving,
                     "served", (json_int_t)w->served, "threads", (json_int_t)w->threads, "idle", (json_int_t)w->idle,
                     "queued", (json_int_t)w->bytes, "unsent", (json_int_t)w->waiting, "owned", (json_int_t)w->owned,
                     "held", (json_int_t)w->held, "owned_by_function", makers_json(rank), "oldest",
                     worker_call_json(rank));
}

static json_t *rank_json(const tt__view_rank *rank) {
    static const char *const names[] = {"starting", "runs", "stopped", "ended", "gone"};
    char how[64] = "";
    tt__view_rates rates = tt__view_rates_of(rank);
    if (rank->state == TT__VIEW_ENDED)
        tt__end_text(rank->rank.wait_status, how, sizeof how);
    json_t *object = json_pack(
        "{s:i, s:i, s:I, s:s, s:s, s:b, s:f, s:f, s:f, s:o, s:o, s:o, s:o}", "rank", (int)rank->rank.rank, "node",
        (int)rank->rank.node, "pid", (json_int_t)(rank->recorder ? rank->recorder->pid : rank->rank.pid), "state",
        names[rank->state], "end", how, "joined", (int)(rank->recorder != NULL), "calls_per_sec", rates.calls_per_s,
        "bytes_per_sec", rates.bytes_per_s, "comm", rates.busy, "call", call_json(rank), "waits", waits_json(rank),
        "progress", progress_json(rank), "averaging", averaging_json(rank));
    if (object)
        json_object_set_new(object, "worker", worker_json(rank));
    if (object && rank->on_device)
        json_object_set_new(object, "gpu", json_real(rates.device_busy));
    return object;
}

static json_t *group_json(const tt__view_group *group) {
    return json_pack("{s:s, s:i, s:i, s:i, s:f}", "ranks", group->ranks, "calls", group->calls, "last_rank",
                     group->last_rank, "last_count", group->last_count, "late_usec", (double)group->lateness_ns / 1e3);
}

tt_status tt__top_json(const tt__view *view, FILE *out) {
    const tt__job_info *info = &view->snapshot.info;
    tt__view_group *groups;
    int n;
    TT__TRY(tt__view_groups(view, &groups, &n));
    json_t *ranks = json_array(), *late = json_array();
    for (int i = 0; i < view->n; i++)
        json_array_append_new(ranks, rank_json(&view->ranks[i]));
    for (int i = 0; i < n; i++)
        json_array_append_new(late, group_json(&groups[i]));
    free(groups);
    json_t *root = json_pack("{s:I, s:s, s:s, s:i, s:i, s:i, s:f, s:o, s:o}", "pid", (json_int_t)info->pid, "program",
                             info->program, "run_id", info->run_id, "world", (int)info->world, "node", (int)info->node,
                             "nodes", (int)info->nodes, "up", seconds_of(view->now_ns - info->started_realtime_ns),
                             "ranks", ranks, "groups", late);
    int failed = root ? tt__json_dumpf(root, out, JSON_COMPACT) : -1;
    json_decref(root);
    if (failed)
        return tt__fail(TT_ERR_MEMORY, "no memory for the JSON of %d ranks", view->n);
    fputc('\n', out);
    return TT_OK;
}
