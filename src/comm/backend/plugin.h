/* A group whose calls another engine carries out: what the parts of that offer each other.
 *
 * A task is what a call becomes for the engine: parts, each one call of the engine's (several for a coalesced
 * all-reduce or a batch). What the engine lacks of types and reduce ops is made up for around a part: its input is
 * converted to memory of the part's own, its output back (plugin_convert.c).
 *
 * Tasks hang on works. Collectives are begun in the order in which they were submitted, all at once or, if the engine
 * says `serial`, one after the other; sends and receives at once. A collective begins with the ranks' agreement on it
 * (plugin_control.c). They advance in whatever call comes next on the group.
 *
 * One lock guards the engine, the works and their tasks: whoever advances or waits holds it, and gives it back while
 * nothing moves. Callbacks of works run when it is given back (callback.h).
 *
 * A call on a device's memory is marked when it is made, begun when the ranks agree, and joined, when somebody waits
 * for it: its stream is set to wait for the result. The work is done when the result is there. */
#ifndef TT_COMM_BACKEND_PLUGIN_H
#define TT_COMM_BACKEND_PLUGIN_H

#include "comm/callback.h"
#include "comm/op.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/work.h"

#include <pthread.h>

/* Where groups of one job meet. */
typedef struct tt__meeting_place {
    tt_store *store;
    bool own; /* free it when the last group is gone */
    _Atomic int groups;
} tt__meeting_place;

typedef struct tt__part {
    tt_call call; /* what the engine is asked for */
    enum { TT__PART_WAITING, TT__PART_BEGUN, TT__PART_ENDED } state;
    bool agrees, refused; /* it is for the control group, not for the engine; which refused it */
    tt_work *agreement;   /* then, while it is under way */
    tt_status (*check)(const tt_group *group, const tt_call *whole, const struct tt__part *part); /* a question to the
                                  others, asked and answered before the next part is begun; NULL: none */
    void *request;
    int source;
    void *memory; /* of its own, or NULL */
    void *to;     /* in the end, `from` (count of `dtype`) goes there: rounded, if the engine works on another type */
    const void *from;
    size_t count;
    tt_dtype dtype;
} tt__part;

typedef struct tt__task {
    struct tt__task *next; /* among those given up */
    size_t count, begun;   /* parts; how many have been begun */
    bool refused;          /* a part was refused: the work fails, the group doesn't */
    tt__part parts[];
} tt__task;

typedef struct tt__plugin {
    tt__engine calls; /* tt__plugin_engine, under the back end's name */
    const tt_backend *table;
    void *engine;
    tt__meeting_place *place; /* NULL: the engine finds its ranks itself */
    char prefix[160];         /* of the group's keys */
    uint32_t subgroups;       /* made so far */
    tt__task *given_up;       /* whose memory the engine may still touch until it is closed */
    tt_group *control;        /* the group behind it; NULL: one rank, or TT_BACKEND_CHECK=0 */
    tt_device_type device;    /* as in tt_backend_member */
    int device_index;
    int64_t looked_ms;           /* after the peers, the last time */
    int64_t gone_ms;             /* since when one of them is known to be gone; 0: all are there */
    pthread_mutex_t lock;        /* of the engine and the works */
    _Atomic uint32_t wanted;     /* threads that want it */
    uintptr_t user;              /* the thread that made the last call */
    tt__callbacks due;           /* of works that are done */
    pthread_mutex_t reason_lock; /* of `reason` */
    char reason[256];            /* why it was aborted */
    _Atomic bool aborted;
} tt__plugin;

static inline void tt__plugin_lock(tt__plugin *plugin) {
    if (!pthread_mutex_trylock(&plugin->lock))
        return;
    atomic_fetch_add_explicit(&plugin->wanted, 1, memory_order_relaxed);
    pthread_mutex_lock(&plugin->lock);
    atomic_fetch_sub_explicit(&plugin->wanted, 1, memory_order_relaxed);
}

/* Then callbacks run that are due. */
static inline void tt__plugin_unlock(tt__plugin *plugin) { tt__callbacks_unlock(&plugin->due, &plugin->lock); }

/* Whether the engine takes memory of the host, as most do. */
static inline bool tt__plugin_takes_host(const tt__plugin *plugin) {
    return !plugin->table->devices || plugin->table->devices & TT_DEVICE_BIT(TT_DEVICE_CPU);
}

/* A work's own variable is its task; NULL: it is done. */
static inline tt__task *tt__task_of(const tt_work *work) { return (tt__task *)(uintptr_t)work->state[0]; }

static inline tt__plugin *tt__plugin_of(const tt_group *group) { return group->plugin; }

extern const tt__engine tt__plugin_engine;

/* ---- plugin_convert.c */

/* Can the engine do it, by itself or with our help? TT_ERR_UNSUPPORTED names what it lacks. */
tt_status tt__plugin_check_call(const tt_group *group, const tt_call *call);

/* Make `part` of a call that was checked; it has memory of its own where it needs some. */
tt_status tt__part_make(tt__part *part, const tt_group *group, const tt_call *call);

/* The engine is through: put the result where it belongs. */
void tt__part_finish(const tt__part *part);

/* ---- plugin_agree.c */

enum { TT__CHECKS_MAX = 3 };

/* What comes before the engine's call: the ranks' agreement, and questions that it leaves open. Appends to `parts`,
 * counts in *n. */
tt_status tt__plugin_checks(tt__part *parts, size_t *n, const tt_group *group, const tt_call *call);

/* "all_reduce(f32 x 512, sum) at train.c:88" */
const char *tt__plugin_call_text(const tt_call *call, char *text, size_t size);

/* ---- plugin_queue.c: the engine table's submit, wait, progress, forget */

tt_status tt__plugin_submit(tt_group *group, const tt_call *call, tt_work **out);
tt_status tt__plugin_wait(tt_work *work);
tt_status tt__plugin_progress(tt_group *group);
void tt__plugin_forget(tt_work *work);
void tt__plugin_add_callback(tt_work *work, tt__callback *callback);

/* These hold the lock already.
 * drain: wait for all collectives that were begun before a synchronous one, which may have less time than they have. */
tt_status tt__plugin_drain(tt_group *group, int64_t timeout_ms);

/* The thread's last error ends the group: end all works with it. */
tt_status tt__plugin_fail(tt_group *group);

/* End all works; the engine is asked to give up what is under way. */
void tt__plugin_end_works(tt_group *group, tt_status status);

void tt__task_free(tt__task *task);

/* ---- plugin_control.c */

/* Is a group of so many ranks to have a control group? The same on all. */
bool tt__control_wanted(int ranks);

/* Make the control group, through the member's store; or through one that is met by the engine's means, without which
 * the group does if it can't be reached. Collective. */
tt_status tt__control_open(tt_group *group, const tt__member *member);
tt_status tt__control_meet(tt_group *group, const tt__member *member);

/* That of a group of some ranks, for tt_new_group() or split(); NULL if `group` has none, or this rank is in no new
 * one. Collective. */
tt_status tt__control_split(tt_group *group, const tt_call *call, const int *ranks, int color, int key,
                            tt_group **control);

/* The group failed: tell the others why. It is left: tell them, too. */
void tt__control_fail(const tt_group *group);
void tt__control_leave(tt_group *group);

/* Begin a part that agrees; has it ended? Both may say that the group failed. */
tt_status tt__control_ask(const tt_group *group, tt__part *part);
tt_status tt__control_test(const tt_group *group, tt__part *part, bool *done);
void tt__control_forget(tt__part *part);

/* A thread begins (1) or ends (-1) to wait for a work of the group, which another thread uses. */
void tt__control_wait_elsewhere(const tt_group *group, int change);

/* Look after those whom calls that are under way wait for, every now and then. An error ends the group. */
tt_status tt__control_watch(tt_group *group);

/* The engine failed in this call, with the thread's last error. If that is so because a rank is gone, it is the last
 * error from here on. */
void tt__control_explain(tt_work *work);

/* ---- plugin_group.c */

/* Make a program's first group. member->store is NULL if the engine found its ranks itself, and in a world of one;
 * own_store: it is handed over, also on failure. */
tt_status tt__plugin_join(tt_group **out, const tt_backend *table, const tt__member *member, bool own_store);

tt_status tt__plugin_new_group(tt_group *group, const tt_call *call, const int *ranks, size_t count, tt_group **out);
tt_status tt__plugin_split(tt_group *group, const tt_call *call, int color, int key, tt_group **out);
#endif
