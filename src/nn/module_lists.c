/* Making the lists of a module's parameters, buffers and modules when they are asked for. */
#include "base/error.h"
#include "nn/module.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- making a list ---- */

/* "prefix" + "name", or with a dot between; allocated. */
static char *joined_name(const char *prefix, const char *name) {
    char *out = NULL;
    return asprintf(&out, "%s%s%s", prefix, *prefix && *name ? "." : "", name) < 0 ? NULL : out;
}

static bool list_grow(tt__module_list *list) {
    size_t room = list->room ? 2 * list->room : 8;
    char **names = reallocarray(list->names, room, sizeof *names);
    if (names)
        list->names = names;
    void **items = names ? reallocarray(list->items, room, sizeof *items) : NULL;
    if (items)
        list->items = items;
    if (items)
        list->room = room;
    return items;
}

static bool module_list_add(tt__module_list *list, const char *prefix, const char *name, void *item) {
    if (list->count == list->room && !list_grow(list))
        return false;
    char *full = joined_name(prefix, name);
    if (!full)
        return false;
    list->names[list->count] = full;
    list->items[list->count++] = item;
    return true;
}

/* Add the module's own parameters, or buffers, that belong into a list of this kind. */
static bool add_tensors(tt__module_list *list, tt__list_kind kind, const tt_module *module, const char *prefix,
                        bool buffers) {
    for (size_t i = 0; i < module->tensor_count; i++) {
        const tt__module_tensor *t = &module->tensors[i];
        bool once = kind != TT__LIST_STATE;
        if (t->is_buffer != buffers || (once ? tt__pointer_map_get(&list->seen, t->tensor) >= 0 : t->non_persistent))
            continue;
        if (once && !tt__pointer_map_put(&list->seen, t->tensor, 0))
            return false;
        if (!module_list_add(list, prefix, t->name, t->tensor))
            return false;
    }
    return true;
}

static bool add_own(tt__module_list *list, tt__list_kind kind, tt_module *module, const char *prefix) {
    const tt_module *inner = tt__module_unwrapped(module);
    if (kind == TT__LIST_MODULES)
        return module_list_add(list, prefix, "", module);
    return (kind == TT__LIST_BUFFERS || add_tensors(list, kind, inner, prefix, false)) &&
           (kind == TT__LIST_PARAMETERS || add_tensors(list, kind, inner, prefix, true));
}

static bool add_tree(tt__module_list *list, tt__list_kind kind, tt_module *module, const char *prefix) {
    if (!add_own(list, kind, module, prefix))
        return false;
    const tt_module *inner = tt__module_unwrapped(module);
    for (size_t i = 0; i < inner->child_count; i++) {
        char *name = joined_name(prefix, inner->children[i].name);
        bool done = name && add_tree(list, kind, inner->children[i].module, name);
        free(name);
        if (!done)
            return false;
    }
    return true;
}

static tt_status list_make(tt__module_list *list, tt__list_kind kind, tt_module *module) {
    bool made = add_tree(list, kind, module, "");
    tt__pointer_map_free(&list->seen);
    if (!made) {
        tt__module_list_drop(list);
        return tt__fail(TT_ERR_MEMORY, "no memory for a list of the tensors or modules of a %s", module->cls.name);
    }
    const char *const *names = (const char *const *)list->names;
    if (kind == TT__LIST_MODULES)
        list->as_modules = (tt_named_modules){sizeof(tt_named_modules), (int64_t)list->count, names, list->modules};
    else
        list->as_tensors = (tt_named_tensors){sizeof(tt_named_tensors), (int64_t)list->count, names, list->tensors};
    atomic_store_explicit(&list->made, true, memory_order_release);
    return TT_OK;
}

/* Return the list, made if it isn't there; NULL and an error if memory is out. Replicas may ask at once. */
static const tt__module_list *list_get(tt_module *module, tt__list_kind kind) {
    static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
    tt__module_list *list = &module->lists[kind];
    tt_status status = TT_OK;
    if (atomic_load_explicit(&list->made, memory_order_acquire))
        return list;
    pthread_mutex_lock(&making);
    if (!atomic_load_explicit(&list->made, memory_order_relaxed))
        status = list_make(list, kind, module);
    pthread_mutex_unlock(&making);
    return status ? NULL : list;
}

/* ---- the caller's view ---- */

static const tt_named_tensors *named_tensors(tt_module *module, tt__list_kind kind) {
    const tt__module_list *list = module ? list_get(tt__module_unwrapped(module), kind) : NULL;
    return list ? &list->as_tensors : NULL;
}

const tt_named_tensors *tt_module_parameters(tt_module *module) { return named_tensors(module, TT__LIST_PARAMETERS); }

const tt_named_tensors *tt_module_buffers(tt_module *module) { return named_tensors(module, TT__LIST_BUFFERS); }

const tt_named_tensors *tt_module_state_dict(tt_module *module) { return named_tensors(module, TT__LIST_STATE); }

const tt_named_modules *tt_module_named_modules(tt_module *module) {
    const tt__module_list *list = module ? list_get(module, TT__LIST_MODULES) : NULL;
    return list ? &list->as_modules : NULL;
}
