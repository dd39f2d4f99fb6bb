/* Memory of a plug-in's group. On the host it is ordinary. On a device an engine may have windows: memory that its
 * collectives move faster (tt_backend's window_make). */
#include "base/error.h"
#include "comm/backend/plugin.h"
#include "comm/native/native.h"

#include <stdlib.h>
#include <string.h>

/* ---- memory, which is ordinary */

tt_status tt__plugin_alloc(tt_group *group, const tt_call *call, void **out) {
    size_t bytes = call->count;
    tt__allocation *allocation = calloc(1, sizeof *allocation);
    void *at = allocation && bytes <= PTRDIFF_MAX ? aligned_alloc(64, (bytes / 64 + 1) * 64) : NULL;
    if (!at) {
        free(allocation);
        return tt__fail(TT_ERR_MEMORY, "no memory for %zu bytes", bytes);
    }
    memset(at, 0, bytes);
    allocation->at = at;
    allocation->next = group->allocations;
    group->allocations = allocation;
    *out = at;
    return TT_OK;
}

tt_status tt__plugin_free(tt_group *group, const tt_call *call, void *ptr) {
    (void)call;
    tt__allocation **at = &group->allocations;
    while (*at && (*at)->at != ptr)
        at = &(*at)->next;
    if (!ptr)
        return TT_OK;
    if (!*at)
        return tt__fail(TT_ERR_INVALID, "free: %p is no memory that tt_group_alloc() gave", ptr);
    tt__allocation *allocation = *at;
    *at = allocation->next;
    free(allocation->at);
    free(allocation);
    return TT_OK;
}

/* ---- windows */

/* The argument of agree_on_least(), which window_make() calls. */
typedef struct meeting {
    const tt_group *group;
    const char *who;
} meeting;

static tt_status agree_on_least(void *user, int mine, int *least) {
    const meeting *m = user;
    int32_t all[TT__MAX_RANKS], own = mine;
    const tt_call call = {.op = TT_OP_SPLIT, .dtype = TT_I64, .timeout_ms = m->group->timeout_ms, .file = m->who};
    tt_status status = tt__exchange(tt__plugin_of(m->group)->control, &call, &own, sizeof own, all);
    *least = mine;
    for (int r = 0; r < m->group->size && !status; r++)
        if (all[r] < *least)
            *least = all[r];
    return status;
}

tt_status tt__group_window_make(tt_group *group, size_t bytes, const char *who, void **memory) {
    tt__plugin *plugin = tt__plugin_of(group);
    meeting m = {group, who};
    *memory = NULL;
    if (!plugin || !plugin->table->window_make || !plugin->control)
        return TT_OK;
    TT__TRY(tt__group_usable(group));
    tt__plugin_lock(plugin);
    tt_status status = tt__plugin_drain(group, group->timeout_ms);
    if (!status) {
        status = plugin->table->window_make(plugin->engine, bytes, group->timeout_ms, agree_on_least, &m, memory);
        if (tt__plugin_reason(plugin->table, status))
            status = tt__plugin_fail(group);
    }
    plugin->windows += *memory != NULL;
    tt__plugin_unlock(plugin);
    return status;
}

bool tt__group_has_windows(const tt_group *group) {
    const tt__plugin *plugin = tt__plugin_of(group);
    return plugin && plugin->windows && !tt__is_inherited(group);
}

bool tt__group_window_free(tt_group *group, void *memory) {
    tt__plugin *plugin = tt__plugin_of(group);
    if (!tt__group_has_windows(group))
        return false;
    tt__plugin_lock(plugin);
    bool was_one = plugin->table->window_free(plugin->engine, memory);
    plugin->windows -= was_one;
    tt__plugin_unlock(plugin);
    return was_one;
}
