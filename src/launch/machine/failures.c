#include "launch/machine/failures.h"

#include "base/build.h"
#include "base/process/proc_state.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

const char *tt__signal_name(int sig, char *text, size_t size) {
    const char *name = sigabbrev_np(sig);
    if (name)
        snprintf(text, size, "SIG%s", name);
    else if (sig >= SIGRTMIN)
        snprintf(text, size, "SIGRTMIN+%d", sig - SIGRTMIN);
    else
        snprintf(text, size, "signal %d", sig);
    return text;
}

const char *tt__end_text(int status, char *text, size_t size) {
    char name[32];
    if (WIFSIGNALED(status))
        snprintf(text, size, "signal %d (%s)", WTERMSIG(status), tt__signal_name(WTERMSIG(status), name, sizeof name));
    else
        snprintf(text, size, "exit code %d", WEXITSTATUS(status));
    return text;
}

int tt__end_code(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

bool tt__was_told_to_end(const tt__worker *w) {
    return w->sent_signal && !w->exec_errno && !(w->error_s && w->error_s < w->signal_s);
}

bool tt__is_consequence(const tt__worker *w) { return w->secondary || w->waited || w->sent_signal; }

/* ---- which failure was first */

/* Rank a failure: 0 = the worker did not fail; else the lower, the likelier it is the cause. */
static int blame(const tt__worker *w) {
    if (!w->ended || w->status == 0)
        return 0;
    return w->exec_errno                                   ? 1
           : tt__was_told_to_end(w)                        ? 4
           : w->waited && !TT__MUTANT(waiter_may_be_first) ? 3
           : w->secondary                                  ? 2
                                                           : 1;
}

/* Return the second in which the worker failed. */
static int64_t failure_s(const tt__worker *w) {
    int64_t ended_s = w->when.realtime_ns / 1000000000;
    return w->error_s && w->error_s < ended_s ? w->error_s : ended_s;
}

static bool struck_down(const tt__worker *w) {
    return blame(w) == 1 && WIFSIGNALED(w->status) && tt__is_struck_by(WTERMSIG(w->status));
}

static int64_t ms_between(const tt__moment *a, const tt__moment *b) {
    return (tt__ns_checked(b->realtime_ns) - tt__ns_checked(a->realtime_ns)) / 1000000;
}

/* A walk over the failures of all nodes: first this node's workers, then the others'. */
typedef struct walk {
    const tt__ledger *ledger;
    tt__failure at;
} walk;

static bool walk_next(walk *w) {
    const tt__ledger *ledger = w->ledger;
    if (!w->at.worker && ledger->count) {
        w->at = (tt__failure){.worker = &ledger->workers[0], .rank = ledger->first_rank};
        return true;
    }
    if (w->at.worker && !w->at.other && w->at.own + 1 < ledger->count) {
        w->at.worker++, w->at.own++, w->at.rank++;
        return true;
    }
    w->at.other = w->at.other ? w->at.other->next : ledger->others;
    w->at.own = -1;
    if (!w->at.other)
        return false;
    w->at.worker = &w->at.other->worker;
    w->at.rank = w->at.other->rank;
    return true;
}

/* Did `a` end before `b`? On one node their order says so; on several, their clocks. */
static bool ended_earlier(const tt__ledger *ledger, const tt__failure *a, const tt__failure *b) {
    if (!ledger->others)
        return a->worker->order < b->worker->order;
    return !TT__MUTANT(first_heard_is_first) && a->worker->when.realtime_ns < b->worker->when.realtime_ns;
}

/* Did `a` fail before `b`? Only workers with an error file can have failed in another order than they ended. */
static bool failed_before(const tt__ledger *ledger, const tt__failure *a, const tt__failure *b) {
    if ((a->worker->error_s || b->worker->error_s) && failure_s(a->worker) != failure_s(b->worker))
        return failure_s(a->worker) < failure_s(b->worker);
    return ended_earlier(ledger, a, b);
}

static bool find_first(const tt__ledger *ledger, tt__failure *first) {
    int best = INT_MAX;
    for (walk w = {.ledger = ledger}; walk_next(&w);) {
        int mine = blame(w.at.worker);
        if (mine && (mine < best || (mine == best && failed_before(ledger, &w.at, first)))) {
            *first = w.at;
            best = mine;
        }
    }
    return best != INT_MAX;
}

/* A crash shortly after another failure is the cause: put the first one into *first. */
static void prefer_crash(const tt__ledger *ledger, tt__failure *first) {
    tt__failure failure = *first;
    bool found = false;
    for (walk w = {.ledger = ledger}; !struck_down(failure.worker) && walk_next(&w);)
        if (struck_down(w.at.worker) && llabs(ms_between(&failure.worker->when, &w.at.worker->when)) < TT__TIE_MS &&
            (!found || ended_earlier(ledger, &w.at, first))) {
            *first = w.at;
            found = true;
        }
}

static void prefer_lowest_alike(const tt__ledger *ledger, tt__failure *first) {
    tt__failure failure = *first;
    for (walk w = {.ledger = ledger}; walk_next(&w);) {
        if (w.at.worker == failure.worker || !tt__failed_alike(failure.worker, failure.rank, w.at.worker, w.at.rank))
            continue;
        if (w.at.rank < first->rank)
            *first = w.at;
        first->alike = true;
    }
}

int tt__first_failure(const tt__worker *workers, int n) {
    const tt__ledger ledger = {.workers = (tt__worker *)(uintptr_t)workers, .count = n};
    tt__failure first;
    if (!find_first(&ledger, &first))
        return -1;
    prefer_crash(&ledger, &first);
    return first.own;
}

/* Return the worker's message without its own rank's number before it. */
const char *tt__failure_words(const tt__worker *w, int rank) {
    char prefix[32];
    const char *message = w->message && !w->exec_errno ? w->message : "";
    size_t n = (size_t)snprintf(prefix, sizeof prefix, "rank %d: ", rank);
    return strncmp(message, prefix, n) != 0 ? message : message + n;
}

bool tt__failed_alike(const tt__worker *a, int rank_a, const tt__worker *b, int rank_b) {
    const char *words = tt__failure_words(a, rank_a);
    return blame(a) == 1 && blame(b) == 1 && WIFEXITED(a->status) && a->status == b->status && *words &&
           !strcmp(words, tt__failure_words(b, rank_b));
}

bool tt__ledger_first(const tt__ledger *ledger, tt__failure *first) {
    *first = (tt__failure){.own = -1};
    if (!find_first(ledger, first))
        return false;
    prefer_crash(ledger, first);
    prefer_lowest_alike(ledger, first);
    return true;
}

/* ---- the ledger */

bool tt__ledger_unexecutable(const tt__ledger *ledger) {
    for (walk w = {.ledger = ledger}; walk_next(&w);)
        if (w.at.worker->exec_errno)
            return true;
    return false;
}

int tt__ledger_ended(const tt__ledger *ledger) {
    int n = 0;
    for (int i = 0; i < ledger->count; i++)
        n += ledger->workers[i].ended;
    return n;
}

void tt__remote_end_free(tt__remote_end *end) {
    if (!end)
        return;
    free(end->worker.message);
    free(end->worker.account);
    free(end->tail);
    free(end);
}

void tt__lost_node_free(tt__lost_node *lost) {
    if (lost)
        free(lost->why);
    free(lost);
}

void tt__ledger_clear(tt__ledger *ledger) {
    for (tt__remote_end *end; (end = ledger->others);) {
        ledger->others = end->next;
        tt__remote_end_free(end);
    }
    for (tt__lost_node *lost; (lost = ledger->lost);) {
        ledger->lost = lost->next;
        tt__lost_node_free(lost);
    }
    ledger->lost_ns = 0;
}
