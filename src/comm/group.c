/* What groups of all engines share: who is in them, their end, and why they can't be used any more. */
#include "comm/group.h"

#include "base/error.h"
#include "comm/in_callback.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

tt_group *tt__group_make(const tt__engine *engine, int rank, int size, const int *ranks, int64_t timeout_ms) {
    tt_group *group = calloc(1, sizeof *group);
    int *copy = calloc((size_t)size, sizeof *copy);
    if (!group || !copy) {
        free(group);
        free(copy);
        return tt__fail_null(TT_ERR_MEMORY, "no memory for a group of %d ranks", size);
    }
    for (int r = 0; r < size; r++)
        copy[r] = ranks ? ranks[r] : r;
    tt__watch_forks();
    group->engine = engine;
    group->forks = tt__forks;
    group->owner = getpid();
    group->rank = rank;
    group->size = size;
    group->ranks = copy;
    group->timeout_ms = timeout_ms;
    group->owned = 1;
    return group;
}

tt_status tt__fail_inherited(const tt_group *group) {
    return tt__fail(TT_ERR_STATE,
                    "process %d was forked by rank %d (pid %d), and can't use the group that it inherited: fork before "
                    "tt_init_process_group(), or make a group of the child's own",
                    (int)getpid(), group->ranks[group->rank], (int)group->owner);
}

void tt__group_free(tt_group *group) {
    if (!group)
        return;
    while (group->allocations) {
        tt__allocation *allocation = group->allocations;
        group->allocations = allocation->next;
        free(allocation);
    }
    free(group->offsets);
    free(group->ranks);
    group->freed = true;
    tt__group_drop(group);
}

/* ---- the end */

void tt__group_note_failure(tt_group *group) {
    if (group->failed)
        return;
    group->failed = tt_last_status();
    snprintf(group->failure_text, sizeof group->failure_text, "%s", tt_last_error());
    atomic_store(&group->ended, true);
}

tt_status tt__group_check(tt_group *group) {
    if (!group)
        return tt__fail(TT_ERR_INVALID, "the group is NULL");
    if (group->destroyed)
        return tt__fail(TT_ERR_STATE, "the group was destroyed; what was made on it can only be freed");
    if (tt__is_inherited(group))
        return tt__fail_inherited(group);
    if (!atomic_load(&group->ended)) /* checked first: another thread may be aborting the group */
        return TT_OK;
    if (!group->failed)
        group->engine->progress(group); /* it was aborted: learn why */
    if (group->failed)
        return tt__fail(group->failed, "the group failed before and can't be used any more: %s", group->failure_text);
    return TT_OK;
}

void tt__group_note_step(tt_group *group) {
    if (!tt__group_has_ended(group))
        group->engine->note_step(group);
}

tt_status tt__group_progress(tt_group *group) {
    TT__TRY(tt__group_usable(group));
    return group->engine->progress(group);
}

void tt_destroy_process_group(tt_group *group) {
    if (!group || tt__freed_before("tt_destroy_process_group", group) || group->destroyed)
        return;
    if (tt__in_callback()) {
        tt__log(TT_LOG_WARNING, "tt_destroy_process_group: left undone, since a callback of a work must not wait");
        return;
    }
    tt__group_hold(group);
    group->destroyed = true; /* before its works' callbacks run: they may not make calls on it any more */
    atomic_store(&group->ended, true);
    group->engine->retire(group);
    tt__group_attach(group, NULL, NULL);
    tt__group_let_go(group);
}

void tt__group_attach(tt_group *group, void *what, void (*end)(void *what)) {
    if (group->attached)
        group->attached_end(group->attached);
    group->attached = what;
    group->attached_end = end;
}

void *tt__group_attached(const tt_group *group) { return group->attached; }

void tt__group_hold(tt_group *group) { group->holders++; }

void tt__group_let_go(tt_group *group) {
    if (--group->holders == 0 && group->destroyed)
        group->engine->release(group);
}

void tt_group_abort(tt_group *group, const char *reason) {
    if (!group || tt__is_inherited(group)) /* only the parent may end it */
        return;
    char *copy = reason ? strdup(reason) : NULL; /* tt_last_error() changes on the way */
    group->engine->abort(group, !reason ? "no reason given" : copy ? copy : "no memory for the reason");
    free(copy);
}

/* ---- who */

int tt_get_rank(const tt_group *group) { return group ? group->rank : -1; }

int tt_get_world_size(const tt_group *group) { return group ? group->size : -1; }

int tt_get_global_rank(const tt_group *group, int group_rank) {
    return group && group_rank >= 0 && group_rank < group->size ? group->ranks[group_rank] : -1;
}

int tt_get_group_rank(const tt_group *group, int global_rank) {
    for (int r = 0; group && r < group->size; r++)
        if (group->ranks[r] == global_rank)
            return r;
    return -1;
}

const char *tt_get_backend(const tt_group *group) { return group ? group->engine->name : "?"; }

int64_t tt_group_timeout_ms(const tt_group *group) { return group ? group->timeout_ms : -1; }

void tt_group_set_timeout_ms(tt_group *group, int64_t timeout_ms) {
    if (group)
        group->timeout_ms = timeout_ms > 0 ? timeout_ms : TT_DEFAULT_TIMEOUT_MS;
}
