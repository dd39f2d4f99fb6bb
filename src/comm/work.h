/* Asynchronous all-reduce inside comm, for the reducer.
 *
 * A group has a queue of works; they are published and completed in the order they were begun. No function here but tt__work_wait()
 * waits for a peer: progress is made in whatever call comes next. A work completes exactly once: the thread that uses the group sets
 * `done` and `status`, in one of the functions below or in a collective, when all ranks have done their part or when the group fails;
 * nobody else does. A synchronous collective first completes everything that is queued. */
#ifndef TT_COMM_WORK_H
#define TT_COMM_WORK_H

#include <tutti/comm.h>

typedef struct tt__work {
    struct tt__work *next; /* in the group's queue */
    tt_group *group;
    void *buf;
    size_t count;
    tt_dtype dtype;
    tt_reduce_op op;
    const char *file;
    int line;
    int phase;    /* comm's own */
    uint64_t seq; /* the group's sequence number of this call */
    bool done;    /* complete: `status` is valid */
    tt_status status;
} tt__work;

/* Queue an all-reduce of `buf`, which lies in the group's symmetric memory, and advance what can be without waiting. `work` is the
 * caller's memory and must stay until done. Errors: TT_ERR_INVALID (not symmetric memory), or the group's failure; the work is then done, too. */
tt_status tt__all_reduce_begin(tt__work *work, tt_group *group, void *buf, size_t count, tt_dtype dtype,
                               tt_reduce_op op, const char *file, int line);

/* Advance the group's queue as far as it goes without waiting for a peer. Returns the group's failure, if any. */
tt_status tt__group_progress(tt_group *group);

/* Wait until `work` is done (at most the group's timeout); returns its status. */
tt_status tt__work_wait(tt__work *work);

tt_status tt__group_alloc_at(tt_group *group, size_t bytes, void **out, const char *file, int line);
tt_status tt__group_free_at(tt_group *group, void *ptr, const char *file, int line);
tt_status tt__all_reduce_at(tt_group *group, void *buf, size_t count, tt_dtype dtype, tt_reduce_op op, const char *file,
                            int line);
tt_status tt__broadcast_at(tt_group *group, void *buf, size_t count, tt_dtype dtype, int root, const char *file,
                           int line);
tt_status tt__reduce_at(tt_group *group, void *buf, size_t count, tt_dtype dtype, tt_reduce_op op, int root,
                        const char *file, int line);
tt_status tt__all_gather_at(tt_group *group, const void *send, void *recv, size_t count, tt_dtype dtype,
                            const char *file, int line);
tt_status tt__barrier_at(tt_group *group, const char *file, int line);

/* The group's memory stays mapped from hold to let go, also when the group is destroyed in between: whoever has buffers there holds it. */
void tt__group_hold(tt_group *group);
void tt__group_let_go(tt_group *group);

#endif
