/* Copies of a module, one a replica: checked to be alike, given the first one's values before each call, and asked for
 * their parameters. */
#include "parallel/data_parallel/replicas.h"

#include "base/error.h"
#include "nn/module.h"
#include "tensor/core/pool.h"
#include "tensor/core/tensor.h"

#include <stdlib.h>
#include <string.h>

/* ---- the inputs of a call of replicas, in the order of slots ---- */

static tt_status no_memory_for_slot(void) {
    return tt__fail(TT_ERR_MEMORY, "tt_data_parallel: no memory to record the call");
}

tt_status tt__replica_slot_add(tt__replica_slots *l, tt_tensor *x, bool is_input) {
    if (l->count == l->room) {
        tt_tensor **more = tt__pool_alloc(((size_t)l->room * 2 + 16) * sizeof *more);
        if (!more)
            return no_memory_for_slot();
        if (l->count)
            memcpy(more, l->tensors, (size_t)l->count * sizeof *more);
        tt__pool_free(l->tensors);
        l->tensors = more;
        l->room = l->room * 2 + 16;
    }
    if (!is_input && !tt__pointer_map_put(&l->at, x, l->count))
        return no_memory_for_slot();
    l->tensors[l->count++] = x;
    return TT_OK;
}

static const char who[] = "tt_data_parallel";

/* A parameter's values when they were given. */
struct tt__given {
    const tt__storage *storage; /* only compared, never followed */
    uint32_t version;
};

/* ---- making ---- */

static bool is_alike(const tt_tensor *a, const tt_tensor *b) {
    return a->dtype == b->dtype && a->shape.ndim == b->shape.ndim &&
           !memcmp(a->shape.dim, b->shape.dim, (size_t)a->shape.ndim * sizeof *a->shape.dim);
}

static tt_status compare_lists(int64_t number, const tt_named_tensors *first, const tt_named_tensors *copy) {
    if (!first || !copy)
        return tt_last_status();
    if (first->count != copy->count)
        return tt__fail(TT_ERR_INVALID,
                        "%s: expected copies like the module, got copy %lld with %lld tensors, not %lld", who,
                        (long long)number, (long long)copy->count, (long long)first->count);
    for (int64_t i = 0; i < first->count; i++) {
        const tt_tensor *a = first->tensors[i], *b = copy->tensors[i];
        if (strcmp(first->names[i], copy->names[i]) != 0 || !is_alike(a, b))
            return tt__fail(
                TT_ERR_INVALID,
                "%s: expected copies like the module, got copy %lld with \"%s\" %s where that has \"%s\" %s", who,
                (long long)number, copy->names[i], TT__DESCRIBE(b), first->names[i], TT__DESCRIBE(a));
        if (a == b)
            return tt__fail(TT_ERR_INVALID,
                            "%s: expected copies with tensors of their own, got copy %lld with \"%s\" "
                            "of the module",
                            who, (long long)number, copy->names[i]);
    }
    return TT_OK;
}

static tt_status check_copy(tt_module *first, int64_t number, tt_module *copy) {
    if (!copy || copy->parent || copy == first)
        return tt__fail(TT_ERR_INVALID, "%s: expected copies of their own, got copy %lld that %s", who,
                        (long long)number,
                        !copy           ? "is NULL"
                        : copy == first ? "is the module"
                                        : "has a parent");
    TT__TRY(compare_lists(number, tt_module_parameters(first), tt_module_parameters(copy)));
    TT__TRY(compare_lists(number, tt_module_buffers(first), tt_module_buffers(copy)));
    const tt_named_modules *a = tt_module_named_modules(first), *b = tt_module_named_modules(copy);
    if (!a || !b)
        return tt_last_status();
    return a->count == b->count ? TT_OK
                                : tt__fail(TT_ERR_INVALID, "%s: copy %lld has %lld modules, and the module %lld", who,
                                           (long long)number, (long long)b->count, (long long)a->count);
}

static tt_status take_copies(tt__module_copies *c, tt_module *first, tt_module *const *copies) {
    const tt_named_tensors *parameters = tt_module_parameters(first);
    for (int i = 1; i < c->count; i++)
        TT__TRY(check_copy(first, i, copies[i - 1]));
    c->given = parameters ? calloc((size_t)parameters->count + 1, sizeof *c->given) : NULL;
    return c->given     ? TT_OK
           : parameters ? tt__fail(TT_ERR_MEMORY, "%s: no memory for the copies", who)
                        : tt_last_status();
}

tt__module_copies *tt__copies_new(tt_module *first, tt_module *const *copies, int64_t count) {
    tt__module_copies *c = calloc(1, sizeof *c);
    tt_module **modules = calloc((size_t)count, sizeof *modules);
    if (!c || !modules) {
        free(c);
        free(modules);
        for (int64_t i = 1; i < count; i++)
            tt_module_free(copies[i - 1]);
        return tt__fail_null(TT_ERR_MEMORY, "%s: no memory for the copies", who);
    }
    *c = (tt__module_copies){.count = (int)count, .modules = modules};
    modules[0] = first;
    memcpy(modules + 1, copies, (size_t)(count - 1) * sizeof(tt_module *));
    if (!take_copies(c, first, copies))
        return c;
    tt__copies_free(c);
    return NULL;
}

void tt__copies_free(tt__module_copies *c) {
    if (!c)
        return;
    for (int i = 1; i < c->count; i++)
        if (c->modules[i] && !c->modules[i]->parent && c->modules[i] != c->modules[0])
            tt_module_free(c->modules[i]);
    free(c->modules);
    free(c->given);
    free(c);
}

/* ---- giving ---- */

/* Do the copies have the parameter's values already? Then it isn't given again, so that records of earlier forwards
 * stay valid. Memory of the host always counts as changed, as the program may write to it. */
static bool parameter_is_given(tt__given *given, const tt_tensor *x) {
    const tt__given now = {x->storage, atomic_load(&x->storage->version)};
    bool same = given->storage == now.storage && given->version == now.version;
    *given = now;
    return same && !tt__device_is_host(tt__device_of(x));
}

static tt_status give_parameters(const tt__module_copies *c) {
    const tt_named_tensors *from = tt_module_parameters(c->modules[0]);
    for (int64_t i = 0; i < from->count; i++) {
        bool given = parameter_is_given(&c->given[i], from->tensors[i]);
        for (int r = 1; r < c->count; r++) {
            tt_tensor *x = tt_module_parameters(c->modules[r])->tensors[i];
            if (!given)
                TT__TRY(tt_copy(x, from->tensors[i]));
            if (!tt_requires_grad_(x, tt_requires_grad(from->tensors[i])))
                return tt_last_status();
        }
    }
    return TT_OK;
}

static tt_status give_buffers(const tt__module_copies *c) {
    const tt_named_tensors *from = tt_module_buffers(c->modules[0]);
    for (int r = 1; r < c->count; r++)
        for (int64_t i = 0; i < from->count; i++)
            TT__TRY(tt_copy(tt_module_buffers(c->modules[r])->tensors[i], from->tensors[i]));
    return TT_OK;
}

static void give_modes(const tt__module_copies *c) {
    const tt_named_modules *from = tt_module_named_modules(c->modules[0]);
    for (int r = 1; r < c->count; r++) {
        const tt_named_modules *to = tt_module_named_modules(c->modules[r]);
        for (int64_t i = 0; i < from->count && i < to->count; i++)
            to->modules[i]->training = from->modules[i]->training;
    }
}

/* After a failure everything is given again. */
tt_status tt__copies_give(const tt__module_copies *c) {
    TT_NO_GRAD;
    give_modes(c);
    tt_status status = give_parameters(c);
    if (status)
        memset(c->given, 0, (size_t)tt_module_parameters(c->modules[0])->count * sizeof *c->given);
    return status ? status : give_buffers(c);
}

/* ---- leaves ---- */

const tt_device *tt__copies_device(const tt__module_copies *c, int r) {
    const tt_named_tensors *own = tt_module_parameters(c->modules[r]);
    return own && own->count ? tt__device_of(own->tensors[0]) : NULL;
}

tt_status tt__copies_take_leaves(const tt__module_copies *c, int r, tt_tensor ***leaves) {
    const tt_named_tensors *own = tt_module_parameters(c->modules[r]);
    if (!own)
        return tt_last_status();
    *leaves = tt__pool_alloc(((size_t)own->count + 1) * sizeof **leaves);
    if (!*leaves)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for a list of parameters", who);
    for (int64_t i = 0; i < own->count; i++)
        (*leaves)[i] = tt__tensor_ref(own->tensors[i]);
    return TT_OK;
}

void tt__copies_drop_leaves(tt_tensor **leaves, int64_t count) {
    for (int64_t i = 0; leaves && i < count; i++)
        tt__tensor_unref(leaves[i]);
    tt__pool_free(leaves);
}
