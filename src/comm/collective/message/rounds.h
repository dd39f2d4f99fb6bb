/* Algorithms on messages, in rounds.
 *
 * A round is a set of sends and receives; it is over when all of them are done. What a round needs is posted in two
 * portions: `early` what does not depend on the round before, which is then still under way (so a peer's data never
 * wait for this rank to ask for them), `post` the rest. `take` uses what has arrived. So the order is, with | for "all
 * of the round is done",
 *
 *   early(0) post(0) early(1) | take(0) post(1) early(2) | take(1) post(2) early(3) | ...
 *
 * and memory that early(r+1) receives into must not be used by take(r): two areas, used in turn, are enough.
 *
 * Messages of a round may overtake each other; `step` tells those between the same two ranks apart. Messages of no
 * bytes are sent, too: they carry the word by which ranks detect calls that differ. */
#ifndef TT_COMM_COLLECTIVE_MESSAGE_ROUNDS_H
#define TT_COMM_COLLECTIVE_MESSAGE_ROUNDS_H

#include "comm/machine.h"
#include "comm/reduce/slice.h"

typedef struct tt__rounds {
    tt_status (*plan)(tt_work *work); /* ends with tt__rounds_plan() */
    void (*early)(tt_work *work, uint32_t round);
    void (*post)(tt_work *work, uint32_t round);
    void (*take)(tt_work *work, uint32_t round); /* each of these three may be NULL */
} tt__rounds;

/* What rounds keep in work->state; an algorithm's own variables follow it in one struct. */
typedef struct tt__round_state {
    uint32_t count;   /* rounds */
    uint32_t room;    /* messages a round may have */
    uint32_t used[2]; /* messages of rounds with even and odd numbers */
} tt__round_state;

/* Plan `count` rounds of at most `room` messages. TT_ERR_MEMORY. */
tt_status tt__rounds_plan(tt_work *work, uint32_t count, uint32_t room);

void tt__round_send(tt_work *work, uint32_t round, int to, uint32_t step, const void *data, size_t bytes);
void tt__round_recv(tt_work *work, uint32_t round, int from, uint32_t step, void *data, size_t bytes);

/* The machine. */
tt__next tt__rounds_next(tt_work *work, const tt__rounds *rounds);

/* Return the elements of one segment, where `streams` of them are in memory at a time. Long buffers go segment by
 * segment, so that one is reduced while the next is on its way, and what was received is still in the cache. */
size_t tt__segment(size_t count, size_t size, int streams);

/* Count the segments, at least 1. */
static inline uint32_t tt__segments(size_t count, size_t segment) {
    return count ? (uint32_t)((count + segment - 1) / segment) : 1;
}

/* Return the elements of segment s. */
static inline size_t tt__segment_count(size_t count, size_t segment, uint32_t s) {
    size_t at = (size_t)s * segment;
    return at >= count ? 0 : count - at < segment ? count - at : segment;
}

/* Return the rank i places after (or, if negative, before) this one. */
static inline int tt__neighbour(const tt_group *group, int i) {
    return ((group->rank + i) % group->size + group->size) % group->size;
}

/* Return the least k with 2^k >= n. */
static inline int tt__log2_ceil(int n) {
    int k = 0;
    while ((1 << k) < n)
        k++;
    return k;
}

/* Allocate the machine's memory in the work's scratch memory; once, in the plan. The buffers of a coalesced call are
 * packed in front of it. TT_ERR_MEMORY. */
tt_status tt__machine_scratch(tt_work *work, size_t bytes);
unsigned char *tt__machine_memory(const tt_work *work);

/* The buffer that is reduced in place: the call's own, or of a coalesced one the packed ones (`data` is valid after
 * tt__machine_scratch()). */
typedef struct tt__operand {
    unsigned char *data;
    size_t count;
} tt__operand;
tt__operand tt__operand_of(const tt_work *work);

/* Copy packed buffers back to where they came from. */
void tt__unpack(const tt_work *work);

#endif
