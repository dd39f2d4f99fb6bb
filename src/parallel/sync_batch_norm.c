/* SyncBatchNorm: per channel c of the ranks' x (N,C,...) together, of `count` elements a channel:
 *   y = (x - mean) rstd weight + bias, rstd = 1 / sqrt(var + eps)
 *   dx = weight rstd (g - (sum of g + (x - mean) rstd (sum of g (x - mean) rstd)) / count)
 * where mean, var and both sums are over all ranks, and the gradients of weight and bias over this one.
 *
 * In forward each rank sends mean, variance and count of its own part, and all merge them in the order of ranks (Chan,
 * Golub, LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979), so that no
 * difference of large sums is taken and all have the same bits. Both collectives are of f64. */
#include "parallel/sync_batch_norm.h"

#include "autograd/record.h"
#include "base/args.h"
#include "base/error.h"
#include "base/saved_error.h"
#include "nn/module.h"
#include "nn/norm_layers.h"
#include "parallel/sync_exchange.h"
#include "reducer/text_agreement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char who[] = "SyncBatchNorm";

static tt__sync_ranks *sync_ref(tt__sync_ranks *r) {
    atomic_fetch_add(&r->refs, 1);
    return r;
}

static void sync_unref(void *user) {
    tt__sync_ranks *r = user;
    if (atomic_fetch_sub(&r->refs, 1) > 1)
        return;
    tt__unwatch_passes(&r->passes);
    tt_destroy_process_group(r->group);
    free(r->parts);
    free(r);
}

/* ---- backward ---- */

typedef struct sync_state {
    tt__sync_ranks *ranks;
    int64_t count; /* of all ranks, a channel */
} sync_state;

static void sync_state_destroy(void *state) { sync_unref(((const sync_state *)state)->ranks); }

/* Saved: x, mean, rstd, weight. */
static tt_status sync_gradients(tt_node *node, const sync_state *s) {
    tt__normed n = {tt__grad_of(node, 0), tt__saved(node, 0), tt__saved(node, 1), tt__saved(node, 2), NULL};
    if (!n.x || !n.mean || !n.rstd || (node->save[3].tensor && !(n.weight = tt__saved(node, 3))))
        return tt_last_status();
    int64_t channels = n.mean->numel;
    tt_tensor *dw = tt__empty_beside(who, n.x, TT_SHAPE(channels), n.x->dtype);
    tt_tensor *db = dw ? tt__empty_beside(who, n.x, TT_SHAPE(channels), n.x->dtype) : NULL;
    tt_tensor *sums = db ? tt__empty_beside(who, n.x, TT_SHAPE(2, channels), TT_F64) : NULL;
    if (!sums)
        return tt_last_status();
    TT__TRY(tt__batch_norm_backward_out(who, &n, true, NULL, dw, db));
    if (tt__grad_wanted(node, 0)) {
        TT__TRY(tt__sync_sums(s->ranks, db, dw, sums));
        TT__GIVE(node, 0, dx, tt__batch_norm_give_out(who, &n, sums, s->count, dx));
    }
    if (tt__grad_wanted(node, 1))
        TT__TRY(tt__grad_give(node, 1, dw));
    return tt__grad_wanted(node, 2) ? tt__grad_give(node, 2, db) : TT_OK;
}

/* Abort the group on failure: the others wait for this rank's sums. */
static tt_status sync_backward(tt_node *node) {
    const sync_state *s = tt__state(node);
    tt_status status = sync_gradients(node, s);
    if (status)
        tt__abort_with_error(s->ranks->group);
    return status;
}

static const tt__operator sync_op = {.name = who, .backward = sync_backward, .destroy = sync_state_destroy};

/* The pass may have failed before it came to a layer, where other ranks wait. Records that have run no longer say whose
 * they are, so any SyncBatchNorm within reach counts as one of these. */
static void sync_pass_failed(void *user, const tt__reach *reach) {
    const tt__sync_ranks *r = user;
    bool reaches = !reach;
    for (int64_t i = 0; reach && i < reach->node_count && !reaches; i++)
        reaches = reach->nodes[i].node->op == &sync_op;
    if (reaches)
        tt__abort_with_error(r->group);
}

/* ---- forward ---- */

static tt_tensor *record_sync(tt_tensor *y, tt__sync_ranks *s, const tt_batch_norm_args *a, const tt_tensor *mean,
                              const tt_tensor *rstd, int64_t count) {
    tt_tensor *const in[] = {a->x, a->weight, a->bias};
    const sync_state state = {s, count};
    if (!y || !tt__wants_grad(3, in))
        return y;
    tt_node *node = tt__node_new(&sync_op, 3, in, 1, 4, &state, sizeof state);
    if (!node)
        return tt__abandon(y);
    sync_ref(s);
    bool saved = !tt__node_save(node, a->x, "x") && !tt__node_save(node, mean, "mean") &&
                 !tt__node_save(node, rstd, "rstd") && !tt__node_save(node, a->weight, "weight");
    if (saved)
        tt__node_made(node, 0, y);
    tt__node_unref(node);
    return saved ? y : tt__abandon(y);
}

static tt_tensor *sync_run(tt__sync_ranks *s, const tt_batch_norm_args *a) {
    int64_t channels = a->x->shape.dim[1], count = 0;
    tt_tensor *mean = tt__norm_stats_beside(who, a->x, channels);
    tt_tensor *rstd = mean ? tt__norm_stats_beside(who, a->x, channels) : NULL;
    tt_tensor *y = rstd ? tt__empty_like(who, a->x) : NULL;
    y = TT__MADE(who, y, tt__sync_stats(s, a, mean, rstd, &count));
    y = TT__MADE(who, y, tt__batch_norm_out(who, y, a->x, mean, rstd, a->weight, a->bias));
    y = record_sync(y, s, a, mean, rstd, count);
    tt__abandon(rstd);
    tt__abandon(mean);
    return y;
}

static bool is_narrow(const tt_tensor *x) { return x && (x->dtype == TT_BF16 || x->dtype == TT_F16); }

/* Sums of 16 bits would lose what the ranks exchange: such tensors are computed in f32. */
static tt_tensor *sync_run_wide(tt__sync_ranks *s, tt_batch_norm_args a) {
    tt_dtype dtype = a.x->dtype;
    bool has_weight = a.weight, has_bias = a.bias;
    a.x = tt_to(a.x, TT_F32);
    a.weight = has_weight ? tt_to(a.weight, TT_F32) : NULL;
    a.bias = has_bias ? tt_to(a.bias, TT_F32) : NULL;
    bool made = a.x && (a.weight || !has_weight) && (a.bias || !has_bias);
    return made ? tt_to(sync_run(s, &a), dtype) : NULL;
}

static tt_tensor *sync_run_any(tt__sync_ranks *s, tt_batch_norm_args a) {
    if (!TT__AUTOCAST("tt_batch_norm", &a.x, &a.weight, &a.bias) ||
        !TT__CHECK_FLOATS(who, {"x", a.x}, {"weight", a.weight}, {"bias", a.bias}))
        return NULL;
    if (!TT__SAME_DEVICE(who, a.x, a.weight, a.bias, a.running_mean, a.running_var))
        return NULL;
    return is_narrow(a.x) ? sync_run_wide(s, a) : sync_run(s, &a);
}

/* Is there no exchange: one rank, or a replica's thread, which takes part in none? */
static bool sync_meets_nobody(const tt__sync_ranks *s) { return s->world == 1 || tt__replica_of_thread().count > 1; }

static void sync_refuse(void *user, int64_t features) {
    tt__sync_ranks *s = user;
    if (!sync_meets_nobody(s))
        tt__sync_tell_failure(s, features);
}

static tt_tensor *sync_normalise(void *user, const tt_batch_norm_args *args) {
    tt__sync_ranks *s = user;
    if (tt__replica_of_thread().count > 1)
        return tt__tensor_fail(TT_ERR_UNSUPPORTED,
                               "%s: the threads of tt_data_parallel() can't each meet the other ranks; use tt_ddp()",
                               who);
    if (s->world == 1)
        return tt_batch_norm_with(args, offsetof(tt_batch_norm_args, tt_end));
    s->progress = TT__NOT_EXCHANGED;
    tt_tensor *y = sync_run_any(s, *args);
    if (!y && s->progress == TT__NOT_EXCHANGED)
        tt__sync_tell_failure(s, args->x->shape.dim[1]);
    else if (!y && s->progress == TT__EXCHANGED)
        tt__abort_with_error(s->group);
    return y;
}

/* ---- layers ---- */

static const tt_module_class sync_class = TT__BATCH_NORM_CLASS("SyncBatchNorm");
static const tt__batch_norm_kind sync_kind = {
    .cls = &sync_class, .normalise = sync_normalise, .refused = sync_refuse, .release = sync_unref};

/* Make the layers' own group, of all ranks of `group`, with one reference. Collective. */
static tt__sync_ranks *sync_ranks_new(tt_group *group, const char *caller, int64_t widest) {
    const int world = tt_get_world_size(group);
    tt__sync_ranks *s = calloc(1, sizeof *s);
    double *parts = malloc((size_t)(world + 1) * tt__sync_part_size(widest) * sizeof *parts);
    tt_status status = s && parts ? TT_OK : tt__fail(TT_ERR_MEMORY, "%s: no memory for a group", caller);
    if (!status)
        status = tt_group_split_with(TT_ARGS(tt_group_split_args, .out = &s->group, .group = group, .color = 0,
                                             .key = tt_get_rank(group), .file = caller));
    if (status) {
        free(parts);
        free(s);
        return NULL;
    }
    s->world = world;
    s->refs = 1;
    s->parts = parts;
    tt__watch_passes(&s->passes, sync_pass_failed, s);
    return s;
}

/* Is a module of the tree one that is converted: any batch norm, or (`all` false) one that is converted already? */
static bool sync_is_place(const tt_named_modules *tree, int64_t i, bool all) {
    const tt_module *m = tt__module_unwrapped(tree->modules[i]);
    return tt__is_batch_norm(m) && (all || !strcmp(tt__module_class(m)->name, sync_class.name));
}

/* Have all ranks the same batch norms? Collective. */
static tt_status sync_compare(tt_group *group, const char *caller, const tt_named_modules *tree, bool all,
                              size_t *places) {
    char **texts = calloc((size_t)tree->count + 1, sizeof *texts), numbers[96];
    tt_status status = texts ? TT_OK : tt__fail(TT_ERR_MEMORY, "%s: no memory for a list of layers", caller);
    *places = 0;
    for (int64_t i = 0; i < tree->count && !status; i++)
        if (sync_is_place(tree, i, all) &&
            asprintf(&texts[(*places)++], "batch norm \"%s\" %s", tree->names[i],
                     tt__batch_norm_text(tt__module_unwrapped(tree->modules[i]), numbers)) < 0) {
            texts[--*places] = NULL;
            status = tt__fail(TT_ERR_MEMORY, "%s: no memory for a list of layers", caller);
        }
    if (!status)
        status = tt__agree_on(group, caller, (const char *const *)texts, *places);
    for (int64_t i = 0; texts && i < tree->count; i++)
        free(texts[i]);
    free(texts);
    return status;
}

static tt_status sync_convert_tree(tt_module *module, tt_group *group, const char *caller, bool all) {
    size_t places = 0;
    int64_t widest = 0;
    if (!module)
        return tt__fail_argument("%s: the module is NULL", caller);
    const tt_named_modules *tree = tt_module_named_modules(module);
    if (!tree)
        return tt_last_status();
    TT__TRY(sync_compare(group, caller, tree, all, &places));
    if (!places)
        return TT_OK;
    for (int64_t i = 0; i < tree->count; i++)
        if (sync_is_place(tree, i, all) && tt__batch_norm_features(tt__module_unwrapped(tree->modules[i])) > widest)
            widest = tt__batch_norm_features(tt__module_unwrapped(tree->modules[i]));
    tt__sync_ranks *s = sync_ranks_new(group, caller, widest);
    if (!s)
        return tt_last_status();
    for (int64_t i = 0; i < tree->count; i++)
        if (sync_is_place(tree, i, all))
            tt__batch_norm_become(tt__module_unwrapped(tree->modules[i]), &sync_kind, sync_ref(s));
    sync_unref(s);
    return TT_OK;
}

static tt_module *sync_convert(tt_module *module, tt_group *group, const char *caller, bool all) {
    const tt__joint_call call = tt__joint_call_begin(group, caller);
    return tt__joint_call_end(&call, sync_convert_tree(module, group, caller, all)) ? NULL : module;
}

tt_module *tt_convert_sync_batchnorm(tt_module *module, tt_group *group) {
    static const char caller[] = "tt_convert_sync_batchnorm";
    if (!group && !module)
        tt__fail_argument("%s: the module is NULL", caller);
    if (!group)
        return !module ? NULL : tt__fail_null(TT_ERR_INVALID, "%s: `group` is NULL", caller);
    return sync_convert(module, group, caller, true);
}

tt_status tt__sync_batch_norm_renew(tt_module *module, tt_group *group, bool all) {
    return sync_convert(module, group, "a SyncBatchNorm's new group", all) ? TT_OK : tt_last_status();
}

tt_module *tt_nn_sync_batch_norm_with(const tt_nn_sync_batch_norm_args *args, size_t size) {
    static const char caller[] = "tt_nn_sync_batch_norm";
    tt_nn_sync_batch_norm_args a;
    TT__ARGS_COPY(a, args, size);
    if (!a.group)
        return tt__fail_null(TT_ERR_INVALID, "%s: `group` is NULL", caller);
    tt_module *made = tt_nn_batch_norm2d(a.num_features, .momentum = a.momentum, .eps = a.eps, .no_affine = a.no_affine,
                                         .no_running_stats = a.no_running_stats, .dtype = a.dtype);
    if (!sync_convert(made, a.group, caller, true)) {
        tt_module_free(made);
        return NULL;
    }
    return made;
}
