#include "cli/top.h"

#include "base/error.h"
#include "cli/cli.h"
#include "cli/training.h"
#include "elastic/report.h"
#include "elastic/terminal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const int64_t SECOND = 1000000000, LATE_NS = 20000;

/* "350 us", "3.2 s", "2 h 5 min". Returns `text`. */
static const char *duration_text(int64_t ns, char *text, size_t size) {
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

static const tt__view_rank *find_rank(const tt__view *view, int rank) {
    for (int i = 0; i < view->n; i++)
        if (view->ranks[i].rank.rank == rank)
            return &view->ranks[i];
    return NULL;
}

/* Write the rank's present call, or its last. */
static void doing_text(const tt__view_rank *rank, char *text, size_t size) {
    char call[256], how_long[32];
    const tt__view_call *c = rank->current;
    if (!c || !rank->recorder) {
        snprintf(text, size, "%s",
                 rank->recorder                 ? "no calls yet"
                 : rank->state == TT__VIEW_RUNS ? "has not joined a group yet"
                                                : "never joined a group");
        return;
    }
    tt__record_text(rank->recorder, &c->record, call, sizeof call);
    const char *group = tt__recorder_group_ranks(rank->recorder, c->record.group);
    duration_text(rank->now_ns - (c->open ? c->begin_ns : c->end_ns), how_long, sizeof how_long);
    bool over = rank->state == TT__VIEW_ENDED || rank->state == TT__VIEW_GONE;
    if (c->open)
        snprintf(text, size, over ? "died in %s, call %u of group %s, after %s" : "in %s, call %u of group %s, for %s",
                 call, c->record.seq, group, how_long);
    else
        snprintf(text, size,
                 over ? "its last was %s%s, call %u of group %s, %s before" : "after %s%s, call %u of group %s, %s ago",
                 call, c->record.state == TT__CALL_FAILED ? ", which failed" : "", c->record.seq, group, how_long);
}

/* ---- one line a rank */

enum { DOING_MIN = 48, DOING_INDENT = 6, PROGRESS_COLUMNS = 43, LINE_SIZE = 2048, LEFT_SIZE = 256 };

/* Which columns there are. */
typedef struct columns {
    const tt__top_page *page;
    FILE *out;
    bool nodes, progress, progress_below;
    int left; /* columns before what the rank does */
} columns;

static const char *colour_sequence(const columns *c, const char *sequence) { return c->page->colours ? sequence : ""; }

static int put_progress(const tt__view_rank *rank, char *text, size_t size) {
    const tt__progress *p = &rank->progress;
    char epoch[48], step[48], loss[24] = "-", rate[16] = "-";
    if (!rank->progresses)
        return snprintf(text, size, "%7s %13s %9s %9s  ", "-", "-", "-", "-");
    if (isfinite(p->loss))
        snprintf(loss, sizeof loss, "%.4g", p->loss);
    if (rank->samples_per_s > 0)
        tt__short_number(rank->samples_per_s, rate, sizeof rate);
    return snprintf(text, size, "%7s %13s %9s %9s  ",
                    p->epoch ? tt__training_part(p->epoch, p->epochs, epoch, sizeof epoch) : "-",
                    tt__training_part(p->step, p->steps, step, sizeof step), loss, rate);
}

/* Print the heading. Numbers of the training that have no columns of their own stand before the rank's call. */
static void print_heading(columns *c) {
    char text[LEFT_SIZE];
    int n = snprintf(text, sizeof text, " rank %s     pid  state    calls/s     B/s comm  ", c->nodes ? "node " : "");
    c->progress_below = c->progress && c->page->columns && n + PROGRESS_COLUMNS > c->page->columns;
    if (c->progress && !c->progress_below)
        n += snprintf(text + n, sizeof text - (size_t)n, "%7s %13s %9s %9s  ", "epoch", "step", "loss", "samples/s");
    c->left = n;
    bool beside = !c->page->columns || c->page->columns - n >= DOING_MIN;
    fprintf(c->out, "%s%s%s%s\n", colour_sequence(c, "\033[1m"), text, beside ? "call" : "",
            colour_sequence(c, "\033[0m"));
}

static const char *state_colour(const columns *c, const tt__view_rank *rank) {
    bool bad = rank->state == TT__VIEW_STOPPED || rank->state == TT__VIEW_GONE ||
               (rank->state == TT__VIEW_ENDED && rank->rank.wait_status);
    return colour_sequence(c, bad ? "\033[31m" : rank->state == TT__VIEW_RUNS ? "\033[32m" : "");
}

/* Print a rank: its numbers, then its call, on the next line where there is no room. */
static void print_rank(const columns *c, const tt__view_rank *rank) {
    char state[64], calls[16], bytes[16], text[LEFT_SIZE], doing[LINE_SIZE];
    tt__top_rates rates = tt__top_rates_of(rank);
    bool lives = rank->state == TT__VIEW_RUNS || rank->state == TT__VIEW_STOPPED;
    int used = fprintf(c->out, "%5d ", rank->rank.rank);
    if (c->nodes)
        used += fprintf(c->out, "%4d ", rank->rank.node);
    used += fprintf(c->out, "%8lld  ", (long long)(rank->recorder ? rank->recorder->pid : rank->rank.pid));
    fprintf(c->out, "%s%-8s%s ", state_colour(c, rank), tt__view_state_text(rank, state, sizeof state),
            colour_sequence(c, "\033[0m"));
    used += 1 + (strlen(state) > 8 ? (int)strlen(state) : 8);
    int n =
        lives && rank->recorder
            ? snprintf(text, sizeof text, "%7s %7s %3.0f%%  ", tt__short_number(rates.calls_per_s, calls, sizeof calls),
                       tt__short_number(rates.bytes_per_s, bytes, sizeof bytes), 100 * rates.busy)
            : snprintf(text, sizeof text, "%7s %7s %4s  ", "-", "-", "-");
    if (c->progress && !c->progress_below)
        n += put_progress(rank, text + n, sizeof text - (size_t)n);
    used += n;
    n = 0;
    if (c->progress_below && rank->progresses) {
        tt__training one = {0};
        tt__training_add(&one, &rank->progress, rank->samples_per_s);
        n = (int)strlen(tt__training_text(&one, doing, sizeof doing / 2));
        n += snprintf(doing + n, sizeof doing - (size_t)n, "; ");
    }
    doing_text(rank, doing + n, sizeof doing - (size_t)n);
    if (c->page->columns && c->page->columns - c->left < DOING_MIN) {
        fprintf(c->out, "%s\n%*s", text, DOING_INDENT, "");
        tt__cli_print_wrapped(c->out, doing, c->page->columns, DOING_INDENT, DOING_INDENT);
    } else {
        fputs(text, c->out);
        tt__cli_print_wrapped(c->out, doing, c->page->columns, used, c->left);
    }
}

/* ---- the training of all */

static void print_training(const columns *c, const tt__view *view) {
    tt__training all = {0};
    char line[LINE_SIZE] = "training: ";
    size_t n = strlen(line);
    for (int i = 0; i < view->n; i++)
        if (view->ranks[i].progresses)
            tt__training_add(&all, &view->ranks[i].progress, view->ranks[i].samples_per_s);
    tt__training_text(&all, line + n, sizeof line - n);
    tt__cli_print_wrapped(c->out, line, c->page->columns, 0, 2);
}

/* ---- who waits for whom */

/* "rank 3", "ranks 0-2, 5": those that wait for `whom`; *longest_ns for how long the first of them has. False: nobody.
 */
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

static void print_awaited(const columns *c, const tt__view *view, int whom) {
    char ranks[256], how_long[32], state[64], doing[LINE_SIZE / 2], line[LINE_SIZE];
    int64_t longest;
    if (!list_waiters(view, whom, ranks, sizeof ranks, &longest))
        return;
    bool many = strpbrk(ranks, "-,");
    duration_text(longest, how_long, sizeof how_long);
    const tt__view_rank *rank = find_rank(view, whom);
    int n = snprintf(line, sizeof line, "rank%s %s wait%s for ", many ? "s" : "", ranks, many ? "" : "s");
    if (whom < 0)
        snprintf(line + n, sizeof line - (size_t)n, "a message from any rank, for %s", how_long);
    else
        n += snprintf(line + n, sizeof line - (size_t)n, "rank %d, for %s", whom, how_long);
    if (whom >= 0 && rank) {
        doing_text(rank, doing, sizeof doing);
        snprintf(line + n, sizeof line - (size_t)n, ". Rank %d %s%s, %s", whom,
                 rank->state == TT__VIEW_STOPPED ? "is " : "", tt__view_state_text(rank, state, sizeof state), doing);
    }
    tt__cli_print_wrapped(c->out, line, c->page->columns, 0, 2);
}

static void print_waits(const columns *c, const tt__view *view) {
    print_awaited(c, view, -1);
    for (int i = 0; i < view->n; i++)
        print_awaited(c, view, view->ranks[i].rank.rank);
}

static tt_status print_stragglers(const columns *c, const tt__view *view) {
    tt__view_group *groups;
    int n;
    TT__TRY(tt__view_groups(view, &groups, &n));
    for (int i = 0; i < n; i++) {
        char late[32], line[LINE_SIZE];
        if (groups[i].calls < 2)
            continue;
        if (groups[i].lateness_ns < LATE_NS)
            snprintf(line, sizeof line, "group %s: no rank comes late, of the last %d calls", groups[i].ranks,
                     groups[i].calls);
        else
            snprintf(line, sizeof line,
                     "group %s: rank %d came last in %d of the last %d calls, %s behind the others "
                     "(median)",
                     groups[i].ranks, groups[i].last_rank, groups[i].last_count, groups[i].calls,
                     duration_text(groups[i].lateness_ns, late, sizeof late));
        tt__cli_print_wrapped(c->out, line, c->page->columns, 0, 2);
    }
    free(groups);
    return TT_OK;
}

static void print_title(const columns *c, const tt__view *view) {
    const tt__job_info *info = &view->snapshot.info;
    char up[32], job[32] = "", nodes[32] = "", line[LINE_SIZE];
    if (info->pid)
        snprintf(job, sizeof job, "job %lld: ", (long long)info->pid);
    if (info->nodes > 1)
        snprintf(nodes, sizeof nodes, " on %d nodes", info->nodes);
    snprintf(line, sizeof line, "%s%s, %d rank%s%s, up %s", job, info->program, info->world,
             info->world == 1 ? "" : "s", nodes,
             duration_text(view->now_ns - info->started_realtime_ns, up, sizeof up));
    tt__cli_print_wrapped(c->out, line, c->page->columns, 0, 2);
}

tt_status tt__top_text(const tt__view *view, const tt__top_page *page, FILE *out) {
    columns c = {.page = page, .out = out, .nodes = view->snapshot.info.nodes > 1};
    for (int i = 0; i < view->n; i++)
        c.progress = c.progress || view->ranks[i].progresses;
    print_title(&c, view);
    if (c.progress)
        print_training(&c, view);
    fputc('\n', out);
    print_heading(&c);
    for (int i = 0; i < view->n; i++)
        print_rank(&c, &view->ranks[i]);
    fputc('\n', out);
    print_waits(&c, view);
    return print_stragglers(&c, view);
}
