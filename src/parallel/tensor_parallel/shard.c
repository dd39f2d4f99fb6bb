/* Makes a layer of this rank's part of a plain layer's parameters. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "nn/initial.h"
#include "nn/module.h"
#include "parallel/tensor_parallel/tensor_parallel.h"
#include "reducer/text_agreement.h"
#include "tensor/ops/ops.h"
#include "tensor/shape/copy.h"

void tt__sharded_destroy(tt_module *self) { free(tt_module_user(self)); }

const tt__sharding *tt__sharding_of(const tt_module *module) {
    const tt_module_class *cls = tt__module_class(module);
    return cls && cls->destroy == tt__sharded_destroy ? tt_module_user(module) : NULL;
}

tt_tensor *tt__shard_of(tt_tensor *x, int dim, int r, int n) {
    int64_t own = tt_tensor_size(x, dim) / n;
    return tt_narrow(x, dim, own * r, own);
}

/* ---- agreement ---- */

/* Check that all ranks drew the same model. */
static tt_status agree_on_values(const tt__sharded_layer *layer, tt_module *plain) {
    const tt_named_tensors *list = tt_module_parameters(plain);
    uint64_t hash = TT__FNV;
    char text[80];
    if (!list)
        return tt_last_status();
    for (int64_t i = 0; i < list->count; i++)
        TT__TRY(tt__hash_values(&hash, list->tensors[i]));
    snprintf(text, sizeof text, "initial values with the hash %016" PRIx64, hash);
    tt_status status = tt__agree_on(layer->sharding.group, layer->who, (const char *const[]){text}, 1);
    return status == TT_ERR_MISMATCH
               ? tt__fail_prefix("expected the same initial values, of which each rank keeps its part, on all ranks; "
                                 "seed their generators alike (tt_manual_seed())")
               : status;
}

static tt_status check_divided(const tt__sharded_layer *layer) {
    int n = tt_get_world_size(layer->sharding.group);
    if (layer->divided >= 1 && layer->divided % n == 0)
        return TT_OK;
    return tt__fail(TT_ERR_INVALID, "%s: expected %s to be a multiple of the %d ranks of the group, got %" PRId64,
                    layer->who, layer->name, n, layer->divided);
}

/* ---- parts ---- */

/* Add this rank's part of the plain layer's parameter. */
static tt_status add_shard(tt_module *module, const char *name, tt_tensor *whole, int dim, const tt_group *group,
                           tt_tensor **added) {
    bool no_grad = tt_no_grad_begin();
    tt_tensor *part = dim < 0 ? whole : tt__shard_of(whole, dim, tt_get_rank(group), tt_get_world_size(group));
    tt_tensor *own = part ? tt__clone_contiguous("tensor parallel", part) : NULL;
    if (part != whole)
        tt__abandon(part);
    tt_no_grad_end(no_grad);
    *added = own;
    return tt__add_made(module, name, own, own ? TT_OK : tt_last_status());
}

static tt_status add_shards(tt_module *module, tt_module *plain) {
    tt__sharding *s = tt_module_user(module);
    const tt_named_tensors *list = tt_module_parameters(plain);
    if (!list)
        return tt_last_status();
    tt_tensor *weight = tt_named_tensors_find(list, "weight"), *bias = tt_named_tensors_find(list, "bias");
    TT__TRY(add_shard(module, "weight", weight, s->weight_dim, s->group, &s->weight));
    return bias ? add_shard(module, "bias", bias, s->bias_dim, s->group, &s->bias) : TT_OK;
}

/* ---- making ---- */

static tt_module *make_plain(const tt__sharded_layer *layer) {
    tt_module *plain = layer->make(layer->args);
    if (plain && agree_on_values(layer, plain)) {
        tt_module_free(plain);
        return NULL;
    }
    return plain;
}

/* A module of the layer's class without parameters. */
static tt_module *make_empty(const tt__sharded_layer *layer) {
    tt_module *module = tt__layer_new(layer->who, layer->cls, sizeof(tt__sharding));
    if (module)
        *(tt__sharding *)tt_module_user(module) = layer->sharding;
    return module;
}

tt_module *tt__sharded_layer_make(const tt__sharded_layer *layer, const char *text) {
    tt_group *group = layer->sharding.group;
    if (!group)
        return tt__fail_null(TT_ERR_INVALID, "%s: `group` is NULL", layer->who);
    const tt__joint_call call = tt__joint_call_begin(group, layer->who);
    if (tt__agree_on(group, layer->who, (const char *const[]){text}, 1) || check_divided(layer))
        return NULL;
    tt_module *plain = make_plain(layer), *module = plain ? make_empty(layer) : NULL;
    if (module)
        module = tt__layer_made(module, add_shards(module, plain));
    tt_module_free(plain);
    tt_ignore(tt__joint_call_end(&call, module ? TT_OK : tt_last_status()));
    return module;
}
