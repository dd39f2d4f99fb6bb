/* Arrival words and steps: by these the ranks of a group that shares memory publish what they call and how far they
 * are.
 *
 * Every rank publishes each call, and compares it with the others', before it touches a peer's memory. The arrival word
 * of call k lies in slot k mod 2. A rank publishes call k+1 only after it has seen all words of call k, so while a rank
 * waits for the words of call k, a peer's slot k mod 2 holds call k or call k-2, never k+2. What belongs to call k
 * (payload, offset) therefore stays until all ranks have arrived at k+1, which a rank does when it has finished k. */
#ifndef TT_COMM_SHARED_ARRIVAL_H
#define TT_COMM_SHARED_ARRIVAL_H

#include "comm/native_group.h"
#include "comm/record/signature.h"

static inline tt__slot *tt__slot_of(const tt_group *group, int r, uint32_t seq) {
    return &group->native->areas[r]->slots[seq & 1];
}

static inline uint64_t tt__word_in(const tt__slot *slot) {
    return atomic_load_explicit(&slot->word, memory_order_acquire);
}

/* Has rank r finished `step`? */
static inline bool tt__has_finished(const tt__area *area, uint32_t step) {
    return (int32_t)(atomic_load_explicit(&area->step, memory_order_acquire) - step) >= 0;
}

/* Return where a payload of so many bytes lies in a slot. */
static inline unsigned char *tt__slot_payload(tt__slot *slot, size_t bytes) {
    return bytes <= sizeof slot->near ? slot->near : slot->far;
}

/* Publish the word: what was written to the slot before is visible with it. */
static inline void tt__slot_publish(tt__slot *slot, uint64_t word) {
    atomic_store_explicit(&slot->word, word, memory_order_release);
}

/* Publish that this rank has finished all up to `step`. Sleepers are still to be woken. */
static inline void tt__area_finish(tt__area *own, uint32_t step) {
    atomic_store_explicit(&own->step, step, memory_order_release);
}

/* Publish the work's call, number ++seq of the group. Doesn't wait. */
void tt__publish(tt_work *work, const tt__offer *offer);

/* Have all ranks, which have published the work's call, called the same? Sets work->symmetric: whether every rank's
 * buffer is. */
bool tt__agree(tt_work *work);

/* Does a rank that has arrived at `seq` call something else than this rank? */
bool tt__disagrees(const tt_group *group, uint32_t seq);

/* Return rank r's payload of call `seq`, where its symmetric buffer is mapped here, and its factor. Valid until the
 * next call. */
const void *tt__payload(const tt_group *group, int r, uint32_t seq, size_t bytes);
bool tt__is_symmetric(const tt_group *group, int r, uint32_t seq);
void *tt__symmetric(const tt_group *group, int r, uint32_t seq);
double tt__factor(const tt_group *group, int r, uint32_t seq);

/* Has happened what `wait` is for, of one rank, or of all of them? Checks once, without waiting. */
bool tt__ready_rank(const tt_group *group, const tt__wait *wait, int r);
bool tt__ready(const tt_group *group, tt__wait *wait);

/* Reserve `n` steps for the call just agreed on; every rank plans the same. Returns the step before the first of
 * them. */
uint32_t tt__plan_steps(tt_group *group, uint32_t n);

/* Publish that this rank has finished all up to `step`, and wake the others. */
void tt__finish_step(tt_group *group, uint32_t step);

static inline unsigned char *tt__stage_in(const tt_group *group, int r, size_t piece) {
    return group->native->areas[r]->stage_in[piece % TT__STAGE_DEPTH];
}

static inline unsigned char *tt__stage_out(const tt_group *group, int r, size_t piece) {
    return group->native->areas[r]->stage_out[piece % TT__STAGE_DEPTH];
}

#endif
