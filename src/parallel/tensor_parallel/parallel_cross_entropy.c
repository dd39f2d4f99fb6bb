/* logits x (B,V/n) on each of n ranks, target t (B)  ->  rows (B) = log sum[b] + max[b] - x[b][t[b]]
 *   with max and sum over the classes of all ranks: one all-reduce of maxima (B), one of sums and of the logits of the
 *   targets (2B), to which the rank adds it that has it
 * dx[b][v] = (exp(x[b][v] - max[b]) / sum[b] - [v == t[b]]) g[b], without another rank
 * Shoeybi et al. (2019), section 3. */
#include "autograd/record.h"
#include "base/args.h"
#include "base/error.h"
#include "parallel/tensor_parallel/own_classes.h"
#include "parallel/tensor_parallel/tensor_parallel.h"

#include <tutti/tensor_parallel.h>

static const char who[] = "tt_tp_cross_entropy";

/* What forward leaves, each a reference. */
typedef struct loss_parts {
    tt_tensor *exps; /* (B,V/n): exp(x - max) */
    tt_tensor *sums; /* (B,1) */
    tt_tensor *rows; /* (B) */
} loss_parts;

/* ---- backward ---- */

/* Saved: exps, sums, and of own classes place, is_own, counts. */
static tt_status parallel_cross_entropy_backward(tt_node *node) {
    tt_tensor *saved[5];
    for (int i = 0; i < 5; i++)
        if (!(saved[i] = tt__saved(node, i)))
            return tt_last_status();
    const tt_shape column = saved[1]->shape;
    tt_tensor *g = tt_mul(tt_reshape(tt__grad_of(node, 0), column), saved[4]);
    tt_tensor *dx = tt_mul(saved[0], tt_div(g, saved[1]));
    dx = tt_scatter_add(dx, 1, saved[2], tt_neg(tt_mul(g, saved[3])));
    return dx ? tt__grad_give(node, 0, dx) : tt__tensor_first_error(who);
}

static const tt__operator parallel_cross_entropy_op = {.name = who, .backward = parallel_cross_entropy_backward};

/* ---- forward, in a scope, without a record ---- */

/* The largest logit of each row over all ranks (B,1). Two more numbers tell whether all have as many classes. */
static tt_tensor *max_of_all(tt_tensor *x, tt_group *group) {
    double B = (double)tt_tensor_size(x, 0), classes = (double)tt_tensor_size(x, 1), most, least;
    tt_tensor *rows = tt_amax(x, .dim = TT_DIMS(1));
    tt_tensor *more = tt_full(TT_SHAPE(1), x->dtype, classes), *less = tt_full(TT_SHAPE(1), x->dtype, -classes);
    const tt_device *device = tt_tensor_device(x);
    tt_tensor *all = tt_cat((tt_tensor *[]){rows, tt_to_device(more, device), tt_to_device(less, device)}, 3, 0);
    if (!all || tt__tp_all_reduce(who, group, all, TT_MAX))
        return NULL;
    if (tt_item(tt_narrow(all, 0, (int64_t)B, 1), &most) || tt_item(tt_narrow(all, 0, (int64_t)B + 1, 1), &least))
        return NULL;
    if (most != -least)
        return tt__fail_null(TT_ERR_MISMATCH,
                             "%s: expected as many classes on all ranks, got %s on rank %d, and from %.0f to %.0f on "
                             "others",
                             who, TT__DESCRIBE(x), tt_get_rank(group), -least, most);
    return tt_view(tt_narrow(all, 0, 0, (int64_t)B), TT_SHAPE((int64_t)B, 1));
}

/* The classes are compared first: a rank with fewer than the others would refuse targets that are theirs, alone. */
static bool compute_loss(tt_tensor *x, const tt__class_list *list, tt_group *group, tt__own_classes *own,
                         loss_parts *parts) {
    int64_t B = tt_tensor_size(x, 0);
    tt_tensor *max = max_of_all(x, group);
    if (!max || !tt__own_classes_find(who, own, list))
        return false;
    tt_tensor *z = tt_sub(x, max), *exps = tt_exp(z);
    tt_tensor *target = tt__only_where(own->is_own, tt_gather_dim(z, 1, own->place));
    tt_tensor *sum = tt_sum(exps, .dim = TT_DIMS(1), .keepdim = true);
    tt_tensor *both = target && sum ? tt_cat((tt_tensor *[]){sum, target}, 2, 0) : NULL;
    if (!both || tt__tp_all_reduce(who, group, both, TT_SUM))
        return false;
    tt_tensor *sums = tt_narrow(both, 0, 0, B);
    tt_tensor *rows = tt__only_where(own->counts, tt_sub(tt_log(sums), tt_narrow(both, 0, B, B)));
    rows = tt_reshape(rows, TT_SHAPE(B));
    if (!rows)
        return false;
    *parts =
        (loss_parts){tt__tensor_detached(who, exps), tt__tensor_detached(who, sums), tt__tensor_detached(who, rows)};
    return parts->exps && parts->sums && parts->rows;
}

/* The losses of the rows (B), recorded. Fills in `own`, empty before. */
static tt_tensor *row_losses(tt_tensor *x, const tt__class_list *list, tt_group *group, tt__own_classes *own) {
    loss_parts p = {NULL, NULL, NULL};
    bool no_grad = tt_no_grad_begin();
    int scope = tt_scope_begin();
    bool computed = compute_loss(x, list, group, own, &p);
    tt_scope_end(scope);
    tt_no_grad_end(no_grad);
    tt_tensor *rows = computed ? tt__tensor_alias(who, p.rows, p.rows->shape, p.rows->stride, 0)
                               : tt__tensor_fail(tt_last_status(), "%s", tt_last_error());
    rows = tt__recorded(&parallel_cross_entropy_op, rows, TT__INPUTS(x),
                        TT__SAVES({p.exps, "exponentials"}, {p.sums, "sums"}, {own->place, "target"},
                                  {own->is_own, "target"}, {own->counts, "target"}),
                        TT__NO_STATE);
    tt__tensor_unref(p.exps);
    tt__tensor_unref(p.sums);
    tt__tensor_unref(p.rows);
    return rows;
}

/* `rows`, which go, reduced as PyTorch does: the mean is over those that count. */
static tt_tensor *reduced_losses(tt_tensor *rows, tt_reduction reduction, int64_t counted) {
    if (reduction == TT_REDUCTION_NONE || !rows)
        return rows;
    tt_tensor *sum = tt_sum(rows);
    tt__abandon(rows);
    if (reduction == TT_REDUCTION_SUM)
        return sum;
    tt_tensor *mean = tt_scale(sum, 1.0 / (double)counted);
    tt__abandon(sum);
    return mean;
}

static bool check_loss_arguments(const tt_tp_cross_entropy_args *a) {
    if (!a->group)
        tt__tensor_fail(TT_ERR_INVALID, "%s: `group` is NULL", who);
    else if (!tt__check_floats(who, 1, (tt__argument[]){{"logits", a->logits}}) ||
             !tt__check_reduction(who, a->reduction, false))
        return false;
    else if (a->logits->shape.ndim != 2 || a->logits->numel < 1 || a->target->shape.ndim != 1 ||
             a->target->numel != a->logits->shape.dim[0])
        tt__tensor_fail(TT_ERR_SHAPE, "%s: expected logits (B, V/n) and target (B), got %s and %s", who,
                        TT__DESCRIBE(a->logits), TT__DESCRIBE(a->target));
    else
        return true;
    return false;
}

tt_tensor *tt_tp_cross_entropy_with(const tt_tp_cross_entropy_args *args, size_t size) {
    tt_tp_cross_entropy_args a;
    TT__ARGS_COPY(a, args, size);
    if (!a.logits || !a.target || !check_loss_arguments(&a))
        return NULL;
    const int64_t ignore = a.ignore_index.given ? a.ignore_index.value : -100;
    bool half = a.logits->dtype == TT_F16 || a.logits->dtype == TT_BF16;
    tt_tensor *x = half ? tt_to(a.logits, TT_F32) : a.logits;
    if (!x)
        return NULL;
    const tt__class_list list = {a.target, tt_tensor_size(x, 1), a.group, x->dtype, &ignore};
    tt__own_classes own = {0};
    tt_tensor *rows = row_losses(x, &list, a.group, &own);
    int64_t counted = own.counted;
    tt__own_classes_end(&own);
    if (half)
        tt__abandon(x);
    return reduced_losses(rows, a.reduction, counted);
}
