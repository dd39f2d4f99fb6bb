/* Waiting for peers: first a busy wait, if the ranks have a CPU each; then yielding the CPU; then sleep on this
 * process's doorbell (shared/doorbell.h). A sleeper checks every now and then that the ranks it waits for are alive,
 * and in between advances the process's other works: ranks that wait for those may be the ones it waits for. */
#include "comm/native/native.h"

#include "base/machine/clock.h"
#include "comm/shared/arrival.h"
#include "comm/shared/doorbell.h"
#include "comm/watch/verdicts.h"

#include <sched.h>

/* Sleep is announced long before it begins: see shared/doorbell.h. */
static const int64_t SPIN_NS = 20000, ANNOUNCE_NS = 500000, YIELD_NS = 1000000;
enum { LOOKS_PER_CLOCK = 40 }; /* enough that reading the clock costs little in comparison */

/* ---- what all waits share */

typedef enum patience { SPIN, YIELD, SLEEP } patience;

/* Choose how to wait after having waited `waited_ns`. */
static patience patience_after(bool may_spin, int64_t waited_ns) {
    if (may_spin && waited_ns < SPIN_NS)
        return SPIN;
    return waited_ns < YIELD_NS ? YIELD : SLEEP;
}

/* Ask the watchers for their verdict, and fail the group if they say so. The lock is held. */
static tt_status look_and_judge(tt_work *work) {
    tt_group *culprit = NULL;
    if (tt__top_group(work->group)->native->asking || work->group->native->asking)
        return TT_OK; /* another thread finds out why it fails */
    switch (tt__look_closely(work, &culprit)) {
    case TT__LOOK_FAILS:
        return tt__group_fail(culprit);
    case TT__LOOK_FAILED:
        return work->group->failed;
    default:
        return TT_OK;
    }
}

static int64_t nap_ms(const tt_work *work) {
    int64_t left = work->deadline_ms - tt__now_ms();
    return left < 1 ? 1 : left < TT__LOOK_MS ? left : TT__LOOK_MS;
}

/* ---- a call that runs alone */

static bool is_member(const tt_group *group, int r) {
    return atomic_load_explicit(&group->native->areas[r]->state, memory_order_acquire) == TT__MEMBER;
}

static void sleep_alone(tt_work *work) {
    tt_group *group = work->group;
    tt__world *world = group->native->world;
    int whom = work->wait.next;
    uint32_t bell = tt__doorbell_count(tt__world_control(world));
    tt__announce_sleep(group, whom);
    tt__sleep_begin(world);
    tt__world_progress(world);
    if (!tt__ready(group, &work->wait) && work->wait.next == whom && is_member(group, whom) &&
        is_member(group, group->rank)) {
        tt__world_unlock(world);
        tt__doorbell_sleep(tt__world_control(world), bell, nap_ms(work));
        tt__world_lock(world);
    }
    tt__sleep_end(world);
}

static tt_status wait_asleep(tt_work *work) {
    tt__world *world = work->group->native->world;
    tt_status status = TT_OK;
    tt__world_lock(world);
    while (!status && !tt__ready(work->group, &work->wait)) {
        status = look_and_judge(work);
        if (!status)
            sleep_alone(work);
    }
    tt__note_going_on(world);
    tt__world_unlock(world);
    return status;
}

/* Wait for longer than a moment. */
static tt_status wait_patiently(tt_work *work) {
    tt_group *group = work->group;
    bool announced = false;
    int64_t start = tt__now_ns();
    if (!work->deadline_ms)
        work->deadline_ms = tt__deadline_ms(work->call.timeout_ms);
    for (;;) {
        int64_t waited = tt__now_ns() - start;
        switch (patience_after(group->native->spin, waited)) {
        case SPIN:
            if (tt__spin(group, &work->wait, LOOKS_PER_CLOCK))
                return TT_OK;
            break;
        case YIELD:
            sched_yield();
            if (tt__ready(group, &work->wait))
                return TT_OK;
            if (!announced && waited > ANNOUNCE_NS)
                tt__announce_sleep(group, work->wait.next);
            announced = waited > ANNOUNCE_NS;
            break;
        default:
            return wait_asleep(work);
        }
    }
}

tt_status tt__wait_alone(tt_work *work) {
    tt_group *group = work->group;
    tt__wake_peers(group);
    if (group->native->spin && tt__spin(group, &work->wait, LOOKS_PER_CLOCK))
        return TT_OK;
    tt_status status = wait_patiently(work);
    tt__withdraw_sleep(group);
    return status;
}

/* ---- works in queues */

/* Can only messages over links that have a descriptor end the wait? */
static bool waits_for_links_only(const tt__world *world) {
    if (!world->threaded)
        return false;
    for (const tt_group *group = world->groups; group; group = group->native->next_group)
        if (group->native->shared && atomic_load_explicit(&group->works, memory_order_relaxed))
            return false;
    return true;
}

static void sleep_queued(tt_work *work) {
    tt__world *world = work->group->native->world;
    uint32_t bell = tt__doorbell_count(tt__world_control(world)), count = world->progress_count;
    tt__sleep_begin(world);
    tt__world_progress(world);
    if (work->phase != TT__DONE && world->progress_count == count) {
        if (waits_for_links_only(world)) {
            tt__messages_wait(world->messages, nap_ms(work));
        } else {
            tt__world_unlock(world);
            tt__doorbell_sleep(tt__world_control(world), bell, nap_ms(work));
            tt__world_lock(world);
        }
    }
    tt__sleep_end(world);
}

static void give_way(tt__world *world) {
    tt__world_unlock(world);
    sched_yield();
    tt__world_lock(world);
}

/* Count this thread among the work's waiters: it stays even if its owner forgets it. True: another thread uses the
 * group. */
static bool wait_begin(tt_work *work) {
    bool elsewhere = atomic_load_explicit(&work->group->native->user, memory_order_relaxed) != tt__this_thread();
    work->waiters++;
    work->waiter = tt__this_thread();
    work->group->native->world->elsewhere += elsewhere;
    return elsewhere;
}

static void wait_end(tt_work *work, bool elsewhere) {
    work->group->native->world->elsewhere -= elsewhere;
    work->waiters--;
    tt__work_let_go(work);
}

void tt__wait_done(tt_work *work, int64_t until_ms) {
    tt__world *world = work->group->native->world;
    bool announced = false, elsewhere = wait_begin(work);
    int64_t start = tt__now_ns(), looked = start;
    for (;;) {
        uint32_t count = world->progress_count;
        tt__world_progress(world);
        if (work->phase == TT__DONE)
            break;
        int64_t now = tt__now_ns();
        if (world->progress_count != count)
            start = now;
        if (!announced && now - start > ANNOUNCE_NS) {
            tt__sleep_begin(world);
            announced = true;
        }
        patience how = patience_after(work->group->native->spin, now - start);
        bool moves_for_others = how != SLEEP && now - looked >= YIELD_NS;
        if (how == SLEEP || moves_for_others) {
            looked = now;
            look_and_judge(work);
        }
        if (how == SPIN && !moves_for_others)
            tt__pause_cpu();
        else if (how != SLEEP)
            give_way(world);
        else if (now / 1000000 >= until_ms)
            break;
        else if (work->phase != TT__DONE)
            sleep_queued(work);
    }
    if (announced)
        tt__sleep_end(world);
    tt__note_going_on(world);
    wait_end(work, elsewhere);
}

void tt__look_after(tt_work *work) {
    tt__world *world = work->group->native->world;
    tt__world_lock(world);
    if (work->phase != TT__DONE)
        look_and_judge(work);
    if (work->phase == TT__DONE)
        tt__note_going_on(world);
    tt__world_unlock(world);
}
