/* The tree: modules, their children, parameters and buffers. */
#include "nn/module.h"

#include "base/args.h"
#include "base/error.h"
#include "base/quarantine.h"

#include <stdlib.h>
#include <string.h>

/* The holder of registered tensors, for errors; its address identifies tensors that modules hold. */
static const char holder[] = "a module";

/* ---- lists ---- */

void tt__module_list_drop(tt__module_list *list) {
    for (size_t i = 0; i < list->count; i++)
        free(list->names[i]);
    free(list->names);
    free(list->items);
    *list = (tt__module_list){0};
}

static void drop_lists(tt_module *module) {
    for (int kind = 0; kind < TT__LIST_KINDS; kind++)
        tt__module_list_drop(&module->lists[kind]);
}

static void module_changed(tt_module *module) {
    for (; module; module = module->parent) {
        drop_lists(module);
        for (tt_module *w = module->wrappers; w; w = w->next_wrapper)
            module_changed(w);
    }
}

/* ---- making and freeing ---- */

static tt_status check_class(const tt_module_class *cls) {
    if (!cls || cls->size < offsetof(tt_module_class, forward) + sizeof cls->forward)
        return tt__fail(TT_ERR_INVALID, "tt_module_new: expected a class made by TT_MODULE_CLASS(...), got %s",
                        cls ? "one whose size is not set" : "NULL");
    tt_module_class known;
    TT__ARGS_COPY(known, cls, cls->size);
    if (!known.name || (!known.forward && !known.forward_many && !known.wrapped))
        return tt__fail(TT_ERR_INVALID,
                        "tt_module_new: expected a class with a name and a forward function, got \"%s\"",
                        known.name ? known.name : "NULL");
    int chain_functions = !!known.part_count + !!known.forward_part + !!known.part_module;
    if (chain_functions && chain_functions < 3)
        return tt__fail(TT_ERR_INVALID,
                        "tt_module_new: class %s: expected .part_count, .forward_part and .part_module, or none of "
                        "them, got %d",
                        known.name, chain_functions);
    return TT_OK;
}

static tt_status wrapper_attach(tt_module *module) {
    tt_module *inner = module->cls.wrapped(module);
    if (!inner)
        return tt__fail(TT_ERR_INVALID, "tt_module_new: a %s needs a module to wrap, got NULL", module->cls.name);
    module->wrapped = inner;
    module->training = inner->training;
    module->next_wrapper = inner->wrappers;
    inner->wrappers = module;
    inner->refs++;
    return TT_OK;
}

tt_module *tt__module_new(const tt_module_class *cls, void *user) {
    if (check_class(cls))
        return NULL;
    tt_module *module = calloc(1, sizeof *module);
    if (!module)
        return tt__fail_null(TT_ERR_MEMORY, "tt_module_new: no memory for a %s", cls->name);
    TT__ARGS_COPY(module->cls, cls, cls->size);
    module->identity = cls;
    module->user = user;
    module->refs = 1;
    module->training = true;
    if (module->cls.wrapped && wrapper_attach(module)) {
        free(module);
        return NULL;
    }
    return module;
}

tt_module *tt_module_new(const tt_module_class *cls, void *user) {
    tt_module *module = tt__module_new(cls, user);
    if (module)
        module->of_users = true;
    return module;
}

const tt_module_class *tt__module_class(const tt_module *module) { return module ? module->identity : NULL; }

const char *tt_module_class_name(const tt_module *module) { return module ? module->cls.name : "?"; }

void *tt_module_user(const tt_module *module) { return module ? module->user : NULL; }

static void module_unref(tt_module *module);

static void wrapper_detach(tt_module *module) {
    tt_module **at = &module->wrapped->wrappers;
    while (*at != module)
        at = &(*at)->next_wrapper;
    *at = module->next_wrapper;
    module_unref(module->wrapped);
}

static void module_unref(tt_module *module) {
    if (--module->refs > 0)
        return;
    if (module->cls.destroy)
        module->cls.destroy(module);
    drop_lists(module);
    if (module->wrapped)
        wrapper_detach(module);
    for (size_t i = 0; i < module->child_count; i++) {
        tt_module *child = module->children[i].module;
        child->parent = NULL;
        child->freed = true;
        module_unref(child);
        free(module->children[i].name);
    }
    for (size_t i = 0; i < module->tensor_count; i++) {
        tt__tensor_unref(module->tensors[i].tensor);
        free(module->tensors[i].name);
    }
    free(module->children);
    free(module->tensors);
    tt__name_map_free(&module->names);
    for (size_t i = 0; i < module->hook_count; i++)
        tt__module_hook_release(&module->hooks[i]);
    free(module->hooks);
    tt__quarantine(module, sizeof *module, free);
}

void tt_module_free(tt_module *module) {
    if (!module || tt__freed_before("tt_module_free", module))
        return;
    if (module->parent) {
        tt__fail(TT_ERR_STATE, "tt_module_free: this %s belongs to a %s; free the root", module->cls.name,
                 module->parent->cls.name);
        return;
    }
    if (module->freed) {
        tt__fail(TT_ERR_STATE,
                 "tt_module_free: this %s was freed already; a %s that wraps it keeps it until it is freed",
                 module->cls.name, module->wrappers->cls.name);
        return;
    }
    module->freed = true;
    module_unref(module);
}

/* ---- the tree ---- */

tt_status tt__module_walk(tt_module *module, tt_status (*visit)(tt_module *module, void *user), void *user) {
    TT__TRY(visit(module, user));
    if (module->wrapped)
        TT__TRY(tt__module_walk(module->wrapped, visit, user));
    for (size_t i = 0; i < module->child_count; i++)
        TT__TRY(tt__module_walk(module->children[i].module, visit, user));
    return TT_OK;
}

static tt_status is_it(tt_module *module, void *user) { return module == user ? TT_ERR_STATE : TT_OK; }

static bool tree_contains(tt_module *root, tt_module *module) { return tt__module_walk(root, is_it, module); }

/* ---- names ---- */

enum { FEW_NAMES = 16 }; /* for so few, a search is faster than a map */

/* Numbers in the map: 2i for child i, 2i + 1 for tensor i. */
static int64_t find_name(const tt_module *module, const char *name) {
    if (module->names.room)
        return tt__name_map_get(&module->names, name, "");
    for (size_t i = 0; i < module->child_count; i++)
        if (!strcmp(module->children[i].name, name))
            return (int64_t)(2 * i);
    for (size_t i = 0; i < module->tensor_count; i++)
        if (!strcmp(module->tensors[i].name, name))
            return (int64_t)(2 * i + 1);
    return -1;
}

/* Make room in the map for one more name. */
static bool reserve_name(tt_module *module) {
    size_t count = module->child_count + module->tensor_count;
    bool first = !module->names.room;
    if (count < FEW_NAMES)
        return true;
    if (!tt__name_map_reserve(&module->names, count + 1))
        return false;
    for (size_t i = 0; first && i < module->child_count; i++)
        tt__name_map_put(&module->names, module->children[i].name, (int64_t)(2 * i));
    for (size_t i = 0; first && i < module->tensor_count; i++)
        tt__name_map_put(&module->names, module->tensors[i].name, (int64_t)(2 * i + 1));
    return true;
}

static void note_name(tt_module *module, const char *name, size_t number) {
    if (module->names.room)
        tt__name_map_put(&module->names, name, (int64_t)number);
}

/* Grow an array of `count` elements, of `size` bytes each, for one more; there is room up to the next power of two. */
static void *grow_by_one(void *array, size_t count, size_t size) {
    bool full = !(count & (count - 1));
    return full ? reallocarray(array, count ? 2 * count : 1, size) : array;
}

static tt_status check_name(const char *who, const tt_module *module, const char *name) {
    if (!name || !*name || strchr(name, '.'))
        return tt__fail(TT_ERR_INVALID, "%s: expected a name without dots, got \"%s\"", who, name ? name : "NULL");
    if (module->wrapped)
        return tt__fail(TT_ERR_STATE, "%s: a %s only wraps another module; add \"%s\" to that one", who,
                        module->cls.name, name);
    if (find_name(module, name) >= 0)
        return tt__fail(TT_ERR_INVALID, "%s: this %s has a \"%s\" already", who, module->cls.name, name);
    return TT_OK;
}

static tt_status module_add_child(tt_module *parent, const char *name, tt_module *module) {
    static const char who[] = "tt_module_add_module";
    if (!parent)
        return tt__fail(TT_ERR_INVALID, "%s: the parent of \"%s\" is NULL", who, name ? name : "");
    TT__TRY(check_name(who, parent, name));
    tt__module_child *children = grow_by_one(parent->children, parent->child_count, sizeof *children);
    char *copy = strdup(name);
    if (children)
        parent->children = children;
    if (!children || !copy || !reserve_name(parent)) {
        free(copy);
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for \"%s\"", who, name);
    }
    note_name(parent, copy, 2 * parent->child_count);
    children[parent->child_count++] = (tt__module_child){copy, module};
    module->parent = parent;
    module_changed(parent);
    return TT_OK;
}

tt_status tt_module_add_module(tt_module *parent, const char *name, tt_module *module) {
    static const char who[] = "tt_module_add_module";
    if (!module)
        return tt__fail_argument("%s: \"%s\" is NULL", who, name ? name : "");
    if (parent && tree_contains(module, parent))
        return tt__fail(TT_ERR_INVALID, "%s: a %s cannot be inside itself", who, module->cls.name);
    if (module->parent || module->freed)
        return tt__fail(TT_ERR_STATE, "%s: \"%s\" %s%s already", who, name ? name : "",
                        module->freed ? "was freed" : "belongs to a ", module->freed ? "" : module->parent->cls.name);
    tt_status status = module_add_child(parent, name, module);
    if (status) {
        module->freed = true;
        module_unref(module);
    }
    return status;
}

/* ---- parameters and buffers ---- */

/* Does a module, this or another one, hold the tensor? */
static bool is_held(const tt_tensor *x) { return x->owner == TT__OWNER_HOLDER && x->holder == holder; }

/* Take one reference for the new entry: the owner's, or a new one if a module holds the tensor already. */
static tt_status hold_tensor(const tt__module_tensor *entry) {
    if (is_held(entry->tensor)) {
        tt__tensor_ref(entry->tensor);
        return TT_OK;
    }
    if (!entry->is_buffer && !tt_requires_grad_(entry->tensor, true))
        return tt_last_status();
    return tt__tensor_adopt(entry->tensor, holder);
}

static tt_status add_tensor(const char *who, tt_module *module, const tt__module_tensor *entry) {
    tt__module_tensor *tensors = grow_by_one(module->tensors, module->tensor_count, sizeof *tensors);
    if (tensors)
        module->tensors = tensors;
    char *copy = strdup(entry->name);
    if (!tensors || !copy || !reserve_name(module)) {
        free(copy);
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for \"%s\"", who, entry->name);
    }
    if (hold_tensor(entry)) {
        free(copy);
        return tt__fail_prefix("%s \"%s\"", who, entry->name);
    }
    note_name(module, copy, 2 * module->tensor_count + 1);
    tensors[module->tensor_count] = *entry;
    tensors[module->tensor_count++].name = copy;
    module_changed(module);
    return TT_OK;
}

static tt_status check_tensor(const char *who, const tt_module *module, const char *name, const tt_tensor *x) {
    if (!x)
        return tt__tensor_first_error(who);
    if (!module)
        return tt__fail(TT_ERR_INVALID, "%s: the module of \"%s\" is NULL", who, name ? name : "");
    return check_name(who, module, name);
}

tt_status tt_module_register_parameter(tt_module *module, const char *name, tt_tensor *x) {
    static const char who[] = "tt_module_register_parameter";
    TT__TRY(check_tensor(who, module, name, x));
    if (!tt__is_float(tt_tensor_dtype(x)))
        return tt__fail(TT_ERR_DTYPE, "%s: expected \"%s\" of a floating type, got %s", who, name, TT__DESCRIBE(x));
    return add_tensor(who, module, &(tt__module_tensor){.name = (char *)(uintptr_t)name, .tensor = x});
}

tt_status tt_module_register_buffer_with(const tt_module_register_buffer_args *args, size_t size) {
    static const char who[] = "tt_module_register_buffer";
    tt_module_register_buffer_args a;
    TT__ARGS_COPY(a, args, size);
    TT__TRY(check_tensor(who, a.module, a.name, a.buffer));
    if (tt_requires_grad(a.buffer))
        return tt__fail(TT_ERR_INVALID,
                        "%s: \"%s\" %s requires a gradient; register it as a parameter, or tt_detach() it", who, a.name,
                        TT__DESCRIBE(a.buffer));
    return add_tensor(who, a.module,
                      &(tt__module_tensor){.name = (char *)(uintptr_t)a.name,
                                           .tensor = a.buffer,
                                           .is_buffer = true,
                                           .non_persistent = a.non_persistent});
}

/* ---- children ---- */

int64_t tt_module_child_count(const tt_module *module) {
    const tt_module *inner = tt__module_unwrapped(module);
    return inner ? (int64_t)inner->child_count : 0;
}

static const tt__module_child *child_at(const tt_module *module, int64_t i) {
    const tt_module *inner = tt__module_unwrapped(module);
    return inner && i >= 0 && (size_t)i < inner->child_count ? &inner->children[i] : NULL;
}

tt_module *tt_module_child_at(const tt_module *module, int64_t i) {
    const tt__module_child *child = child_at(module, i);
    return child ? child->module : NULL;
}

const char *tt_module_child_name(const tt_module *module, int64_t i) {
    const tt__module_child *child = child_at(module, i);
    return child ? child->name : NULL;
}

tt_module *tt_module_child(const tt_module *module, const char *name) {
    const tt_module *inner = tt__module_unwrapped(module);
    int64_t found = inner && name ? find_name(inner, name) : -1;
    if (found >= 0 && found % 2 == 0)
        return inner->children[found / 2].module;
    return tt__fail_null(TT_ERR_NOT_FOUND, "tt_module_child: no child \"%s\" in %s", name ? name : "NULL",
                         inner ? inner->cls.name : "NULL");
}

static _Thread_local tt__replica mine = {0, 1};

tt__replica tt__replica_of_thread(void) { return mine; }

tt__replica tt__replica_set(tt__replica replica) {
    tt__replica before = mine;
    mine = replica;
    return before;
}
