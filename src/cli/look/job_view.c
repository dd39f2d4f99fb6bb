/* Making a view: which job is meant, and its ranks' recorders on one clock. */
#include "cli/look/job_view.h"

#include "base/error.h"
#include "base/process/proc_state.h"
#include "launch/local/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ANSWER_MS = 3000 };

/* ---- one rank */

static tt__view_state view_state_of(const tt__view_rank *rank, bool here) {
    if (rank->rank.state == TT__JOB_ENDED)
        return TT__VIEW_ENDED;
    if (rank->rank.state == TT__JOB_STARTING)
        return TT__VIEW_STARTING;
    if (!here)
        return rank->rank.stopped ? TT__VIEW_STOPPED : TT__VIEW_RUNS;
    /* The launcher may have started a script around the rank. */
    int64_t pid = rank->recorder ? rank->recorder->pid : rank->rank.pid;
    char state = pid == (pid_t)pid ? tt__proc_state((pid_t)pid) : 0; /* a recorder may hold anything */
    if (state == 'T' || state == 't')
        return TT__VIEW_STOPPED;
    return state && state != 'Z' && state != 'X' ? TT__VIEW_RUNS : TT__VIEW_GONE;
}

const char *tt__view_state_text(const tt__view_rank *rank, char *text, size_t size) {
    char how[64];
    switch (rank->state) {
    case TT__VIEW_STARTING:
        snprintf(text, size, "starts");
        break;
    case TT__VIEW_RUNS:
        snprintf(text, size, "runs");
        break;
    case TT__VIEW_STOPPED:
        snprintf(text, size, "STOPPED");
        break;
    case TT__VIEW_GONE:
        snprintf(text, size, "GONE");
        break;
    case TT__VIEW_ENDED:
        if (rank->rank.wait_status == 0)
            snprintf(text, size, "ended");
        else
            snprintf(text, size, "DEAD: %s", tt__end_text(rank->rank.wait_status, how, sizeof how));
        break;
    }
    return text;
}

/* From a rank's ticks to the clock of the view. */
typedef struct clock_of {
    tt__ticks_line line;
    int64_t add_ns;
} clock_of;

static clock_of clock_for(const tt__view_rank *rank) {
    clock_of clock = {.line = tt__ticks_line_through(&rank->recorder->begin, &rank->rank.now)};
    clock.add_ns = tt__ns_checked(rank->rank.now.realtime_ns - rank->rank.now.monotonic_ns -
                                  atomic_load_explicit(&rank->recorder->offset_ns, memory_order_relaxed));
    return clock;
}

static int64_t view_ns(const clock_of *clock, uint64_t ticks) {
    return tt__ns_checked(tt__ticks_ns(&clock->line, ticks) + clock->add_ns);
}

static void add_call(tt__view_rank *rank, const clock_of *clock, const tt__call_record *record) {
    tt__view_call *call = &rank->calls[rank->n++];
    memcpy((void *)&call->record, (const void *)record, sizeof *record);
    call->open = record->state == TT__CALL_QUEUED || record->state == TT__CALL_BEGUN;
    call->begin_ns = view_ns(clock, record->begin);
    call->end_ns = call->open ? rank->now_ns : record->end ? view_ns(clock, record->end) : call->begin_ns;
    if (call->end_ns < call->begin_ns)
        call->end_ns = call->begin_ns;
    call->on_device = tt__record_read_device(rank->recorder, record->number, &call->ran);
    rank->on_device |= call->on_device;
    if (!call->on_device)
        return;
    call->ran_from_ns = tt__ns_checked(call->ran.begin_ns + clock->add_ns);
    call->ran_until_ns = tt__ns_checked(call->ran_from_ns + call->ran.duration_ns);
}

const char *tt__view_device_name(const tt__view_call *call, char text[TT__DEVICE_NAME_SIZE]) {
    snprintf(text, TT__DEVICE_NAME_SIZE, "%s:%u", tt_device_type_name((tt_device_type)call->ran.type), call->ran.index);
    return text;
}

static void find_current(tt__view_rank *rank) {
    for (int i = 0; i < rank->n && !rank->current; i++)
        if (rank->calls[i].open)
            rank->current = &rank->calls[i];
    if (!rank->current && rank->n)
        rank->current = &rank->calls[rank->n - 1];
}

/* Read all calls. A number may have been taken and not used yet: a gap is not the end. */
static void read_calls(tt__view_rank *rank, const clock_of *clock) {
    uint32_t last = atomic_load_explicit(&rank->recorder->calls, memory_order_acquire);
    for (uint32_t back = TT__RECORDS; back-- > 0;) {
        tt__call_record record;
        if (tt__record_read(rank->recorder, last - back, &record))
            add_call(rank, clock, &record);
    }
    find_current(rank);
}

static void add_rpc_call(tt__view_rank *rank, const clock_of *clock, const tt__rpc_record *record) {
    tt__view_rpc_call *call = &rank->rpc_calls[rank->rpc_n++];
    *call = (tt__view_rpc_call){.record = *record, .open = record->state == TT__CALL_BEGUN};
    call->begin_ns = view_ns(clock, record->begin);
    call->end_ns = call->open ? rank->now_ns : view_ns(clock, record->end);
    if (call->end_ns < call->begin_ns)
        call->end_ns = call->begin_ns;
}

static int by_number(const void *a, const void *b) {
    const tt__rpc_record *x = &((const tt__view_rpc_call *)a)->record, *y = &((const tt__view_rpc_call *)b)->record;
    int32_t ahead = (int32_t)(x->number - y->number); /* numbers wrap */
    return (ahead > 0) - (ahead < 0);
}

static tt_status read_rpc(tt__view_rank *rank, const clock_of *clock) {
    tt__rpc_record record;
    rank->is_worker = tt__rpc_shown_read(rank->recorder, &rank->worker);
    if (!(rank->rpc_calls = malloc(TT__RPC_RECORDS * sizeof *rank->rpc_calls)))
        return tt__fail(TT_ERR_MEMORY, "no memory for the calls of rank %d", rank->rank.rank);
    for (uint32_t i = 0; i < TT__RPC_RECORDS; i++) {
        uint32_t number = atomic_load_explicit(&rank->recorder->rpc_records[i].number, memory_order_relaxed);
        if (tt__rpc_record_read(rank->recorder, number, &record))
            add_rpc_call(rank, clock, &record);
    }
    qsort(rank->rpc_calls, (size_t)rank->rpc_n, sizeof *rank->rpc_calls, by_number);
    return TT_OK;
}

const char *tt__view_function(const tt__view_rank *rank, int function) {
    return rank->recorder->rpc_functions[(unsigned)function < TT__RPC_FUNCTIONS ? function : 0];
}

const tt__view_rpc_call *tt__view_rpc_open(const tt__view_rank *rank) {
    for (int i = 0; i < rank->rpc_n; i++)
        if (rank->rpc_calls[i].open)
            return &rank->rpc_calls[i];
    return NULL;
}

/* add_ns: from CLOCK_MONOTONIC of the rank's host to the clock of the view. */
static void view_progress(tt__view_rank *rank, int64_t add_ns) {
    rank->progresses = tt__recorder_progress(rank->recorder, &rank->progress);
    if (!rank->progresses)
        return;
    rank->progress_ns = tt__ns_checked(rank->progress.at_ns + add_ns);
    rank->samples_per_s = tt__progress_rate(&rank->progress, rank->now_ns - add_ns);
}

/* Copy and check a recorder. Ours begin at a cache line: others are not read. */
static tt_status view_take_recorder(tt__view_rank *rank, const void *theirs) {
    if ((uintptr_t)theirs % _Alignof(tt__recorder))
        return TT_OK;
    tt__recorder *copy = aligned_alloc(_Alignof(tt__recorder), sizeof *copy);
    if (!copy)
        return tt__fail(TT_ERR_MEMORY, "no memory for the calls of rank %d", rank->rank.rank);
    if (tt__recorder_copy(copy, theirs))
        rank->recorder = copy;
    else
        free(copy);
    return TT_OK;
}

static tt_status read_rank(tt__view_rank *rank, const tt__seen_rank *seen, const tt__job_info *info) {
    bool here = seen->rank.node == info->node;
    *rank = (tt__view_rank){.rank = seen->rank};
    if (seen->recorder && seen->rank.at.size == sizeof *rank->recorder)
        TT__TRY(view_take_recorder(rank, seen->recorder));
    rank->unreadable = seen->recorder && !rank->recorder;
    rank->state = view_state_of(rank, here);
    tt__moment now = here ? tt__moment_now() : seen->rank.now;
    rank->now_ns = rank->state == TT__VIEW_ENDED ? seen->rank.ended.realtime_ns : now.realtime_ns;
    if (!rank->recorder)
        return TT_OK;
    clock_of clock = clock_for(rank);
    rank->now_ns =
        tt__ns_checked(rank->now_ns - atomic_load_explicit(&rank->recorder->offset_ns, memory_order_relaxed));
    rank->calls = malloc(TT__RECORDS * sizeof *rank->calls);
    if (!rank->calls)
        return tt__fail(TT_ERR_MEMORY, "no memory for the calls of rank %d", seen->rank.rank);
    read_calls(rank, &clock);
    TT__TRY(read_rpc(rank, &clock));
    rank->waits = tt__recorder_waiting(rank->recorder, &rank->waiting);
    if (rank->waits)
        rank->waits_since_ns = view_ns(&clock, rank->waiting.since);
    view_progress(rank, clock.add_ns);
    rank->averages = tt__recorder_averaging(rank->recorder, &rank->averaging);
    return TT_OK;
}

/* ---- the job */

static int by_rank(const void *a, const void *b) {
    const tt__seen_rank *left = a, *right = b;
    return (left->rank.rank > right->rank.rank) - (left->rank.rank < right->rank.rank);
}

tt_status tt__view_make(tt__view *view, tt__snapshot *snapshot) {
    *view = (tt__view){.snapshot = *snapshot};
    *snapshot = (tt__snapshot){0};
    int n = view->snapshot.n;
    tt__ticks_init();
    if (n)
        qsort(view->snapshot.ranks, (size_t)n, sizeof *view->snapshot.ranks, by_rank);
    view->ranks = calloc(n ? (size_t)n : 1, sizeof *view->ranks);
    tt_status status = view->ranks ? TT_OK : tt__fail(TT_ERR_MEMORY, "no memory for a view of %d ranks", n);
    for (; !status && view->n < n; view->n++)
        status = read_rank(&view->ranks[view->n], &view->snapshot.ranks[view->n], &view->snapshot.info);
    for (int i = 0; i < view->n; i++)
        if (view->ranks[i].now_ns > view->now_ns)
            view->now_ns = view->ranks[i].now_ns;
    if (!status)
        status = tt__view_infer_ends(view);
    if (status)
        tt__view_free(view);
    return status;
}

tt_status tt__view_take(tt__view *view, const tt__view_source *source) {
    tt__snapshot snapshot = {0};
    *view = (tt__view){0};
    if (source->pid)
        TT__TRY(tt__view_process(&snapshot, source->pid));
    else
        TT__TRY(tt__snapshot_ask(&snapshot, source->socket, ANSWER_MS));
    return tt__view_make(view, &snapshot);
}

void tt__view_free(tt__view *view) {
    for (int i = 0; view->ranks && i < view->snapshot.n; i++) {
        free(view->ranks[i].calls);
        free(view->ranks[i].rpc_calls);
        free(view->ranks[i].recorder);
    }
    free(view->ranks);
    tt__snapshot_free(&view->snapshot);
    *view = (tt__view){0};
}

/* ---- which job */

static long pid_in(const tt__job_heard *heard) { return strtol(heard->name + strlen(TT__JOB_SOCKET_PREFIX), NULL, 10); }

/* Return the job whose launcher has the process id `job`, or NULL. */
static const tt__job_heard *with_pid(const tt__job_heard *heard, int n, const char *job) {
    char *end;
    long pid = strtol(job, &end, 10);
    for (int i = 0; i < n && !*end && end != job; i++)
        if (pid == pid_in(&heard[i]))
            return &heard[i];
    return NULL;
}

static bool is_meant(const tt__job_heard *heard, const char *job) {
    return !heard->status && /* as much of the run id as was told */
           (!job || !strncmp(heard->info.run_id, job, sizeof heard->info.run_id - 1));
}

static size_t append_job(const tt__job_heard *heard, char *text, size_t size) {
    const tt__job_info *info = &heard->info;
    char node[48] = "";
    int n = 0;
    if (info->nodes > 1)
        snprintf(node, sizeof node, ", node %d of %d", (int)info->node, (int)info->nodes);
    if (heard->status == TT_ERR_TIMEOUT)
        n = snprintf(text, size, "\n  %ld  does not answer", pid_in(heard));
    else if (!heard->status)
        n = snprintf(text, size, "\n  %lld  %s, %d rank%s, run id %s%s", (long long)info->pid, info->program,
                     info->world, info->world == 1 ? "" : "s", info->run_id, node);
    return n < 0 ? 0 : (size_t)n < size ? (size_t)n : size - 1;
}

static tt_status fail_choice(const char *job, const tt__job_heard *heard, int n) {
    char list[1200] = "";
    size_t used = 0;
    for (int i = 0; i < n; i++)
        used += append_job(&heard[i], list + used, sizeof list - used);
    if (!used && job)
        return tt__fail(TT_ERR_NOT_FOUND, "there is no job \"%.100s\" of yours here, nor any other", job);
    if (!used)
        return tt__fail(TT_ERR_NOT_FOUND, "no job of yours runs on this host (--pid PID looks at a process that "
                                          "\"tutti run\" did not start)");
    if (job)
        return tt__fail(
            TT_ERR_NOT_FOUND,
            "there is no job \"%.100s\", or more than one; this host has these (give the number in front):%s", job,
            list);
    return tt__fail(TT_ERR_NOT_FOUND, "which job? Give the number in front, or the run id:%s", list);
}

/* Are these launchers two nodes of one job? Each can show all ranks. The default id, "none", names no job. */
static bool nodes_share_job(const tt__job_info *a, const tt__job_info *b) {
    return a->nodes > 1 && b->nodes > 1 && a->node != b->node && strcmp(a->run_id, "none") != 0 &&
           !strcmp(a->run_id, b->run_id);
}

/* Choose the job that the user means. A launcher's pid is known without asking it: given a pid, launchers that don't
 * answer cost no time. */
static tt_status choose_job(tt__view_source *source, const char *job, tt__job_heard *heard, int n) {
    const tt__job_heard *found = job ? with_pid(heard, n, job) : NULL;
    int matches = found != NULL;
    if (!found)
        tt__jobs_ask(heard, n, ANSWER_MS);
    for (int i = 0; i < n; i++)
        if (is_meant(&heard[i], job)) {
            matches += !found || !nodes_share_job(&found->info, &heard[i].info);
            found = found && found->info.node < heard[i].info.node ? found : &heard[i];
        }
    if (matches != 1)
        return fail_choice(job, heard, n);
    memcpy(source->socket, found->name, sizeof source->socket);
    return TT_OK;
}

tt_status tt__view_find(tt__view_source *source, const char *job, pid_t pid) {
    tt__job_heard *heard;
    int n;
    *source = (tt__view_source){.pid = pid};
    if (pid)
        return TT_OK;
    TT__TRY(tt__jobs_find(&heard, &n));
    tt_status status = choose_job(source, job, heard, n);
    free(heard);
    return status;
}
