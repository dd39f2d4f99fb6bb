/* A process's membership in a job: the job's ranks, their memory, the links to them. The first group makes it, the last
 * one ends it.
 *
 * Locking. `lock` guards the message engine, every group's queue of works, the lists of groups, the heap, and what is
 * known of peers' processes. A synchronous collective of a group whose queue is empty, on shared memory alone, takes no
 * lock: no other thread touches a group without works. All others take it, and release it while waiting. */
#ifndef TT_COMM_WORLD_H
#define TT_COMM_WORLD_H

#include "comm/callback.h"
#include "comm/message/message.h"
#include "comm/rankset.h"
#include "comm/shared/shm.h"

#include <pthread.h>

typedef struct tt__peer {
    int host;             /* number of its host; ranks of one host share memory */
    bool local;           /* it shares memory with this process */
    bool same_machine;    /* it runs on this process's machine, whether they share memory or not */
    tt__shm shm;          /* mapped, if local */
    tt__control *control; /* in shm; NULL if not local */
    int socket;           /* of a local rank; end of file: its process is gone; -1: this rank itself */
    int pidfd;            /* also shows its end, even if a child inherited the socket; -1: its pid is invisible */
    pid_t pid;            /* 0: not visible here */
    int64_t stopped_ms;   /* since when it was seen stopped; 0: it runs */
    bool frozen;          /* stopped for longer than the heartbeat allows, at the last look */
    uint64_t activity;    /* tt__proc_activity() of the stopped process; unchanged later: it has not run */
    int64_t looked_ms;    /* when `activity` was last read; 0: never */
    char hostname[72];
} tt__peer;

/* The launcher's store, where it writes how each worker ended. */
typedef struct tt__agent_store {
    char host[256];
    int port; /* 0: no launcher */
} tt__agent_store;

typedef struct tt__world {
    int rank, size;
    int hosts;             /* how many; 0: not yet known */
    bool threaded;         /* there are TCP links, so also a thread */
    bool in_first_barrier; /* which ends joining: this rank has joined, others may not have */
    pid_t owner;           /* the process that joined */
    bool forked;           /* this is a child's copy: see tt__world_own() */
    /* Groups that are not yet released (those that only wait for their memory to be free don't count), and
     * tt__local_memory_alloc()'s memory. */
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
    /* local ranks connect to it while joining; -1: closed. If joining fails it stays open until all know why */
    int listener;
    struct tt__joining_watch *joining_watch; /* while joining: learns that a rank won't join; or NULL */
    int watched;               /* socket by which the launcher sees that this process has ended; -1: none */
    struct tt_group *groups;   /* all of this process, linked by ->next_group */
    struct tt_group *retired;  /* destroyed ones whose memory peers may still read */
    struct tt__tuning *tuning; /* rank 0's table of algorithms; on one host only forced ones; NULL: the built-in one */
    uint32_t groups_named;     /* by this process: native/subgroup.c makes ids of it */
    bool has_rpc;              /* a tt_rpc uses it, and gets the packets of its messages */
    tt__callbacks due;         /* of works that are done */
    uint32_t sleepers;         /* threads of this process that sleep */
    uint32_t elsewhere;        /* threads that wait for works of a group that another thread uses */
    int asking;                /* threads that released the lock to ask other ranks: no group may end meanwhile */
    uint32_t progress_count;   /* steps of machines and rounds of messages so far: grows while something moves */
    uint64_t circle;           /* hash of the circle of waiting ranks first seen at circle_ms: watch/deadlock.c */
    int64_t circle_ms;
    int64_t last_check_ms; /* when peers' processes were last looked at */
    pthread_mutex_t lock;
} tt__world;

static inline tt__control *tt__world_control(const tt__world *world) { return world->peers[world->rank].control; }

static inline void tt__world_lock(tt__world *world) { pthread_mutex_lock(&world->lock); }

/* Release the lock, and run the callbacks that are due. */
static inline void tt__world_unlock(tt__world *world) {
    if (__builtin_expect(world->due.first != NULL, 0))
        tt__callbacks_unlock(&world->due, &world->lock);
    else
        pthread_mutex_unlock(&world->lock);
}

/* Make a world of `size`, of which only this process is known. */
tt_status tt__world_make(tt__world **out, int rank, int size, int64_t heartbeat_ms, const tt__agent_store *agent_store);

/* Make this process's memory, which the ranks of its host will share. */
tt_status tt__world_make_memory(tt__world *world);

/* Count the ranks below `end` that share memory with this process, itself included. For a local rank that is its number
 * on this host, for `size` how many there are. */
int tt__world_local_ranks(const tt__world *world, int end);

/* To be called before ending anything: is this a forked child? A child's world is a copy, whose lock may be held by a
 * thread of the parent. From here on the child leaves links and shared memory, which are the parent's, alone. */
void tt__world_own(tt__world *world);

/* Wait until no thread of this process asks other ranks; such a thread has released the lock in the middle of a walk
 * through the groups. The lock is held. */
void tt__world_settle(tt__world *world);

/* Wake this process's own threads that sleep: some work of theirs is done, or a group failed. */
void tt__world_wake(tt__world *world);

/* Do `bytes` at `p` lie in this process's heap? */
static inline bool tt__in_heap(const tt__world *world, const void *p, size_t bytes) {
    const tt__shm *own = &world->peers[world->rank].shm;
    uintptr_t base = (uintptr_t)own->base, at = (uintptr_t)p;
    return at >= base + TT__HEAP_AT && at - base < own->size && bytes <= own->size - (at - base);
}

/* ---- native/end.c */

/* End the membership: when the last group is released, or joining failed. */
void tt__world_end(tt__world *world);

/* Free the memory of destroyed groups, then take `bytes` (whole pages) of the heap; `limited`: counts against the limit
 * of allocations. The lock is held. */
tt_status tt__world_take(tt__world *world, size_t bytes, bool limited, tt__extent **out);
void tt__world_give_back(tt__world *world, tt__extent *extent, bool limited);

/* ---- rendezvous/launcher_notes.c */

/* "exit code 3", "signal 9 (SIGKILL)": how rank r of the job ended, if a launcher says so within a moment; else "".
 * Returns `text`. */
const char *tt__agent_store_end_of(const tt__agent_store *agent_store, int r, char *text, size_t size);

#endif
