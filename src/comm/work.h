/* Works and algorithms.
 *
 * Every call is a work. An algorithm is a machine: next() does what it can without waiting and says what has to happen before it is called again.
 * The same machine serves synchronous calls (the caller waits between its steps), asynchronous ones (whoever makes progress calls it), shared memory and
 * messages. It never blocks, and never holds anything that must be released if it is not called again (scratch memory belongs to the work).
 *
 *   QUEUED     not yet told to others: an earlier work of the group is not agreed on, or not through with the slots
 *   PUBLISHED  shared memory: told; not all ranks have come
 *   RUNNING    agreed (shared memory: all words agree and the algorithm is chosen from all words; messages: at once, words travel in the keys)
 *   DONE       complete: status valid
 *
 * Who completes a work, exactly once: tt__work_complete(), called with the world's lock held (or by the one thread that runs a synchronous call
 * alone), when its machine is through, or when its group fails, is aborted or is destroyed. Nobody else sets `done`. */
#ifndef TT_COMM_WORK_H
#define TT_COMM_WORK_H

#include "comm/message/message.h"
#include "comm/record.h"

#include <tutti/backend.h>

/* REFUSED: the call failed, with an error that it has recorded and whose text begins its scratch memory, but the group lives on. */
typedef enum tt__next { TT__NEXT_DONE, TT__NEXT_WAIT, TT__NEXT_FAILED, TT__NEXT_REFUSED } tt__next;

/* What a group's shared memory needs to know of a call before it is told to others. */
typedef struct tt__offer {
    const void *payload; /* travels with the arrival word */
    size_t bytes;        /* of the payload, up to TT__INLINE_MAX */

    /* A buffer that peers may use in place, if it lies in this process's heap with its whole extent; else it is plain. */
    const void *symmetric;
    size_t extent;
} tt__offer;

typedef struct tt__algorithm {
    const char *name; /* "ring": for --algorithm, tables, the recorder */
    tt_op op;
    bool shared;    /* runs on shared memory (after ARRIVAL), else on messages */
    bool own_order; /* sums in another order than the documented one: never chosen by itself */
    bool children;  /* makes calls on group->local or ->cross: later works of the group wait until it is done */
    bool (*serves)(const tt_group *group, const tt_call *call); /* NULL: any call of its op */
    bool (*serves_words)(const tt_work *work); /* shared memory: may look at all ranks' words, too. NULL: any */
    tt__next (*next)(tt_work *work);
    bool (*expire)(
        tt_work *work); /* its deadline has passed: can next() go on all the same? NULL: no, the group fails */
} tt__algorithm;

/* What a work waits for. */
typedef struct tt__wait {
    enum { TT__ARRIVAL, TT__STEP, TT__MESSAGES, TT__CHILD } what;
    uint32_t target;
    int next, end; /* ARRIVAL, STEP: group ranks next..end-1 have arrived at call `target`, or finished step `target` */
    /* MESSAGES: until work->pending is `target` or less. CHILD: until work->child->done */
} tt__wait;

typedef enum tt__phase { TT__QUEUED, TT__PUBLISHED, TT__RUNNING, TT__DONE } tt__phase;

struct tt_work {
    tt_work *next; /* in the group's queue, or among its spare works */
    tt_group *group;
    tt_call call;
    tt_work *parent; /* whose child it is, or NULL */
    const tt__algorithm *algorithm;
    uint32_t seq, word;
    tt__phase phase;
    int stage;      /* the machine's own, 0 at first */
    bool symmetric; /* all ranks' buffers are */
    bool children;  /* its algorithm makes calls on group->local or ->cross */
    bool part_done; /* nothing is left but to wait for the others: slots and steps are free for the next call */
    bool owned;     /* by a caller, who will forget it */
    _Atomic bool done;
    tt_status status;
    bool refused; /* see TT__NEXT_REFUSED */
    int source;
    int64_t deadline_ms;
    int64_t looked_ms;  /* when whoever waits for it last looked after its peers */
    tt__record *record; /* in the recorder; of a child, its parent's */
    uint32_t record_number;

    tt__wait wait;            /* set by next() before TT__NEXT_WAIT */
    _Atomic uint32_t pending; /* messages under way */
    tt__message *messages;
    size_t message_count; /* room, kept when the work is recycled */
    size_t message_used;
    void *scratch; /* 64-byte aligned, likewise kept */
    size_t scratch_bytes;
    void *lists; /* copies of the call's arrays, likewise */
    size_t lists_bytes;
    uint64_t state[16]; /* the machine's own variables: a struct that fits */
    tt_work *child;     /* a call on group->local or ->cross that this one waits for */
};

/* ---- for machines */

#define TT__STATE(type, work) ((type *)(void *)(work)->state)

/* On messages. `slot`: index into work->messages, made room for by tt__work_messages(work, n) while none is under way (may fail: TT_ERR_MEMORY). Ranks are
 * the group's. The key is the work's seq and word; `step` is the algorithm's own numbering (same on both sides, unique per pair and direction
 * within the call). */
tt_status tt__work_messages(tt_work *work, size_t n);
void tt__work_send(tt_work *work, size_t slot, int to, uint32_t step, const void *data, size_t bytes);
void tt__work_recv(tt_work *work, size_t slot, int from, uint32_t step, void *data, size_t bytes);
tt__next tt__work_wait_messages(tt_work *work); /* return this from next() */

tt_status tt__work_scratch(tt_work *work, size_t bytes);

/* On children: begin a call on `group`, then return tt__work_wait_child(). */
tt_status tt__work_begin_child(tt_work *work, tt_group *group, const tt_call *call);
tt__next tt__work_wait_child(tt_work *work);

/* On shared memory: ranks next..end-1 have finished `step`, or all have; the last of them: this rank's part is done with it. */
tt__next tt__work_wait_ranks(tt_work *work, uint32_t step, int next, int end);
tt__next tt__work_wait_steps(tt_work *work, uint32_t step);
tt__next tt__work_wait_last(tt_work *work, uint32_t step);

#endif
