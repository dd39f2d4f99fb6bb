/* Groups of a plug-in: joining, leaving, groups of some ranks. */
#include "comm/backend/plugin.h"

#include "base/error.h"
#include "comm/group.h"
#include "comm/native/native.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- where they meet */

static tt_status take_place(tt__shared_store **out, tt_store *store, bool own) {
    *out = NULL;
    if (!store)
        return TT_OK;
    tt__shared_store *place = calloc(1, sizeof *place);
    if (!place) {
        if (own)
            tt_store_free(store);
        return tt__fail(TT_ERR_MEMORY, "no memory for a group");
    }
    *place = (tt__shared_store){.store = store, .own = own, .groups = 1};
    *out = place;
    return TT_OK;
}

static void leave_place(tt__shared_store *place) {
    if (!place || atomic_fetch_sub(&place->groups, 1) > 1)
        return;
    if (place->own)
        tt_store_free(place->store);
    free(place);
}

/* ---- one group */

static const tt__engine plugin_engine; /* defined below; its functions make groups */

/* Make a group that has no control group and no engine yet. Takes over `place`, also on failure. */
static tt_group *plugin_group_make(const tt_backend *table, tt__shared_store *place, const char *prefix, int rank,
                                   int size, const int *ranks, int64_t timeout_ms) {
    tt_group *group = tt__group_make(&plugin_engine, rank, size, ranks, timeout_ms);
    tt__plugin *plugin = group ? calloc(1, sizeof *plugin) : NULL;
    if (!plugin) {
        tt__group_free(group);
        leave_place(place);
        return tt__fail_null(TT_ERR_MEMORY, "no memory for a group of %d ranks", size);
    }
    *plugin = (tt__plugin){.calls = plugin_engine, .table = table, .place = place};
    plugin->calls.name = table->name;
    snprintf(plugin->prefix, sizeof plugin->prefix, "%s", prefix);
    plugin->calls.devices = table->devices;
    pthread_mutex_init(&plugin->lock, NULL);
    pthread_mutex_init(&plugin->reason_lock, NULL);
    group->plugin = plugin;
    group->engine = &plugin->calls;
    return group;
}

static void free_allocations(tt_group *group) {
    for (tt__allocation *one = group->allocations; one; one = one->next)
        free(one->at);
}

static void plugin_release(tt_group *group) {
    tt__plugin *plugin = tt__plugin_of(group);
    tt__control_leave(group);
    if (plugin->engine && !tt__is_inherited(group))
        plugin->table->close(plugin->engine);
    while (plugin->given_up) {
        tt__task *task = plugin->given_up;
        plugin->given_up = task->next;
        tt__task_free(task);
    }
    leave_place(plugin->place);
    pthread_mutex_destroy(&plugin->reason_lock);
    if (!tt__is_inherited(group)) /* a forked child's may be locked for ever */
        pthread_mutex_destroy(&plugin->lock);
    free(plugin);
    free_allocations(group);
    tt__works_free(group->free_works);
    tt__group_free(group);
}

static void plugin_retire(tt_group *group) {
    tt__plugin *plugin = tt__plugin_of(group);
    tt__saved_error before;
    if (tt__is_inherited(group))
        pthread_mutex_init(&plugin->lock, NULL);
    else
        tt__plugin_watch_end(plugin);
    tt__plugin_lock(plugin);
    if (!tt__is_inherited(group))
        tt__plugin_settle(group); /* when all works are done the engine is closed, not aborted */
    tt__error_save(&before);
    tt__plugin_end_works(group, TT_ERR_STATE);
    tt__error_restore(&before); /* the aborted works' errors are not the caller's */
    tt__callbacks_settle(&plugin->due, &plugin->lock, group);
    tt__control_leave(group);
}

/* Open the engine; if open() fails, forget what it has left. */
static tt_status open_member(tt__plugin *plugin, const tt_backend_member *member) {
    tt_status status = plugin->table->open(&plugin->engine, member);
    if (status)
        plugin->engine = NULL;
    return tt__plugin_reason(plugin->table, status);
}

/* Open the group's engine through its store. */
static tt_status open_engine(tt_group *group, int64_t timeout_ms) {
    tt__plugin *plugin = tt__plugin_of(group);
    tt_backend_member member = {.rank = group->rank,
                                .world_size = group->size,
                                .timeout_ms = timeout_ms,
                                .device = plugin->device,
                                .device_index = plugin->device_index,
                                .watch = plugin->control ? tt__control_watch_joining : NULL,
                                .watcher = group};
    tt__log(TT_LOG_DEBUG, "back end %s: opening an engine for %d ranks", plugin->table->name, group->size);
    if (!plugin->place)
        return open_member(plugin, &member);
    tt_store *base = plugin->place->store;
    int64_t before = tt_store_timeout_ms(base);
    tt_store_set_timeout_ms(base, timeout_ms);
    tt_status status = tt_prefix_store(&member.store, plugin->prefix, base);
    if (!status)
        status = open_member(plugin, &member);
    tt_store_free(member.store);
    tt_store_set_timeout_ms(base, before);
    return status;
}

/* Release the store, which an engine that makes subgroups itself no longer needs. The rank that serves it waits until
 * all have finished with it. */
static tt_status let_store_go(tt_group *group) {
    tt__plugin *plugin = tt__plugin_of(group);
    if (!plugin->place || !plugin->place->own || !plugin->table->new_group)
        return TT_OK;
    tt_status status = tt_barrier_with(TT_ARGS(tt_barrier_args, group, .file = "tt_init_process_group"));
    leave_place(plugin->place);
    plugin->place = NULL;
    return status;
}

tt_status tt__plugin_join(tt_group **out, const tt_backend *table, const tt__member *member, bool own_store) {
    tt__shared_store *place;
    bool wanted = tt__control_wanted(member->world);
    *out = NULL;
    TT__TRY(take_place(&place, member->store, own_store));
    tt_group *group =
        plugin_group_make(table, place, member->prefix, member->rank, member->world, NULL, member->timeout_ms);
    if (!group)
        return tt_last_status();
    tt__plugin_of(group)->device = member->device;
    tt__plugin_of(group)->device_index = member->device_index;
    tt_status status = wanted && place ? tt__control_open(group, member) : TT_OK;
    if (!status)
        status = open_engine(group, member->timeout_ms);
    if (!status && wanted && !place)
        status = tt__control_meet(group, member);
    if (!status)
        status = let_store_go(group);
    if (status)
        plugin_release(group);
    else
        *out = group;
    return status;
}

/* ---- groups of some ranks */

/* What each rank contributes when groups are made of a group. */
typedef struct entry {
    tt__choice choice;
    uint64_t list; /* tt_new_group(): hash of its list */
} entry;

/* The thread's last error ends the group. */
static tt_status fail_group(tt_group *group) {
    tt__plugin_lock(tt__plugin_of(group));
    tt_status status = tt__plugin_fail(group);
    tt__plugin_unlock(tt__plugin_of(group));
    return status;
}

/* Gather all ranks' entries. When it returns, all ranks have arrived. */
static tt_status plugin_exchange(tt_group *group, const tt_call *call, const entry *mine, entry *all) {
    tt_group *control = tt__plugin_of(group)->control;
    tt_call gather = {.op = control ? TT_OP_SPLIT : TT_OP_ALL_GATHER,
                      .dtype = TT_I64,
                      .timeout_ms = call->timeout_ms,
                      .file = call->file,
                      .line = call->line};
    if (control) {
        control->native->goes_on = true; /* the control group's own split is counted */
        tt_status status = tt__exchange(control, &gather, mine, sizeof *mine, all);
        control->native->goes_on = false;
        return status ? fail_group(group) : TT_OK;
    }
    gather.count = sizeof *mine / 8;
    gather.send = mine;
    gather.recv = all;
    return tt__plugin_submit(group, &gather, NULL);
}

/* Make the subgroup of `members` (ranks of `group`) that this rank is in, without an engine. */
static tt_group *make_subgroup(tt_group *group, const int *members, int n, int64_t timeout_ms) {
    tt__plugin *plugin = tt__plugin_of(group);
    char prefix[sizeof plugin->prefix];
    int *ranks = calloc((size_t)n, sizeof *ranks), rank = 0;
    if (!ranks)
        return tt__fail_null(TT_ERR_MEMORY, "no memory for a group of %d ranks", n);
    for (int i = 0; i < n; i++) {
        ranks[i] = group->ranks[members[i]];
        if (members[i] == group->rank)
            rank = i;
    }
    if (plugin->place)
        atomic_fetch_add(&plugin->place->groups, 1);
    if (snprintf(prefix, sizeof prefix, "%s/%u.%d", plugin->prefix, plugin->subgroups, ranks[0]) >= (int)sizeof prefix)
        prefix[0] = '\0';
    tt_group *made = plugin_group_make(plugin->table, plugin->place, prefix, rank, n, ranks, timeout_ms);
    free(ranks);
    if (made) {
        tt__plugin_of(made)->device = plugin->device;
        tt__plugin_of(made)->device_index = plugin->device_index;
    }
    if (made && !prefix[0]) {
        plugin_release(made);
        return tt__fail_null(TT_ERR_UNSUPPORTED, "groups of groups of groups: back end %s has no room for another name",
                             plugin->table->name);
    }
    return made;
}

/* Open the new group's engine; all ranks have arrived. n == 0: this rank is in no new group, but the engine may need
 * it. Takes over `control`. */
static tt_status plugin_form(tt_group *group, const int *members, int n, int64_t timeout_ms, tt_group *control,
                             tt_group **out) {
    tt__plugin *plugin = tt__plugin_of(group);
    const tt_backend *table = plugin->table;
    void *engine = NULL;
    tt_group *made = n ? make_subgroup(group, members, n, timeout_ms) : NULL;
    if (!made)
        tt_destroy_process_group(control);
    if (n && !made) /* failed on this rank alone: tell the others */
        return fail_group(group);
    if (made)
        tt__plugin_of(made)->control = control;
    tt_status status = TT_OK;
    if (table->new_group) {
        tt__plugin_lock(plugin);
        status = tt__plugin_reason(table, table->new_group(&engine, plugin->engine, members, n, timeout_ms));
        if (status) /* the others may wait for this rank in the control group */
            tt__plugin_fail(group);
        tt__plugin_unlock(plugin);
    } else if (made)
        status = open_engine(made, timeout_ms);
    if (made && engine) {
        tt__plugin_of(made)->engine = engine;
        tt__control_let_watch(made);
    }
    if (!status && !table->new_group) /* rank 0 may serve the store: nobody goes on while another needs it */
        status = tt_barrier_with(TT_ARGS(tt_barrier_args, group, .timeout_ms = timeout_ms, .file = "tt_new_group"));
    if (status && made) {
        plugin_release(made);
        made = NULL;
    }
    *out = made;
    return status;
}

static tt_status fail_lists(tt_group *group, const entry *all) {
    for (int r = 1; r < group->size; r++)
        if (all[r].list != all[0].list) {
            tt__fail(TT_ERR_MISMATCH,
                     "new_group: rank %d passed another list of ranks than rank 0. All ranks of a group must pass the "
                     "same, also those that are not in it",
                     r);
            return fail_group(group);
        }
    return TT_OK;
}

/* Agreements on earlier calls come before the split of the control group, on all ranks. */
static tt_status complete_earlier_calls(tt_group *group, int64_t timeout_ms) {
    tt__plugin_lock(tt__plugin_of(group));
    tt_status status = tt__plugin_drain(group, timeout_ms);
    tt__plugin_unlock(tt__plugin_of(group));
    return status;
}

static tt_status check_splits(const tt_group *group) {
    const tt__plugin *plugin = tt__plugin_of(group);
    if (!plugin->table->new_group && !plugin->place && group->size > 1)
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "back end %s makes no groups of a group, and there is no store to meet through",
                        plugin->table->name);
    if (!plugin->control && !tt__plugin_takes_host(plugin) && group->size > 1)
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "back end %s moves nothing on the host, so no groups of a group are made where nothing else "
                        "joins the ranks: TT_BACKEND_CHECK is 0, or they found each other without a store",
                        plugin->table->name);
    return TT_OK;
}

static tt_status plugin_divide(tt_group *group, const tt_call *call, const int *ranks, const entry *mine,
                               tt_group **out) {
    tt__plugin *plugin = tt__plugin_of(group);
    tt_group *control = NULL;
    entry *all = calloc((size_t)group->size, sizeof *all);
    int *members = calloc((size_t)group->size, sizeof *members);
    tt_status status = check_splits(group);
    *out = NULL;
    if (!status && (!all || !members)) {
        tt__fail(TT_ERR_MEMORY, "no memory for a group of %d ranks", group->size);
        status = fail_group(group);
    }
    if (!status)
        status = complete_earlier_calls(group, call->timeout_ms);
    plugin->subgroups++;
    if (!status && tt__control_split(group, call, ranks, mine->choice.color, mine->choice.key, &control))
        status = fail_group(group);
    if (!status)
        status = plugin_exchange(group, call, mine, all);
    if (!status)
        status = fail_lists(group, all);
    if (!status) {
        int n =
            mine->choice.color < 0 ? 0 : tt__split_members(all, sizeof *all, group->size, mine->choice.color, members);
        status = plugin_form(group, members, n, call->timeout_ms, control, out);
    } else {
        tt_destroy_process_group(control);
    }
    free(all);
    free(members);
    return status;
}

static tt_status plugin_split(tt_group *group, const tt_call *call, int color, int key, tt_group **out) {
    return plugin_divide(group, call, NULL, &(entry){.choice = {color, key}}, out);
}

static tt_status plugin_new_group(tt_group *group, const tt_call *call, const int *ranks, size_t count,
                                  tt_group **out) {
    entry mine = {.choice = {.color = -1}};
    for (size_t i = 0; i < count; i++) {
        mine.list = (mine.list ^ (uint64_t)(ranks[i] + 1)) * UINT64_C(0x9e3779b97f4a7c15);
        if (ranks[i] == group->rank) {
            mine.choice.color = 0;
            mine.choice.key = (int32_t)i;
        }
    }
    return plugin_divide(group, call, ranks, &mine, out);
}

/* ---- abort */

static void abort_group(tt_group *group, const char *reason) {
    tt__plugin *plugin = tt__plugin_of(group);
    pthread_mutex_lock(&plugin->reason_lock);
    if (!atomic_load(&plugin->aborted))
        snprintf(plugin->reason, sizeof plugin->reason, "%s", reason);
    atomic_store(&plugin->aborted, true);
    pthread_mutex_unlock(&plugin->reason_lock);
    atomic_store(&group->ended, true);
    if (plugin->control)
        tt__native_abort(plugin->control, reason);
    if (plugin->table->abort)
        plugin->table->abort(plugin->engine);
}

static const tt__engine plugin_engine = {
    .name = "plug-in",
    .submit = tt__plugin_submit,
    .new_group = plugin_new_group,
    .split = plugin_split,
    .alloc = tt__plugin_alloc,
    .free = tt__plugin_free,
    .wait = tt__plugin_wait,
    .note_step = tt__control_note_step,
    .progress = tt__plugin_progress,
    .forget = tt__plugin_forget,
    .add_callback = tt__plugin_add_callback,
    .abort = abort_group,
    .retire = plugin_retire,
    .release = plugin_release,
};
