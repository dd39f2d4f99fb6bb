/* Waiting for peers.
 *
 * First a busy wait, if the ranks have a CPU each; then yielding the CPU; then sleep on the own doorbell, a futex in shared memory.
 * A sleeper writes whom it waits for, then looks once more; who publishes something writes it, then looks who sleeps for it. With a full
 * fence between the two on both sides, one of them sees the other. Only the rank that is waited for rings, so that N ranks are
 * not woken N times in a barrier. Every 50 ms a sleeper looks whether those it waits for still live. */
#include "base/clock.h"
#include "base/error.h"
#include "comm/group.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

static const int64_t SPIN_NS = 20000, YIELD_NS = 1000000;
enum { CHECK_MS = 50, SPINS_PER_LOOK = 32 };

static void pause_cpu(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* A full fence; atomic_thread_fence() is not known to ThreadSanitizer. */
static void full_fence(void) { __sync_synchronize(); }

static void futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *timeout) {
    syscall(SYS_futex, word, op, value, timeout, NULL, 0);
}

bool tt__ready_rank(const tt_group *group, const tt__wait *wait, int r) {
    const tt__control *control = group->peers[r].control;
    if (wait->what == TT__ARRIVAL)
        return (uint32_t)atomic_load_explicit(&control->slots[wait->target & 1].word, memory_order_acquire) ==
               wait->target;
    return (int32_t)(atomic_load_explicit(&control->step, memory_order_acquire) - wait->target) >= 0;
}

bool tt__ready(const tt_group *group, tt__wait *wait) {
    while (wait->next < wait->end && tt__ready_rank(group, wait, wait->next))
        wait->next++;
    return wait->next == wait->end;
}

static void wake(tt__control *sleeper) {
    atomic_fetch_add_explicit(&sleeper->doorbell, 1, memory_order_release);
    futex(&sleeper->doorbell, FUTEX_WAKE, INT_MAX, NULL);
}

void tt__ring(tt_group *group) {
    if (!group->unrung)
        return;
    group->unrung = false;
    full_fence();
    uint32_t me = (uint32_t)group->rank + 1;
    bool gone = atomic_load_explicit(&group->peers[group->rank].control->state, memory_order_relaxed) != TT__MEMBER;
    for (int r = 0; r < group->world; r++) {
        tt__control *peer = group->peers[r].control;
        uint32_t waits_for = atomic_load_explicit(&peer->waits_for, memory_order_relaxed);
        if (waits_for == me || (gone && waits_for))
            wake(peer);
    }
}

static void sleep_on_doorbell(const tt_group *group, tt__wait *wait, int64_t ms) {
    tt__control *self = group->peers[group->rank].control;
    int whom = wait->next;
    uint32_t bell = atomic_load_explicit(&self->doorbell, memory_order_acquire);
    atomic_store_explicit(&self->waits_for, (uint32_t)whom + 1, memory_order_relaxed);
    full_fence();
    if (!tt__ready(group, wait) && wait->next == whom &&
        atomic_load_explicit(&group->peers[whom].control->state, memory_order_acquire) == TT__MEMBER)
        futex(&self->doorbell, FUTEX_WAIT, bell, &(struct timespec){.tv_nsec = (long)ms * 1000000});
    atomic_store_explicit(&self->waits_for, 0, memory_order_relaxed);
}

static tt_status fail_timeout(tt_group *group, const tt__wait *wait, int64_t waited_ms) {
    uint64_t missing = 0;
    for (int r = wait->next; r < wait->end; r++)
        if (!tt__ready_rank(group, wait, r))
            missing |= UINT64_C(1) << r;
    char ranks[128], call[256];
    if (!missing)
        return TT_OK;
    tt__ranks_text(missing, ranks, sizeof ranks);
    tt__call_text(group, group->rank, group->seq, call, sizeof call);
    return tt__fail(TT_ERR_TIMEOUT, "%s did not %s %s within %lld ms (call %u of the group)", ranks,
                    wait->what == TT__ARRIVAL ? "come to" : "finish", call, (long long)waited_ms, group->seq);
}

/* Errors before readiness is looked at again: a rank that did its part and then left is none. */
static tt_status look_closely(tt_group *group, tt__wait *wait, int64_t start_ms) {
    int64_t now = tt__now_ms();
    bool processes = now - group->last_check_ms >= CHECK_MS;
    if (wait->what == TT__ARRIVAL && tt__disagrees(group, wait->target)) {
        bool symmetric;
        return tt__agree(group, wait->target, &symmetric);
    }
    tt_status status = tt__check_peers(group, wait, processes);
    if (processes)
        group->last_check_ms = now;
    if (!status && now - start_ms >= group->timeout_ms)
        status = fail_timeout(group, wait, now - start_ms);
    return status ? tt__group_fail(group) : TT_OK;
}

static tt_status wait_asleep(tt_group *group, tt__wait *wait, int64_t start_ms) {
    while (!tt__ready(group, wait)) {
        TT__TRY(look_closely(group, wait, start_ms));
        int64_t left = group->timeout_ms - (tt__now_ms() - start_ms);
        sleep_on_doorbell(group, wait, left < 1 ? 1 : left < CHECK_MS ? left : CHECK_MS);
    }
    return TT_OK;
}

tt_status tt__wait_for(tt_group *group, tt__wait *wait) {
    bool ready = tt__ready(group, wait);
    tt__ring(group);
    if (ready)
        return TT_OK;
    for (int i = 0; group->spin && i < SPINS_PER_LOOK; i++) {
        if (tt__ready(group, wait))
            return TT_OK;
        pause_cpu();
    }
    int64_t start = tt__now_ns();
    while (group->spin && tt__now_ns() - start < SPIN_NS)
        for (int i = 0; i < SPINS_PER_LOOK; i++) {
            if (tt__ready(group, wait))
                return TT_OK;
            pause_cpu();
        }
    while (tt__now_ns() - start < YIELD_NS) {
        sched_yield();
        if (tt__ready(group, wait))
            return TT_OK;
    }
    return wait_asleep(group, wait, start / 1000000);
}

tt_status tt__wait_arrivals(tt_group *group, uint32_t seq) {
    return tt__wait_for(group, &(tt__wait){TT__ARRIVAL, seq, 0, group->world});
}

tt_status tt__wait_steps(tt_group *group, uint32_t step) {
    return tt__wait_for(group, &(tt__wait){TT__STEP, step, 0, group->world});
}

uint32_t tt__plan_steps(tt_group *group, uint32_t n) {
    uint32_t before = group->step;
    group->step += n;
    return before;
}

void tt__finish_step(tt_group *group, uint32_t step) {
    atomic_store_explicit(&group->peers[group->rank].control->step, step, memory_order_release);
    group->unrung = true;
}

bool tt__ranks_fit_cpus(const tt_group *group) {
    uint64_t all[TT__CPU_MASK_WORDS] = {0};
    uint32_t least_quota = UINT32_MAX, cpus = 0;
    for (int r = 0; r < group->world; r++) {
        const tt__control *control = group->peers[r].control;
        uint32_t own = 0;
        for (int w = 0; w < TT__CPU_MASK_WORDS; w++) {
            all[w] |= control->cpu_mask[w];
            own += (uint32_t)__builtin_popcountll(control->cpu_mask[w]);
        }
        if (control->cpu_quota < own && control->cpu_quota < least_quota)
            least_quota = control->cpu_quota;
    }
    for (int w = 0; w < TT__CPU_MASK_WORDS; w++)
        cpus += (uint32_t)__builtin_popcountll(all[w]);
    return (uint32_t)group->world <= (cpus < least_quota ? cpus : least_quota);
}
