#include "cli/top.h"

#include "base/error.h"
#include "elastic/report.h"

#include <stdlib.h>
#include <string.h>

static const int64_t SECOND = 1000000000, LATE_NS = 20000;

const char *tt__top_duration(int64_t ns, char *text, size_t size) {
    long long s = ns / SECOND;
    if (ns < 0)
        ns = 0;
    if (ns < 10000000)
        snprintf(text, size, "%lld us", (long long)ns / 1000);
    else if (s < 1)
        snprintf(text, size, "%lld ms", (long long)ns / 1000000);
    else if (s < 60)
        snprintf(text, size, "%.1f s", (double)ns / (double)SECOND);
    else if (s < 3600)
        snprintf(text, size, "%lld min %lld s", s / 60, s % 60);
    else
        snprintf(text, size, "%lld h %lld min", s / 3600, s / 60 % 60);
    return text;
}

tt__top_rates tt__top_rates_of(const tt__view_rank *rank) {
    tt__top_rates rates = {0};
    int64_t from = rank->now_ns - SECOND, busy = 0;
    bool full = rank->n > TT__RECORDS - 8 * TT__RECORD_BLOCK;
    if (full && rank->calls[0].begin_ns > from)
        from = rank->calls[0].begin_ns; /* what was before is overwritten */
    double window = (double)(rank->now_ns - from) / (double)SECOND, calls = 0, bytes = 0;
    int64_t until = from; /* up to where time is counted: asynchronous calls overlap */
    for (int i = 0; i < rank->n; i++) {
        const tt__view_call *call = &rank->calls[i];
        int64_t begin = call->begin_ns > until ? call->begin_ns : until;
        if (call->end_ns > begin) {
            busy += call->end_ns - begin;
            until = call->end_ns;
        }
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
    return rates;
}

/* "950", "12.3k", "4.5M" */
static const char *short_number(double x, char *text, size_t size) {
    static const char suffixes[] = " kMGT";
    int i = 0;
    for (; x >= 999.5 && i < 4; i++)
        x /= 1000;
    if (i == 0)
        snprintf(text, size, "%.0f", x);
    else
        snprintf(text, size, "%.*f%c", x < 99.5 ? 1 : 0, x, suffixes[i]);
    return text;
}

static const tt__view_rank *find_rank(const tt__view *view, int rank) {
    for (int i = 0; i < view->n; i++)
        if (view->ranks[i].rank.rank == rank)
            return &view->ranks[i];
    return NULL;
}

/* What the rank does, or did last. */
static void print_doing(const tt__view_rank *rank, FILE *out) {
    char call[256], how_long[32];
    const tt__view_call *c = rank->current;
    if (!rank->recorder) {
        fprintf(out, "%s", rank->state == TT__VIEW_RUNS ? "has not joined a group yet" : "never joined a group");
        return;
    }
    if (!c) {
        fprintf(out, "no calls yet");
        return;
    }
    tt__record_text(rank->recorder, &c->record, call, sizeof call);
    const char *group = tt__recorder_group_ranks(rank->recorder, c->record.group);
    tt__top_duration(rank->now_ns - (c->open ? c->begin_ns : c->end_ns), how_long, sizeof how_long);
    bool over = rank->state == TT__VIEW_ENDED || rank->state == TT__VIEW_GONE;
    if (c->open)
        fprintf(out, over ? "died in %s, call %u of group %s, after %s" : "in %s, call %u of group %s, for %s", call,
                c->record.seq, group, how_long);
    else
        fprintf(out,
                over ? "its last was %s%s, call %u of group %s, %s before" : "after %s%s, call %u of group %s, %s ago",
                call, c->record.state == TT__CALL_FAILED ? ", which failed" : "", c->record.seq, group, how_long);
}

static void print_rank(const tt__view *view, const tt__view_rank *rank, FILE *out) {
    char state[64], calls[16], bytes[16];
    tt__top_rates rates = tt__top_rates_of(rank);
    bool lives = rank->state == TT__VIEW_RUNS || rank->state == TT__VIEW_STOPPED;
    fprintf(out, "%5d ", rank->rank.rank);
    if (view->snapshot.info.nodes > 1)
        fprintf(out, "%4d ", rank->rank.node);
    fprintf(out, "%8lld  %-8s ", (long long)(rank->recorder ? rank->recorder->pid : rank->rank.pid),
            tt__view_state_text(rank, state, sizeof state));
    if (lives && rank->recorder)
        fprintf(out, "%7s %7s %3.0f%%  ", short_number(rates.calls_per_s, calls, sizeof calls),
                short_number(rates.bytes_per_s, bytes, sizeof bytes), 100 * rates.busy);
    else
        fprintf(out, "%7s %7s %4s  ", "-", "-", "-");
    print_doing(rank, out);
    fputc('\n', out);
}

/* ---- who waits for whom */

/* "rank 3", "ranks 0-2, 5": those that wait for `whom`; *longest_ns for how long the first of them has. False: nobody. */
static bool list_waiters(const tt__view *view, int whom, char *text, size_t size, int64_t *longest_ns) {
    int count = 0;
    size_t used = 0;
    *longest_ns = 0;
    for (int i = 0, last; i < view->n; i = last + 1) {
        last = i;
        if (!view->ranks[i].waits || view->ranks[i].waiting.whom != whom || view->ranks[i].state == TT__VIEW_ENDED)
            continue;
        while (last + 1 < view->n && view->ranks[last + 1].waits && view->ranks[last + 1].waiting.whom == whom &&
               view->ranks[last + 1].rank.rank == view->ranks[last].rank.rank + 1)
            last++;
        for (int r = i; r <= last; r++)
            if (view->ranks[r].now_ns - view->ranks[r].waits_since_ns > *longest_ns)
                *longest_ns = view->ranks[r].now_ns - view->ranks[r].waits_since_ns;
        if (used < size)
            used += (size_t)snprintf(text + used, size - used, last > i ? "%s%d-%d" : "%s%d", count ? ", " : "",
                                     view->ranks[i].rank.rank, view->ranks[last].rank.rank);
        count += last - i + 1;
    }
    return count > 0;
}

static void print_awaited(const tt__view *view, int whom, FILE *out) {
    char ranks[256], how_long[32], state[64];
    int64_t longest;
    if (!list_waiters(view, whom, ranks, sizeof ranks, &longest))
        return;
    bool many = strpbrk(ranks, "-,");
    tt__top_duration(longest, how_long, sizeof how_long);
    fprintf(out, "rank%s %s wait%s ", many ? "s" : "", ranks, many ? "" : "s");
    if (whom < 0) {
        fprintf(out, "for a message from any rank, for %s\n", how_long);
        return;
    }
    fprintf(out, "for rank %d, for %s", whom, how_long);
    const tt__view_rank *rank = find_rank(view, whom);
    if (rank) {
        fprintf(out, ". Rank %d %s%s, ", whom, rank->state == TT__VIEW_STOPPED ? "is " : "",
                tt__view_state_text(rank, state, sizeof state));
        print_doing(rank, out);
    }
    fputc('\n', out);
}

static void print_waits(const tt__view *view, FILE *out) {
    print_awaited(view, -1, out);
    for (int i = 0; i < view->n; i++)
        print_awaited(view, view->ranks[i].rank.rank, out);
}

static tt_status print_stragglers(const tt__view *view, FILE *out) {
    tt__view_group *groups;
    int n;
    TT__TRY(tt__view_groups(view, &groups, &n));
    for (int i = 0; i < n; i++) {
        char late[32];
        if (groups[i].calls < 2)
            continue;
        if (groups[i].lateness_ns < LATE_NS)
            fprintf(out, "group %s: no rank comes late, of the last %d calls\n", groups[i].ranks, groups[i].calls);
        else
            fprintf(out, "group %s: rank %d came last in %d of the last %d calls, %s behind the others (median)\n",
                    groups[i].ranks, groups[i].last_rank, groups[i].last_count, groups[i].calls,
                    tt__top_duration(groups[i].lateness_ns, late, sizeof late));
    }
    free(groups);
    return TT_OK;
}

static void print_title(const tt__view *view, FILE *out) {
    const tt__job_info *info = &view->snapshot.info;
    char up[32];
    if (info->pid)
        fprintf(out, "job %lld: ", (long long)info->pid);
    fprintf(out, "%s, %d rank%s", info->program, info->world, info->world == 1 ? "" : "s");
    if (info->nodes > 1)
        fprintf(out, " on %d nodes", info->nodes);
    fprintf(out, ", up %s\n\n", tt__top_duration(view->now_ns - info->started_realtime_ns, up, sizeof up));
}

tt_status tt__top_text(const tt__view *view, FILE *out) {
    print_title(view, out);
    fprintf(out, " rank %s     pid  state    calls/s     B/s comm  call\n",
            view->snapshot.info.nodes > 1 ? "node " : "");
    for (int i = 0; i < view->n; i++)
        print_rank(view, &view->ranks[i], out);
    fputc('\n', out);
    print_waits(view, out);
    return print_stragglers(view, out);
}
