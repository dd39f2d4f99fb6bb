#include "optim/fused.h"

#include "tensor/parallel.h"

/* Elements that one thread takes at a time. */
enum { FUSED_BLOCK = 1 << 14 };

typedef struct fused_pass {
    const tt__optimizer_class *cls;
    const tt__optim_group *group;
    const tt__optim_run *runs;
    size_t count;
} fused_pass;

static size_t run_element_size(const tt__optim_group *group, const tt__optim_run *run) {
    return tt_dtype_size(group->params[run->param].dtype);
}

/* Call a rule for n elements of a run. `sums`: what it measures; NULL: nothing. */
static void update_part(const tt__rule_kernels *kernels, const tt__optim_group *group, const tt__optim_run *run,
                        int64_t from, int64_t n, double *sums) {
    const size_t at = (size_t)from * run_element_size(group, run);
    void *state[TT__OPTIM_SLOTS];
    for (int s = 0; s < TT__OPTIM_SLOTS; s++)
        state[s] = run->state[s] ? (char *)run->state[s] + at : NULL;
    tt__update u = run->update;
    u.n = n;
    u.p = (char *)u.p + at;
    u.g = (const char *)u.g + at;
    u.state = state;
    u.fresh = run->fresh;
    u.sums = sums;
    (group->params[run->param].type == TT__OPTIM_F32 ? kernels->f32 : kernels->f64)(&u);
}

/* ---- measuring one run ---- */

/* Blocks that are measured before their sums are added up, in order: the same bits for any number of threads. */
enum { MEASURE_ROUND = 64 };

typedef struct measure_pass {
    const fused_pass *fused;
    const tt__optim_run *run;
    int64_t from;
    double sums[MEASURE_ROUND][TT__RULE_SUMS];
} measure_pass;

static void measure_part(void *user, int64_t begin, int64_t end) {
    measure_pass *pass = user;
    update_part(pass->fused->cls->measure(), pass->fused->group, pass->run, pass->from + begin, end - begin,
                pass->sums[begin / FUSED_BLOCK]);
}

static void measure_run(const fused_pass *fused, tt__optim_run *run) {
    const int64_t round = (int64_t)MEASURE_ROUND * FUSED_BLOCK;
    double all[TT__RULE_SUMS] = {0};
    for (int64_t from = 0; from < run->update.n; from += round) {
        const int64_t n = run->update.n - from < round ? run->update.n - from : round;
        measure_pass pass = {.fused = fused, .run = run, .from = from};
        tt__parallel_for(n, FUSED_BLOCK, measure_part, &pass);
        for (int64_t b = 0; b * FUSED_BLOCK < n; b++)
            for (int i = 0; i < TT__RULE_SUMS; i++)
                all[i] += pass.sums[b][i];
    }
    run->update.ratio = fused->cls->ratio(fused->group->option, all);
}

/* ---- one pass over all runs ---- */

/* Find the last run that begins at or before an element. */
static size_t run_at(const fused_pass *pass, int64_t element) {
    size_t low = 0, high = pass->count;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (pass->runs[middle].begin <= element)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void fused_part(void *user, int64_t begin, int64_t end) {
    const fused_pass *pass = user;
    for (size_t k = run_at(pass, begin); begin < end; k++) {
        const tt__optim_run *run = &pass->runs[k];
        const int64_t from = begin - run->begin, left = run->update.n - from;
        const int64_t n = left < end - begin ? left : end - begin;
        update_part(pass->cls->kernels(), pass->group, run, from, n, NULL);
        begin += n;
    }
}

void tt__optim_fused(const tt__optimizer_class *cls, const tt__optim_group *group, tt__optim_run *runs, size_t n) {
    const fused_pass pass = {.cls = cls, .group = group, .runs = runs, .count = n};
    if (!n)
        return;
    for (size_t k = 0; cls->measure && k < n; k++)
        measure_run(&pass, &runs[k]);
    tt__parallel_for(runs[n - 1].begin + runs[n - 1].update.n, FUSED_BLOCK, fused_part, (void *)&pass);
}
