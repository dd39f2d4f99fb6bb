/* A group of ranks: what all engines share. An engine's own part hangs on it: native_group.h, backend/plugin.h. */
#ifndef TT_COMM_GROUP_H
#define TT_COMM_GROUP_H

#include "base/error.h"
#include "base/export.h"
#include "base/quarantine.h"
#include "comm/in_callback.h"

#include <tutti/backend.h>
#include <tutti/comm.h>

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/types.h>

struct tt__callback;

/* What an engine does for groups. Arguments are checked, and the group is usable; errors are recorded. Any thread may
 * call progress(), abort() and the functions that take a work; the others, only the thread that uses the group. */
typedef struct tt__engine {
    const char *name;
    unsigned devices; /* as in tt_backend */

    /* Carry out `call`, any op before TT_OP_NEW_GROUP, after the works queued before it. `call` and its lists belong to
     * the caller; the engine copies what must outlive the function. work == NULL: return when the call is complete.
     * Otherwise *work := the call's work, the caller's until tt_work_free(); it also carries errors that are found at
     * once. The function itself fails only if there is no memory for a work: TT_ERR_MEMORY, with *work NULL. */
    tt_status (*submit)(tt_group *group, const tt_call *call, tt_work **work);

    /* Collective over `group`. Ranks that are in no new group get *out = NULL. */
    tt_status (*new_group)(tt_group *group, const tt_call *call, const int *ranks, size_t count, tt_group **out);
    tt_status (*split)(tt_group *group, const tt_call *call, int color, int key, tt_group **out);

    /* call->count: bytes. */
    tt_status (*alloc)(tt_group *group, const tt_call *call, void **out);
    tt_status (*free)(tt_group *group, const tt_call *call, void *ptr);

    /* Wait until the work is done, its deadline has passed, or the time is `until_ms`. Returns its status, TT_OK if it
     * is not done; an error is recorded. Use *done, not the work, afterwards: a callback may have freed it. */
    tt_status (*wait)(tt_work *work, int64_t until_ms, bool *done);

    /* Count the latest calls that the library made for itself, all of them done, as one call of the program: a step. */
    void (*note_step)(tt_group *group);

    /* Advance the group's works without waiting. Returns the group's failure, if any. */
    tt_status (*progress)(tt_group *group);

    /* Release the owner's hold on the work. A work that is done can be used again; one that is not goes on without an
     * owner. */
    void (*forget)(tt_work *work);

    /* Call `callback` when the work is done; at once if it is done already. */
    void (*add_callback)(tt_work *work, struct tt__callback *callback);

    /* Fail the group, from any thread. `reason` is not NULL. */
    void (*abort)(tt_group *group, const char *reason);

    /* retire: tell the peers that this rank leaves, and end all works with TT_ERR_STATE; called once, when the owner
     * destroys the group. release: free everything, the group included; called when nobody holds its memory any
     * more. */
    void (*retire)(tt_group *group);
    void (*release)(tt_group *group);
} tt__engine;

/* Memory that tt_group_alloc() returned. */
typedef struct tt__allocation {
    struct tt__allocation *next;
    struct tt__extent *extent; /* NULL: ordinary memory */
    void *at;
    uint32_t serial;
} tt__allocation;

struct tt_group {
    const tt__engine *engine;
    struct tt__native *native; /* the native engine's part; NULL: a plug-in's group */
    struct tt__plugin *plugin; /* the plug-in's part; NULL: a native group */
    int rank, size;
    int *ranks;         /* (size): each rank's number in the job */
    uint32_t id;        /* the same on all its ranks, unique in the job */
    int holders;        /* users of its memory: see tt__group_hold() */
    bool destroyed;     /* by its owner; released when the last holder lets go */
    _Atomic bool ended; /* failed, aborted or destroyed: tt__group_check() says which */
    _Atomic bool alone; /* a synchronous call waits without the lock: no other call may come */
    uint32_t forks;     /* tt__forks in the process that made it, which is `owner` */
    pid_t owner;

    /* Carry out a whole all_reduce and return true, or do nothing and return false if it is of another kind. NULL: not
     * available. */
    bool (*all_reduce_fast)(const tt_all_reduce_args *args, tt_status *status);

    int64_t timeout_ms;
    tt_status failed;
    char failure_text[760];

    /* Works not yet done, plus callbacks that have not returned. `queue` has works that run in order, `unordered` sends
     * and receives. */
    _Atomic uint32_t works;
    uint32_t callbacks; /* callbacks that are due and have not returned */
    tt_work *queue, *queue_end;
    tt_work *unordered;
    tt_work *free_works; /* to be used again */
    /* References to this struct alone: of works that callers own, due callbacks, the group itself. */
    _Atomic uint32_t owned;
    _Atomic bool freed; /* all but the struct is freed */

    tt_device_type device; /* on which its ranks' tensors lie: tt_init_process_group(.device) of the native engine */
    int device_index;
    void *attached; /* what a layer above has attached; attached_end() frees it; or NULL */
    void (*attached_end)(void *attached);

    int64_t *offsets; /* (2, size): room for lists of offsets that the caller left out */
    tt__allocation *allocations;
};

/* ---- group.c */

/* Was the group made by a process of which this is a forked child? */
static inline bool tt__is_inherited(const tt_group *group) { return group->forks != tt__forks; }

/* Record TT_ERR_STATE: the call can't be made in a forked child. */
tt_status tt__fail_inherited(const tt_group *group);

/* Is the group unusable? tt__group_check() says why. */
static inline bool tt__group_has_ended(const tt_group *group) {
    return atomic_load_explicit(&group->ended, memory_order_relaxed) || tt__is_inherited(group);
}

/* Return TT_OK, or record again the failure that made the group unusable. */
tt_status tt__group_check(tt_group *group);
static inline tt_status tt__group_usable(tt_group *group) {
    return __builtin_expect(group && !tt__group_has_ended(group), 1) ? TT_OK : tt__group_check(group);
}

/* Note the thread's last error as why the group is unusable, unless there is one already. */
void tt__group_note_failure(tt_group *group);

/* Make a group of `size` ranks without works and without an engine; `ranks` is copied. */
tt_group *tt__group_make(const tt__engine *engine, int rank, int size, const int *ranks, int64_t timeout_ms);

/* Free what tt__group_make() made, and the list of allocations. The engine has freed its own part and the free works
 * before. */
void tt__group_free(tt_group *group);

/* A user counted in `owned` lets go of the struct. */
static inline void tt__group_drop(tt_group *group) {
    if (atomic_fetch_sub_explicit(&group->owned, 1, memory_order_acq_rel) == 1)
        tt__quarantine(group, sizeof *group, free);
}

/* Keep the group's memory mapped until tt__group_let_go(), also when the group is destroyed in between. For users that
 * have buffers there. */
TT__EXPORT void tt__group_hold(tt_group *group);
TT__EXPORT void tt__group_let_go(tt_group *group);

/* Count the library's own calls since the last step, such as averaging gradients, as one call of the program; otherwise
 * they are not counted. To be called on all ranks when these calls are done. */
TT__EXPORT void tt__group_note_step(tt_group *group);

/* Attach `what` to the group, instead of what was attached before. `end` frees it when it is replaced or the group
 * ends. */
TT__EXPORT void tt__group_attach(tt_group *group, void *what, void (*end)(void *what));
TT__EXPORT void *tt__group_attached(const tt_group *group);

/* Does the group's back end take memory of this kind of device (which may be the cpu)? */
TT__EXPORT bool tt__group_takes(const tt_group *group, tt_device_type device);

/* The library's own messages between ranks, in memory of the host. If the back end takes no such memory, the control
 * group carries them, some at a time. Collective. `who` is named in errors.
 * gather: every rank's `count` elements, in `all` (size, count); most: the greatest of all ranks' values (i64 or f64),
 * in place; take_first: rank 0's bytes. */
TT__EXPORT tt_status tt__group_gather(tt_group *group, const void *mine, void *all, size_t count, tt_dtype dtype,
                                      const char *who);
TT__EXPORT tt_status tt__group_most(tt_group *group, void *values, size_t count, tt_dtype dtype, const char *who);
TT__EXPORT tt_status tt__group_take_first(tt_group *group, void *bytes, size_t count, const char *who);

/* Windows: memory of the group's device that its back end moves faster than other memory. make: collective, with the
 * same size; *memory := NULL on all ranks if there is none; an error ends the group. free: each rank frees its own when
 * nothing, the device included, uses it any more; false: `memory` is no window. has: are there any? */
TT__EXPORT tt_status tt__group_window_make(tt_group *group, size_t bytes, const char *who, void **memory);
TT__EXPORT bool tt__group_window_free(tt_group *group, void *memory);
TT__EXPORT bool tt__group_has_windows(const tt_group *group);

/* Advance the group's works without waiting. Returns the group's failure, if any. */
tt_status tt__group_progress(tt_group *group);

/* A rank's argument of tt_group_split(). */
typedef struct tt__choice {
    int32_t color; /* < 0: in none */
    int32_t key;   /* ranks are ordered by key */
} tt__choice;

static inline const tt__choice *tt__choice_of(const void *choices, size_t stride, int r) {
    return (const tt__choice *)(const void *)((const char *)choices + (size_t)r * stride);
}

/* members (room for `size`) := the ranks whose color is `color`, ordered by key, then by rank. Returns how many.
 * choices: one struct for each rank, of `stride` bytes, that begins with a tt__choice. */
static inline int tt__split_members(const void *choices, size_t stride, int size, int color, int *members) {
    int n = 0;
    for (int r = 0; r < size; r++) {
        const tt__choice *choice = tt__choice_of(choices, stride, r);
        if (choice->color != color)
            continue;
        int at = n++;
        for (; at > 0 && tt__choice_of(choices, stride, members[at - 1])->key > choice->key; at--)
            members[at] = members[at - 1];
        members[at] = r;
    }
    return n;
}

/* Return a call's own timeout, or else its group's. */
static inline int64_t tt__timeout_of(const tt_group *group, int64_t timeout_ms) {
    return timeout_ms > 0 ? timeout_ms : group->timeout_ms;
}

static inline tt_call tt__all_reduce_call(const tt_all_reduce_args *a) {
    return (tt_call){.op = TT_OP_ALL_REDUCE,
                     .dtype = a->dtype,
                     .reduce_op = a->op,
                     .factor = a->factor,
                     .count = a->count,
                     .send = a->buf,
                     .recv = a->buf,
                     .timeout_ms = tt__timeout_of(a->group, a->timeout_ms),
                     .file = a->file,
                     .line = a->line,
                     .device = a->device,
                     .device_index = a->device_index,
                     .stream = a->stream};
}

#endif
