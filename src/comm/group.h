/* A process group of the native back end, and what its parts offer each other.
 *
 * A call goes through four parts: agree.c publishes it and compares what the others published; wait.c waits for arrivals and for
 * finished pieces of work; failure.c finds out who will never come; collective/ moves the data. */
#ifndef TT_COMM_GROUP_H
#define TT_COMM_GROUP_H

#include "comm/transport/shm.h"
#include "comm/work.h"

#include <tutti/comm.h>

typedef enum tt__op {
    TT__OP_BARRIER,
    TT__OP_ALL_REDUCE,
    TT__OP_BROADCAST,
    TT__OP_REDUCE,
    TT__OP_ALL_GATHER,
    TT__OP_ALLOC,
    TT__OP_FREE
} tt__op;

/* One call of this rank: the signature that all must share, and where it was made. */
typedef struct tt__call {
    tt__op op;
    tt_dtype dtype;
    tt_reduce_op reduce_op;
    int root;       /* 0 where there is none */
    uint64_t count; /* elements; bytes of an allocation; offset of what is freed, UINT64_MAX: NULL */
    const char *file;
    int line;
} tt__call;

typedef struct tt__peer {
    tt__shm shm;
    tt__control *control; /* in shm */
    int socket;           /* stays open: end of file says that the process is gone; -1: the rank itself */
    int pidfd;            /* the same, where the pid can be seen and the socket was inherited by a child; or -1 */
    pid_t pid;            /* 0: not visible here */
    int64_t stopped_ms;   /* since when it was seen stopped; 0: runs */
} tt__peer;

/* A range of the heap. The list covers the heap without gaps, in order. */
typedef struct tt__extent {
    struct tt__extent *next;
    size_t offset, bytes;
    bool used;
} tt__extent;

/* The launcher's store, where it writes how each worker ended. */
typedef struct tt__launcher {
    char host[256];
    int port; /* 0: no launcher */
} tt__launcher;

struct tt_group {
    int rank, world;
    pid_t owner;    /* the process that joined */
    int holders;    /* who still uses its memory: see tt__group_hold() */
    bool destroyed; /* by its owner; released when the last holder lets go */
    int64_t timeout_ms, heartbeat_ms;
    tt__peer *peers; /* (world), the rank's own included */
    tt__launcher launcher;
    int memory_fd; /* of the own shared memory */
    size_t heap_bytes;
    tt__extent *heap;

    uint32_t seq;          /* calls published so far */
    uint32_t step;         /* pieces of work planned so far, by all calls that were agreed on */
    bool spin;             /* ranks and CPUs are such that a short busy wait pays */
    bool unrung;           /* something was published and those asleep for it were not rung yet */
    int64_t last_check_ms; /* when peers' processes were last looked at */

    tt__work *queue, *queue_end; /* works not yet done, in order */
    tt__work synchronous;        /* the work of tt_all_reduce(), which is queued behind the others */

    tt_status failed;
    char failure_text[760];
};

/* ---- agree.c */

/* Tell the others of call number ++group->seq. `payload` (bytes <= TT__INLINE_MAX, may be NULL with 0) travels along; `symmetric` is the
 * buffer that peers may use in place, NULL if it is plain memory or takes no part. Doesn't wait. */
void tt__publish(tt_group *group, const tt__call *call, const void *payload, size_t bytes, const void *symmetric);

/* All ranks have published call `seq`, the current one: is it the same call? *symmetric: whether every rank's buffer is.
 * TT_ERR_MISMATCH fails the group. */
tt_status tt__agree(tt_group *group, uint32_t seq, bool *symmetric);

/* Publish, wait for all, agree. */
tt_status tt__meet(tt_group *group, const tt__call *call, const void *payload, size_t bytes, const void *symmetric,
                   bool *all_symmetric);

/* Whether someone who has arrived at `seq` calls something else than this rank. */
bool tt__disagrees(const tt_group *group, uint32_t seq);

/* What rank r sent along with call `seq`, and where its symmetric buffer is mapped here. Valid until the next call. */
const void *tt__payload(const tt_group *group, int r, uint32_t seq, size_t bytes);
bool tt__is_symmetric(const tt_group *group, int r, uint32_t seq);
void *tt__symmetric(const tt_group *group, int r, uint32_t seq);

/* "all_reduce(f32 x 512, sum) at train.c:88" as rank r published it. */
void tt__call_text(const tt_group *group, int r, uint32_t seq, char *text, size_t size);

/* "rank 3" or "ranks 0-2, 5": the ranks in the set (bit r), which is not empty. */
void tt__ranks_text(uint64_t ranks, char *text, size_t size);

/* ---- wait.c */

/* What is waited for: that all ranks in next..end-1 have arrived at call `target`, or have finished step `target`. */
typedef struct tt__wait {
    enum { TT__ARRIVAL, TT__STEP } what;
    uint32_t target;
    int next, end;
} tt__wait;

bool tt__ready_rank(const tt_group *group, const tt__wait *wait, int r);

/* Look once, without waiting. */
bool tt__ready(const tt_group *group, tt__wait *wait);

/* Wait, at most the group's timeout. Errors fail the group: TT_ERR_PEER, TT_ERR_TIMEOUT, TT_ERR_MISMATCH. */
tt_status tt__wait_for(tt_group *group, tt__wait *wait);
tt_status tt__wait_arrivals(tt_group *group, uint32_t seq);
tt_status tt__wait_steps(tt_group *group, uint32_t step);

/* Reserve `n` steps for the call just agreed on; every rank plans the same. Returns the step before the first of them. */
uint32_t tt__plan_steps(tt_group *group, uint32_t n);

/* Everything up to `step` is done by this rank: tell the others. */
void tt__finish_step(tt_group *group, uint32_t step);

/* Wake those who sleep for what this rank published. tt__wait_for() does it, too. */
void tt__ring(tt_group *group);

/* Decide whether busy waiting pays, from what all ranks say about their CPUs. */
bool tt__ranks_fit_cpus(const tt_group *group);

/* ---- failure.c */

/* Is somebody who is still waited for gone, frozen or out of the group? `processes`: look at the processes too, not only at what ranks say of
 * themselves. On success, nobody is. Otherwise the error is recorded; the caller fails the group. */
tt_status tt__check_peers(tt_group *group, const tt__wait *wait, bool processes);

/* Has rank r been stopped for most of the heartbeat? Then TT_ERR_PEER, recorded. To be asked every now and then; whoever asks keeps
 * group->last_check_ms. */
tt_status tt__check_stopped(tt_group *group, int r, int64_t now_ms);

/* The thread's last error ends the group: say so to the others, end all queued works. Returns the error's status. */
tt_status tt__group_fail(tt_group *group);

/* The owner has left: every later call fails, queued works end. Tells nobody. */
void tt__group_retire(tt_group *group);

/* TT_OK, or the failure that made the group unusable, recorded again. */
tt_status tt__group_usable(const tt_group *group);

/* ---- heap.c */

/* The offset in the heap of `bytes` at `p`, if they lie there. */
static inline bool tt__in_heap(const tt_group *group, const void *p, size_t bytes) {
    uintptr_t heap = (uintptr_t)group->peers[group->rank].shm.base + TT__HEAP_AT, at = (uintptr_t)p;
    return at >= heap && at - heap < group->heap_bytes && bytes <= group->heap_bytes - (at - heap);
}

tt_status tt__heap_init(tt_group *group);
void tt__heap_free(tt_group *group);

/* ---- rendezvous/launcher.c */

/* "exit code 3", "signal 9 (SIGKILL)": how rank r of the job ended, if a launcher says so within a moment; else "". Returns `text`. */
const char *tt__launcher_end_of(const tt__launcher *launcher, int r, char *text, size_t size);

/* ---- backend/native.c */

/* Who the ranks are: what tt__native_join() needs to know beside the store. */
typedef struct tt__member {
    int rank, world;
    int64_t timeout_ms, heartbeat_ms;
    tt_store *store;       /* to meet through; not needed for a world of one */
    char prefix[96];       /* of the keys */
    tt__launcher launcher; /* whose ranks these are */
} tt__member;

/* Make the group: share memory with all other ranks. On return nobody needs the store any more. */
tt_status tt__native_join(tt_group **out, const tt__member *member);

#endif
