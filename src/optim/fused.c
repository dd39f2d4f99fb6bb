/* One pass of a rule over all parameters of a group, whatever their sizes, shared among threads. */
#include "optim/optimizer.h"

#include "base/error.h"
#include "tensor/device/parallel.h"
#include "tensor/ops/ops.h"

#include <stdlib.h>
#include <string.h>

/* ---- sparse gradients: a rule updates only the rows that have a gradient, one by one. */

/* Why the optimizer doesn't take the gradient of x, as the end of an error; NULL: it does. */
static const char *unfit(const tt_optimizer *o, const tt__optim_group *group, const tt_tensor *x) {
    if (!tt_sparse_grad_values(x))
        return o->cls->takes_rows_only ? "a gradient of the whole, and takes sparse ones only" : NULL;
    if (!o->cls->takes_rows)
        return "a sparse gradient (tt_embedding(.sparse = true)), which tt_sgd(), tt_adagrad() and tt_sparse_adam() "
               "take";
    return o->cls->takes_rows(group->option)
               ? NULL
               : "a sparse gradient (tt_embedding(.sparse = true)), which it takes without weight decay and momentum";
}

tt_status tt__optim_check_rows(const char *who, const tt_optimizer *o, const tt__optim_group *group, size_t i) {
    const tt_tensor *x = group->params[i].tensor;
    const char *why = unfit(o, group, x);
    if (!why)
        return TT_OK;
    return tt__fail(TT_ERR_UNSUPPORTED, "%s: %s got for parameter %lld, %s, %s", who, o->cls->name,
                    (long long)group->first + (long long)i, TT__DESCRIBE(x), why);
}

typedef struct rows_pass {
    const tt__optim_run *run;
    tt__update_fn rule;
    int64_t columns;
    size_t row_bytes;
} rows_pass;

/* Update rows number[begin] to number[end - 1]: p and state (V, C), g (n, C). */
static void update_rows(void *user, int64_t begin, int64_t end) {
    const rows_pass *pass = user;
    const tt__optim_run *run = pass->run;
    const int64_t *number = run->rows->data;
    static const bool not_fresh[TT__OPTIM_SLOTS];
    for (int64_t i = begin; i < end; i++) {
        const size_t at = (size_t)number[i] * pass->row_bytes;
        void *state[TT__OPTIM_SLOTS];
        for (int s = 0; s < TT__OPTIM_SLOTS; s++)
            state[s] = run->state[s] ? (char *)run->state[s] + at : NULL;
        tt__update u = run->update;
        u.n = pass->columns;
        u.p = (char *)u.p + at;
        u.g = (const char *)u.g + (size_t)i * pass->row_bytes;
        u.state = state;
        u.fresh = not_fresh;
        pass->rule(&u);
    }
}

/* Fill new state with its initial value, unless that is 0. All rows are filled, because some get their first gradient
 * in a later step. */
static void begin_state(const tt_optimizer *o, const tt__optim_group *group, const tt__optim_run *run) {
    const tt__optim_param *p = &group->params[run->param];
    const double value = o->cls->begins_as ? o->cls->begins_as(group->option) : 0;
    for (int s = 0; value != 0 && s < o->cls->slots; s++)
        for (int64_t i = 0; run->state[s] && run->fresh[s] && i < p->numel; i++)
            if (p->type == TT__OPTIM_F32)
                ((float *)run->state[s])[i] = (float)value;
            else
                ((double *)run->state[s])[i] = value;
}

void tt__optim_rows(const tt_optimizer *o, const tt__optim_group *group, const tt__optim_run *run) {
    enum { ROWS_BLOCK = 1 << 14 }; /* elements that one thread takes at a time */
    const tt__rule_kernels *kernels = o->cls->kernels();
    const int64_t columns = run->grad->shape.dim[1], block = ROWS_BLOCK / (columns ? columns : 1);
    rows_pass pass = {.run = run,
                      .rule = group->params[run->param].type == TT__OPTIM_F32 ? kernels->f32 : kernels->f64,
                      .columns = columns,
                      .row_bytes = (size_t)columns * tt_dtype_size(run->grad->dtype)};
    begin_state(o, group, run);
    tt__parallel_for(run->rows->numel, block ? block : 1, update_rows, &pass);
}

/* ---- on a device ---- */

/* As begin_state(), on a device. */
static tt_status begin_state_far(const char *who, const tt_optimizer *o, const tt__optim_group *group,
                                 const tt__optim_run *run) {
    const double value = o->cls->begins_as ? o->cls->begins_as(group->option) : 0;
    for (int s = 0; value != 0 && s < o->cls->slots; s++)
        if (run->state[s] && run->fresh[s])
            TT__TRY(tt__fill_out(who, group->state.slot[run->param * (size_t)o->cls->slots + (size_t)s], value));
    return TT_OK;
}

tt_status tt__optim_rows_far(const char *who, const tt_optimizer *o, const tt__optim_group *group, tt__optim_run *run) {
    static const bool not_fresh[TT__OPTIM_SLOTS];
    tt__kernel_step_rows kernel = TT__KERNEL(who, run->tensor, step_rows);
    if (!kernel)
        return tt_last_status();
    TT__TRY(begin_state_far(who, o, group, run));
    run->update.fresh = not_fresh;
    return kernel(run->tensor, o->cls->rule, &run->update, run->rows);
}

/* ---- whole gradients ---- */

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
    double *all = run->sums;
    memset(all, 0, sizeof run->sums);
    for (int64_t from = 0; from < run->update.n; from += round) {
        const int64_t n = run->update.n - from < round ? run->update.n - from : round;
        measure_pass pass = {.fused = fused, .run = run, .from = from};
        tt__parallel_for(n, FUSED_BLOCK, measure_part, &pass);
        for (int64_t b = 0; b * FUSED_BLOCK < n; b++)
            for (int i = 0; i < TT__RULE_SUMS; i++)
                all[i] += pass.sums[b][i];
    }
}

/* Add up the measures of slices over all ranks, in one call. */
static tt_status join_sums(const tt_optimizer *o, tt__optim_run *runs, size_t n) {
    double *all = malloc(n * sizeof runs->sums + TT__JOIN_ROOM * sizeof *all);
    if (!all)
        return tt__fail(TT_ERR_MEMORY, "tt_optimizer_step: no memory for the norms of %zu parameters", n);
    for (size_t k = 0; k < n; k++)
        memcpy(&all[k * TT__RULE_SUMS], runs[k].sums, sizeof runs->sums);
    tt_status status =
        o->shards->join(o->shards_user, "tt_optimizer_step", TT_OK, all, (int64_t)(n * TT__RULE_SUMS), false);
    for (size_t k = 0; k < n; k++)
        memcpy(runs[k].sums, &all[k * TT__RULE_SUMS], sizeof runs->sums);
    free(all);
    return status;
}

static tt_status measure_runs(const tt_optimizer *o, const fused_pass *pass, tt__optim_run *runs, size_t n) {
    for (size_t k = 0; k < n; k++)
        measure_run(pass, &runs[k]);
    if (o->shards)
        TT__TRY(join_sums(o, runs, n));
    for (size_t k = 0; k < n; k++)
        runs[k].update.ratio = o->cls->ratio(pass->group->option, runs[k].sums);
    return TT_OK;
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

tt_status tt__optim_fused(const tt_optimizer *o, const tt__optim_group *group, tt__optim_run *runs, size_t n) {
    const fused_pass pass = {.cls = o->cls, .group = group, .runs = runs, .count = n};
    if (!n)
        return TT_OK;
    if (o->cls->measure)
        TT__TRY(measure_runs(o, &pass, runs, n));
    tt__parallel_for(runs[n - 1].begin + runs[n - 1].update.n, FUSED_BLOCK, fused_part, (void *)&pass);
    return TT_OK;
}
