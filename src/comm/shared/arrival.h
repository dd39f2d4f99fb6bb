/* Arrival words and steps: with these the ranks of a group that shares memory publish which call they make and how far
 * they are.
 *
 * Every rank publishes each call, and compares it with the others', before it touches a peer's memory. The arrival word
 * of call k lies in slot k mod 2. A rank publishes call k+1 only after it has seen all words of call k, so while a rank
 * waits for the words of call k, a peer's slot k mod 2 holds call k or call k-2, never k+2. What belongs to call k
 * (payload, offset) therefore stays until all ranks have arrived at k+1, which a rank does when it has finished k. */
#ifndef TT_COMM_SHARED_ARRIVAL_H
#define TT_COMM_SHARED_ARRIVAL_H

#include "base/machine/cpu.h"
#include "comm/native_group.h"
#include "comm/record/call_record.h"
#include "comm/shared/doorbell.h"

#include <string.h>

static inline tt__slot *tt__slot_of(const tt_group *group, int r, uint32_t seq) {
    return &group->native->areas[r]->slots[seq & 1];
}

static inline uint64_t tt__word_in(const tt__slot *slot) {
    return atomic_load_explicit(&slot->word, memory_order_acquire);
}

static inline uint64_t tt__word_of(const tt_group *group, int r, uint32_t seq) {
    return tt__word_in(tt__slot_of(group, r, seq));
}

/* Has rank r finished `step`? */
static inline bool tt__has_finished(const tt__area *area, uint32_t step) {
    return (int32_t)(atomic_load_explicit(&area->step, memory_order_acquire) - step) >= 0;
}

/* Publish that this rank has finished all up to `step`. Sleepers are still to be woken. */
static inline void tt__area_finish(tt__area *own, uint32_t step) {
    atomic_store_explicit(&own->step, step, memory_order_release);
}

/* ---- publishing */

enum { TT__CLAIMED_MAX = 128 };

/* Return where a payload of call `seq`, of so many bytes, lies in an area. */
static inline unsigned char *tt__payload_in(tt__area *area, uint32_t seq, size_t bytes) {
    tt__slot *slot = &area->slots[seq & 1];
    return bytes <= sizeof slot->near ? slot->near : bytes <= sizeof slot->far ? slot->far : area->carried[seq & 1];
}

/* Publish call ++seq: its signature, `bytes` that travel with it, and where the buffer lies in this rank's memory if it
 * is `symmetric` (else NULL). What the caller wrote to the slot before is visible with the word, which is returned.
 * Sleepers are still to be woken. */
static inline uint64_t tt__arrive(tt_group *group, uint64_t signature, const void *payload, size_t bytes,
                                  const void *symmetric) {
    tt__native *native = group->native;
    uint32_t seq = ++native->seq;
    tt__slot *slot = tt__slot_of(group, group->rank, seq);
    uint64_t word = signature | seq;
    if (symmetric) {
        word |= TT__SYMMETRIC_BIT;
        slot->offset = (uint64_t)((const unsigned char *)symmetric - native->bases[group->rank]);
    }
    if (bytes) {
        unsigned char *to = tt__payload_in(native->areas[group->rank], seq, bytes);
        tt__claim_line(slot);
        __asm__("" : "+r"(bytes)); /* a compiler that knows the bound makes a slow string instruction of the copy */
        memcpy(to, payload, bytes);
    }
    atomic_store_explicit(&slot->word, word, memory_order_release);
    return word;
}

/* Return the part of a word that works keep, and that travels with messages. */
static inline uint32_t tt__word_signature(uint64_t word) { return (uint32_t)(word >> 32) & ~1U; }

/* Claim what the next call of so many bytes will write. The word's own line is left for the last moment if the payload
 * is longer: peers look at it, and would take it back before the word is there. */
static inline void tt__claim_slot(const tt__slot *slot, size_t bytes) {
    if (bytes <= TT__CLAIMED_MAX)
        tt__claim_line(slot);
    for (size_t at = 0; bytes > TT__NEAR_MAX && bytes <= TT__INLINE_MAX && at < bytes; at += TT__CACHE_LINE)
        tt__claim_line(slot->far + at);
}

/* Publish the work's call. Doesn't wait. */
void tt__publish(tt_work *work, const tt__offer *offer);

/* ---- looking, without waiting */

/* Has rank r, or have all ranks, done what `wait` waits for? Checks once, without waiting. */
static inline bool tt__ready_rank(const tt_group *group, const tt__wait *wait, int r) {
    const tt__area *area = group->native->areas[r];
    if (wait->what == TT__ARRIVAL)
        return (uint32_t)tt__word_in(&area->slots[wait->target & 1]) == wait->target;
    return tt__has_finished(area, wait->target);
}

/* Skips this rank, which is always ready: reading its own line, which a peer has just taken, would cost as much as
 * reading the peer's. */
static inline bool tt__ready(const tt_group *group, tt__wait *wait) {
    while (wait->next < wait->end && (wait->next == group->rank || tt__ready_rank(group, wait, wait->next)))
        wait->next++;
    return wait->next == wait->end;
}

/* Return the bits in which another rank's word differs from `mine`, this rank's, when all have published the call. */
static inline uint64_t tt__words_differ(const tt_group *group, uint64_t mine) {
    uint64_t differ = 0;
    for (int r = 0; r < group->size; r++)
        if (r != group->rank)
            differ |= tt__word_of(group, r, (uint32_t)mine) ^ mine;
    return differ;
}

/* All ranks have published the work's call: are their calls equal? Sets work->symmetric: are all ranks' buffers
 * symmetric? */
bool tt__agree(tt_work *work);

/* Does a rank that has arrived at `seq` make another call than this rank? */
bool tt__disagrees(const tt_group *group, uint32_t seq);

/* Return rank r's payload of call `seq`, where its symmetric buffer is mapped here, and its factor. Valid until the
 * next call. */
static inline void *tt__payload(const tt_group *group, int r, uint32_t seq, size_t bytes) {
    return tt__payload_in(group->native->areas[r], seq, bytes);
}

static inline bool tt__is_symmetric(const tt_group *group, int r, uint32_t seq) {
    return tt__word_of(group, r, seq) & TT__SYMMETRIC_BIT;
}

static inline bool tt__any_symmetric(const tt_group *group, uint32_t seq) {
    for (int r = 0; r < group->size; r++)
        if (tt__is_symmetric(group, r, seq))
            return true;
    return false;
}

static inline void *tt__symmetric(const tt_group *group, int r, uint32_t seq) {
    return group->native->bases[r] + tt__slot_of(group, r, seq)->offset;
}

static inline double tt__factor(const tt_group *group, int r, uint32_t seq) {
    return tt__slot_of(group, r, seq)->factor;
}

/* ---- steps */

/* Reserve `n` steps for the call just agreed on, the same on every rank. Returns the step before the first of them. */
uint32_t tt__plan_steps(tt_group *group, uint32_t n);

/* Publish that this rank has finished all up to `step`, and wake the others. */
void tt__finish_step(tt_group *group, uint32_t step);

static inline unsigned char *tt__stage(const tt_group *group, int r, size_t piece) {
    return group->native->areas[r]->stage[piece % TT__STAGE_DEPTH];
}

/* ---- a short busy wait
 *
 * The first looks follow each other at once: a pause may last as long as a word takes from one CPU to another. */
enum { TT__EAGER_LOOKS = 8 };

/* Look for the `i`th time without success. */
static inline void tt__spin_pause(int i) {
    if (i >= TT__EAGER_LOOKS)
        tt__pause_cpu();
}

/* Look at most `looks` times; return whether `wait` is over. */
static inline __attribute__((always_inline)) bool tt__spin(const tt_group *group, tt__wait *wait, int looks) {
    for (int i = 0; i < looks; i++) {
        if (tt__ready(group, wait))
            return true;
        tt__spin_pause(i);
    }
    return false;
}

/* The same for one rank whose memory is at hand, so that a look is a single load. word: has the rank arrived with the
 * very word that this rank published (false also if its word differs)? step: has it finished `step`? */
static inline __attribute__((always_inline)) bool tt__spin_word(const tt__slot *slot, uint64_t mine, int looks) {
    for (int i = 0; i < looks; i++) {
        uint64_t word = tt__word_in(slot);
        if (word == mine)
            return true;
        if ((uint32_t)word == (uint32_t)mine)
            return false;
        tt__spin_pause(i);
    }
    return false;
}

static inline __attribute__((always_inline)) bool tt__spin_step(const tt__area *area, uint32_t step, int looks) {
    for (int i = 0; i < looks; i++) {
        if (tt__has_finished(area, step))
            return true;
        tt__spin_pause(i);
    }
    return false;
}

#endif
