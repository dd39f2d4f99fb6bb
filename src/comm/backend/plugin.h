/* A group whose calls a plug-in's engine carries out: types and functions that the files plugin_*.c share.
 *
 * A task carries out a call: it consists of parts, each one call of the engine's (several for a coalesced all-reduce or
 * a batch). For a type or reduce op that the engine lacks, a part converts its input to memory of its own, and its
 * output back (plugin_convert.c).
 *
 * Each work has a task. Collectives are begun in the order in which they were submitted, all at once or, if the engine
 * says `serial`, one after the other; sends and receives at once. A collective begins with the ranks' agreement on it
 * (plugin_control.c). The next call on the group, whichever it is, advances them.
 *
 * One lock guards the engine, the works and their tasks. A thread that advances or waits holds it, and releases it
 * while nothing moves. Callbacks of works run when it is released (callback.h).
 *
 * A call on a device's memory is marked on its stream when it is made, and begun when the ranks agree. A thread that
 * waits for the call joins it: from then on the stream waits for the result. The work is done when the result is there.
 * Until then a thread of the group advances the call (plugin_watch.c). */
#ifndef TT_COMM_BACKEND_PLUGIN_H
#define TT_COMM_BACKEND_PLUGIN_H

#include "base/error.h"
#include "comm/callback.h"
#include "comm/group.h"
#include "comm/op.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/work.h"

#include <pthread.h>

/* The store through which the groups of one job meet. */
typedef struct tt__shared_store {
    tt_store *store;
    bool own; /* free it when the last group is gone */
    _Atomic int groups;
} tt__shared_store;

typedef struct tt__call_part {
    tt_call call; /* what the engine is asked for */
    enum { TT__PART_WAITING, TT__PART_BEGUN, TT__PART_ENDED } state;
    bool agrees, refused; /* agrees: for the control group, not for the engine; refused: by whichever it is for */
    tt_work *agreement;   /* of a part that agrees, while it is under way */
    /* Check the part's result when it has ended, before the next part is begun; NULL: nothing to check. */
    tt_status (*check)(const tt_group *group, const tt_call *whole, const struct tt__call_part *part);
    tt__record_slot *record; /* the call's, written by its agreement; NULL: none */
    uint32_t record_number;
    tt_call_times times; /* of an engine's call on a device */
    void *request;
    int source;
    void *memory; /* of its own, or NULL */
    void *to;     /* where `from` (count of `dtype`) goes at the end, divided and rounded as needed; NULL: nowhere */
    const void *from;
    size_t count;
    tt_dtype dtype;
    int divisor; /* for an average of integers: divides the engine's sum; else 1 */
} tt__call_part;

typedef struct tt__task {
    struct tt__task *next; /* in plugin->given_up */
    size_t count, begun;   /* parts; how many have been begun */
    bool refused;          /* a part was refused: the work fails, the group doesn't */
    tt__call_part parts[];
} tt__task;

typedef struct tt__plugin {
    tt__engine calls; /* plug-ins' calls, under the back end's name */
    const tt_backend *table;
    void *engine;
    tt__shared_store *place; /* NULL: the engine itself finds the ranks */
    char prefix[160];        /* of the group's keys */
    uint32_t subgroups;      /* made so far */
    uint32_t windows;        /* how many exist: plugin_memory.c */
    tt__task *given_up;      /* tasks whose memory the engine may touch until it is closed */
    tt_group *control;       /* the control group; NULL: one rank, or TT_BACKEND_CHECK=0 */
    tt_device_type device;   /* as in tt_backend_member */
    int device_index;
    int64_t looked_ms;           /* when the peers were last checked */
    int64_t gone_ms;             /* since when a peer is known to be gone; 0: none is */
    pthread_mutex_t lock;        /* of the engine and the works */
    _Atomic uint32_t wanted;     /* threads that wait for `lock` */
    uintptr_t user;              /* the thread that made the last call */
    tt__callbacks due;           /* of works that are done */
    pthread_mutex_t reason_lock; /* of `reason` */
    char reason[256];            /* why it was aborted */
    _Atomic bool aborted;
    pthread_t watcher; /* plugin_watch.c */
    pthread_cond_t watch_wanted;
    bool watches, watch_ends;
} tt__plugin;

static inline void tt__plugin_lock(tt__plugin *plugin) {
    if (!pthread_mutex_trylock(&plugin->lock))
        return;
    atomic_fetch_add_explicit(&plugin->wanted, 1, memory_order_relaxed);
    pthread_mutex_lock(&plugin->lock);
    atomic_fetch_sub_explicit(&plugin->wanted, 1, memory_order_relaxed);
}

/* Release the lock, and run the callbacks that are due. */
static inline void tt__plugin_unlock(tt__plugin *plugin) { tt__callbacks_unlock(&plugin->due, &plugin->lock); }

/* Record an error where the engine returned a status without a text. */
static inline tt_status tt__plugin_reason(const tt_backend *table, tt_status status) {
    if (!status || tt_last_status() == status)
        return status;
    return tt__fail(status, "back end %s: %s", table->name, tt_status_text(status));
}

/* Does the engine take memory of the host? Most do. */
static inline bool tt__plugin_takes_host(const tt__plugin *plugin) {
    return !plugin->table->devices || plugin->table->devices & TT_DEVICE_BIT(TT_DEVICE_CPU);
}

/* Return the task of a work; NULL: the work is done. */
static inline tt__task *tt__task_of(const tt_work *work) { return (tt__task *)(uintptr_t)work->state[0]; }

static inline tt__plugin *tt__plugin_of(const tt_group *group) { return group->plugin; }

/* ---- plugin_convert.c */

/* Can the engine carry out the call, by itself or with conversions? TT_ERR_UNSUPPORTED names what it lacks. */
tt_status tt__plugin_check_call(const tt_group *group, const tt_call *call);

/* Make `part` of a call that was checked; it has memory of its own where it needs some. */
tt_status tt__part_make(tt__call_part *part, const tt_group *group, const tt_call *call);

/* Put the result where it belongs, when the engine has ended the part. */
void tt__part_finish(const tt__call_part *part);

/* ---- plugin_agree.c */

enum { TT__CHECKS_MAX = 3 };

/* Append to `parts` (counted in *n) the checks before the engine's call: the ranks' agreement, and exchanges of counts,
 * which it does not cover. */
tt_status tt__plugin_checks(tt__call_part *parts, size_t *n, const tt_group *group, const tt_call *call);

/* "all_reduce(f32 x 512, sum) at train.c:88" */
const char *tt__plugin_call_text(const tt_call *call, char *text, size_t size);

/* ---- plugin_queue.c: the engine table's submit, wait, progress, forget */

tt_status tt__plugin_submit(tt_group *group, const tt_call *call, tt_work **out);
tt_status tt__plugin_wait(tt_work *work, int64_t until_ms, bool *done);
tt_status tt__plugin_progress(tt_group *group);
void tt__plugin_forget(tt_work *work);
void tt__plugin_add_callback(tt_work *work, tt__callback *callback);

/* The caller of these holds the lock. drain: wait for all collectives begun before a synchronous one, whose timeout may
 * be shorter than theirs. */
tt_status tt__plugin_drain(tt_group *group, int64_t timeout_ms);

/* Fail the group and all its works with the thread's last error. */
tt_status tt__plugin_fail(tt_group *group);

/* Before the group ends: wait for works on a device whose results a stream waits for, within their timeouts. The
 * program was told TT_OK for them, but the engine may not have ended them. */
void tt__plugin_settle(tt_group *group);

/* End all works, after asking the engine to give up what is under way. */
void tt__plugin_end_works(tt_group *group, tt_status status);

void tt__task_free(tt__task *task);

/* ---- plugin_memory.c: the engine table's alloc, free */

tt_status tt__plugin_alloc(tt_group *group, const tt_call *call, void **out);
tt_status tt__plugin_free(tt_group *group, const tt_call *call, void *ptr);

/* ---- plugin_watch.c */

/* Start the thread that advances the group's calls on a device, unless it runs; wake it for another call. The lock is
 * held. */
tt_status tt__plugin_watch(tt_group *group);
void tt__plugin_watch_more(tt__plugin *plugin);

/* End the thread. The lock is not held. */
void tt__plugin_watch_end(tt__plugin *plugin);

/* ---- plugin_control.c */

/* Does a group of `ranks` ranks get a control group? The same on all ranks. */
bool tt__control_wanted(int ranks);

/* Make the control group, through the member's store. Without one, rank 0 serves a store and broadcasts its address by
 * the engine; if the others can't reach it, there is no control group. Collective. */
tt_status tt__control_open(tt_group *group, const tt__member *member);
tt_status tt__control_meet(tt_group *group, const tt__member *member);

/* Make the control group of a subgroup, for tt_new_group() or split(); NULL if `group` has none, or this rank is in no
 * new group. Collective. */
tt_status tt__control_split(tt_group *group, const tt_call *call, const int *ranks, int color, int key,
                            tt_group **control);

/* Tell the other ranks that the group failed, and why; or that this rank leaves it. */
void tt__control_fail(const tt_group *group);
void tt__control_leave(tt_group *group);

/* A step of the program has ended on the group: see tt__engine. */
void tt__control_note_step(tt_group *group);

/* Note in the call's record when it ran on its device: all parts of the task have ended. */
void tt__control_note_times(const tt_group *group, const tt__task *task);

/* Begin a part that agrees; test whether it has ended. Both fail if the group has. */
tt_status tt__control_ask(const tt_group *group, tt__call_part *part);
tt_status tt__control_test(const tt_group *group, tt__call_part *part, bool *done);
void tt__control_forget(tt__call_part *part);

/* A thread begins (1) or ends (-1) to wait for a work of the group, which another thread uses. */
void tt__control_wait_elsewhere(const tt_group *group, int change);

/* While the engine joins the ranks of `group`, a tt_group with a control group: has one failed or ended? A rank that
 * has left had finished joining. This is tt_backend_member's `watch`. */
tt_status tt__control_watch_joining(void *group);

/* Give the engine of a subgroup this function. */
void tt__control_let_watch(tt_group *group);

/* Check the peers that calls under way wait for; most calls return at once. An error fails the group. */
tt_status tt__control_watch(tt_group *group);

/* The engine failed in this call with the thread's last error. If a rank is gone, make that the last error. */
void tt__control_explain(tt_work *work);

/* ---- plugin_group.c */

/* Make a program's first group. member->store is NULL if the engine itself finds the ranks, and in a world of one;
 * own_store: the group takes it over, also on failure. */
tt_status tt__plugin_join(tt_group **out, const tt_backend *table, const tt__member *member, bool own_store);
#endif
