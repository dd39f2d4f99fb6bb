/* Summaries of a view: ranks that come late (their records of one collective call side by side), rates, and the
 * progress of the training. */
#include "cli/look/job_view.h"

#include "base/error.h"
#include "base/text/format.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct entry {
    const tt__view_call *call;
    int place; /* in view->ranks */
} entry;

static bool is_collective(const tt__view_call *call) {
    uint8_t op = call->record.op;
    return call->record.seq && op != TT_OP_SEND && op != TT_OP_RECV && op != TT_OP_BATCH_ISEND_IRECV;
}

static int by_call(const void *a, const void *b) {
    const tt__call_record *x = &((const entry *)a)->call->record, *y = &((const entry *)b)->call->record;
    if (x->group != y->group)
        return x->group < y->group ? -1 : 1;
    return (x->seq > y->seq) - (x->seq < y->seq);
}

static int by_ns(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Return the median of `n` numbers, which are sorted by it; n > 0. */
static int64_t meeting_median(int64_t *ns, int n) {
    qsort(ns, (size_t)n, sizeof *ns, by_ns);
    return ns[n / 2];
}

/* Fill in the meeting of these `n` entries. begins (view->n): scratch. */
static void meeting_fill(tt__view_meeting *meeting, const tt__view *view, const entry *entries, int n,
                         int64_t *begins) {
    meeting->group = entries->call->record.group;
    meeting->seq = entries->call->record.seq;
    int last = -1, others = 0;
    for (int i = 0; i < n; i++) {
        const tt__view_call *call = entries[i].call;
        meeting->n += !meeting->calls[entries[i].place];
        meeting->calls[entries[i].place] = call;
        if (!meeting->first || call->begin_ns < meeting->first->begin_ns)
            meeting->first = call;
        if (!meeting->last || call->begin_ns > meeting->last->begin_ns) {
            meeting->last = call;
            last = entries[i].place;
        }
    }
    for (int i = 0; i < view->n; i++)
        if (meeting->calls[i] && i != last)
            begins[others++] = meeting->calls[i]->begin_ns;
    meeting->last_rank = view->ranks[last].rank.rank;
    meeting->lateness_ns = others ? meeting->last->begin_ns - meeting_median(begins, others) : 0;
}

/* Make the meetings of the sorted entries. */
static tt_status make_meetings(const tt__view *view, const entry *entries, int n, tt__view_meeting *meetings,
                               int *made) {
    size_t ranks = (size_t)view->n;
    int64_t *begins = malloc((ranks + 1) * sizeof *begins);
    tt_status status = begins ? TT_OK : tt__fail(TT_ERR_MEMORY, "no memory to compare %d calls", n);
    for (int i = 0, next; !status && i < n; i = next) {
        for (next = i + 1; next < n && !by_call(&entries[i], &entries[next]);)
            next++;
        tt__view_meeting *meeting = &meetings[*made];
        meeting->calls = calloc(ranks, sizeof *meeting->calls);
        if (!meeting->calls)
            status = tt__fail(TT_ERR_MEMORY, "no memory to compare %d calls", n);
        else
            meeting_fill(meeting, view, entries + i, next - i, begins);
        *made += !status;
    }
    free(begins);
    return status;
}

tt_status tt__view_meetings(const tt__view *view, tt__view_meeting **meetings, int *n) {
    int total = 0, used = 0;
    for (int i = 0; i < view->n; i++)
        total += view->ranks[i].n;
    entry *entries = malloc(((size_t)total + 1) * sizeof *entries);
    *meetings = calloc((size_t)total + 1, sizeof **meetings);
    *n = 0;
    for (int i = 0; entries && i < view->n; i++)
        for (int c = 0; c < view->ranks[i].n; c++)
            if (is_collective(&view->ranks[i].calls[c]))
                entries[used++] = (entry){&view->ranks[i].calls[c], i};
    tt_status status = entries && *meetings ? TT_OK : tt__fail(TT_ERR_MEMORY, "no memory to compare %d calls", total);
    if (!status && used) {
        qsort(entries, (size_t)used, sizeof *entries, by_call);
        status = make_meetings(view, entries, used, *meetings, n);
    }
    free(entries);
    if (status) {
        tt__view_meetings_free(*meetings, *n);
        *meetings = NULL;
        *n = 0;
    }
    return status;
}

void tt__view_meetings_free(tt__view_meeting *meetings, int n) {
    for (int i = 0; meetings && i < n; i++)
        free(meetings[i].calls);
    free(meetings);
}

/* ---- by group */

/* Return how many ranks the group has; 0: unknown. */
static int size_of(const tt__view *view, uint32_t id, const char **ranks) {
    *ranks = "?";
    for (int i = 0; i < view->n; i++) {
        const tt__recorder *recorder = view->ranks[i].recorder;
        for (int g = 0; recorder && g < TT__GROUPS_NAMED; g++)
            if (recorder->groups[g].size && atomic_load(&recorder->groups[g].id) == id) {
                *ranks = recorder->groups[g].ranks;
                return recorder->groups[g].size;
            }
    }
    return 0;
}

/* Does the operation end on no rank before all ranks have begun it? */
static bool needs_all(uint8_t op) {
    return op == TT_OP_BARRIER || op == TT_OP_ALL_REDUCE || op == TT_OP_REDUCE_SCATTER || op == TT_OP_ALL_GATHER ||
           op == TT_OP_ALL_GATHER_V || op == TT_OP_ALL_TO_ALL || op == TT_OP_ALL_TO_ALL_V ||
           op == TT_OP_ALL_REDUCE_COALESCED;
}

/* Infer the end of a call that was not recorded: after the last rank had begun, and before the rank's next call. */
static void infer_end(tt__view_rank *rank, const tt__view_call *seen, int64_t last_ns) {
    tt__view_call *call = &rank->calls[seen - rank->calls];
    int64_t next_ns = seen + 1 < rank->calls + rank->n ? seen[1].begin_ns : rank->now_ns;
    if (call->open || call->record.end || !needs_all(call->record.op))
        return;
    call->end_ns = last_ns < next_ns ? last_ns : next_ns;
    if (call->end_ns < call->begin_ns)
        call->end_ns = call->begin_ns;
}

tt_status tt__view_infer_ends(tt__view *view) {
    tt__view_meeting *meetings;
    int n;
    TT__TRY(tt__view_meetings(view, &meetings, &n));
    for (int i = 0; i < n; i++)
        for (int place = 0; place < view->n; place++)
            if (meetings[i].calls[place])
                infer_end(&view->ranks[place], meetings[i].calls[place], meetings[i].last->begin_ns);
    tt__view_meetings_free(meetings, n);
    return TT_OK;
}

/* Find the rank that was last most often in meetings first..end-1, which are those of a group. */
static void find_straggler(tt__view_group *group, const tt__view *view, const tt__view_meeting *first,
                           const tt__view_meeting *end, int64_t *scratch) {
    int size = size_of(view, group->id, &group->ranks);
    group->last_rank = -1;
    for (int i = 0; i < view->n; i++) {
        int count = 0;
        for (const tt__view_meeting *m = first; m < end; m++)
            if (m->n > 1 && m->n >= size && m->last_rank == view->ranks[i].rank.rank)
                scratch[count++] = m->lateness_ns;
        group->calls += count;
        if (count <= group->last_count)
            continue;
        group->last_count = count;
        group->last_rank = view->ranks[i].rank.rank;
        group->lateness_ns = meeting_median(scratch, count);
    }
}

tt_status tt__view_groups(const tt__view *view, tt__view_group **groups, int *n) {
    tt__view_meeting *meetings;
    int count;
    *n = 0;
    *groups = NULL;
    TT__TRY(tt__view_meetings(view, &meetings, &count));
    *groups = calloc((size_t)count + 1, sizeof **groups);
    int64_t *scratch = malloc(((size_t)count + 1) * sizeof *scratch);
    tt_status status = *groups && scratch ? TT_OK : tt__fail(TT_ERR_MEMORY, "no memory to compare %d calls", count);
    for (int i = 0, next; !status && i < count; i = next) {
        for (next = i + 1; next < count && meetings[next].group == meetings[i].group;)
            next++;
        tt__view_group *group = &(*groups)[(*n)++];
        group->id = meetings[i].group;
        find_straggler(group, view, meetings + i, meetings + next, scratch);
    }
    free(scratch);
    tt__view_meetings_free(meetings, count);
    if (status) {
        free(*groups);
        *groups = NULL;
        *n = 0;
    }
    return status;
}

/* ---- rates */

static const int64_t SECOND_NS = 1000000000;

/* Add the part of a slice after `*until`, up to which time is counted already: asynchronous calls overlap. */
static void count_busy(int64_t *busy, int64_t *until, int64_t begin, int64_t end) {
    begin = begin > *until ? begin : *until;
    if (end <= begin)
        return;
    *busy += end - begin;
    *until = end;
}

tt__view_rates tt__view_rates_of(const tt__view_rank *rank) {
    tt__view_rates rates = {0};
    int64_t from = rank->now_ns - SECOND_NS, busy = 0, device_busy = 0;
    bool full = rank->n > TT__RECORDS - 8 * TT__RECORD_BLOCK;
    if (full && rank->calls[0].begin_ns > from)
        from = rank->calls[0].begin_ns; /* older calls are overwritten */
    double window = (double)(rank->now_ns - from) / (double)SECOND_NS, calls = 0, bytes = 0;
    int64_t until = from, device_until = from;
    for (int i = 0; i < rank->n; i++) {
        const tt__view_call *call = &rank->calls[i];
        count_busy(&busy, &until, call->begin_ns, call->end_ns);
        if (call->on_device)
            count_busy(&device_busy, &device_until, call->ran_from_ns, call->ran_until_ns);
        if (call->open || call->end_ns < from)
            continue;
        calls++;
        bytes += (double)tt__record_bytes(&call->record);
    }
    if (window <= 0)
        return rates;
    rates.calls_per_s = calls / window;
    rates.bytes_per_s = bytes / window;
    rates.busy = (double)busy / (double)(rank->now_ns - from);
    rates.device_busy = (double)device_busy / (double)(rank->now_ns - from);
    return rates;
}

/* ---- the training's progress */

void tt__training_add(tt__training *all, const tt__progress *p, double rate) {
    if (!all->ranks++ || p->epoch < all->slowest.epoch ||
        (p->epoch == all->slowest.epoch && p->step < all->slowest.step))
        memcpy((void *)&all->slowest, (const void *)p, sizeof *p);
    all->samples_per_s += rate;
    all->loss += isfinite(p->loss) ? p->loss : 0;
    all->losses += isfinite(p->loss) != 0;
}

const char *tt__training_text(const tt__training *all, char *text, size_t size) {
    const tt__progress *p = &all->slowest;
    char number[48];
    int n = 0;
    if (p->epoch)
        n += snprintf(text, size, "epoch %s, ", tt__training_part(p->epoch, p->epochs, number, sizeof number));
    n += snprintf(text + n, size - (size_t)n, "step %s", tt__training_part(p->step, p->steps, number, sizeof number));
    if (all->losses)
        n += tt__format(text + n, size - (size_t)n, ", loss %.4g", all->loss / all->losses);
    if (all->samples_per_s > 0)
        snprintf(text + n, size - (size_t)n, ", %s samples/s",
                 tt__short_number(all->samples_per_s, number, sizeof number));
    return text;
}

const char *tt__training_part(int64_t number, int64_t all, char *text, size_t size) {
    if (all)
        snprintf(text, size, "%lld/%lld", (long long)number, (long long)all);
    else
        snprintf(text, size, "%lld", (long long)number);
    return text;
}

const char *tt__short_number(double x, char *text, size_t size) {
    static const char suffixes[] = " kMGT";
    int i = 0;
    for (; x >= 999.5 && i < 4; i++)
        x /= 1000;
    if (i == 0)
        tt__format(text, size, "%.0f", x);
    else
        tt__format(text, size, "%.*f%c", x < 99.5 ? 1 : 0, x, suffixes[i]);
    return text;
}
