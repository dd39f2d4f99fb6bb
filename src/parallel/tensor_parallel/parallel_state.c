/* Loads and saves a model of divided layers as checkpoints of the plain model. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "nn/module.h"
#include "parallel/tensor_parallel/tensor_parallel.h"
#include "tensor/core/named_tensors.h"
#include "tensor/core/tensor.h"
#include "tensor/ops/ops.h"

#include <tutti/parallel.h>
#include <tutti/tensor_parallel.h>

/* How one entry of a state_dict is divided. */
typedef struct division {
    tt_group *group; /* NULL: it is whole */
    int dim;
} division;

/* Find how x is divided, from the layer that has it as a parameter. */
static division division_of(const tt_named_modules *modules, const tt_tensor *x) {
    for (int64_t i = 0; i < modules->count; i++) {
        const tt__sharding *s = tt__sharding_of(modules->modules[i]);
        if (s && x == s->weight)
            return (division){s->group, s->weight_dim};
        if (s && x == s->bias)
            return (division){s->bias_dim < 0 ? NULL : s->group, s->bias_dim};
    }
    return (division){NULL, 0};
}

/* A model's entries. */
typedef struct model_state {
    const tt_named_modules *modules;
    const tt_named_tensors *parts;
} model_state;

static tt_status list_state(const char *who, tt_module *module, model_state *m) {
    if (!module)
        return tt__fail_argument("%s: the module is NULL", who);
    *m = (model_state){tt_module_named_modules(module), tt_module_state_dict(module)};
    return m->modules && m->parts ? TT_OK : tt_last_status();
}

static tt_shape whole_shape(const tt_tensor *part, const division *d) {
    tt_shape shape = part->shape;
    if (d->group)
        shape.dim[d->dim] *= tt_get_world_size(d->group);
    return shape;
}

static bool same_shape(const tt_shape *a, const tt_shape *b) {
    return a->ndim == b->ndim && memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof a->dim[0]) == 0;
}

/* ---- loading ---- */

/* *part := this rank's part of `whole`, called `name`: a view in the open scope, or `whole` itself. Also of a tensor
 * that doesn't fit; tt_module_load_state_dict() reports that. */
static tt_status part_of(const char *who, const model_state *m, const char *name, tt_tensor *whole, tt_tensor **part) {
    *part = whole;
    tt_tensor *own = tt_named_tensors_find(m->parts, name);
    if (!own && strncmp(name, "module.", 7) == 0)
        own = tt_named_tensors_find(m->parts, name + 7);
    const division d = own ? division_of(m->modules, own) : (division){NULL, 0};
    if (!d.group)
        return TT_OK;
    tt_shape shape = whole_shape(own, &d);
    if (!same_shape(&shape, &whole->shape)) {
        const tt_tensor expected = tt__tensor_seen(own, shape, own->stride);
        return tt__fail(TT_ERR_SHAPE, "%s: \"%s\": expected the whole tensor %s, got %s", who, name,
                        TT__DESCRIBE(&expected), TT__DESCRIBE(whole));
    }
    *part = tt__shard_of(whole, d.dim, tt_get_rank(d.group), tt_get_world_size(d.group));
    return *part ? TT_OK : tt_last_status();
}

static tt_status load_own_shards(const char *who, tt_module *module, const model_state *m,
                                 const tt_named_tensors *full) {
    tt_tensor **parts = calloc((size_t)full->count + 1, sizeof *parts);
    if (!parts)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for a list of %lld tensors", who, (long long)full->count);
    tt_status status = TT_OK;
    for (int64_t i = 0; i < full->count && !status; i++)
        status = part_of(who, m, full->names[i], full->tensors[i], &parts[i]);
    if (!status)
        status = tt_module_load_state_dict(module, TT_NAMED_TENSORS(full->count, full->names, parts));
    free(parts);
    return status;
}

tt_status tt_tp_load_state_dict(tt_module *module, const tt_named_tensors *full) {
    static const char who[] = "tt_tp_load_state_dict";
    model_state m = {NULL, NULL};
    TT__TRY(list_state(who, module, &m));
    TT__TRY(tt__named_tensors_check(who, full, true));
    bool no_grad = tt_no_grad_begin();
    int scope = tt_scope_begin();
    tt_status status = load_own_shards(who, module, &m, full);
    tt_scope_end(scope);
    tt_no_grad_end(no_grad);
    return status;
}

/* ---- saving ---- */

/* Join all ranks' parts; returns `part` itself if it is whole. NULL: an error. */
static tt_tensor *join_shards(const char *who, tt_tensor *part, const division *d) {
    if (!d->group || tt_get_world_size(d->group) == 1)
        return part;
    int64_t n = tt_get_world_size(d->group);
    /* Parts are joined in dimension 0, so the divided dimension goes there. */
    tt_tensor *turned = tt_contiguous(tt_transpose(part, 0, d->dim));
    if (!turned)
        return NULL;
    tt_shape shape = turned->shape;
    shape.dim[0] *= n;
    tt_tensor *all = tt__empty_beside(who, turned, shape, part->dtype);
    if (!all || tt_tensor_all_gather_with(
                    TT_ARGS(tt_tensor_all_gather_args, .group = d->group, .x = turned, .out = all, .file = who)))
        return NULL;
    return tt_transpose(all, 0, d->dim);
}

static tt_status put_whole(const char *who, const char *name, const tt_tensor *whole, const tt_named_tensors *full) {
    tt_tensor *to = tt_named_tensors_find(full, name);
    if (!to)
        return tt__fail(TT_ERR_NOT_FOUND, "%s: `full` has no \"%s\"", who, name);
    if (to->dtype != whole->dtype || !same_shape(&to->shape, &whole->shape))
        return tt__fail(to->dtype != whole->dtype ? TT_ERR_DTYPE : TT_ERR_SHAPE,
                        "%s: \"%s\": expected room for the whole tensor %s, got %s", who, name, TT__DESCRIBE(whole),
                        TT__DESCRIBE(to));
    return tt_copy(to, whole);
}

/* Join the entries one after the other. A failure is reported at the end, as the other ranks go on. */
static tt_status save_joined(const char *who, const model_state *m, const tt_named_tensors *full) {
    tt_status status = TT_OK;
    char first[TT__ERROR_TEXT_SIZE] = "";
    for (int64_t i = 0; i < m->parts->count; i++) {
        int scope = tt_scope_begin();
        const division d = division_of(m->modules, m->parts->tensors[i]);
        const tt_tensor *whole = join_shards(who, m->parts->tensors[i], &d);
        tt_status put = TT_OK;
        if (!whole)
            put = tt__fail_prefix("%s: \"%s\"", who, m->parts->names[i]);
        else if (full)
            put = put_whole(who, m->parts->names[i], whole, full);
        tt_scope_end(scope);
        if (!whole)
            return put;
        if (put && !status) {
            status = put;
            strncpy(first, tt_last_error(), sizeof first - 1);
        }
    }
    return status ? tt__fail(status, "%s", first) : TT_OK;
}

tt_status tt_tp_save_state_dict(tt_module *module, const tt_named_tensors *full) {
    static const char who[] = "tt_tp_save_state_dict";
    model_state m = {NULL, NULL};
    TT__TRY(list_state(who, module, &m));
    tt_status listed = full ? tt__named_tensors_check(who, full, true) : TT_OK;
    tt__saved_error why;
    tt__error_save(&why);
    bool no_grad = tt_no_grad_begin();
    tt_status status = save_joined(who, &m, listed ? NULL : full); /* the others need this rank's parts */
    tt_no_grad_end(no_grad);
    if (listed)
        tt__error_restore(&why);
    return listed ? listed : status;
}
