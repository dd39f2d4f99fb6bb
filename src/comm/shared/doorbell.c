#include "comm/shared/doorbell.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A full fence; atomic_thread_fence() is not known to ThreadSanitizer. */
static void full_fence(void) { __sync_synchronize(); }

static void futex_call(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *timeout) {
    syscall(SYS_futex, word, op, value, timeout, NULL, 0);
}

void tt__doorbell_ring(tt__control *control) {
    atomic_fetch_add_explicit(&control->doorbell, 1, memory_order_release);
    futex_call(&control->doorbell, FUTEX_WAKE, INT_MAX, NULL);
}

void tt__doorbell_sleep(tt__control *control, uint32_t bell, int64_t ms) {
    futex_call(&control->doorbell, FUTEX_WAIT, bell, &(struct timespec){.tv_nsec = (long)ms * 1000000});
}

/* ---- waking */

void tt__ring_peers(const tt_group *group) {
    full_fence();
    uint32_t me = (uint32_t)group->rank + 1;
    const tt__area *own = group->native->areas[group->rank];
    bool gone = own && atomic_load_explicit(&own->state, memory_order_relaxed) != TT__MEMBER;
    for (int r = 0; r < group->size; r++) {
        const tt__area *area = group->native->areas[r];
        uint32_t waits_for = area ? atomic_load_explicit(&area->waits_for, memory_order_relaxed) : 0;
        if (waits_for == me || waits_for == TT__ANYONE || (gone && waits_for))
            tt__doorbell_ring(group->native->world->peers[group->ranks[r]].control);
    }
}

void tt__ring_announced(const tt_group *group) {
    for (int r = 0; r < group->size; r++)
        if (r != group->rank && atomic_load_explicit(&group->native->areas[r]->waits_for, memory_order_relaxed))
            tt__doorbell_ring(group->native->world->peers[group->ranks[r]].control);
}

/* ---- announcing sleep */

void tt__announce_sleep(const tt_group *group, int r) {
    atomic_store_explicit(&group->native->areas[group->rank]->waits_for, (uint32_t)r + 1, memory_order_relaxed);
}

/* Withdraw the announcement; written only if there is one, since peers read the line in each call. */
void tt__withdraw_sleep(const tt_group *group) {
    tt__area *own = group->native->areas[group->rank];
    if (atomic_load_explicit(&own->waits_for, memory_order_relaxed))
        atomic_store_explicit(&own->waits_for, 0, memory_order_relaxed);
}

void tt__sleep_begin(tt__world *world) {
    world->sleepers++;
    atomic_fetch_add_explicit(&tt__world_control(world)->sleepers, 1, memory_order_relaxed);
    for (tt_group *group = world->groups; group; group = group->native->next_group)
        if (group->native->shared && atomic_load_explicit(&group->works, memory_order_relaxed))
            atomic_store_explicit(&group->native->areas[group->rank]->waits_for, TT__ANYONE, memory_order_relaxed);
    full_fence();
}

/* End a sleep. Groups without works are left alone: a thread without the lock may use one, and sleep for a rank of its
 * choice. */
void tt__sleep_end(tt__world *world) {
    atomic_fetch_sub_explicit(&tt__world_control(world)->sleepers, 1, memory_order_relaxed);
    if (--world->sleepers)
        return;
    for (tt_group *group = world->groups; group; group = group->native->next_group) {
        uint32_t anyone = TT__ANYONE;
        if (group->native->shared)
            atomic_compare_exchange_strong(&group->native->areas[group->rank]->waits_for, &anyone, 0);
    }
}
