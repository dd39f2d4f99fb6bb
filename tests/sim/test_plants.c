/* Does the simulation find bugs? Each planted bug (mutants.def) must fail one of the drawn cases (TT_SIM_SEEDS: how
 * many, from a fixed seed on) or of written.c. TT_SIM_PLANT plays one of the bugs alone. */
#include "sim/case.h"
#include "sim/mutants.h"
#include "sim/written.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CASES = 1000, FIRST_SEEDS = 200, AGENTS = 8, JOBS = 2 };

static bool is_found(int plant, int cases) {
    sim_mutant = plant;
    for (int i = 1; i <= FIRST_SEEDS + sim_written_count() + cases; i++) {
        int seed = i <= FIRST_SEEDS ? i : i - sim_written_count(), one = i - FIRST_SEEDS - 1;
        bool is_drawn = i <= FIRST_SEEDS || seed > FIRST_SEEDS;
        sim_plan plan;
        sim_verdict verdict;
        int64_t least_kept = 0;
        const char *what = "seed";
        if (is_drawn)
            sim_plan_draw(&plan, (uint64_t)seed, AGENTS);
        else
            what = sim_written_draw(&plan, one, &least_kept);
        sim_case_judge(&plan, false, &verdict);
        bool is_fewer = !*verdict.check && verdict.kept < least_kept;
        if (!*verdict.check && !is_fewer)
            continue;
        printf("%2d  %s: %s %d (%s): %s\n", plant, sim_mutant_texts[plant], what, is_drawn ? seed : one,
               is_fewer ? "kept" : verdict.check, is_fewer ? "fewer ranks went on" : verdict.text);
        fflush(stdout);
        return true;
    }
    printf("%2d  %s: NOT FOUND in %d cases\n", plant, sim_mutant_texts[plant], cases);
    return false;
}

/* Every JOBS-th bug. Returns how many were not found. */
static int find_share(int share, int cases) {
    int missed = 0;
    for (int plant = 1 + share; plant < SIM_MUTANTS_END; plant += JOBS)
        missed += !is_found(plant, cases);
    fflush(stdout);
    return missed;
}

int main(void) {
    const char *seeds = getenv("TT_SIM_SEEDS"), *one = getenv("TT_SIM_PLANT");
    int cases = seeds ? atoi(seeds) : CASES, missed = 0;
    if (getenv("TT_SANITIZED")) {
        printf("skipped: it shows what the simulation finds, and that does not depend on sanitizers\n");
        return 77;
    }
    if (one)
        return !is_found(atoi(one), cases);
    for (int share = 0; share < JOBS; share++)
        if (fork() == 0)
            _exit(find_share(share, cases) != 0);
    for (int status; waitpid(-1, &status, 0) > 0;)
        missed += status != 0;
    return missed != 0;
}
