/* Plays whole clusters in one process, on a seeded network and clock: launchers are real, all else is virtual.
 * docs/testing.md tells what is checked, and how a failing seed is played again.
 *
 *   TT_SIM_SEEDS=N        how many cases
 *   TT_SIM_SEED=S         play case S alone, with its trace, or begin with it where TT_SIM_SEEDS is given
 *   TT_SIM_AGENTS=N       launchers of a case, at most
 *   TT_SIM_ONLY=CUT       of case S only what a failure's shrinking has left
 *   TT_SIM_CALM=N         instead, one job of N launchers in which nothing goes wrong
 *   TT_SIM_TABLE=N        instead, such jobs of 4, 8, ... N launchers: how many requests each sends
 *   TT_SIM_JOBS=N         cases at one time
 *   TT_SIM_PLANT=K        in the world of test_plants: with the bug number K (mutants.def) */
#include "sim/case.h"
#include "sim/mutants.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CASES = 300, SANITIZED_CASES = 60, AGENTS = 16, SHRINK_CASES = 300, TEXT = 200 };

typedef struct totals {
    _Atomic int64_t next, cases, failed, requests, virtual_ms, attempts, kept;
} totals;

static totals *all;

static int64_t setting(const char *name, int64_t otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtoll(text, NULL, 10) : otherwise;
}

static uint64_t fresh_seed(void) {
    uint32_t seed = 0;
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed)
        seed = (uint32_t)getpid();
    return seed;
}

/* Stay on one processor: threads of a case take turns, and the hand-over is cheap there. */
static void stay_on(int k) {
    cpu_set_t allowed, one;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof allowed, &allowed))
        return;
    k %= CPU_COUNT(&allowed);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed) && k-- == 0)
            CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
}

/* ---- a failure */

static void explain(uint64_t seed, int agents, const sim_verdict *verdict) {
    sim_plan plan;
    sim_cut cut = {0};
    sim_verdict least;
    char only[TEXT];
    printf("case %llu fails (%s): %s\n", (unsigned long long)seed, verdict->check, verdict->text);
    sim_case_shrink(seed, agents, verdict->check, SHRINK_CASES, &cut);
    sim_plan_draw(&plan, seed, agents);
    sim_cut_apply(&plan, &cut);
    sim_case_judge(&plan, false, &least);
    printf("the least that fails like this: (%s) %s\n", least.check, least.text);
    sim_plan_print(&plan);
    sim_cut_text(&cut, only, sizeof only);
    printf("play it: TT_SIM_SEED=%llu TT_SIM_AGENTS=%d TT_SIM_ONLY=%s", (unsigned long long)seed, agents, only);
    if (sim_mutant)
        printf(" TT_SIM_PLANT=%d", sim_mutant);
    printf("\n");
    fflush(stdout);
}

/* ---- many cases */

static void play_cases(uint64_t first, int64_t count, int agents) {
    for (int64_t i; !all->failed && (i = atomic_fetch_add(&all->next, 1)) < count;) {
        sim_plan plan;
        sim_verdict verdict;
        sim_plan_draw(&plan, first + (uint64_t)i, agents);
        sim_case_judge(&plan, false, &verdict);
        all->cases++;
        all->requests += verdict.requests;
        all->virtual_ms += verdict.virtual_ns / 1000000;
        all->attempts += verdict.attempts;
        all->kept += verdict.kept;
        if (*verdict.check && !atomic_fetch_add(&all->failed, 1))
            explain(first + (uint64_t)i, agents, &verdict);
    }
}

static int play_all(uint64_t first, int64_t count, int agents, int jobs) {
    bool lost = false;
    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    printf("cases %llu to %llu, of up to %d launchers\n", (unsigned long long)first,
           (unsigned long long)(first + (uint64_t)count - 1), agents);
    fflush(stdout);
    for (int k = 0; k < jobs; k++)
        if (fork() == 0) {
            stay_on(k);
            play_cases(first, count, agents);
            _exit(0);
        }
    for (int status; waitpid(-1, &status, 0) > 0;)
        lost = lost || status;
    printf("%lld cases, %lld attempts, %lld ranks that went on, %.1f h of virtual time, %lld requests to stores: %s\n",
           (long long)all->cases, (long long)all->attempts, (long long)all->kept, (double)all->virtual_ms / 3600000,
           (long long)all->requests,
           all->failed ? "one failed"
           : lost      ? "one was lost"
                       : "all is well");
    return all->failed || lost || all->cases != count;
}

/* ---- one case */

static int play_one(sim_plan *plan, bool trace) {
    sim_verdict verdict;
    const char *only = getenv("TT_SIM_ONLY");
    sim_cut cut = {0};
    if (only && !sim_cut_parse(&cut, only)) {
        printf("TT_SIM_ONLY=%s is not understood\n", only);
        return 2;
    }
    sim_cut_apply(plan, &cut);
    sim_plan_print(plan);
    stay_on(0);
    sim_case_judge(plan, trace, &verdict);
    printf("%lld attempts in %.1f s of virtual time; requests of a launcher: %.1f until the first attempt began, %.1f "
           "in all\n",
           (long long)verdict.attempts, (double)verdict.virtual_ns / 1e9, (double)verdict.first_requests / plan->nodes,
           (double)verdict.requests / plan->nodes);
    if (*verdict.check)
        printf("WRONG (%s): %s\n", verdict.check, verdict.text);
    return *verdict.check != 0;
}

/* What a launcher asks of the store, by the number of launchers. */
static int print_table(int most) {
    printf("           until the first attempt began       in all\n"
           "launchers  each ordinary    most  node 0       each ordinary  node 0\n");
    stay_on(0);
    for (int n = 4;; n = 2 * n < most ? 2 * n : most) {
        sim_plan plan;
        sim_verdict v;
        sim_plan_calm(&plan, 1, n);
        sim_case_judge(&plan, false, &v);
        printf("%9d  %13.1f  %6lld  %6lld  %17.1f  %6lld  %s\n", n, (double)v.ordinary_first / (n - 1),
               (long long)v.most_first, (long long)(v.first_requests - v.ordinary_first), (double)v.ordinary / (n - 1),
               (long long)(v.requests - v.ordinary), v.text);
        fflush(stdout);
        if (*v.check || n >= most)
            return *v.check != 0;
    }
}

int main(void) {
    sim_plan plan;
    int agents = (int)setting("TT_SIM_AGENTS", AGENTS), jobs = (int)setting("TT_SIM_JOBS", 2);
    int calm = (int)setting("TT_SIM_CALM", 0), table = (int)setting("TT_SIM_TABLE", 0);
    int64_t seed = setting("TT_SIM_SEED", -1),
            count = setting("TT_SIM_SEEDS", seed >= 0                ? 1
                                            : getenv("TT_SANITIZED") ? SANITIZED_CASES
                                                                     : CASES);
    sim_mutant = (int)setting("TT_SIM_PLANT", 0);
    if (table)
        return print_table(table);
    if (calm) {
        sim_plan_calm(&plan, seed < 0 ? 1 : (uint64_t)seed, calm);
        return play_one(&plan, false);
    }
    if (count == 1 && seed >= 0) {
        sim_plan_draw(&plan, (uint64_t)seed, agents);
        return play_one(&plan, true);
    }
    return play_all(seed < 0 ? fresh_seed() : (uint64_t)seed, count, agents, jobs);
}
