#include "sim/case.h"

#include "sim/cluster.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WATCHDOG_S = 600 }; /* of real time: ends a case in which a thread never lets another run */

/* ---- cuts */

void sim_cut_text(const sim_cut *cut, char *text, size_t size) {
    snprintf(text, size, "without:%u,nodes:%d,workers:%d,restarts:%d,plain:%d", cut->without, cut->nodes, cut->workers,
             cut->restarts, cut->plain);
}

bool sim_cut_parse(sim_cut *cut, const char *text) {
    int plain;
    if (sscanf(text, "without:%u,nodes:%d,workers:%d,restarts:%d,plain:%d", &cut->without, &cut->nodes, &cut->workers,
               &cut->restarts, &plain) != 5)
        return false;
    cut->plain = plain;
    return true;
}

void sim_cut_apply(sim_plan *plan, const sim_cut *cut) {
    int kept = 0;
    if (cut->nodes && cut->nodes < plan->nodes)
        plan->nodes = cut->nodes;
    plan->max_nodes = plan->max_nodes < plan->nodes ? plan->max_nodes : plan->nodes;
    plan->min_nodes = plan->min_nodes < plan->max_nodes ? plan->min_nodes : plan->max_nodes;
    if (cut->workers && cut->workers < plan->workers)
        plan->workers = cut->workers;
    if (cut->restarts && cut->restarts <= plan->max_restarts)
        plan->max_restarts = cut->restarts - 1;
    if (cut->plain) {
        plan->delay_us = 200;
        plan->lost = 0;
        plan->skew_ms = 0;
        plan->secret = false;
    }
    for (int i = 0; i < plan->n; i++) {
        const sim_item *item = &plan->items[i];
        if (!(cut->without >> i & 1) && item->node < plan->nodes && item->local < plan->workers &&
            (item->kind > SIM_LEAVES || item->attempt <= plan->max_restarts))
            plan->items[kept++] = *item;
    }
    plan->n = kept;
}

/* ---- judging */

static _Noreturn void child_run(const sim_plan *plan, bool trace) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(WATCHDOG_S);
    sim_cluster_run(plan, trace);
}

void sim_case_judge(const sim_plan *plan, bool trace, sim_verdict *verdict) {
    int status = -1;
    if (!sim_result)
        sim_result = mmap(NULL, sizeof *sim_result, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memset(sim_result, 0, sizeof *sim_result);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        child_run(plan, trace);
    if (pid < 0 || waitpid(pid, &status, 0) != pid) {
        snprintf(sim_result->check, sizeof sim_result->check, "machine");
        snprintf(sim_result->text, sizeof sim_result->text, "no process can be started");
    } else if (WIFSIGNALED(status)) {
        snprintf(sim_result->check, sizeof sim_result->check, "crash");
        snprintf(sim_result->text, sizeof sim_result->text, "the process was ended by signal %d (%s)", WTERMSIG(status),
                 WTERMSIG(status) == SIGALRM ? "a thread never waited" : strsignal(WTERMSIG(status)));
    } else if (WEXITSTATUS(status)) {
        snprintf(sim_result->check, sizeof sim_result->check, "crash");
        snprintf(sim_result->text, sizeof sim_result->text, "the process ended with code %d", WEXITSTATUS(status));
    }
    *verdict = *sim_result;
}

/* ---- shrinking */

typedef struct shrinking {
    uint64_t seed;
    int max_nodes, left;
    const char *check;
} shrinking;

/* Does the check still fail? Then keep the cut. */
static bool try_cut(shrinking *s, sim_cut *best, sim_cut cut) {
    sim_plan plan;
    sim_verdict verdict;
    if (!s->left)
        return false;
    s->left--;
    sim_plan_draw(&plan, s->seed, s->max_nodes);
    sim_cut_apply(&plan, &cut);
    sim_case_judge(&plan, false, &verdict);
    if (strcmp(verdict.check, s->check) != 0)
        return false;
    *best = cut;
    return true;
}

static bool shrink_once(shrinking *s, const sim_plan *drawn, sim_cut *best) {
    bool better = false;
    sim_cut cut;
    for (int i = 0; i < drawn->n; i++)
        if (!(best->without >> i & 1)) {
            cut = *best;
            cut.without |= 1u << i;
            better = try_cut(s, best, cut) || better;
        }
    for (int n = 2; n < (best->nodes ? best->nodes : drawn->nodes); n++) {
        cut = *best;
        cut.nodes = n;
        better = try_cut(s, best, cut) || better;
    }
    for (int n = 1; n < (best->workers ? best->workers : drawn->workers); n++) {
        cut = *best;
        cut.workers = n;
        better = try_cut(s, best, cut) || better;
    }
    for (int n = 1; n < (best->restarts ? best->restarts : drawn->max_restarts + 1); n++) {
        cut = *best;
        cut.restarts = n;
        better = try_cut(s, best, cut) || better;
    }
    cut = *best;
    cut.plain = true;
    return (!best->plain && try_cut(s, best, cut)) || better;
}

void sim_case_shrink(uint64_t seed, int max_nodes, const char *check, int most, sim_cut *cut) {
    shrinking s = {seed, max_nodes, most, check};
    sim_plan drawn;
    sim_plan_draw(&drawn, seed, max_nodes);
    while (shrink_once(&s, &drawn, cut) && s.left)
        ;
    for (int i = 0; i < drawn.n; i++) /* items of nodes and workers that were cut away */
        if ((cut->nodes && drawn.items[i].node >= cut->nodes) || (cut->workers && drawn.items[i].local >= cut->workers))
            cut->without |= 1u << i;
}
