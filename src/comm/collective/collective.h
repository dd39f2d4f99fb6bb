/* The collectives' algorithms. One a file; <name>.c chooses. Each runs after all ranks have agreed on the current call (group->seq). */
#ifndef TT_COMM_COLLECTIVE_H
#define TT_COMM_COLLECTIVE_H

#include "comm/group.h"

/* What a call must look like before anything is sent. `root` 0 and TT_SUM where there is none. */
tt_status tt__check_call(tt_group *group, const char *name, const void *buf, size_t count, tt_dtype dtype,
                         tt_reduce_op op, int root);

/* Elements at..at+n-1 of `count` are rank r's share of a reduction: whole cache lines, the last ranks' shares may be empty. */
typedef struct tt__slice {
    size_t at, n;
} tt__slice;
tt__slice tt__slice_of(size_t count, tt_dtype dtype, int world, int r);

/* A reduction: to `root`, or to all if root is TT__ALL. */
enum { TT__ALL = -1 };
typedef struct tt__reduction {
    void *buf; /* this rank's */
    size_t count;
    tt_dtype dtype;
    tt_reduce_op op;
    int root;
} tt__reduction;

/* Everything lies in the slots: whoever wants the result makes it. */
void tt__reduce_inline(tt_group *group, const tt__reduction *reduction, uint32_t seq);

/* Reduce my slice of everybody's buffer, in place. The result is complete when all ranks have done so. */
void tt__reduce_symmetric(tt_group *group, const tt__reduction *reduction, uint32_t seq);

/* Piece by piece through staging memory. */
tt_status tt__reduce_staged(tt_group *group, const tt__reduction *reduction);

/* Complete all queued asynchronous works: what every synchronous collective does first. */
tt_status tt__work_drain(tt_group *group);

static inline unsigned char *tt__stage_in(const tt_group *group, int r, size_t piece) {
    return group->peers[r].shm.base + TT__STAGE_IN_AT + piece % TT__STAGE_DEPTH * TT__STAGE_BYTES;
}

static inline unsigned char *tt__stage_out(const tt_group *group, int r, size_t piece) {
    return group->peers[r].shm.base + TT__STAGE_OUT_AT + piece % TT__STAGE_DEPTH * (TT__STAGE_BYTES / 2);
}

#endif
