/* Steps on sparse gradients: a rule updates, row by row, the rows that the gradient is of, and no others. */
#include "autograd/sparse_grad.h"
#include "base/error.h"
#include "optim/fused.h"
#include "tensor/device/parallel.h"
#include "tensor/ops/ops.h"

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

/* Fill new state, of all rows, with the value that it begins as, where that isn't 0: rows that get their first gradient
 * in a later step need it, too. */
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

/* As begin_state(). */
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
