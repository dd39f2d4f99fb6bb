/* SyncBatchNorm. For each channel c of all ranks' x (N,C,...), with `count` elements a channel:
 *   y = (x - mean) rstd weight + bias, rstd = 1 / sqrt(var + eps)
 *   dx = weight rstd (g - (sum of g + (x - mean) rstd (sum of g (x - mean) rstd)) / count)
 * where mean, var and both sums are over all ranks, and the gradients of weight and bias over this one.
 *
 * In forward each rank sends mean, variance and count of its own part, and all merge them in the order of ranks (Chan,
 * Golub, LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979). So no difference
 * of large sums is taken, and all ranks have the same bits. The collectives are of f64, and go over the host, unless
 * the back end takes the device's memory alone: 2 C + 1 numbers in forward, 2 C in backward. */
#include "parallel/sync_batch_norm.h"

#include "autograd/reach.h"
#include "autograd/record.h"
#include "base/args.h"
#include "base/error.h"
#include "comm/group.h"
#include "nn/module.h"
#include "nn/norm_layers.h"
#include "reducer/text_agreement.h"
#include "tensor/ops/ops.h"

#include <tutti/functional.h>
#include <tutti/parallel.h>

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How far a forward has come. Before the exchange, a failure on this rank alone is told in it; afterwards the group is
 * aborted. */
typedef enum sync_progress { SYNC_NOT_EXCHANGED, SYNC_EXCHANGING, SYNC_EXCHANGED } sync_progress;

/* The group of layers that were made together. Each layer and each record has a reference. */
typedef struct sync_ranks {
    tt_group *group;
    int world;
    _Atomic int refs;
    double *parts; /* (world + 1) parts of the widest layer: all ranks', then this one's */
    sync_progress progress;
    const tt_device *device; /* of the last x; NULL: there was none */
    tt__pass_watcher passes;
} sync_ranks;

/* What a rank sends in a forward: means (C), variances (C), how many elements a channel has. */
static size_t sync_part_size(int64_t channels) { return 2 * (size_t)channels + 1; }

static const char who[] = "SyncBatchNorm";

/* ---- exchange in backward ---- */

/* x itself if it lies on the host, else a new tensor on the host like it. NULL: no memory. */
static tt_tensor *near_of(tt_tensor *x) {
    return tt__device_is_host(tt__device_of(x)) ? x : tt__tensor_new(who, x->shape, x->dtype);
}

/* If `status` is TT_OK, copy near_of(x) to x; free it. */
static tt_status near_done(tt_tensor *near, tt_tensor *x, tt_status status) {
    if (near == x)
        return status;
    if (!status)
        status = tt__copy_out(who, x, near);
    tt__abandon(near);
    return status;
}

static tt_status sum_at(const sync_ranks *r, const tt_tensor *db, const tt_tensor *dw, tt_tensor *sums) {
    const tt_device *device = tt__device_of(sums);
    tt_tensor rows = tt__tensor_seen(sums, sums->shape, sums->stride);
    int64_t channels = sums->shape.dim[1];
    const tt_tensor *const from[] = {db, dw};
    for (int i = 0; i < 2; i++) {
        rows.shape = TT_SHAPE(channels);
        rows.stride[0] = 1;
        rows.numel = channels;
        rows.data = (double *)sums->data + i * channels;
        TT__TRY(tt__copy_out(who, &rows, from[i]));
    }
    return tt_all_reduce_with(TT_ARGS(tt_all_reduce_args, .group = r->group, .buf = sums->data, .count = 2 * channels,
                                      .dtype = TT_F64, .op = TT_SUM, .file = "the backward of a SyncBatchNorm",
                                      .device = device->type, .device_index = device->index,
                                      .stream = device->queue ? tt_device_stream(device) : NULL));
}

/* sums (2,C) := those of db and dw over all ranks, in f64. */
static tt_status sync_sums(const sync_ranks *r, const tt_tensor *db, const tt_tensor *dw, tt_tensor *sums) {
    if (!tt__group_takes(r->group, TT_DEVICE_CPU))
        return sum_at(r, db, dw, sums);
    tt_tensor *near = near_of(sums);
    return near ? near_done(near, sums, sum_at(r, db, dw, near)) : tt_last_status();
}

/* ---- exchange in forward ---- */

/* Compute mean and rstd of this rank's x; `near`: on the host. */
static tt_status own_stats(const tt_batch_norm_args *a, double eps, tt_tensor *const stats[2],
                           tt_tensor *const near[2]) {
    TT__TRY(tt__batch_norm_stats_out(who, a->x, eps, stats[0], stats[1]));
    for (int i = 0; i < 2; i++)
        if (near[i] != stats[i])
            TT__TRY(tt__copy_out(who, near[i], stats[i]));
    return TT_OK;
}

/* Write this rank's part; the tensors are scratch memory. */
static tt_status own_moments(const tt_batch_norm_args *a, double eps, tt_tensor *const stats[2],
                             tt_tensor *const near[2], double *part) {
    int64_t channels = near[0]->numel, count = a->x->numel / channels;
    const double *m = near[0]->data, *r = near[1]->data;
    part[2 * channels] = (double)count;
    if (count == 0)
        return memset(part, 0, 2 * (size_t)channels * sizeof *part), TT_OK;
    TT__TRY(own_stats(a, eps, stats, near));
    for (int64_t c = 0; c < channels; c++) {
        part[c] = m[c];
        part[channels + c] = fmax(1 / (r[c] * r[c]) - eps, 0);
    }
    return TT_OK;
}

/* Merge all ranks' parts. */
static void merge_channel(const double *parts, int world, int64_t channels, int64_t c, double count, double *mean,
                          double *var) {
    size_t stride = sync_part_size(channels);
    double total = 0, squares = 0;
    for (int r = 0; r < world; r++)
        total += parts[r * stride + 2 * channels] * parts[r * stride + c];
    *mean = total / count;
    for (int r = 0; r < world; r++) {
        const double *part = parts + r * stride;
        double off = part[c] - *mean, n = part[2 * channels];
        if (n > 0)
            squares += n * (part[channels + c] + off * off);
    }
    *var = squares / count;
}

static double *own_moments_part(const sync_ranks *s, int64_t channels) {
    return s->parts + s->world * sync_part_size(channels);
}

/* Gather the parts over x's device, if the group's back end takes nothing of the host. */
static tt_status gather_parts_far(const sync_ranks *s, int64_t channels) {
    TT_AUTO_SCOPE;
    const int64_t n = (int64_t)sync_part_size(channels);
    tt_tensor *own = (tt_from_blob)(own_moments_part(s, channels), TT_SHAPE(n), TT_F64);
    own = own ? tt__to_device(who, own, s->device) : NULL;
    tt_tensor *all = own ? tt__tensor_new_on(who, s->device, TT_SHAPE(s->world * n), TT_F64, NULL) : NULL;
    if (!all)
        return tt_last_status();
    TT__TRY(tt_tensor_all_gather_with(TT_ARGS(tt_tensor_all_gather_args, .group = s->group, .x = own, .out = all,
                                              .file = "the forward of a SyncBatchNorm")));
    tt_tensor *near = tt__to_device(who, all, &tt__cpu_device);
    if (!near)
        return tt_last_status();
    memcpy(s->parts, near->data, (size_t)near->numel * sizeof *s->parts);
    return TT_OK;
}

static tt_status gather_parts(sync_ranks *s, int64_t channels) {
    s->progress = SYNC_EXCHANGING;
    if (!tt__group_takes(s->group, TT_DEVICE_CPU)) {
        tt_status status = s->device ? gather_parts_far(s, channels) : TT_ERR_STATE;
        if (status) /* it may have failed on this rank alone */
            tt__abort_with_error(s->group);
        return status;
    }
    return tt_all_gather_with(TT_ARGS(tt_all_gather_args, .group = s->group, .send = own_moments_part(s, channels),
                                      .recv = s->parts, .count = (int64_t)sync_part_size(channels), .dtype = TT_F64,
                                      .file = "the forward of a SyncBatchNorm"));
}

/* Tell the others, in their exchange, that this rank has failed. Keeps its error. */
static void sync_tell_failure(sync_ranks *s, int64_t channels) {
    tt__saved_error failure;
    double *own = own_moments_part(s, channels);
    tt__error_save(&failure);
    memset(own, 0, 2 * (size_t)channels * sizeof *own);
    own[2 * channels] = -1;
    tt_ignore(gather_parts(s, channels));
    tt__error_restore(&failure);
}

/* Exchange the parts, and compute *count, and mean and rstd of all ranks' x, in `near`. */
static tt_status exchange_parts(sync_ranks *s, const tt_batch_norm_args *a, tt_tensor *const stats[2],
                                tt_tensor *const near[2], int64_t *count) {
    int64_t channels = near[0]->numel;
    double *mean = near[0]->data, *rstd = near[1]->data;
    const double *parts = s->parts;
    double eps = a->eps ? a->eps : 1e-5, total = 0, var;
    s->device = tt__device_of(a->x);
    TT__TRY(own_moments(a, eps, stats, near, own_moments_part(s, channels)));
    TT__TRY(gather_parts(s, channels));
    for (int r = 0; r < s->world; r++) {
        double elements = parts[r * sync_part_size(channels) + 2 * channels];
        if (elements < 0)
            return tt__fail(TT_ERR_PEER, "%s: rank %d could not find the mean of its batch; its error says why", who,
                            r);
        total += elements;
    }
    if (total == 1)
        return tt__fail(TT_ERR_INVALID,
                        "%s: expected more than one element a channel over all ranks in training; this rank has x %s",
                        who, TT__DESCRIBE(a->x));
    for (int64_t c = 0; c < channels && total > 0; c++) {
        merge_channel(parts, s->world, channels, c, total, &mean[c], &var);
        rstd[c] = 1 / sqrt(var + eps);
    }
    *count = (int64_t)total;
    s->progress = SYNC_EXCHANGED;
    return TT_OK;
}

/* exchange_parts() for tensors on any device. */
static tt_status exchange_stats(sync_ranks *s, const tt_batch_norm_args *a, tt_tensor *mean, tt_tensor *rstd,
                                int64_t *count) {
    tt_tensor *const stats[2] = {mean, rstd};
    tt_tensor *near[2] = {near_of(mean), NULL};
    near[1] = near[0] ? near_of(rstd) : NULL;
    tt_status status = near[1] ? exchange_parts(s, a, stats, near, count) : tt_last_status();
    for (int i = 0; i < 2 && near[i]; i++)
        status = near_done(near[i], stats[i], status);
    return status;
}

/* No rank has an element: leave the running statistics, and let weights have gradients of 0. */
static tt_status no_stats(tt_tensor *mean, tt_tensor *rstd) {
    TT__TRY(tt__fill_out(who, mean, 0));
    return tt__fill_out(who, rstd, 1);
}

/* Compute mean and rstd (C) over all ranks, in f64, and move the running statistics towards them. *count: elements of a
 * channel. */
static tt_status sync_stats(sync_ranks *s, const tt_batch_norm_args *a, tt_tensor *mean, tt_tensor *rstd,
                            int64_t *count) {
    TT__TRY(exchange_stats(s, a, mean, rstd, count));
    if (!*count)
        return no_stats(mean, rstd);
    if (!a->running_mean)
        return TT_OK;
    return tt__batch_norm_running_(who, a->running_mean, a->running_var, mean, rstd, a->eps ? a->eps : 1e-5,
                                   a->momentum ? a->momentum : 0.1, *count);
}

static sync_ranks *sync_ref(sync_ranks *r) {
    atomic_fetch_add(&r->refs, 1);
    return r;
}

static void sync_unref(void *user) {
    sync_ranks *r = user;
    if (atomic_fetch_sub(&r->refs, 1) > 1)
        return;
    tt__unwatch_passes(&r->passes);
    tt_destroy_process_group(r->group);
    free(r->parts);
    free(r);
}

/* ---- backward ---- */

typedef struct sync_state {
    sync_ranks *ranks;
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
        TT__TRY(sync_sums(s->ranks, db, dw, sums));
        TT__GIVE(node, 0, dx, tt__batch_norm_give_out(who, &n, sums, s->count, dx));
    }
    if (tt__grad_wanted(node, 1))
        TT__TRY(tt__grad_give(node, 1, dw));
    return tt__grad_wanted(node, 2) ? tt__grad_give(node, 2, db) : TT_OK;
}

/* After a failure abort the group, as the others wait for this rank's sums. */
static tt_status sync_backward(tt_node *node) {
    const sync_state *s = tt__state(node);
    tt_status status = sync_gradients(node, s);
    if (status)
        tt__abort_with_error(s->ranks->group);
    return status;
}

static const tt__operator sync_op = {.name = who, .backward = sync_backward, .destroy = sync_state_destroy};

/* A pass may fail before it comes to a layer, where other ranks wait. Records that have run no longer name their layer,
 * so any SyncBatchNorm that the pass would have reached counts. */
static void sync_pass_failed(void *user, const tt__reach *reach) {
    const sync_ranks *r = user;
    bool reaches = !reach;
    for (int64_t i = 0; reach && i < reach->node_count && !reaches; i++)
        reaches = reach->nodes[i].node->op == &sync_op;
    if (reaches)
        tt__abort_with_error(r->group);
}

/* ---- forward ---- */

static tt_tensor *record_sync(tt_tensor *y, sync_ranks *s, const tt_batch_norm_args *a, const tt_tensor *mean,
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

static tt_tensor *sync_run(sync_ranks *s, const tt_batch_norm_args *a) {
    int64_t channels = a->x->shape.dim[1], count = 0;
    tt_tensor *mean = tt__norm_stats_beside(who, a->x, channels);
    tt_tensor *rstd = mean ? tt__norm_stats_beside(who, a->x, channels) : NULL;
    tt_tensor *y = rstd ? tt__empty_like(who, a->x) : NULL;
    y = TT__MADE(who, y, sync_stats(s, a, mean, rstd, &count));
    y = TT__MADE(who, y, tt__batch_norm_out(who, y, a->x, mean, rstd, a->weight, a->bias));
    y = record_sync(y, s, a, mean, rstd, count);
    tt__abandon(rstd);
    tt__abandon(mean);
    return y;
}

static bool is_narrow(const tt_tensor *x) { return x && (x->dtype == TT_BF16 || x->dtype == TT_F16); }

/* Compute tensors of 16 bits in f32, as sums of 16 bits would lose too much. */
static tt_tensor *sync_run_wide(sync_ranks *s, tt_batch_norm_args a) {
    tt_dtype dtype = a.x->dtype;
    bool has_weight = a.weight, has_bias = a.bias;
    a.x = tt_to(a.x, TT_F32);
    a.weight = has_weight ? tt_to(a.weight, TT_F32) : NULL;
    a.bias = has_bias ? tt_to(a.bias, TT_F32) : NULL;
    bool made = a.x && (a.weight || !has_weight) && (a.bias || !has_bias);
    return made ? tt_to(sync_run(s, &a), dtype) : NULL;
}

static tt_tensor *sync_run_any(sync_ranks *s, tt_batch_norm_args a) {
    if (!TT__AUTOCAST("tt_batch_norm", &a.x, &a.weight, &a.bias) ||
        !TT__CHECK_FLOATS(who, {"x", a.x}, {"weight", a.weight}, {"bias", a.bias}))
        return NULL;
    if (!TT__SAME_DEVICE(who, a.x, a.weight, a.bias, a.running_mean, a.running_var))
        return NULL;
    return is_narrow(a.x) ? sync_run_wide(s, a) : sync_run(s, &a);
}

/* Is there nothing to exchange: one rank, or a replica's thread, which makes no collectives? */
static bool sync_meets_nobody(const sync_ranks *s) { return s->world == 1 || tt__replica_of_thread().count > 1; }

static void sync_refuse(void *user, int64_t features) {
    sync_ranks *s = user;
    if (!sync_meets_nobody(s))
        sync_tell_failure(s, features);
}

static tt_tensor *sync_normalise(void *user, const tt_batch_norm_args *args) {
    sync_ranks *s = user;
    if (tt__replica_of_thread().count > 1)
        return tt__tensor_fail(TT_ERR_UNSUPPORTED,
                               "%s: the threads of tt_data_parallel() can't each meet the other ranks; use tt_ddp()",
                               who);
    if (s->world == 1)
        return tt_batch_norm_with(args, offsetof(tt_batch_norm_args, tt_end));
    s->progress = SYNC_NOT_EXCHANGED;
    tt_tensor *y = sync_run_any(s, *args);
    if (!y && s->progress == SYNC_NOT_EXCHANGED)
        sync_tell_failure(s, args->x->shape.dim[1]);
    else if (!y && s->progress == SYNC_EXCHANGED)
        tt__abort_with_error(s->group);
    return y;
}

/* ---- layers ---- */

static const tt_module_class sync_class = TT__BATCH_NORM_CLASS("SyncBatchNorm");
static const tt__batch_norm_kind sync_kind = {
    .cls = &sync_class, .normalise = sync_normalise, .refused = sync_refuse, .release = sync_unref};

/* Make the layers' own group, of all ranks of `group`, with one reference. Collective. */
static sync_ranks *sync_ranks_new(tt_group *group, const char *caller, int64_t widest) {
    const int world = tt_get_world_size(group);
    sync_ranks *s = calloc(1, sizeof *s);
    double *parts = malloc((size_t)(world + 1) * sync_part_size(widest) * sizeof *parts);
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

/* Is module i of the tree one to renew: any batch norm, or (`all` false) a SyncBatchNorm only? */
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
    sync_ranks *s = sync_ranks_new(group, caller, widest);
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
