/* Changes of a whole tree in place: training mode, freezing, converting. */
#include "autograd/leaf.h"
#include "base/error.h"
#include "nn/module.h"

#include <stdlib.h>
#include <string.h>

/* ---- training mode ---- */

static tt_status set_training(tt_module *module, void *training) {
    module->training = *(const bool *)training;
    return TT_OK;
}

static void set_mode(tt_module *module, bool training) {
    if (module)
        (void)!tt__module_walk(module, set_training, &training);
}

void tt_module_train(tt_module *module) { set_mode(module, true); }

void tt_module_eval(tt_module *module) { set_mode(module, false); }

bool tt_module_training(const tt_module *module) { return module && module->training; }

/* ---- freezing ---- */

static tt_status freeze_own(tt_module *module, void *requires_grad) {
    for (size_t i = 0; i < module->tensor_count; i++)
        if (!module->tensors[i].is_buffer &&
            !tt_requires_grad_(module->tensors[i].tensor, *(const bool *)requires_grad))
            return tt__fail_prefix("tt_module_requires_grad_: \"%s\"", module->tensors[i].name);
    return TT_OK;
}

tt_status tt_module_requires_grad_(tt_module *module, bool requires_grad) {
    if (!module)
        return tt__fail(TT_ERR_INVALID, "tt_module_requires_grad_: the module is NULL");
    return tt__module_walk(module, freeze_own, &requires_grad);
}

/* ---- converting ---- */

/* A tensor of the tree, with what it and its gradient will be. The copies are ours until they change places. */
typedef struct conversion {
    tt_tensor *tensor;
    int entries; /* how many names it has in this tree, each with a reference */
    tt_tensor *copy, *grad_copy;
} conversion;

/* Convert floats to another type, or move all tensors to another device. */
typedef struct plan {
    const char *who;
    const tt_device *device; /* NULL: convert to `dtype` */
    tt_dtype dtype;
    bool keeps_batch_norm;
    conversion *items;
    size_t count;
} plan;

static tt_status count_own(tt_module *module, void *user) {
    plan *p = user;
    const tt_module *wrapper = module->wrapped ? module : module->wrappers;
    if (wrapper)
        return tt__fail(TT_ERR_STATE, "%s: a %s wraps a module; free it, convert, and wrap again", p->who,
                        wrapper->cls.name);
    p->count += module->tensor_count;
    return TT_OK;
}

static bool is_batch_norm(const tt_module *module) { return strstr(module->cls.name, "BatchNorm"); }

static tt_status list_own(tt_module *module, void *user) {
    plan *p = user;
    if (p->keeps_batch_norm && is_batch_norm(module))
        return TT_OK;
    for (size_t i = 0; i < module->tensor_count; i++) {
        tt_tensor *x = module->tensors[i].tensor;
        if (!p->device && !tt__is_float(tt_tensor_dtype(x)))
            continue;
        size_t at = 0;
        while (at < p->count && p->items[at].tensor != x)
            at++;
        if (at == p->count)
            p->items[p->count++] = (conversion){.tensor = x};
        p->items[at].entries++;
    }
    return TT_OK;
}

/* Make a copy of another type, or on another device, that nothing else uses and no scope ends. */
static tt_status convert_tensor(const plan *p, tt_tensor *x, tt_tensor **copy) {
    if (!x)
        return TT_OK;
    *copy = tt_keep(p->device ? tt_to_device(x, p->device) : tt_to(x, p->dtype));
    return *copy ? TT_OK : tt_last_status();
}

static tt_status convert_one(const plan *p, conversion *item) {
    if (p->device ? tt_tensor_device(item->tensor) == p->device : tt_tensor_dtype(item->tensor) == p->dtype)
        return TT_OK;
    if (atomic_load(&item->tensor->refs) - atomic_load(&item->tensor->watchers) != item->entries)
        return tt__fail(
            TT_ERR_STATE,
            "%s: a recorded operator, a wrapper or another tree still uses %s; end the scope or free that first",
            p->who, TT__DESCRIBE(item->tensor));
    if (tt_sparse_grad_values(item->tensor))
        return tt__fail(TT_ERR_STATE, "%s: %s has a sparse gradient, which is not converted: tt_zero_grad() it first",
                        p->who, TT__DESCRIBE(item->tensor));
    TT__TRY(convert_tensor(p, item->tensor, &item->copy));
    return convert_tensor(p, tt_grad(item->tensor), &item->grad_copy);
}

static tt_status convert_all(plan *p) {
    tt_status status = TT_OK;
    bool before = tt_no_grad_begin();
    for (size_t i = 0; i < p->count && !status; i++)
        status = convert_one(p, &p->items[i]);
    tt_no_grad_end(before);
    return status;
}

static void exchange_one(conversion *item) {
    if (!item->copy)
        return;
    tt__leaf *leaf = tt__leaf_of(item->tensor);
    tt__tensor_swap(item->tensor, item->copy);
    if (item->grad_copy) {
        tt__tensor_swap(leaf->grad, item->grad_copy);
    } else if (leaf) { /* grad's memory has the old type or device */
        tt__tensor_disown(leaf->grad);
        leaf->grad = NULL;
    }
}

static void free_plan(plan *p) {
    for (size_t i = 0; i < p->count; i++) {
        tt_tensor_free(p->items[i].copy);
        tt_tensor_free(p->items[i].grad_copy);
    }
    free(p->items);
}

static tt_status carry_out(tt_module *module, plan *p) {
    if (!module)
        return tt__fail(TT_ERR_INVALID, "%s: the module is NULL", p->who);
    TT__TRY(tt__module_walk(module, count_own, p));
    p->items = calloc(p->count + 1, sizeof *p->items);
    if (!p->items)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for a list of %zu tensors", p->who, p->count);
    p->count = 0;
    tt_status status = tt__module_walk(module, list_own, p);
    if (!status)
        status = convert_all(p);
    for (size_t i = 0; i < p->count && !status; i++)
        exchange_one(&p->items[i]);
    free_plan(p);
    return status;
}

tt_status tt_module_to(tt_module *module, tt_dtype dtype) {
    plan p = {.who = "tt_module_to", .dtype = dtype};
    if (!tt__is_float(dtype))
        return tt__fail(TT_ERR_DTYPE, "%s: expected a floating type, got %s", p.who, tt_dtype_name(dtype));
    return carry_out(module, &p);
}

tt_status tt__module_to_but_batch_norm(tt_module *module, tt_dtype dtype) {
    plan p = {.who = "tt_amp_initialize", .dtype = dtype, .keeps_batch_norm = true};
    return carry_out(module, &p);
}

tt_status tt_module_to_device(tt_module *module, const tt_device *device) {
    plan p = {.who = "tt_module_to_device", .device = device};
    if (!device)
        return tt__fail(TT_ERR_INVALID, "%s: the device is NULL", p.who);
    return carry_out(module, &p);
}
