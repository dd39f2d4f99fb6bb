#include "sim/checks.h"

#include "sim/checks_elastic.h"
#include "sim/cluster.h"
#include "sim/keeper.h"
#include "sim/network.h"
#include "sim/verdict.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

enum { TIE_MS = 50, KILL_MS = 6000, LEFTOVER_MS = 8000, PATIENCE_MS = 20000, SLACK_MS = 20000, ORDER_MS = 3000 };

static const sim_plan *plan(void) { return sim_cluster_plan(); }

/* ---- while it runs */

void sim_check_alone(int node, int attempt) {
    if (plan()->elastic) {
        sim_elastic_check_alone(node);
        return;
    }
    for (int k = 0; k < plan()->nodes; k++) {
        int other;
        if (k == node || sim_cluster_disturbed(k) || sim_cluster_disturbed(node))
            continue;
        int alive = sim_keeper_alive(k, &other);
        if (alive && other != attempt)
            sim_fail("alone", "node %d begins attempt %d while node %d has %d processes of attempt %d", node, attempt,
                     k, alive, other);
    }
}

static void check_ranks(const sim_start *start) {
    int world = plan()->nodes * plan()->workers;
    if (start->world != world || start->first_rank < 0 || start->first_rank + start->workers > world)
        sim_fail("ranks", "node %d begins attempt %d with ranks %d to %d of %d; expected a world of %d", start->node,
                 start->attempt, start->first_rank, start->first_rank + start->workers - 1, start->world, world);
    for (int i = 0; i < sim_seen.start_count; i++) {
        const sim_start *other = &sim_seen.starts[i];
        if (other->attempt == start->attempt && other->node != start->node &&
            other->first_rank < start->first_rank + start->workers &&
            start->first_rank < other->first_rank + other->workers)
            sim_fail("ranks", "launchers %d and %d both have rank %d in attempt %d", other->node, start->node,
                     start->first_rank, start->attempt);
    }
}

/* The longest that news take: a launcher reads what the others wrote, one after the other. */
static int64_t news_ns(void) {
    return (ORDER_MS + plan()->nodes * ((plan()->delay_us / 1000 + 1) * 40 + plan()->lost * 40)) * SIM_MS;
}

/* After a launcher took a signal it begins no attempt; nor do the others once they have heard of the signal. */
static void check_not_told_to_end(const sim_start *start) {
    for (int k = 0; k < plan()->nodes; k++) {
        const sim_exit *x = &sim_seen.exits[k];
        int64_t since = sim_cluster_quiet_since_ns() > x->signal_ns ? sim_cluster_quiet_since_ns() : x->signal_ns;
        if (x->signal && (k == start->node || (!sim_cluster_disturbed(k) && !sim_cluster_disturbed(start->node) &&
                                               start->when_ns > since + news_ns())))
            sim_fail("signal", "node %d begins attempt %d although node %d took signal %d at %.3f s", start->node,
                     start->attempt, k, x->signal, (double)x->signal_ns / 1e9);
    }
}

void sim_check_start(const sim_start *start) {
    int last = -1;
    if (plan()->elastic) {
        sim_elastic_check_start(start);
        return;
    }
    bool told = start->node == 0 || start->attempt == 0;
    for (int i = 0; i + 1 < sim_seen.start_count; i++) {
        const sim_start *other = &sim_seen.starts[i];
        last = other->node == start->node ? other->attempt : last;
        told = told || (other->node == 0 && other->attempt >= start->attempt - 1); /* node 0's threads race */
    }
    if (start->attempt != last + 1)
        sim_fail("order", "node %d begins attempt %d after attempt %d", start->node, start->attempt, last);
    if (start->attempt > plan()->max_restarts)
        sim_fail("attempts", "node %d begins attempt %d of a job that is started again %d times at most", start->node,
                 start->attempt, plan()->max_restarts);
    if (!told)
        sim_fail("told", "node %d begins attempt %d before node 0 has begun the one before", start->node,
                 start->attempt);
    check_ranks(start);
    check_not_told_to_end(start);
    if (start->attempt >= sim_result->attempts)
        sim_result->attempts = start->attempt + 1;
}

/* ---- all launchers end */

int64_t sim_check_deadline_ns(void) {
    const sim_plan *p = plan();
    if (p->elastic)
        return sim_elastic_deadline_ns();
    int64_t work_ms = p->recovers ? sim_plan_epoch_ms(p) : p->work_ms;
    int64_t attempt_ms = work_ms + p->settle_ms + p->grace_ms + KILL_MS + LEFTOVER_MS + PATIENCE_MS;
    return (p->recovers ? sim_survivors_quiet_since_ns() : sim_cluster_quiet_since_ns()) +
           (p->join_ms + (p->max_restarts + 1) * attempt_ms + 3 * p->heartbeat_ms + SLACK_MS) * SIM_MS;
}

void sim_check_ended(void) {
    int waiting = 0, node = -1;
    for (int k = sim_cluster_launchers() - 1; k >= 0; k--)
        if (sim_cluster_agent(k)->state == SIM_UP) {
            node = k;
            waiting++;
        }
    sim_fail("ends", "%d launchers, node %d's among them, have not ended %.1f s after the last thing happened", waiting,
             node, (double)(sim_now_ns() - sim_cluster_quiet_since_ns()) / 1e9);
}

/* ---- the first failure, by a plain reading of its definition */

typedef bool filter(const sim_end *end);

static bool is_any(const sim_end *end) { return end != NULL; }
static bool is_undisturbed(const sim_end *end) { return !sim_cluster_disturbed(end->node); }

/* 0: did not fail; 1: failed by itself; 2: because of another; 3: while it waited for the next round, so after another
 * failure; 4: was told to end before it had reported a failure. */
static int class_of(const sim_end *end) {
    bool told = end->told && !(end->error_s && end->error_s < end->signal_s);
    return !end->status ? 0 : end->exec_errno ? 1 : told ? 4 : end->waited ? 3 : end->secondary ? 2 : 1;
}

static bool is_struck(const sim_end *end) {
    return class_of(end) == 1 && WIFSIGNALED(end->status) &&
           (WTERMSIG(end->status) == SIGKILL || WTERMSIG(end->status) == SIGSEGV || WTERMSIG(end->status) == SIGBUS ||
            WTERMSIG(end->status) == SIGILL || WTERMSIG(end->status) == SIGFPE);
}

/* The second in which the worker failed: by its report, else when it ended. */
static int64_t second_of(const sim_end *end) {
    int64_t ended_s = (SIM_EPOCH_NS + end->realtime_ns) / 1000000000;
    return end->error_s && end->error_s < ended_s ? end->error_s : ended_s;
}

static bool is_earlier(const sim_end *a, const sim_end *b) {
    return second_of(a) != second_of(b) ? second_of(a) < second_of(b) : a->realtime_ns < b->realtime_ns;
}

static const sim_end *earliest_of_class(int attempt, filter *counts, int class) {
    const sim_end *first = NULL;
    for (int i = 0; i < sim_seen.end_count; i++) {
        const sim_end *end = &sim_seen.ends[i];
        if (end->attempt == attempt && counts(end) && class_of(end) == class && (!first || is_earlier(end, first)))
            first = end;
    }
    return first;
}

/* Find the first crash within TIE_MS of this end; of ends at nearly one time, a crash counts as first. */
static const sim_end *struck_with(const sim_end *first, filter *counts) {
    const sim_end *struck = NULL;
    for (int i = 0; i < sim_seen.end_count; i++) {
        const sim_end *end = &sim_seen.ends[i];
        if (end->attempt == first->attempt && counts(end) && is_struck(end) &&
            llabs(end->realtime_ns - first->realtime_ns) < TIE_MS * SIM_MS &&
            (!struck || end->realtime_ns < struck->realtime_ns))
            struck = end;
    }
    return struck;
}

static const sim_end *expected_first(int attempt, filter *counts) {
    const sim_end *first = NULL;
    for (int class = 1; class <= 4 && !first; class ++)
        first = earliest_of_class(attempt, counts, class);
    const sim_end *struck = first && !is_struck(first) ? struck_with(first, counts) : NULL;
    return struck ? struck : first;
}

static int code_of(const sim_end *end) {
    return end->exec_errno == ENOENT  ? 127
           : end->exec_errno          ? 126
           : WIFSIGNALED(end->status) ? 128 + WTERMSIG(end->status)
                                      : WEXITSTATUS(end->status);
}

/* ---- at the end */

static int last_attempt(int node) {
    int last = -1;
    for (int i = 0; i < sim_seen.start_count; i++)
        if (sim_seen.starts[i].node == node)
            last = sim_seen.starts[i].attempt;
    return last;
}

static bool anybody_was_told(void) {
    for (int k = 0; k < plan()->nodes; k++)
        if (sim_seen.exits[k].signal)
            return true;
    return false;
}

static bool is_gentle(void) {
    for (int k = 0; k < plan()->nodes; k++)
        if (sim_cluster_disturbed(k))
            return false;
    return true;
}

/* A launcher that ends with 0 has seen all its workers succeed. */
static void check_success(int node) {
    int good = 0, last = last_attempt(node);
    for (int i = 0; i < sim_seen.end_count; i++)
        good += sim_seen.ends[i].node == node && sim_seen.ends[i].attempt == last && !sim_seen.ends[i].status;
    if (good != plan()->workers)
        sim_fail("code", "node %d ends with code 0, but %d of its %d workers have succeeded", node, good,
                 plan()->workers);
}

static void check_exit(int node) {
    const sim_exit *x = &sim_seen.exits[node];
    if (!x->ended)
        return;
    if (x->signal && !x->status && x->code != 128 + x->signal)
        sim_fail("code", "node %d took signal %d, but ends with code %d", node, x->signal, x->code);
    if (x->unread_ns != SIM_NEVER && x->when_ns - x->unread_ns > news_ns() &&
        sim_cluster_agent(node)->frozen_until_ns < x->unread_ns)
        sim_fail("signal", "node %d got a signal at %.3f s, and has not taken it by its end at %.3f s", node,
                 (double)x->unread_ns / 1e9, (double)x->when_ns / 1e9);
    if (!x->status && !x->code)
        check_success(node);
}

static const sim_report *report_of(int node, int attempt) {
    for (int i = 0; i < sim_seen.report_count; i++)
        if (sim_seen.reports[i].node == node && sim_seen.reports[i].attempt == attempt)
            return &sim_seen.reports[i];
    return NULL;
}

static void check_first(int node, int attempt, const sim_end *expected) {
    const sim_report *report = report_of(node, attempt);
    if (!report)
        sim_fail("first failure", "node %d has not reported that rank %d failed first in attempt %d", node,
                 expected->rank, attempt);
    if (report->rank != expected->rank)
        sim_fail("first failure", "node %d reports rank %d as the first failure of attempt %d; expected rank %d", node,
                 report->rank, attempt, expected->rank);
}

/* Checks for cases in which only workers went wrong: what must come is known exactly. */
static void check_undisturbed(void) {
    int last = last_attempt(0);
    for (int k = 0; k < plan()->nodes; k++) {
        const sim_exit *x = &sim_seen.exits[k];
        if (x->status)
            sim_fail("no reason", "node %d ends with an error: %s", k, x->error);
        if (x->lost_some)
            sim_fail("no reason", "node %d says that a node is lost, but all are there", k);
        if (last_attempt(k) != last)
            sim_fail("told", "node 0's last attempt is %d, node %d's is %d", last, k, last_attempt(k));
    }
    for (int attempt = 0; attempt <= last; attempt++) {
        const sim_end *first = expected_first(attempt, is_any);
        if (!first && attempt < last && !sim_plan_misses_some(plan()))
            sim_fail("attempts", "attempt %d succeeded, and another was begun", attempt);
        if (first && class_of(first) == 3 && !sim_plan_misses_some(plan()))
            sim_fail("no reason", "rank %d waited for the round after attempt %d, in which none had failed",
                     first->rank, attempt);
        if (first && attempt == last && last < plan()->max_restarts && !sim_plan_has(plan(), SIM_NOT_EXECUTABLE))
            sim_fail("attempts", "attempt %d failed, and was the last of %d", attempt, plan()->max_restarts + 1);
        /* a rank that waited may have failed after node 0 had ordered the next round */
        bool is_known = first && (class_of(first) != 3 || attempt == last);
        for (int k = 0; k < plan()->nodes && is_known; k++)
            check_first(k, attempt, first);
        for (int k = 0; k < plan()->nodes && attempt == last; k++)
            if (sim_seen.exits[k].code != (first ? code_of(first) : 0))
                sim_fail("code", "node %d ends with code %d, expected %d", k, sim_seen.exits[k].code,
                         first ? code_of(first) : 0);
    }
}

/* Launchers to which nothing happened end with the same code, and with 0 only if all workers succeeded. */
static void check_survivors_codes(void) {
    int before = -1;
    for (int k = 0; k < plan()->nodes; k++) {
        const sim_exit *x = &sim_seen.exits[k];
        if (sim_cluster_disturbed(k) || !x->ended || x->signal)
            continue;
        if (!x->code && sim_keeper_succeeded(last_attempt(k)) != plan()->nodes * plan()->workers)
            sim_fail("code", "node %d ends with code 0, but not all workers have succeeded", k);
        if (before >= 0 && sim_seen.exits[before].code != x->code && !anybody_was_told())
            sim_fail("agree", "node %d ends with code %d, but node %d with code %d", before,
                     sim_seen.exits[before].code, k, x->code);
        before = k;
        const sim_end *own = expected_first(last_attempt(k), is_undisturbed);
        if (own && class_of(own) == 1 && !anybody_was_told() && !report_of(k, last_attempt(k)))
            sim_fail("first failure", "node %d has not reported any, but rank %d failed in attempt %d", k, own->rank,
                     own->attempt);
    }
}

/* Checks for cases in which launchers may have been lost: the others agree. */
static void check_survivors(void) {
    const sim_report *said = NULL;
    check_survivors_codes();
    for (int i = 0; i < sim_seen.report_count; i++) {
        const sim_report *report = &sim_seen.reports[i];
        const sim_exit *x = &sim_seen.exits[report->node];
        if (sim_cluster_disturbed(report->node) || !x->ended || x->signal) /* after a signal it did not wait */
            continue;
        const sim_end *own = expected_first(report->attempt, is_undisturbed);
        if (own && !sim_cluster_disturbed(report->first_node) && report->rank != own->rank)
            sim_fail("first failure", "node %d reports rank %d as the first failure of attempt %d; expected rank %d",
                     report->node, report->rank, report->attempt, own->rank);
        if (report->attempt != last_attempt(report->node) || anybody_was_told())
            continue;
        if (said && (said->attempt != report->attempt || said->rank != report->rank))
            sim_fail("agree", "node %d names rank %d as the first failure (attempt %d), node %d rank %d (attempt %d)",
                     said->node, said->rank, said->attempt, report->node, report->rank, report->attempt);
        said = report;
    }
}

void sim_check_note(int node, int rank, int attempt) {
    const sim_plan *p = plan();
    /* else a store may serve several attempts or none; and the ends of a killed keeper's workers are not seen here */
    if (p->elastic || p->recovers || sim_plan_has(p, SIM_KILL_KEEPER))
        return;
    for (int i = 0; i < sim_seen.end_count; i++)
        if (sim_seen.ends[i].rank == rank && sim_seen.ends[i].attempt == attempt)
            return;
    sim_fail("note", "node %d notes in the store of attempt %d that rank %d has ended, which has not", node, attempt,
             rank);
}

static void check_keys(void) {
    int world = plan()->nodes * plan()->workers;
    size_t most = (size_t)(plan()->nodes * (3 + 2 * (plan()->workers + 4)) + world + 8);
    if (plan()->recovers) /* the store is not renewed: notes of ended ranks stay */
        most += (size_t)((plan()->max_restarts + 1) * world);
    if (sim_store_most_keys() > most)
        sim_fail("keys", "the store had %zu keys at one time; expected at most %zu", sim_store_most_keys(), most);
}

void sim_check_all(void) {
    if (plan()->elastic) {
        sim_elastic_check_all();
        return;
    }
    for (int k = 0; k < plan()->nodes; k++)
        check_exit(k);
    if (is_gentle() && !anybody_was_told())
        check_undisturbed();
    else
        check_survivors();
    if (is_gentle())
        check_keys();
}
