/* Groups of a group's ranks.
 *
 * In one exchange every rank gives the color of its new group (or none), its key, by which ranks are ordered there, the
 * offset of its area for that group, and an id that it has given to no other group. Each new group takes the id of its
 * first rank. tt_new_group() is a split with one color, whose keys follow its list. */
#include "comm/native/native.h"

#include "base/error.h"
#include "comm/group.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct entry {
    tt__choice choice;
    uint64_t offset; /* of the area, in the rank's memory */
    uint32_t name;
    int32_t status; /* why it has no area */
} entry;

/* Make an id from this process's rank and the number of groups it has named: unique among the job's groups that live. 0
 * is the first group's. */
static uint32_t new_name(tt__world *world) {
    uint32_t name;
    do
        name = (uint32_t)world->rank << 20 | (++world->groups_named & 0xfffff);
    while (!name || tt__find_group(world, name));
    return name;
}

static tt_status prepare_subgroup(tt_group *group, int color, int key, int64_t timeout_ms, entry *mine,
                                  tt_group **made) {
    tt__world *world = group->native->world;
    *mine = (entry){.choice = {color, key}};
    if (color < 0)
        return TT_OK;
    *made = tt__native_prepare(world, group->size, timeout_ms);
    if (!*made)
        return tt_last_status();
    mine->offset = (*made)->native->area_extent->offset;
    tt__world_lock(world);
    mine->name = new_name(world);
    tt__world_unlock(world);
    return TT_OK;
}

/* Fail, on all ranks, if a rank has no area; the others learn why. A rank that has none itself keeps its own error,
 * which is recorded. */
static tt_status check_all(tt_group *group, const tt_call *call, const entry *all) {
    tt_status own = (tt_status)all[group->rank].status;
    char why[256] = "";
    int r = 0;
    while (r < group->size && !all[r].status)
        r++;
    if (r == group->size)
        return TT_OK;
    tt__saved_error saved;
    tt__error_save(&saved);
    if (r == group->rank)
        snprintf(why, sizeof why, "%.*s", (int)sizeof why - 1, saved.text);
    group->native->goes_on = true;
    tt_status told = tt_broadcast_with(TT_ARGS(tt_broadcast_args, group, why, sizeof why, TT_U8, r,
                                               .timeout_ms = call->timeout_ms, .file = call->file, .line = call->line));
    group->native->goes_on = false;
    TT__TRY(told);
    if (!own)
        return tt__fail((tt_status)all[r].status, "rank %d: %s", group->ranks[r],
                        *why ? why
                             : "no memory for the new group"); /* where it moves nothing: group->native->only_agrees */
    tt__error_restore(&saved);
    return own;
}

/* Arrays of a split, in one allocation: the caller's stack may be small. */
typedef struct split_room {
    entry *all;        /* (the group's size), like the other arrays */
    uint64_t *offsets; /* of the new group's ranks */
    int *members, *ranks;
} split_room;

static tt_status split_room_make(split_room *room, int size) {
    size_t n = (size_t)size;
    room->all = calloc(n, sizeof *room->all + sizeof *room->offsets + 2 * sizeof *room->ranks);
    if (!room->all)
        return tt__fail(TT_ERR_MEMORY, "no memory for a group of %d ranks", size);
    room->offsets = (uint64_t *)(room->all + n);
    room->members = (int *)(room->offsets + n);
    room->ranks = room->members + n;
    return TT_OK;
}

static void subgroup_form(const tt_group *group, tt_group *made, const split_room *room, int color) {
    char name[192];
    int n = tt__split_members(room->all, sizeof *room->all, group->size, color, room->members);
    made->native->is_made = true;
    made->native->origin = group->id;
    for (int i = 0; i < n; i++) {
        room->ranks[i] = group->ranks[room->members[i]];
        room->offsets[i] = room->all[room->members[i]].offset;
    }
    tt__native_begin(made, room->all[room->members[0]].name, room->ranks, n, room->offsets);
    made->device = group->device;
    made->device_index = group->device_index;
    tt__log(TT_LOG_DEBUG, "made %s", tt__group_text(made, name, sizeof name));
}

/* A rank without memory for the arrays still takes part, so that the others learn why there is no group. */
static __attribute__((noinline)) tt_status tell_no_room(tt_group *group, const tt_call *call, int color, int key) {
    entry all[TT__MAX_RANKS];
    const entry mine = {.choice = {color, key}, .status = (int32_t)tt_last_status()};
    TT__TRY(tt__exchange(group, call, &mine, sizeof mine, all));
    return check_all(group, call, all);
}

tt_status tt__native_split(tt_group *group, const tt_call *call, int color, int key, tt_group **out) {
    entry mine;
    split_room room = {0};
    tt_group *made = NULL;
    *out = NULL;
    if (split_room_make(&room, group->size))
        return tell_no_room(group, call, color, key);
    mine.status = (int32_t)prepare_subgroup(group, color, key, call->timeout_ms, &mine, &made);
    tt_status status = tt__exchange(group, call, &mine, sizeof mine, room.all);
    if (!status)
        status = check_all(group, call, room.all);
    if (!status && made)
        subgroup_form(group, made, &room, color);
    if (status)
        tt__native_discard(made);
    free(room.all);
    *out = status ? NULL : made;
    return status;
}

tt_status tt__native_new_group(tt_group *group, const tt_call *call, const int *ranks, size_t count, tt_group **out) {
    tt_call listed = *call;
    int64_t list[TT__MAX_RANKS]; /* for the record */
    int key = -1;
    for (size_t i = 0; i < count; i++) {
        list[i] = ranks[i];
        if (ranks[i] == group->rank)
            key = (int)i;
    }
    listed.recv_counts = list;
    return tt__native_split(group, &listed, key < 0 ? -1 : 0, key, out);
}
