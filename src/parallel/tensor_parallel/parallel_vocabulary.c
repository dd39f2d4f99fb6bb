/* Layers whose classes (a vocabulary) are divided among n ranks: the embedding, and the cross-entropy of logits. Each
 * rank does what belongs to its own classes, V/n of them, and the results are summed. */
#include "autograd/record.h"
#include "base/args.h"
#include "base/error.h"
#include "parallel/tensor_parallel/tensor_parallel.h"
#include "tensor/core/tensor.h"

#include <tutti/autograd.h>
#include <tutti/comm.h>
#include <tutti/functional.h>
#include <tutti/tensor_parallel.h>

#include <inttypes.h>
#include <stdio.h>

/* ---- which of a list of classes are the rank's own ---- */

/* Tensors on the device of the classes, each the one reference of this struct. */
typedef struct own_classes {
    tt_tensor *place;  /* (B,1) i64: the class's number among the rank's own; 0 if it is another rank's */
    tt_tensor *is_own; /* (B,1): 1 if the class is the rank's own, else 0 */
    tt_tensor *counts; /* (B,1): 0 if the class is `ignore`, else 1 */
    int64_t counted;   /* how many are not `ignore` */
} own_classes;

/* A list of classes, and how classes are divided. */
typedef struct class_list {
    const tt_tensor *target; /* i64, any shape: B classes */
    int64_t classes;         /* how many each rank has */
    const tt_group *group;
    tt_dtype dtype;        /* of is_own and counts */
    const int64_t *ignore; /* NULL: none */
} class_list;

/* The tensors of own_classes on the host, (B). */
typedef struct sorted {
    int64_t *place;
    float *is_own, *counts;
} sorted;

static bool sort_classes(const char *who, own_classes *own, const sorted *to, const int64_t *target,
                         const class_list *list) {
    int64_t all = list->classes * tt_get_world_size(list->group), first = list->classes * tt_get_rank(list->group);
    for (int64_t b = 0; b < list->target->numel; b++) {
        bool ignored = list->ignore && target[b] == *list->ignore;
        if (!ignored && (target[b] < 0 || target[b] >= all)) {
            tt__tensor_fail(TT_ERR_INVALID, "%s: expected classes in 0..%" PRId64 ", got %" PRId64 " at %" PRId64, who,
                            all - 1, target[b], b);
            return false;
        }
        bool is_own = !ignored && target[b] >= first && target[b] < first + list->classes;
        to->place[b] = is_own ? target[b] - first : 0;
        to->is_own[b] = is_own ? 1 : 0;
        to->counts[b] = ignored ? 0 : 1;
        own->counted += !ignored;
    }
    return true;
}

/* x, made on the host, as `dtype` on the list's device; a reference. NULL: no memory. */
static tt_tensor *in_place_of(const char *who, tt_tensor *x, tt_dtype dtype, const class_list *list) {
    tt_tensor *y = tt_to_device(tt_to(x, dtype), tt_tensor_device(list->target));
    return y ? tt__tensor_detached(who, y) : NULL;
}

static bool find_classes(const char *who, own_classes *own, const class_list *list) {
    tt_tensor *given = (tt_tensor *)(uintptr_t)list->target; /* is only read */
    tt_tensor *host = tt_contiguous(tt_to_device(given, tt_device_get("cpu")));
    const tt_shape column = TT_SHAPE(given->numel, 1);
    tt_tensor *place = tt_empty(column, TT_I64), *is_own = tt_empty(column, TT_F32), *counts = tt_empty(column, TT_F32);
    if (!host || !place || !is_own || !counts)
        return false;
    const sorted to = {tt_tensor_i64(place), tt_tensor_f32(is_own), tt_tensor_f32(counts)};
    if (!sort_classes(who, own, &to, tt_tensor_i64(host), list))
        return false;
    own->place = in_place_of(who, place, TT_I64, list);
    own->is_own = in_place_of(who, is_own, list->dtype, list);
    own->counts = in_place_of(who, counts, list->dtype, list);
    return own->place && own->is_own && own->counts;
}

/* Fill *own. False, with an error that begins with `who`: not integers, one out of range, no memory. own_classes_end()
 * must follow, also then. */
static bool own_classes_find(const char *who, own_classes *own, const class_list *list) {
    *own = (own_classes){0};
    if (!tt__tensor_check(who, list->target))
        return false;
    if (list->target->dtype != TT_I64) {
        tt__tensor_fail(TT_ERR_DTYPE, "%s: expected classes as i64, got %s", who, TT__DESCRIBE(list->target));
        return false;
    }
    bool no_grad = tt_no_grad_begin();
    int scope = tt_scope_begin();
    bool found = find_classes(who, own, list);
    tt_scope_end(scope);
    tt_no_grad_end(no_grad);
    if (!found) /* record the error in the outer scope */
        tt__tensor_fail(tt_last_status(), "%s", tt_last_error());
    return found;
}

static void own_classes_end(own_classes *own) {
    tt__tensor_unref(own->place);
    tt__tensor_unref(own->is_own);
    tt__tensor_unref(own->counts);
}

/* x where `mask` is 1, and 0 elsewhere; with broadcasting, recorded. A product would give NaN for an x that isn't
 * finite. */
static tt_tensor *only_where(tt_tensor *mask, tt_tensor *x) {
    tt_tensor *is = tt_to(mask, TT_BOOL), *zeros = x ? tt_zeros_like(mask) : NULL, *y = tt_where(is, x, zeros);
    tt__abandon(is);
    tt__abandon(zeros);
    return y;
}

/* ---- embedding ----
 *
 * weight (V,C), of which each rank has V/n rows; indices (...) -> their rows (...,C): the rank's own, and zeros for the
 * others', summed over the ranks. */

static const char embedding_who[] = "tt_nn_vocab_parallel_embedding";

/* (B,1,C): the rows that are the rank's own, and zeros. */
static tt_tensor *own_rows(const tt__sharding *s, const own_classes *own) {
    tt_tensor *rows = tt_embedding(s->weight, own->place);
    tt_tensor *is_own = tt_view(own->is_own, TT_SHAPE(own->is_own->numel, 1, 1)), *y = only_where(is_own, rows);
    tt__abandon(rows);
    tt__abandon(is_own);
    return y;
}

/* View x, which is abandoned, as (indices' shape, C). */
static tt_tensor *rows_of(const tt_tensor *indices, tt_tensor *x) {
    tt_shape shape = indices->shape;
    if (!x)
        return NULL;
    shape.dim[shape.ndim++] = tt_tensor_size(x, -1);
    tt_tensor *y = tt_view(x, shape);
    tt__abandon(x);
    return y;
}

static tt_tensor *vocab_embedding_forward(tt_module *self, tt_tensor *indices) {
    const tt__sharding *s = tt_module_user(self);
    const class_list list = {indices, tt_tensor_size(s->weight, 0), s->group, s->weight->dtype, NULL};
    own_classes own;
    if (indices->shape.ndim >= TT_MAX_DIMS)
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: expected indices of at most %d dimensions, got %s", embedding_who,
                               TT_MAX_DIMS - 1, TT__DESCRIBE(indices));
    tt_tensor *rows = own_classes_find(embedding_who, &own, &list) ? own_rows(s, &own) : NULL;
    own_classes_end(&own);
    tt_tensor *sum = tt_tp_reduce(rows, s->group);
    if (sum != rows)
        tt__abandon(rows);
    return rows_of(indices, sum);
}

static const tt_module_class vocab_embedding_class =
    TT_MODULE_CLASS(.name = "VocabParallelEmbedding", .forward = vocab_embedding_forward,
                    .destroy = tt__sharded_destroy);

static tt_module *make_plain_embedding(const void *args) {
    const tt_nn_vocab_parallel_embedding_args *a = args;
    return tt_nn_embedding(a->num_embeddings, a->embedding_dim, .generator = a->generator, .dtype = a->dtype);
}

tt_module *tt_nn_vocab_parallel_embedding_with(const tt_nn_vocab_parallel_embedding_args *args, size_t size) {
    tt_nn_vocab_parallel_embedding_args a;
    TT__ARGS_COPY(a, args, size);
    char text[160];
    snprintf(text, sizeof text, "an embedding of %" PRId64 " in %" PRId64 " of %s", a.num_embeddings, a.embedding_dim,
             tt_dtype_name(a.dtype));
    const tt__sharded_layer layer = {.who = embedding_who,
                                     .cls = &vocab_embedding_class,
                                     .sharding = {.group = a.group},
                                     .name = "num_embeddings",
                                     .divided = a.num_embeddings,
                                     .make = make_plain_embedding,
                                     .args = &a};
    return tt__sharded_layer_make(&layer, text);
}

/* ---- cross-entropy ----
 *
 * logits x (B,V/n) on each of n ranks, target t (B)  ->  rows (B) = log sum[b] + max[b] - x[b][t[b]]
 *   with max and sum over the classes of all ranks: one all-reduce of maxima (B), and one of sums and of the targets'
 *   logits (2B), each of which the rank that has it adds
 * dx[b][v] = (exp(x[b][v] - max[b]) / sum[b] - [v == t[b]]) g[b], without another rank
 * Shoeybi et al. (2019), section 3. */

static const char cross_entropy_who[] = "tt_tp_cross_entropy";

/* Results of the forward, each a reference. */
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
    return dx ? tt__grad_give(node, 0, dx) : tt__tensor_first_error(cross_entropy_who);
}

static const tt__operator parallel_cross_entropy_op = {.name = cross_entropy_who,
                                                       .backward = parallel_cross_entropy_backward};

/* ---- forward, in a scope, without a record ---- */

/* The largest logit of each row over all ranks (B,1). Two more numbers show whether all ranks have as many classes. */
static tt_tensor *max_of_all(tt_tensor *x, tt_group *group) {
    double B = (double)tt_tensor_size(x, 0), classes = (double)tt_tensor_size(x, 1), most, least;
    tt_tensor *rows = tt_amax(x, .dim = TT_DIMS(1));
    tt_tensor *more = tt_full(TT_SHAPE(1), x->dtype, classes), *less = tt_full(TT_SHAPE(1), x->dtype, -classes);
    const tt_device *device = tt_tensor_device(x);
    tt_tensor *all = tt_cat((tt_tensor *[]){rows, tt_to_device(more, device), tt_to_device(less, device)}, 3, 0);
    if (!all || tt__tp_all_reduce(cross_entropy_who, group, all, TT_MAX))
        return NULL;
    if (tt_item(tt_narrow(all, 0, (int64_t)B, 1), &most) || tt_item(tt_narrow(all, 0, (int64_t)B + 1, 1), &least))
        return NULL;
    if (most != -least)
        return tt__fail_null(TT_ERR_MISMATCH,
                             "%s: expected as many classes on all ranks, got %s on rank %d, and from %.0f to %.0f on "
                             "others",
                             cross_entropy_who, TT__DESCRIBE(x), tt_get_rank(group), -least, most);
    return tt_view(tt_narrow(all, 0, 0, (int64_t)B), TT_SHAPE((int64_t)B, 1));
}

/* Compares the ranks' numbers of classes first: a rank with fewer classes would otherwise refuse some targets alone. */
static bool compute_loss(tt_tensor *x, const class_list *list, tt_group *group, own_classes *own, loss_parts *parts) {
    int64_t B = tt_tensor_size(x, 0);
    tt_tensor *max = max_of_all(x, group);
    if (!max || !own_classes_find(cross_entropy_who, own, list))
        return false;
    tt_tensor *z = tt_sub(x, max), *exps = tt_exp(z);
    tt_tensor *target = only_where(own->is_own, tt_gather_dim(z, 1, own->place));
    tt_tensor *sum = tt_sum(exps, .dim = TT_DIMS(1), .keepdim = true);
    tt_tensor *both = target && sum ? tt_cat((tt_tensor *[]){sum, target}, 2, 0) : NULL;
    if (!both || tt__tp_all_reduce(cross_entropy_who, group, both, TT_SUM))
        return false;
    tt_tensor *sums = tt_narrow(both, 0, 0, B);
    tt_tensor *rows = only_where(own->counts, tt_sub(tt_log(sums), tt_narrow(both, 0, B, B)));
    rows = tt_reshape(rows, TT_SHAPE(B));
    if (!rows)
        return false;
    *parts = (loss_parts){tt__tensor_detached(cross_entropy_who, exps), tt__tensor_detached(cross_entropy_who, sums),
                          tt__tensor_detached(cross_entropy_who, rows)};
    return parts->exps && parts->sums && parts->rows;
}

/* The losses of the rows (B), recorded. Fills in `own`, empty before. */
static tt_tensor *row_losses(tt_tensor *x, const class_list *list, tt_group *group, own_classes *own) {
    loss_parts p = {NULL, NULL, NULL};
    bool no_grad = tt_no_grad_begin();
    int scope = tt_scope_begin();
    bool computed = compute_loss(x, list, group, own, &p);
    tt_scope_end(scope);
    tt_no_grad_end(no_grad);
    tt_tensor *rows = computed ? tt__tensor_alias(cross_entropy_who, p.rows, p.rows->shape, p.rows->stride, 0)
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

/* Reduce `rows`, which are abandoned, as PyTorch does: the mean is over the rows that count. */
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
        tt__tensor_fail(TT_ERR_INVALID, "%s: `group` is NULL", cross_entropy_who);
    else if (!tt__check_floats(cross_entropy_who, 1, (tt__argument[]){{"logits", a->logits}}) ||
             !tt__check_reduction(cross_entropy_who, a->reduction, false))
        return false;
    else if (a->logits->shape.ndim != 2 || a->logits->numel < 1 || a->target->shape.ndim != 1 ||
             a->target->numel != a->logits->shape.dim[0])
        tt__tensor_fail(TT_ERR_SHAPE, "%s: expected logits (B, V/n) and target (B), got %s and %s", cross_entropy_who,
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
    const class_list list = {a.target, tt_tensor_size(x, 1), a.group, x->dtype, &ignore};
    own_classes own = {0};
    tt_tensor *rows = row_losses(x, &list, a.group, &own);
    int64_t counted = own.counted;
    own_classes_end(&own);
    if (half)
        tt__abandon(x);
    return reduced_losses(rows, a.reduction, counted);
}
