/* The native engine's part of a group. */
#ifndef TT_COMM_NATIVE_GROUP_H
#define TT_COMM_NATIVE_GROUP_H

#include "comm/group.h"
#include "comm/reduce/reduce_tree.h"
#include "comm/work.h"
#include "comm/world.h"

/* A call that began on messages. top_seq: the number of the call that an inner group's call is part of. */
typedef struct tt__begun {
    uint32_t seq, word, top_seq;
} tt__begun;

enum { TT__BEGUN = 64 };

/* What all_reduces of one size from one line of the program have in common, computed once. */
typedef struct tt__fast_site {
    const char *file;
    int line;
    tt_dtype dtype;
    tt_reduce_op op;
    bool in_place;
    int64_t count;
    uint64_t signature;
    tt__record_form form;
    tt__reduce_pair pair; /* kernels for groups of two ranks */
} tt__fast_site;

enum { TT__FAST_SITES = 16 };

/* State of all_reduce_fast.c. */
typedef struct tt__fast {
    tt__recorder *recorder;
    tt__area *own, *other;               /* other: in groups of two ranks; else NULL */
    tt__fast_site sites[TT__FAST_SITES]; /* a hash table; count 0: an empty entry */
} tt__fast;

typedef struct tt__native {
    tt__world *world;
    tt_group *next_group;    /* the process's next group */
    bool shared;             /* all its ranks share memory: shared-memory algorithms; else messages */
    tt__area **areas;        /* (size): rank r's area of this group; NULL if it is on another host */
    unsigned char **bases;   /* (size): rank r's memory; NULL if it is on another host */
    tt__extent *area_extent; /* where this rank's area lies */
    uint32_t serial;         /* allocations so far */
    bool is_made;            /* by tt_new_group() or tt_group_split(), from group `origin` */
    uint32_t origin;

    /* Inner groups, on which algorithms make calls. Groups over several hosts have them, where useful. */
    tt_group *parent; /* of an inner group; else NULL */
    tt_group *local;  /* the ranks of this host */
    tt_group *cross;  /* the ranks with this local number on all hosts; only if all hosts have equally many ranks */
    int *by_host;     /* (size), only with `cross`: the ranks host by host, in the order of the hosts' first ranks */
    int *place;       /* (size): rank r is by_host[place[r]] */
    bool subtrees;    /* hosts are subtrees of the one summation order, so hosts may reduce first */

    uint32_t seq; /* calls published so far */

    /* Calls that are not the program's own: the library made them for itself, or they are later parts of a call that
     * was counted. Call numbers in errors leave them out: tt__call_number(). */
    uint32_t hidden, hidden_seqs[TT__BEGUN]; /* how many so far; numbers of the last ones */
    bool goes_on;                            /* the calls that follow are parts of a call already counted */
    uint32_t step;                           /* pieces of work planned so far, by all calls that were agreed on */
    /* this is the control group of a plug-in's group (backend/plugin_control.c): its collectives move no data */
    bool only_agrees;
    size_t inline_max;                 /* bytes of an all_reduce up to which each rank reduces all of them */
    bool spin;                         /* each rank has a CPU, so that a short busy wait pays */
    bool wake_pending;                 /* something was published, and its sleepers are not woken yet */
    uint8_t order[TT__MAX_HOST_RANKS]; /* tt__peer_order() */
    bool order_known, order_by_place;
    _Atomic uintptr_t user; /* the thread that used it last; 0: none yet */
    tt_work sync_work;      /* of a synchronous call that finds the queue empty, on shared memory */

    tt__begun begun[TT__BEGUN]; /* the last calls on messages, by seq % TT__BEGUN */
    uint32_t mismatch_seq;      /* number of a call in which another rank called something else; 0: none known */
    bool asking;                /* a thread asks the peers why they differ, and then fails the group */
    uint32_t monitored;         /* monitored barriers so far */
    bool leaving;               /* this rank left while others made calls: the failure is its own */
    bool announced;             /* this process has announced that it left or failed */

    tt__fast fast;
} tt__native;

/* Return the group that `group` is part of, itself if it is no inner one. */
static inline tt_group *tt__top_group(const tt_group *group) {
    return group->native->parent ? group->native->parent : (tt_group *)(uintptr_t)group;
}

/* Note that call `seq` of the group is not the program's own. */
void tt__note_hidden(tt_group *group, uint32_t seq);

/* Count the last noted call as the program's: the noted calls together are one of its calls. The lock is held. */
void tt__note_step(tt_group *group);

/* Count the program's calls on the group up to call `seq`. Return the number of call `seq` among them; for a hidden
 * call, that of the program's next one. The same for the call that the work is, or is part of. */
uint32_t tt__calls_made(const tt_group *group, uint32_t seq);
uint32_t tt__call_number(const tt_group *group, uint32_t seq);
uint32_t tt__work_number(const tt_work *work);

/* The same of the newest call; `hidden`: it was noted as not the program's own. */
static inline uint32_t tt__newest_number(const tt_group *group, bool hidden) {
    return group->native->seq - group->native->hidden + hidden;
}

/* Make a group with room for `room` ranks, of which none is known yet, and without memory shared with them. NULL: no
 * memory. */
tt_group *tt__native_group_make(tt__world *world, int room, int64_t timeout_ms);

/* Free the group and its inner ones. The caller has given back their extents of the heap before. NULL is allowed. */
void tt__native_group_free(tt_group *group);

/* Find the process's group of this id, inner ones included; NULL if there is none. The lock is held. */
tt_group *tt__find_group(const tt__world *world, uint32_t id);

/* Translate a set of the group's ranks to the job's; translate a rank of the job to the group's, -1 if it is not in the
 * group. */
tt__rankset tt__job_ranks(const tt_group *group, const tt__rankset *set);
int tt__rank_in_group(const tt_group *group, int job_rank);

/* "0-3, 8": the group's ranks; "the group", "the group of ranks 0-3". `text` is returned. */
const char *tt__group_list(const tt_group *group, char *text, size_t size);
const char *tt__group_text(const tt_group *group, char *text, size_t size);

/* ---- building blocks of the machines of works (work.h) */

/* Make room for n messages, while none is under way. TT_ERR_MEMORY. */
tt_status tt__work_messages(tt_work *work, size_t n);

/* Post a message to or from a rank of the group. `slot`: index into work->messages. The key is the work's seq and word;
 * `step` is the algorithm's own numbering, the same on both sides and unique per pair and direction within the call. */
void tt__work_send(tt_work *work, size_t slot, int to, uint32_t step, const void *data, size_t bytes);
void tt__work_recv(tt_work *work, size_t slot, int from, uint32_t step, void *data, size_t bytes);

/* What next() returns to wait for messages. */
tt__next tt__work_wait_messages(tt_work *work);

/* What next() returns to make `call` on an inner group. */
tt__next tt__work_call(tt_work *work, tt_group *group, const tt_call *call);

/* What next() returns on shared memory to wait until `step` is finished: by ranks next..end-1; by all; by all, when
 * this rank's part of the call is done. */
tt__next tt__work_wait_ranks(tt_work *work, uint32_t step, int next, int end);
tt__next tt__work_wait_steps(tt_work *work, uint32_t step);
tt__next tt__work_wait_last(tt_work *work, uint32_t step);

#endif
