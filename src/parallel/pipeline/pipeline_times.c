/* Times of the last step: shares of time, and a trace in Chrome's format, which Perfetto reads. */
#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/text/format.h"
#include "parallel/pipeline/pipeline_own.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All ranks' actions, rank after rank in the order of their lists. */
typedef struct all_ran {
    tt__ran *ran;
    int64_t *first; /* (ranks + 1) */
} all_ran;

static void all_ran_free(all_ran *all) {
    free(all->ran);
    free(all->first);
}

static tt_status gather_ran(tt_pipeline *pipe, const char *who, all_ran *all) {
    *all = (all_ran){.first = calloc((size_t)pipe->ranks + 1, sizeof(int64_t))};
    int64_t width = 0;
    for (int r = 0; r < pipe->ranks; r++)
        width = pipe->train.lists[r].count > width ? pipe->train.lists[r].count : width;
    tt__ran *mine = calloc((size_t)width + 1, sizeof *mine),
            *wide = calloc((size_t)(width * pipe->ranks) + 1, sizeof *wide);
    all->ran = calloc((size_t)(width * pipe->ranks) + 1, sizeof *all->ran);
    tt_status status = all->first && mine && wide && all->ran
                           ? TT_OK
                           : tt__fail(TT_ERR_MEMORY, "%s: no memory for what %d ranks did", who, pipe->ranks);
    if (!status) {
        memcpy(mine, pipe->ran, (size_t)pipe->train.lists[pipe->rank].count * sizeof *mine);
        status =
            tt_all_gather_with(TT_ARGS(tt_all_gather_args, pipe->group, mine, wide, width * 2, TT_I64, .file = who));
    }
    for (int r = 0; r < pipe->ranks && !status; r++) {
        int64_t count = pipe->train.lists[r].count;
        memcpy(all->ran + all->first[r], wide + r * width, (size_t)count * sizeof *wide);
        all->first[r + 1] = all->first[r] + count;
    }
    free(mine);
    free(wide);
    if (status)
        all_ran_free(all);
    return status;
}

static tt_status check_has_run(const tt_pipeline *pipe, const char *who) {
    if (!pipe)
        return tt__fail(TT_ERR_INVALID, "%s: `pipeline` is NULL", who);
    return pipe->has_run ? TT_OK : tt__fail(TT_ERR_STATE, "%s: no step has run yet", who);
}

/* ---- shares ---- */

/* The mean time of each kind of action in each stage, in ms. */
static tt_status mean_costs(const tt_pipeline *pipe, const all_ran *all, tt__stage_cost *costs) {
    int64_t *counts = calloc((size_t)pipe->stages * TT__ACT_KINDS, sizeof *counts);
    if (!counts)
        return tt__fail(TT_ERR_MEMORY, "no memory for the costs of %" PRId64 " stages", pipe->stages);
    for (int r = 0; r < pipe->ranks; r++)
        for (int64_t i = 0; i < pipe->train.lists[r].count; i++) {
            const tt__act *act = &pipe->train.lists[r].acts[i];
            const tt__ran *ran = &all->ran[all->first[r] + i];
            int64_t stage = act->chunk * pipe->ranks + r;
            costs[stage].of[act->kind] += (double)(ran->end_ns - ran->begin_ns) * 1e-6;
            counts[stage * TT__ACT_KINDS + act->kind]++;
        }
    for (int64_t s = 0; s < pipe->stages; s++)
        for (int k = 0; k < TT__ACT_KINDS; k++)
            if (counts[s * TT__ACT_KINDS + k])
                costs[s].of[k] /= (double)counts[s * TT__ACT_KINDS + k];
    free(counts);
    return TT_OK;
}

static void measure_span(const tt_pipeline *pipe, const all_ran *all, tt_pipeline_times *times) {
    int64_t span = 0, busy = 0;
    for (int r = 0; r < pipe->ranks; r++) {
        int64_t own = 0;
        for (int64_t i = all->first[r]; i < all->first[r + 1]; i++) {
            own += all->ran[i].end_ns - all->ran[i].begin_ns;
            span = all->ran[i].end_ns > span ? all->ran[i].end_ns : span;
        }
        busy += own;
        if (r == pipe->rank)
            times->rank_busy_ms = (double)own * 1e-6;
    }
    times->step_ms = (double)span * 1e-6;
    times->idle_share = span ? 1 - (double)busy / ((double)span * pipe->ranks) : 0;
}

static tt_status fill_times(const tt_pipeline *pipe, const all_ran *all, tt_pipeline_times *times) {
    tt__simulated simulated = {0};
    tt__stage_cost *costs = calloc((size_t)pipe->stages + 1, sizeof *costs);
    if (!costs)
        return tt__fail(TT_ERR_MEMORY, "no memory for the costs of %" PRId64 " stages", pipe->stages);
    measure_span(pipe, all, times);
    tt_status status = mean_costs(pipe, all, costs);
    if (!status)
        status = tt__schedule_simulate(&pipe->train, costs, 0, &simulated);
    times->simulated_idle_share = simulated.idle_share;
    free(costs);
    return status;
}

tt_status tt_pipeline_get_times(tt_pipeline *pipe, tt_pipeline_times *times) {
    static const char who[] = "tt_pipeline_get_times";
    all_ran all;
    if (!times)
        return tt__fail(TT_ERR_INVALID, "%s: `times` is NULL", who);
    *times = (tt_pipeline_times){0};
    TT__TRY(check_has_run(pipe, who));
    TT__TRY(gather_ran(pipe, who, &all));
    tt_status status = fill_times(pipe, &all, times);
    all_ran_free(&all);
    return status;
}

/* ---- the trace ---- */

typedef struct trace_file {
    tt__atomic_file file;
    tt_status status;
} trace_file;

static void put_trace_text(trace_file *f, const char *format, ...) TT_PRINTF(2, 3);
static void put_trace_text(trace_file *f, const char *format, ...) {
    char line[400];
    va_list list;
    va_start(list, format);
    int n = tt__vformat(line, sizeof line, format, list);
    va_end(list);
    if (!f->status && n > 0)
        f->status = tt__atomic_write(&f->file, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
}

/* A rank is a process of the trace, numbered from 1, as Perfetto hides number 0. */
static void put_pipe_rank(trace_file *f, const tt_pipeline *pipe, int r) {
    char stages[200] = "";
    size_t used = 0;
    for (int64_t c = 0; c < pipe->chunks && used + 24 < sizeof stages; c++)
        used += (size_t)snprintf(stages + used, sizeof stages - used, "%s%" PRId64, c ? ", " : "", c * pipe->ranks + r);
    put_trace_text(
        f,
        "%s\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"tid\":1,\"args\":{\"name\":\"rank %d, stage%s %s\"}}",
        r ? "," : "", r + 1, r, pipe->chunks > 1 ? "s" : "", stages);
}

static void put_ran(trace_file *f, const tt_pipeline *pipe, int r, const tt__act *act, const tt__ran *ran) {
    put_trace_text(f,
                   ",\n{\"ph\":\"X\",\"cat\":\"pipeline\",\"name\":\"%c%" PRId64
                   "\",\"pid\":%d,\"tid\":1,\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"kind\":\"%c\",\"stage\":%" PRId64
                   ",\"micro_batch\":%" PRId64 "}}",
                   tt__act_letter(act->kind), act->micro, r + 1, (double)ran->begin_ns / 1e3,
                   (double)(ran->end_ns - ran->begin_ns) / 1e3, tt__act_letter(act->kind), act->chunk * pipe->ranks + r,
                   act->micro);
}

static tt_status write_pipe_trace(const tt_pipeline *pipe, const all_ran *all, const char *path) {
    trace_file f = {{0}, TT_OK};
    tt_pipeline_times times = {0};
    if (!path)
        return tt__fail(TT_ERR_INVALID, "`path` is NULL");
    TT__TRY(fill_times(pipe, all, &times));
    TT__TRY(tt__atomic_open(&f.file, path));
    put_trace_text(&f, "{\"traceEvents\":[");
    for (int r = 0; r < pipe->ranks; r++)
        put_pipe_rank(&f, pipe, r);
    for (int r = 0; r < pipe->ranks; r++)
        for (int64_t i = 0; i < pipe->train.lists[r].count; i++)
            put_ran(&f, pipe, r, &pipe->train.lists[r].acts[i], &all->ran[all->first[r] + i]);
    put_trace_text(&f,
                   "\n],\"displayTimeUnit\":\"ms\",\"otherData\":{\"schedule\":\"%s\",\"ranks\":%d,\"stages\":%" PRId64
                   ",\"micro_batches\":%" PRId64 ",\"idle_share\":%.4f,\"simulated_idle_share\":%.4f}}\n",
                   tt__schedule_name(pipe->kind), pipe->ranks, pipe->stages, pipe->micros, times.idle_share,
                   times.simulated_idle_share);
    if (!f.status)
        f.status = tt__atomic_commit(&f.file);
    tt__atomic_abort(&f.file);
    return f.status;
}

tt_status tt_pipeline_write_trace(tt_pipeline *pipe, const char *path) {
    static const char who[] = "tt_pipeline_write_trace";
    all_ran all;
    TT__TRY(check_has_run(pipe, who));
    TT__TRY(gather_ran(pipe, who, &all));
    int32_t written = pipe->rank ? TT_OK : write_pipe_trace(pipe, &all, path);
    all_ran_free(&all);
    tt_status own = (tt_status)written;
    if (own)
        tt__fail_prefix("%s", who);
    tt_status sent = tt_broadcast_with(TT_ARGS(tt_broadcast_args, pipe->group, &written, 1, TT_I32, 0, .file = who));
    if (own || sent)
        return own ? own : sent;
    return written ? tt__fail((tt_status)written, "%s: rank 0 could not write %s", who, path ? path : "its trace")
                   : TT_OK;
}
