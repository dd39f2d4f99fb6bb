/* A view as a page of text, cut where a screen has few rows. */
#include "base/text/format.h"
#include "cli/look/job_view.h"

#include "base/error.h"
#include "cli/cli.h"

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
        tt__format(text, size, "%.1f s", (double)ns / (double)SECOND);
    else if (s < 3600)
        snprintf(text, size, "%lld min %lld s", s / 60, s % 60);
    else
        snprintf(text, size, "%lld h %lld min", s / 3600, s / 60 % 60);
    return text;
}

static const tt__view_rank *find_rank(const tt__view *view, int rank) {
    for (int i = 0; i < view->n; i++)
        if (view->ranks[i].rank.rank == rank)
            return &view->ranks[i];
    return NULL;
}

/* "; 350 us on cuda:0" */
static void add_device_text(const tt__view_call *call, char *text, size_t size) {
    char how_long[32], device[TT__DEVICE_NAME_SIZE];
    size_t n = strlen(text);
    if (call->on_device)
        snprintf(text + n, size - n, "; %s on %s", duration_text(call->ran.duration_ns, how_long, sizeof how_long),
                 tt__view_device_name(call, device));
}

const char *tt__top_doing_text(const tt__view_rank *rank, char *text, size_t size) {
    char call[256], how_long[32];
    const tt__view_call *c = rank->current;
    if (!c || !rank->recorder) {
        snprintf(text, size, "%s",
                 rank->unreadable
                     ? "uses another version of Tutti, so its calls can't be read: look with that one's command"
                 : rank->recorder               ? "no calls yet"
                 : rank->state == TT__VIEW_RUNS ? "has not joined a group yet"
                                                : "never joined a group");
        return text;
    }
    tt__record_text(rank->recorder, &c->record, call, sizeof call);
    const char *group = tt__recorder_group_ranks(rank->recorder, c->record.group);
    duration_text(rank->now_ns - (c->open ? c->begin_ns : c->end_ns), how_long, sizeof how_long);
    bool over = rank->state == TT__VIEW_ENDED || rank->state == TT__VIEW_GONE;
    if (c->open)
        snprintf(text, size, over ? "died in %s, call %u of group %s, after %s" : "in %s, call %u of group %s, for %s",
                 call, c->record.call, group, how_long);
    else
        snprintf(text, size,
                 over ? "its last was %s%s, call %u of group %s, %s before" : "after %s%s, call %u of group %s, %s ago",
                 call, c->record.state == TT__CALL_FAILED ? ", which failed" : "", c->record.call, group, how_long);
    add_device_text(c, text, size);
    return text;
}

/* ---- one line a rank */

enum { DOING_MIN = 48, DOING_INDENT = 6, PROGRESS_COLUMNS = 43, LINE_SIZE = 2048, LEFT_SIZE = 256 };

/* How much a page of few rows leaves out. DENSE: empty lines, second lines of title and training; CUT: all second
 * lines; SOME: the heading, and ranks that don't fit, those in trouble last of all. */
typedef enum density { WHOLE, DENSE, CUT, SOME } density;

/* Which columns there are. */
typedef struct columns {
    const tt__top_page *page;
    FILE *out;
    density density;
    int rows_left; /* SOME: lines that may follow */
    bool nodes, devices, progress, progress_below;
    bool narrow; /* CUT: a rank's pid and rates have no room beside what it does */
    int left;    /* columns before what the rank does */
} columns;

/* Write the rest of a line that has `used` columns already: wrapped, with `indent` spaces before further lines, or from
 * the density `cut_from` on cut. */
static void put_line(columns *c, density cut_from, const char *line, int used, int indent) {
    c->rows_left--;
    if (c->density < cut_from || !c->page->columns) {
        tt__cli_print_wrapped(c->out, line, c->page->columns, used, indent);
        return;
    }
    int room = c->page->columns - used;
    size_t n = 0;
    for (; line[n] && (room > 0 || (line[n] & 0xc0) == 0x80); n++) /* a UTF-8 character has one column */
        room -= (line[n + 1] & 0xc0) != 0x80;
    fprintf(c->out, "%.*s\n", (int)n, line);
}

static void put_empty_line(const columns *c) {
    if (c->density == WHOLE)
        fputc('\n', c->out);
}

static const char *colour_sequence(const columns *c, const char *sequence) { return c->page->colours ? sequence : ""; }

static int put_progress(const tt__view_rank *rank, char *text, size_t size) {
    const tt__progress *p = &rank->progress;
    char epoch[48], step[48], loss[24] = "-", rate[16] = "-";
    if (!rank->progresses)
        return snprintf(text, size, "%7s %13s %9s %9s  ", "-", "-", "-", "-");
    if (isfinite(p->loss))
        tt__format(loss, sizeof loss, "%.4g", p->loss);
    if (rank->samples_per_s > 0)
        tt__short_number(rank->samples_per_s, rate, sizeof rate);
    return snprintf(text, size, "%7s %13s %9s %9s  ",
                    p->epoch ? tt__training_part(p->epoch, p->epochs, epoch, sizeof epoch) : "-",
                    tt__training_part(p->step, p->steps, step, sizeof step), loss, rate);
}

/* Print the heading, and decide what has room. If the training's numbers have no columns, they stand before the rank's
 * call. */
static void print_heading(columns *c) {
    char text[LEFT_SIZE];
    int n = snprintf(text, sizeof text, " rank %s     pid  state    calls/s     B/s comm%s  ", c->nodes ? "node " : "",
                     c->devices ? "  gpu" : "");
    c->narrow = c->density >= CUT && c->page->columns && c->page->columns - n < DOING_MIN;
    if (c->narrow)
        n = snprintf(text, sizeof text, " rank %sstate    ", c->nodes ? "node " : "");
    c->progress_below = c->progress && c->page->columns && n + PROGRESS_COLUMNS > c->page->columns;
    if (c->progress && !c->progress_below && !c->narrow)
        n += snprintf(text + n, sizeof text - (size_t)n, "%7s %13s %9s %9s  ", "epoch", "step", "loss", "samples/s");
    c->left = n;
    bool beside = !c->page->columns || c->narrow || c->page->columns - n >= DOING_MIN;
    if (c->density < SOME)
        fprintf(c->out, "%s%s%s%s\n", colour_sequence(c, "\033[1m"), text, beside ? "call" : "",
                colour_sequence(c, "\033[0m"));
}

static bool is_down(const tt__view_rank *rank) {
    return rank->state == TT__VIEW_STOPPED || rank->state == TT__VIEW_GONE ||
           (rank->state == TT__VIEW_ENDED && rank->rank.wait_status);
}

static const char *state_colour(const columns *c, const tt__view_rank *rank) {
    return colour_sequence(c, is_down(rank) ? "\033[31m" : rank->state == TT__VIEW_RUNS ? "\033[32m" : "");
}

/* Write what a rank did in the last second, and its training where that has columns. */
static int put_numbers(const columns *c, const tt__view_rank *rank, char text[LEFT_SIZE]) {
    char calls[16], bytes[16], gpu[16] = "";
    tt__view_rates rates = tt__view_rates_of(rank);
    bool lives = rank->state == TT__VIEW_RUNS || rank->state == TT__VIEW_STOPPED;
    bool shown = lives && rank->recorder;
    if (c->devices && shown && rank->on_device)
        tt__format(gpu, sizeof gpu, " %3.0f%%", 100 * rates.device_busy);
    else if (c->devices)
        snprintf(gpu, sizeof gpu, " %4s", "-");
    int n = shown ? tt__format(text, LEFT_SIZE, "%7s %7s %3.0f%%%s  ",
                               tt__short_number(rates.calls_per_s, calls, sizeof calls),
                               tt__short_number(rates.bytes_per_s, bytes, sizeof bytes), 100 * rates.busy, gpu)
                  : snprintf(text, LEFT_SIZE, "%7s %7s %4s%s  ", "-", "-", "-", gpu);
    if (c->progress && !c->progress_below)
        n += put_progress(rank, text + n, LEFT_SIZE - (size_t)n);
    return n;
}

/* Print a rank: its numbers, then its call, on the next line where there is no room. */
static void print_rank(columns *c, const tt__view_rank *rank) {
    char state[64], text[LEFT_SIZE] = "", doing[LINE_SIZE];
    int used = fprintf(c->out, "%5d ", rank->rank.rank), n = 0;
    if (c->nodes)
        used += fprintf(c->out, "%4d ", rank->rank.node);
    if (!c->narrow)
        used += fprintf(c->out, "%8lld  ", (long long)(rank->recorder ? rank->recorder->pid : rank->rank.pid));
    fprintf(c->out, "%s%-8s%s ", state_colour(c, rank), tt__view_state_text(rank, state, sizeof state),
            colour_sequence(c, "\033[0m"));
    used += 1 + (strlen(state) > 8 ? (int)strlen(state) : 8);
    if (!c->narrow)
        used += put_numbers(c, rank, text);
    if (c->progress_below && rank->progresses && c->density < CUT) {
        tt__training one = {0};
        tt__training_add(&one, &rank->progress, rank->samples_per_s);
        n = (int)strlen(tt__training_text(&one, doing, sizeof doing / 2));
        n += snprintf(doing + n, sizeof doing - (size_t)n, "; ");
    }
    tt__top_doing_text(rank, doing + n, sizeof doing - (size_t)n);
    if (c->density < CUT && c->page->columns && c->page->columns - c->left < DOING_MIN) {
        fprintf(c->out, "%s\n%*s", text, DOING_INDENT, "");
        put_line(c, CUT, doing, DOING_INDENT, DOING_INDENT);
    } else {
        fputs(text, c->out);
        put_line(c, CUT, doing, used, c->left);
    }
}

/* ---- the training of all */

static void print_training(columns *c, const tt__view *view) {
    tt__training all = {0};
    char line[LINE_SIZE] = "training: ";
    size_t n = strlen(line);
    for (int i = 0; i < view->n; i++)
        if (view->ranks[i].progresses)
            tt__training_add(&all, &view->ranks[i].progress, view->ranks[i].samples_per_s);
    tt__training_text(&all, line + n, sizeof line - n);
    put_line(c, DENSE, line, 0, 2);
}

/* Write where the time of a step goes: means over the ranks that average. */
static bool put_averaging(const tt__view *view, char *text, size_t size) {
    double forward = 0, backward = 0, averaging = 0, overlap = 0;
    const tt__averaging *one = NULL;
    int ranks = 0;
    for (int i = 0; i < view->n; i++) {
        const tt__averaging *a = &view->ranks[i].averaging;
        if (!view->ranks[i].averages)
            continue;
        one = a;
        ranks++;
        forward += (double)a->forward_ns;
        backward += (double)a->backward_ns;
        averaging += (double)a->averaging_ns;
        overlap += (double)a->overlap_ns;
    }
    const double ms = 1e6 * ranks;
    if (one)
        tt__format(
            text, size,
            "gradients: %.3g MB in %lld bucket%s; forward %.3g ms, backward %.3g ms, averaging %.3g ms, of which %.3g "
            "ms beside backward",
            (double)one->bytes / 1e6, (long long)one->buckets, one->buckets == 1 ? "" : "s", forward / ms,
            backward / ms, averaging / ms, overlap / ms);
    return one != NULL;
}

static void print_averaging(columns *c, const tt__view *view) {
    char line[LINE_SIZE];
    if (c->density < CUT && put_averaging(view, line, sizeof line))
        put_line(c, DENSE, line, 0, 2);
}

/* ---- calls to workers */

/* "oldest step() to 1, for 2.3 s; owns 3 of make(), 2 of open()" */
static void put_worker_details(const tt__view_rank *rank, char *text, size_t size) {
    const tt__view_rpc_call *open = tt__view_rpc_open(rank);
    char how_long[32];
    size_t n = 0;
    text[0] = '\0';
    if (open)
        n = (size_t)snprintf(text, size, "oldest %s() to %d, for %s", tt__view_function(rank, open->record.function),
                             (int)open->record.to,
                             duration_text(rank->now_ns - open->begin_ns, how_long, sizeof how_long));
    for (int i = 0; i < TT__RPC_MAKERS && rank->worker.makers[i].count > 0 && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%lld of %s()",
                              i   ? ", "
                              : n ? "; owns "
                                  : "owns ",
                              (long long)rank->worker.makers[i].count,
                              tt__view_function(rank, rank->worker.makers[i].function));
}

static void print_worker(columns *c, const tt__view_rank *rank) {
    const tt__rpc_shown *w = &rank->worker;
    char made[16], served[16], bytes[16], waiting[16], numbers[LEFT_SIZE], details[LINE_SIZE / 2], line[LINE_SIZE];
    double made_per_s, served_per_s;
    tt__rpc_shown_rates(w, &made_per_s, &served_per_s);
    snprintf(numbers, sizeof numbers, "%5d %-16.64s %7s %7lld %8s %7lld %7lld %7lld %7s %7s %6lld %6lld",
             rank->rank.rank, w->name, tt__short_number(made_per_s, made, sizeof made), (long long)w->calls,
             tt__short_number(served_per_s, served, sizeof served), (long long)w->serving, (long long)w->threads,
             (long long)w->idle, tt__short_number((double)w->bytes, bytes, sizeof bytes),
             tt__short_number((double)w->waiting, waiting, sizeof waiting), (long long)w->owned, (long long)w->held);
    put_worker_details(rank, details, sizeof details);
    snprintf(line, sizeof line, "%s%s%s", numbers, *details ? "  " : "", details);
    put_line(c, CUT, line, 0, DOING_INDENT);
}

/* A line for each rank that is a worker of tutti/rpc.h. */
static void print_workers(columns *c, const tt__view *view) {
    bool any = false;
    for (int i = 0; i < view->n; i++) {
        const tt__view_rank *rank = &view->ranks[i];
        if (!rank->is_worker || rank->state == TT__VIEW_ENDED || rank->state == TT__VIEW_GONE)
            continue;
        if (!any)
            fprintf(c->out, "%s%5s %-16s %7s %7s %8s %7s %7s %7s %7s %7s %6s %6s%s\n", colour_sequence(c, "\033[1m"),
                    "rank", "worker", "calls/s", "pending", "served/s", "serving", "threads", "idle", "queued",
                    "unsent", "owned", "held", colour_sequence(c, "\033[0m"));
        any = true;
        print_worker(c, rank);
    }
    if (any)
        put_empty_line(c);
}

/* ---- who waits for whom */

/* "rank 3", "ranks 0-2, 5": those that wait for `whom`; *longest_ns := how long the first of them has waited. False:
 * none waits. */
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

static void print_awaited(columns *c, const tt__view *view, int whom) {
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
        tt__top_doing_text(rank, doing, sizeof doing);
        snprintf(line + n, sizeof line - (size_t)n, ". Rank %d %s%s, %s", whom,
                 rank->state == TT__VIEW_STOPPED ? "is " : "", tt__view_state_text(rank, state, sizeof state), doing);
    }
    put_line(c, CUT, line, 0, 2);
}

static tt_status print_stragglers(columns *c, const tt__view *view) {
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
        put_line(c, CUT, line, 0, 2);
    }
    free(groups);
    return TT_OK;
}

static void print_title(columns *c, const tt__view *view) {
    const tt__job_info *info = &view->snapshot.info;
    char up[32], job[32] = "", nodes[32] = "", line[LINE_SIZE];
    if (info->pid)
        snprintf(job, sizeof job, "job %lld: ", (long long)info->pid);
    if (info->nodes > 1)
        snprintf(nodes, sizeof nodes, " on %d nodes", info->nodes);
    snprintf(line, sizeof line, "%s%s, %d rank%s%s, up %s", job, info->program, info->world,
             info->world == 1 ? "" : "s", nodes,
             duration_text(view->now_ns - info->started_realtime_ns, up, sizeof up));
    put_line(c, DENSE, line, 0, 2);
}

/* ---- the page */

static bool is_in_trouble(const tt__view *view, const tt__view_rank *rank) {
    char waiters[256];
    int64_t longest;
    return is_down(rank) || list_waiters(view, rank->rank.rank, waiters, sizeof waiters, &longest);
}

/* Print as many ranks as there are rows left, those in trouble first; the last row says how many more there are. */
static void print_some_ranks(columns *c, const tt__view *view) {
    int shown = view->n <= c->rows_left ? view->n : c->rows_left - 1, printed = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < view->n && printed < shown; i++)
            if (is_in_trouble(view, &view->ranks[i]) == !pass) {
                print_rank(c, &view->ranks[i]);
                printed++;
            }
    if (printed < view->n)
        fprintf(c->out, "... %d more ranks\n", view->n - printed);
}

/* A page of few rows for many ranks. */
static void print_some(columns *c, const tt__view *view) {
    if (c->rows_left > 3)
        print_title(c, view);
    if (c->rows_left > 3 && c->progress)
        print_training(c, view);
    int rows = c->rows_left;
    for (int i = 0; i < view->n && c->rows_left > rows - rows / 3; i++)
        print_awaited(c, view, view->ranks[i].rank.rank);
    print_heading(c);
    print_some_ranks(c, view);
}

static tt_status print_page(columns *c, const tt__view *view) {
    for (int i = 0; i < view->n; i++) {
        c->progress = c->progress || view->ranks[i].progresses;
        c->devices = c->devices || view->ranks[i].on_device;
    }
    if (c->density == SOME) {
        print_some(c, view);
        return TT_OK;
    }
    print_title(c, view);
    if (c->progress)
        print_training(c, view);
    print_averaging(c, view);
    put_empty_line(c);
    print_heading(c);
    for (int i = 0; i < view->n; i++)
        print_rank(c, &view->ranks[i]);
    put_empty_line(c);
    print_workers(c, view);
    for (int i = -1; i < view->n; i++) /* -1: any rank */
        print_awaited(c, view, i < 0 ? -1 : view->ranks[i].rank.rank);
    return print_stragglers(c, view);
}

static int count_lines(const char *text) {
    int lines = 0;
    for (; *text; text++)
        lines += *text == '\n';
    return lines;
}

/* The screen's last row holds the cursor, and no line. */
tt_status tt__top_text(const tt__view *view, const tt__top_page *page, FILE *out) {
    for (density density = WHOLE;; density++) {
        char *text = NULL;
        size_t size;
        columns c = {.page = page, .density = density, .rows_left = page->rows - 1};
        c.nodes = view->snapshot.info.nodes > 1;
        c.out = open_memstream(&text, &size);
        if (!c.out)
            return tt__fail(TT_ERR_MEMORY, "no memory for what %d ranks do", view->n);
        tt_status status = print_page(&c, view);
        fclose(c.out);
        bool fits = !page->rows || density == SOME || count_lines(text) < page->rows;
        if (fits && !status)
            fputs(text, out);
        free(text);
        if (fits || status)
            return status;
    }
}
