/* Waiting for peers.
 *
 * First a busy wait, if the ranks have a CPU each; then yielding the CPU; then sleep on the own doorbell, a futex in shared memory.
 * A sleeper writes whom it waits for, then looks once more; who publishes something writes it, then looks who sleeps for it. With a full
 * fence between the two on both sides, one of them sees the other. Only the rank that is waited for rings, so that N ranks are
 * not woken N times in a barrier; a sleeper that has works under way elsewhere is woken by anyone's news. Every 50 ms a sleeper looks whether those it
 * waits for still live, and in between advances what it can of the process's other works: whoever waits for them may be waited for here.
 *
 * A fence waits until all stores before it have reached the peers, which is most of what a small call costs. So waiters announce their sleep long
 * before it, ANNOUNCE_NS after the wait began, and until the wait is over. Who publishes, and then sees no announcement, published so long before the sleeper
 * looks for the last time that it need not fence (all_reduce_at_once.c); who sees one, rings. */
#include "base/clock.h"
#include "base/error.h"
#include "comm/group.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static const int64_t SPIN_NS = 20000, ANNOUNCE_NS = 500000, YIELD_NS = 1000000;
enum {
    CHECK_MS = 50,
    GRACE_MS = 500, /* of a work whose peers have all done their part */
    SPINS_PER_LOOK = 32
};

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
    const tt__area *area = group->areas[r];
    if (wait->what == TT__ARRIVAL)
        return (uint32_t)atomic_load_explicit(&area->slots[wait->target & 1].word, memory_order_acquire) ==
               wait->target;
    return (int32_t)(atomic_load_explicit(&area->step, memory_order_acquire) - wait->target) >= 0;
}

bool tt__ready(const tt_group *group, tt__wait *wait) {
    while (wait->next < wait->end && tt__ready_rank(group, wait, wait->next))
        wait->next++;
    return wait->next == wait->end;
}

void tt__doorbell_ring(tt__control *control) {
    atomic_fetch_add_explicit(&control->doorbell, 1, memory_order_release);
    futex(&control->doorbell, FUTEX_WAKE, INT_MAX, NULL);
}

void tt__ring_peers(const tt_group *group) {
    full_fence();
    uint32_t me = (uint32_t)group->rank + 1;
    const tt__area *own = group->areas[group->rank];
    bool gone = own && atomic_load_explicit(&own->state, memory_order_relaxed) != TT__MEMBER;
    for (int r = 0; r < group->size; r++) {
        const tt__area *area = group->areas[r];
        uint32_t waits_for = area ? atomic_load_explicit(&area->waits_for, memory_order_relaxed) : 0;
        if (waits_for == me || waits_for == TT__ANYONE || (gone && waits_for))
            tt__doorbell_ring(group->world->peers[group->ranks[r]].control);
    }
}

void tt__wake_all(tt_group *group) {
    for (int r = 0; r < group->size; r++)
        if (r != group->rank && atomic_load_explicit(&group->areas[r]->waits_for, memory_order_relaxed))
            tt__doorbell_ring(group->world->peers[group->ranks[r]].control);
}

/* ---- slowly */

/* What holds the work up: itself, one before it in the queue, or a call on an inner group. */
static tt_work *blocking(tt_work *work) {
    if (work->phase == TT__QUEUED && work->group->queue)
        work = work->group->queue;
    return work->phase == TT__RUNNING && work->wait.what == TT__CHILD && work->child ? blocking(work->child) : work;
}

static tt_status fail_timeout(const tt_work *work, const tt__rankset *missing, int64_t timeout_ms) {
    char ranks[256], call[256], name[192];
    tt__rankset job = tt__job_ranks(work->group, missing);
    tt__work_text(work, call, sizeof call);
    if (!tt__rankset_count(&job))
        snprintf(ranks, sizeof ranks, "rank %d", work->group->world->rank);
    else
        tt__rankset_text(&job, ranks, sizeof ranks);
    if (work->call.op == TT_OP_SEND || work->call.op == TT_OP_RECV)
        return tt__fail(TT_ERR_TIMEOUT, "%s did not %s %s of rank %d within %lld ms", ranks,
                        work->call.op == TT_OP_SEND ? "receive" : "send anything for", call, work->group->world->rank,
                        (long long)work->call.timeout_ms);
    return tt__fail(TT_ERR_TIMEOUT, "%s did not %s %s within %lld ms (call %u of %s)", ranks,
                    work->wait.what == TT__ARRIVAL ? "come to" : "finish", call, (long long)timeout_ms, work->seq,
                    tt__group_text(work->group, name, sizeof name));
}

/* For those who look from outside: whom this process waits for. */
static void note_waiting(const tt_work *work, const tt__rankset *missing) {
    int whom = tt__rankset_next(missing, 0);
    tt__world *world = work->group->world;
    tt__recorder *recorder = &tt__world_control(world)->recorder;
    const tt_work *top = work;
    if (whom < 0)
        return;
    whom = work->group->ranks[whom];
    while (top->parent)
        top = top->parent;
    bool several_threads = !tt__one_thread(world);
    if (several_threads && world->hosts > 1)
        whom = TT_ANY_SOURCE; /* all that other hosts learn */
    tt__recorder_wait(recorder, &(tt__waiting){.group = top->group->id,
                                               .seq = top->seq,
                                               .whom = whom,
                                               .since = top->record ? top->record->begin : tt__ticks(),
                                               .record = top->record_number,
                                               .word = top->word,
                                               .several_threads = several_threads});
    tt__recorder_log_wait(recorder);
    if (world->threaded)
        tt__announce_waiting(world->messages);
}

static void note_going_on(tt__world *world) {
    tt__recorder *recorder = &tt__world_control(world)->recorder;
    if (!recorder->waiting.since)
        return;
    tt__recorder_wait(recorder, &(tt__waiting){.since = 0});
    if (world->threaded)
        tt__announce_waiting(world->messages);
}

/* Errors before readiness is looked at again: a rank that did its part and then left is none. The lock is held; on an error, the group failed. */
static tt_status look_closely(tt_work *waiter) {
    tt_group *group = waiter->group;
    tt__world *world = group->world;
    if (group->failed)
        return tt__fail(group->failed, "%s", group->failure_text);
    tt_work *work = blocking(waiter);
    const tt_work *first = work->deadline_ms < waiter->deadline_ms ? work : waiter;
    int64_t now = tt__now_ms();
    bool processes = now - waiter->looked_ms >= CHECK_MS;
    tt__rankset missing = {0};
    tt_status status =
        work->phase == TT__PUBLISHED && tt__disagrees(work->group, work->wait.target) ? tt__agree(work) : TT_OK;
    if (!status)
        status = tt__check_peers(work, processes);
    if (processes)
        world->last_check_ms = waiter->looked_ms = now;
    tt__work_waits_for(work, &missing);
    if (processes && !status) {
        note_waiting(work, &missing);
        tt__look_at_calls(work);
        status = tt__check_deadlock(world);
        if (group->failed)
            return group->failed;
    }
    if (!status && now >= first->deadline_ms + (tt__rankset_count(&missing) ? 0 : GRACE_MS))
        status = work->algorithm && work->algorithm->expire && work->algorithm->expire(work)
                     ? TT_OK
                     : fail_timeout(work, &missing, first->call.timeout_ms);
    return status ? tt__group_fail(work->group) : TT_OK;
}

/* From here on, news in any group with works wake this process. */
static void begin_sleep(tt__world *world) {
    world->sleepers++;
    atomic_fetch_add_explicit(&tt__world_control(world)->sleepers, 1, memory_order_relaxed);
    for (tt_group *group = world->groups; group; group = group->next_group)
        if (group->shared && atomic_load_explicit(&group->works, memory_order_relaxed))
            atomic_store_explicit(&group->areas[group->rank]->waits_for, TT__ANYONE, memory_order_relaxed);
    full_fence();
}

/* A group without works may be used by a thread without the lock, which sleeps for a rank of its choice. */
static void end_sleep(tt__world *world) {
    atomic_fetch_sub_explicit(&tt__world_control(world)->sleepers, 1, memory_order_relaxed);
    if (--world->sleepers)
        return;
    for (tt_group *group = world->groups; group; group = group->next_group) {
        uint32_t anyone = TT__ANYONE;
        if (group->shared)
            atomic_compare_exchange_strong(&group->areas[group->rank]->waits_for, &anyone, 0);
    }
}

static void sleep_on_doorbell(tt__world *world, uint32_t bell, int64_t ms) {
    futex(&tt__world_control(world)->doorbell, FUTEX_WAIT, bell, &(struct timespec){.tv_nsec = (long)ms * 1000000});
}

static int64_t nap_ms(const tt_work *work) {
    int64_t left = work->deadline_ms - tt__now_ms();
    return left < 1 ? 1 : left < CHECK_MS ? left : CHECK_MS;
}

/* ---- a call that runs alone */

static bool is_member(const tt_group *group, int r) {
    return atomic_load_explicit(&group->areas[r]->state, memory_order_acquire) == TT__MEMBER;
}

/* News of the rank that is waited for shall wake this one. Stays until the wait is over. */
static void announce_sleep(const tt_work *work) {
    const tt_group *group = work->group;
    atomic_store_explicit(&group->areas[group->rank]->waits_for, (uint32_t)work->wait.next + 1, memory_order_relaxed);
}

/* Written only if need be: peers read the line in each call. */
static void withdraw_announcement(const tt_group *group) {
    tt__area *own = group->areas[group->rank];
    if (atomic_load_explicit(&own->waits_for, memory_order_relaxed))
        atomic_store_explicit(&own->waits_for, 0, memory_order_relaxed);
}

static void sleep_alone(tt_work *work) {
    tt_group *group = work->group;
    tt__world *world = group->world;
    int whom = work->wait.next;
    uint32_t bell = atomic_load_explicit(&tt__world_control(world)->doorbell, memory_order_acquire);
    announce_sleep(work);
    begin_sleep(world);
    tt__world_progress(world);
    if (!tt__ready(group, &work->wait) && work->wait.next == whom && is_member(group, whom) &&
        is_member(group, group->rank)) {
        tt__world_unlock(world);
        sleep_on_doorbell(world, bell, nap_ms(work));
        tt__world_lock(world);
    }
    end_sleep(world);
}

static tt_status wait_asleep(tt_work *work) {
    tt__world *world = work->group->world;
    tt_status status = TT_OK;
    tt__world_lock(world);
    while (!status && !tt__ready(work->group, &work->wait)) {
        status = look_closely(work);
        if (!status)
            sleep_alone(work);
    }
    note_going_on(world);
    tt__world_unlock(world);
    return status;
}

tt_status tt__wait_alone(tt_work *work) {
    tt_group *group = work->group;
    bool ready = tt__ready(group, &work->wait);
    tt__wake_peers(group);
    if (ready)
        return TT_OK;
    for (int i = 0; group->spin && i < SPINS_PER_LOOK; i++) {
        if (tt__ready(group, &work->wait))
            return TT_OK;
        pause_cpu();
    }
    bool announced = false;
    int64_t start = tt__now_ns();
    if (!work->deadline_ms)
        work->deadline_ms = tt__deadline_ms(work->call.timeout_ms);
    while (group->spin && tt__now_ns() - start < SPIN_NS)
        for (int i = 0; i < SPINS_PER_LOOK; i++) {
            if (tt__ready(group, &work->wait))
                return TT_OK;
            pause_cpu();
        }
    while (tt__now_ns() - start < YIELD_NS) {
        sched_yield();
        if (tt__ready(group, &work->wait))
            break;
        if (!announced && tt__now_ns() - start > ANNOUNCE_NS) {
            announce_sleep(work);
            announced = true;
        }
    }
    tt_status status = tt__ready(group, &work->wait) ? TT_OK : wait_asleep(work);
    withdraw_announcement(group);
    return status;
}

/* ---- works in queues */

/* Only messages over links that a descriptor tells of can end the wait. */
static bool waits_for_links_only(const tt__world *world) {
    if (!world->threaded)
        return false;
    for (const tt_group *group = world->groups; group; group = group->next_group)
        if (group->shared && atomic_load_explicit(&group->works, memory_order_relaxed))
            return false;
    return true;
}

static void sleep_queued(tt_work *work) {
    tt__world *world = work->group->world;
    uint32_t bell = atomic_load_explicit(&tt__world_control(world)->doorbell, memory_order_acquire),
             moves = world->moves;
    begin_sleep(world);
    tt__world_progress(world);
    if (work->phase != TT__DONE && world->moves == moves) {
        if (waits_for_links_only(world)) {
            tt__messages_wait(world->messages, nap_ms(work));
        } else {
            tt__world_unlock(world);
            sleep_on_doorbell(world, bell, nap_ms(work));
            tt__world_lock(world);
        }
    }
    end_sleep(world);
}

static void give_way(tt__world *world) {
    tt__world_unlock(world);
    sched_yield();
    tt__world_lock(world);
}

void tt__wait_done(tt_work *work) {
    tt__world *world = work->group->world;
    bool spin = work->group->spin;
    bool announced = false;
    int64_t start = tt__now_ns(), looked = start, now;
    for (;;) {
        uint32_t moves = world->moves;
        tt__world_progress(world);
        if (work->phase == TT__DONE)
            break;
        now = tt__now_ns();
        if (world->moves != moves)
            start = now;
        if (!announced && now - start > ANNOUNCE_NS) {
            begin_sleep(world);
            announced = true;
        }
        if (now - looked >= YIELD_NS && now - start < YIELD_NS) { /* something moves all the time, perhaps not for us */
            looked = now;
            look_closely(work);
            give_way(world);
        } else if (spin && now - start < SPIN_NS) {
            pause_cpu();
        } else if (now - start < YIELD_NS) {
            give_way(world);
        } else {
            look_closely(work);
            if (work->phase != TT__DONE)
                sleep_queued(work);
        }
    }
    if (announced)
        end_sleep(world);
    note_going_on(world);
}

void tt__look_after(tt_work *work) {
    tt__world *world = work->group->world;
    tt__world_lock(world);
    if (work->phase != TT__DONE)
        look_closely(work);
    if (work->phase == TT__DONE)
        note_going_on(world);
    tt__world_unlock(world);
}

/* ---- steps */

uint32_t tt__plan_steps(tt_group *group, uint32_t n) {
    uint32_t before = group->step;
    group->step += n;
    return before;
}

void tt__finish_step(tt_group *group, uint32_t step) {
    atomic_store_explicit(&group->areas[group->rank]->step, step, memory_order_release);
    group->unrung = true;
}

bool tt__ranks_fit_cpus(const tt_group *group) {
    uint64_t all[TT__CPU_MASK_WORDS] = {0};
    uint32_t least_quota = UINT32_MAX, cpus = 0, ranks = 0;
    for (int r = 0; r < group->size; r++) {
        const tt__control *control = group->world->peers[group->ranks[r]].control;
        uint32_t own = 0;
        if (!control)
            continue;
        ranks++;
        for (int w = 0; w < TT__CPU_MASK_WORDS; w++) {
            all[w] |= control->cpu_mask[w];
            own += (uint32_t)__builtin_popcountll(control->cpu_mask[w]);
        }
        if (control->cpu_quota < own && control->cpu_quota < least_quota)
            least_quota = control->cpu_quota;
    }
    for (int w = 0; w < TT__CPU_MASK_WORDS; w++)
        cpus += (uint32_t)__builtin_popcountll(all[w]);
    return ranks <= (cpus < least_quota ? cpus : least_quota);
}
