/* A process's membership in a job: the job's ranks, their memory, the links to them. Groups stand on it; the first
 * makes it, the last ends it.
 *
 * Locking. `lock` guards the message engine, every group's queue of works, the lists of groups, the heap, and what is
 * known of peers' processes. A synchronous collective of a group whose queue is empty, on shared memory alone, takes no
 * lock: nobody else touches a group without works. Everybody else takes it, and gives it back while waiting. */
#ifndef TT_COMM_WORLD_H
#define TT_COMM_WORLD_H

#include "comm/callback.h"
#include "comm/message/message.h"
#include "comm/rankset.h"
#include "comm/shared/heap.h"
#include "comm/shared/shm.h"

#include <pthread.h>

typedef struct tt__peer {
    int host;             /* number of its host: ranks with the same share memory with each other */
    bool local;           /* it shares memory with this process */
    bool same_machine;    /* it runs on this process's machine, whether they share memory or not */
    tt__shm shm;          /* mapped, if local */
    tt__control *control; /* in shm; NULL if not local */
    int socket;           /* local: stays open: end of file says that the process is gone; -1: the rank itself */
    int pidfd;            /* the same, where the pid can be seen and the socket was inherited by a child; or -1 */
    pid_t pid;            /* 0: not visible here */
    int64_t stopped_ms;   /* since when it has been stopped, as far as it was seen; 0: runs */
    bool frozen;          /* for longer than the heartbeat allows, at the last look */
    uint64_t activity;    /* tt__proc_activity() of the stopped one; the same later: it has not run */
    int64_t looked_ms;    /* when that was asked last; 0: never */
    char hostname[72];
} tt__peer;

/* The launcher's store, where it writes how each worker ended. */
typedef struct tt__agent_store {
    char host[256];
    int port; /* 0: no launcher */
} tt__agent_store;

typedef struct tt__world {
    int rank, size;
    int hosts;     /* how many; 0: not yet known */
    bool threaded; /* there are TCP links, so also a thread */
    bool joining;  /* this rank is through, others may not be */
    pid_t owner;   /* the process that joined */
    bool forked;   /* this is a child's copy: see tt__world_own() */
    /* Groups that are not yet released (those that only wait for their memory to be free don't count), and
     * native/local_memory.c's allocations. */
    int references;
    int64_t heartbeat_ms;
    tt__peer *peers; /* (size), the rank's own included */
    tt__agent_store agent_store;
    int memory_fd;
    tt__heap heap;
    const struct tt__engine *engine;           /* of its groups */
    bool (*progress)(struct tt__world *world); /* tt__world_progress(), for the thread that serves messages */
    tt__messages *messages;                    /* NULL until needed */
    const char **hostnames;                    /* (size), for the messages' texts */
    int listener; /* where local ranks call while joining; or -1. Open until all know why it failed, if it does */
    struct tt__joining_watch *joining_watch; /* while joining: tells that others won't; or NULL */
    int watched;               /* the launcher's socket, which learns by its end that this process is gone; -1: none */
    struct tt_group *groups;   /* all of this process, linked by ->next_group */
    struct tt_group *retired;  /* destroyed ones whose memory peers may still read */
    struct tt__tuning *tuning; /* rank 0's table of algorithms, on one host what it forces; NULL: the built-in one */
    uint32_t groups_named;     /* by this process: native/subgroup.c makes ids of it */
    bool has_rpc;              /* a tt_rpc stands on it: its messages' packets are that one's */
    tt__callbacks due;         /* of works that are done */
    uint32_t sleepers;         /* threads of this process that sleep */
    uint32_t elsewhere;        /* threads that wait for works of a group that another thread uses */
    int asking; /* threads that have given the lock back while they ask other ranks: no group may end meanwhile */
    uint32_t progress_count; /* steps of machines and rounds of messages so far: grows while something moves */
    uint64_t circle;         /* of ranks that wait for each other, as last seen; and since when: watch/deadlock.c */
    int64_t circle_ms;
    int64_t last_check_ms; /* when peers' processes were last looked at */
    pthread_mutex_t lock;
} tt__world;

static inline tt__control *tt__world_control(const tt__world *world) { return world->peers[world->rank].control; }

static inline void tt__world_lock(tt__world *world) { pthread_mutex_lock(&world->lock); }

/* Give the lock back; then callbacks run that are due. */
static inline void tt__world_unlock(tt__world *world) {
    if (__builtin_expect(world->due.first != NULL, 0))
        tt__callbacks_unlock(&world->due, &world->lock);
    else
        pthread_mutex_unlock(&world->lock);
}

/* Make a world of `size`, of which only this process is known. */
tt_status tt__world_make(tt__world **out, int rank, int size, int64_t heartbeat_ms, const tt__agent_store *agent_store);

/* Make this process's memory, shared by `ranks` ranks of this host. */
tt_status tt__world_make_memory(tt__world *world);

/* Count the ranks below `end` that share memory with this process, itself included. For a local rank that is its number
 * on this host, for `size` how many there are. */
int tt__world_local_ranks(const tt__world *world, int end);

/* Find out, before anything is ended, whether this is a forked child. There the world is a copy, made maybe while a
 * thread that the child does not have held the lock; from here on links and shared memory are left alone, for they are
 * the parent's. */
void tt__world_own(tt__world *world);

/* Wait until no thread of this process asks other ranks: it has given the lock back amid its walk through the groups.
 * The lock is held. */
void tt__world_settle(tt__world *world);

/* Wake this process's own threads that sleep: some work of theirs is done, or a group failed. */
void tt__world_wake(tt__world *world);

/* Do `bytes` at `p` lie in this process's heap? */
static inline bool tt__in_heap(const tt__world *world, const void *p, size_t bytes) {
    const tt__shm *own = &world->peers[world->rank].shm;
    uintptr_t base = (uintptr_t)own->base, at = (uintptr_t)p;
    return at >= base + TT__HEAP_AT && at - base < own->size && bytes <= own->size - (at - base);
}

/* ---- native/world_end.c */

/* End the membership: when the last group is released, or joining failed. */
void tt__world_end(tt__world *world);

/* Take `bytes` (whole pages) of this process's memory, after giving back what destroyed groups had; `limited`: as a
 * tt_group_alloc(), which counts. The lock is held. */
tt_status tt__world_take(tt__world *world, size_t bytes, bool limited, tt__extent **out);
void tt__world_give_back(tt__world *world, tt__extent *extent, bool limited);

/* ---- rendezvous/launcher_notes.c */

/* "exit code 3", "signal 9 (SIGKILL)": how rank r of the job ended, if a launcher says so within a moment; else "".
 * Returns `text`. */
const char *tt__agent_store_end_of(const tt__agent_store *agent_store, int r, char *text, size_t size);

#endif
