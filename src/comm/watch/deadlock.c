/* Disagreement across groups: rank 0 waits for rank 1 in one group, while rank 1 waits for rank 0 in another.
 *
 * Every process that waits for longer than a moment publishes the rank it waits for, and in which call (recorder.h). A
 * waiting rank follows the chain: the rank it waits for, the rank that one waits for, and so on. An edge of this chain
 * is *firm* if its target has not made the call in question: the target waits itself, so it can't make the call now. If
 * the target has made the call and waits in it for another rank, the edge may hold, but what is waited for may also be
 * on its way. A circle with a firm edge never ends. It must be seen twice, some time apart, since the states of several
 * processes are not read at one moment.
 *
 * The target's other threads go on. So an edge is firm only if the waiting thread is the one that makes the calls on
 * that group: the one that made the last. Each process publishes this thread for its groups. For a group that was never
 * used it may be any thread, if there are others than the one that waits. If a thread waits for a work of a group that
 * another thread uses, the group counts as free for calls. */
#include "comm/watch/verdicts.h"

#include "base/error.h"
#include "base/machine/clock.h"
#include "base/process/threads.h"

#include <stdio.h>

enum { STABLE_MS = 100, ASK_MS = 200, TEXT_EDGES = 4 };

/* Rank `from` waits for `to` in call `seq` of `group`. Small, since a chain lies on the stack: steps allocate
 * nothing. */
typedef struct edge {
    int16_t from, to;
    uint32_t group, seq, record;
    uint32_t thread; /* of `from`, the one that waits, as in tt__waiting; 0: on another host, which is asked */
} edge;

typedef struct chain {
    edge edges[TT__MAX_RANKS];
    int count;
    int circle; /* the first edge of the circle */
} chain;

/* ---- one's own threads */

/* Which thread makes the calls on the group, by tt__thread_mark()? 0: any may. */
static uint32_t user_of(const tt_group *group, bool alone) {
    uintptr_t user = atomic_load_explicit(&group->native->user, memory_order_relaxed);
    return user ? tt__thread_mark(user) : alone ? tt__thread_mark(tt__this_thread()) : 0;
}

void tt__note_users(tt__world *world) {
    bool unused = false;
    for (const tt_group *group = world->groups; group; group = group->native->next_group)
        unused |= !group->native->parent && !atomic_load_explicit(&group->native->user, memory_order_relaxed);
    bool alone = unused && tt__program_threads() <= 1;
    for (const tt_group *group = world->groups; group; group = group->native->next_group)
        if (!group->native->parent)
            tt__recorder_note_user(&tt__world_control(world)->recorder, group->id, user_of(group, alone));
}

/* Does rank `r` of this host wait in `thread`, and make the calls on the group there? */
static bool is_stuck(const tt__world *world, int r, uint32_t thread, uint32_t group) {
    return thread && tt__recorder_group_user(&world->peers[r].control->recorder, group) == thread;
}

bool tt__may_call(const tt__world *world, uint32_t group) {
    tt__waiting waiting;
    return !tt__recorder_waiting(&tt__world_control(world)->recorder, &waiting) ||
           !is_stuck(world, world->rank, waiting.thread, group);
}

/* ---- edges */

static bool edge_from(const tt__world *world, int from, edge *out) {
    const tt__control *control = world->peers[from].control;
    tt__waiting waiting = {.whom = -1};
    bool waits;
    if (control)
        waits = tt__recorder_waiting(&control->recorder, &waiting) && waiting.thread;
    else
        waits = world->messages &&
                tt__remote_waiting(world->messages, from, &waiting.group, &waiting.seq, &waiting.whom, &waiting.record);
    if (!waits || !waiting.seq || waiting.whom < 0 || waiting.whom >= world->size)
        return false;
    *out = (edge){(int16_t)from, (int16_t)waiting.whom, waiting.group, waiting.seq, waiting.record, waiting.thread};
    return true;
}

/* Has the rank made the call, by its recorder, which also shows queued calls? */
static bool has_called(const tt__recorder *recorder, const edge *e) {
    tt__call_record record;
    for (uint32_t i = 0; i < TT__RECORDS; i++) {
        uint32_t number = atomic_load_explicit(&recorder->records[i].number, memory_order_relaxed);
        if (!number || !tt__record_read(recorder, number, &record) || record.group != e->group)
            continue;
        if ((record.seq && (int32_t)(record.seq - e->seq) >= 0) || record.state == TT__CALL_QUEUED)
            return true;
    }
    return false;
}

/* Will the target never make the call? `thread`: its thread that waits. */
static bool is_firm(tt__world *world, const edge *e, uint32_t thread) {
    const tt__control *control = world->peers[e->to].control;
    if (control)
        return is_stuck(world, e->to, thread, e->group) && !has_called(&control->recorder, e);
    return !tt__link_check(world->messages, e->to) &&
           tt__ask_not_called(world->messages, e->to, e->group, e->seq, ASK_MS);
}

static bool in_same_call(const edge *a, const edge *b) { return a->group == b->group && a->seq == b->seq; }

/* Follow the chain from this rank until it closes; false if it doesn't, or does not hold. */
static bool follow_chain(tt__world *world, chain *c) {
    int16_t place[TT__MAX_RANKS];
    for (int r = 0; r < world->size; r++)
        place[r] = -1;
    c->count = 0;
    for (int at = world->rank; place[at] < 0;) {
        edge *e = &c->edges[c->count];
        if (!edge_from(world, at, e))
            return false;
        place[at] = (int16_t)c->count++;
        at = e->to;
        c->circle = place[at];
    }
    bool firm = false;
    for (int i = 0; i < c->count; i++) {
        const edge *next = &c->edges[place[c->edges[i].to]];
        if (in_same_call(&c->edges[i], next))
            continue;
        if (!is_firm(world, &c->edges[i], next->thread))
            return false;
        firm |= i >= c->circle;
    }
    return firm;
}

static uint64_t hash_of(const chain *c) {
    uint64_t h = (uint64_t)c->count;
    for (int i = 0; i < c->count; i++) {
        const edge *e = &c->edges[i];
        h = (h ^ (uint64_t)e->from ^ (uint64_t)e->group << 32) * UINT64_C(0xd6e8feb86659fd93);
        h = (h ^ e->record ^ (uint64_t)e->seq << 32 ^ (uint64_t)e->to << 16) * UINT64_C(0x9e3779b97f4a7c15);
    }
    return h | 1;
}

/* ---- text */

/* *number: the call's, if its record still exists. */
static void edge_call_text(tt__world *world, const edge *e, uint32_t *number, char *text, size_t size) {
    const tt__control *control = world->peers[e->from].control;
    tt__call_record record;
    uint32_t word;
    if (control && tt__record_read(&control->recorder, e->record, &record)) {
        *number = record.call;
        tt__record_text(&control->recorder, &record, text, size);
    } else if (control || !tt__ask_call(world->messages, e->from, e->group, e->seq, text, size, &word, ASK_MS))
        snprintf(text, size, "a call that it does not tell");
}

/* "rank 0 waits for rank 1 in call 5 of group 0-3, all_reduce(...) at a.c:10" */
static size_t name_edge(tt__world *world, const edge *e, char *text, size_t size) {
    const tt__control *control = world->peers[e->from].control;
    const tt_group *mine = tt__find_group(world, e->group);
    uint32_t number = mine ? tt__call_number(mine, e->seq) : e->seq;
    char call[256], ranks[160];
    if (mine)
        tt__group_list(mine, ranks, sizeof ranks);
    else
        snprintf(ranks, sizeof ranks, "%s", control ? tt__recorder_group_ranks(&control->recorder, e->group) : "?");
    edge_call_text(world, e, &number, call, sizeof call); /* releases the lock: `mine` may be freed */
    int n = snprintf(text, size, "rank %d waits for rank %d in call %u of group %s, %s", e->from, e->to, number, ranks,
                     call);
    return (size_t)n < size ? (size_t)n : size;
}

static tt_status fail_deadlock(tt__world *world, const chain *c) {
    char text[1400];
    size_t n = 0;
    for (int i = 0; i < c->count && i < TEXT_EDGES && n + 2 < sizeof text; i++) {
        if (i)
            n += (size_t)snprintf(text + n, sizeof text - n, i == 1 ? ", while " : ", and ");
        if (n < sizeof text)
            n += name_edge(world, &c->edges[i], text + n, sizeof text - n);
    }
    return tt__fail(TT_ERR_MISMATCH,
                    "ranks wait for each other: %s. All ranks must make the same calls in the same order.", text);
}

tt_status tt__check_deadlock(tt__world *world) {
    chain c;
    uint64_t hash = follow_chain(world, &c) ? hash_of(&c) : 0;
    int64_t now = tt__now_ms();
    if (hash != world->circle) {
        world->circle = hash;
        world->circle_ms = now;
    }
    return hash && now - world->circle_ms >= STABLE_MS ? fail_deadlock(world, &c) : TT_OK;
}
