/* Sleeping until peers have news, and waking sleepers.
 *
 * A sleeper writes which rank it waits for, then looks once more; a publisher writes its news, then looks which ranks
 * sleep for it. With a full fence between the two on both sides, one of them sees the other. Only the rank that is
 * waited for rings, so that N ranks are not woken N times in a barrier; a sleeper that has works under way elsewhere is
 * woken by news of any rank.
 *
 * A fence waits until all stores before it have reached the peers, which is most of what a small call costs. So waiters
 * announce their sleep long before it (native/wait.c) and until the wait is over. A publisher that then sees no
 * announcement has published so long before the sleeper's last look that it needs no fence (all_reduce_fast.c); one
 * that sees an announcement rings. */
#ifndef TT_COMM_SHARED_DOORBELL_H
#define TT_COMM_SHARED_DOORBELL_H

#include "comm/native_group.h"

/* Wake all sleeping threads of a process. */
void tt__doorbell_ring(tt__control *control);

/* Sleep until this process's doorbell, which stood at `bell`, is rung, or `ms` (below 1000) have passed. */
void tt__doorbell_sleep(tt__control *control, uint32_t bell, int64_t ms);
static inline uint32_t tt__doorbell_count(const tt__control *control) {
    return atomic_load_explicit(&control->doorbell, memory_order_acquire);
}

/* Wake the sleepers that wait for news of this rank. A rank that begins to wait does this, too. */
void tt__ring_peers(const tt_group *group);
static inline void tt__wake_peers(tt_group *group) {
    if (!group->native->wake_pending)
        return;
    group->native->wake_pending = false;
    tt__ring_peers(group);
}

/* Wake all ranks of the group that have announced to sleep, whichever rank they wait for. Without a fence: see
 * above. */
void tt__ring_announced(const tt_group *group);
static inline bool tt__announces_sleep(const tt__area *area) {
    return __builtin_expect(atomic_load_explicit(&area->waits_for, memory_order_relaxed), 0);
}
static inline void tt__wake_announced(const tt_group *group) {
    for (int r = 0; r < group->size; r++)
        if (r != group->rank && tt__announces_sleep(group->native->areas[r])) {
            tt__ring_announced(group);
            return;
        }
}

/* Announce that this rank sleeps, to be woken by news of rank r of the group, until the announcement is withdrawn. */
void tt__announce_sleep(const tt_group *group, int r);
void tt__withdraw_sleep(const tt_group *group);

/* Announce in all groups with works that this process sleeps, until its last thread has ended its sleep. The lock is
 * held. */
void tt__sleep_begin(tt__world *world);
void tt__sleep_end(tt__world *world);

/* Let the CPU rest for a moment in a busy wait. */
static inline void tt__pause_cpu(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
