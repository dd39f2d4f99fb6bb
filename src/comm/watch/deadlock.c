/* Disagreement across groups: rank 0 waits for rank 1 in one group, while rank 1 waits for rank 0 in another.
 *
 * Every process that waits for longer than a moment publishes the rank it waits for, and in which call (recorder.h). A
 * waiting rank follows the chain: the rank it waits for, the rank that one waits for, and so on. An edge of this chain
 * is *firm* if its target has not made the call in question: the target waits itself, so it can't make the call now. If
 * the target has made the call and waits in it for another rank, the edge may hold, but what is waited for may also be
 * on its way. A circle with a firm edge never ends. It must be seen twice, some time apart, since what is read of
 * several processes is not of one moment.
 *
 * A process whose threads use several groups may make the call in another thread: it publishes that, and its edges are
 * never firm. */
#include "comm/watch/deadlock.h"

#include "base/clock.h"
#include "base/error.h"

#include <dirent.h>
#include <stdio.h>

enum { STABLE_MS = 100, ASK_MS = 200, TEXT_EDGES = 4 };

/* Rank `from` waits for `to` in call `seq` of `group`. */
typedef struct edge {
    int from, to;
    uint32_t group, seq, record;
} edge;

typedef struct chain {
    edge edges[TT__MAX_RANKS];
    int count;
    int circle; /* the first edge of the circle */
} chain;

/* ---- one's own threads */

static int threads_of_process(void) {
    DIR *tasks = opendir("/proc/self/task");
    int n = 0;
    if (!tasks)
        return 2; /* who knows */
    while (readdir(tasks))
        n++;
    closedir(tasks);
    n -= 2; /* "." and ".." */
#ifdef __SANITIZE_THREAD__
    n--; /* which has one of its own */
#endif
    return n;
}

/* Groups were used by one thread, and none is left for another to begin with. A thread that waits for what another
 * began leaves that one free. */
bool tt__one_thread(const tt__world *world) {
    uintptr_t user = 0;
    bool unused = false;
    if (world->elsewhere)
        return false;
    for (const tt_group *group = world->groups; group; group = group->native->next_group) {
        if (group->native->parent)
            continue;
        uintptr_t its = atomic_load_explicit(&group->native->user, memory_order_relaxed);
        unused |= !its;
        if (its && user && its != user)
            return false;
        user = its ? its : user;
    }
    return !unused || threads_of_process() - (world->threaded ? 1 : 0) <= 1;
}

/* ---- edges */

static bool edge_from(const tt__world *world, int from, edge *out) {
    const tt__control *control = world->peers[from].control;
    tt__waiting waiting;
    *out = (edge){.from = from};
    if (!control)
        return world->messages &&
               tt__remote_waiting(world->messages, from, &out->group, &out->seq, &out->to, &out->record) && out->seq &&
               out->to >= 0 && out->to < world->size;
    if (!tt__recorder_waiting(&control->recorder, &waiting) || !waiting.seq || waiting.several_threads ||
        waiting.whom < 0 || waiting.whom >= world->size)
        return false;
    *out = (edge){from, waiting.whom, waiting.group, waiting.seq, waiting.record};
    return true;
}

/* Has the rank made the call, by its recorder, which also shows queued calls? */
static bool has_called(const tt__recorder *recorder, const edge *e) {
    tt__record record;
    for (uint32_t i = 0; i < TT__RECORDS; i++) {
        uint32_t number = atomic_load_explicit(&recorder->records[i].number, memory_order_relaxed);
        if (!number || !tt__record_read(recorder, number, &record) || record.group != e->group)
            continue;
        if ((record.seq && (int32_t)(record.seq - e->seq) >= 0) || record.state == TT__CALL_QUEUED)
            return true;
    }
    return false;
}

static bool is_firm(tt__world *world, const edge *e) {
    const tt__control *control = world->peers[e->to].control;
    char text[256];
    uint32_t word;
    if (control)
        return !has_called(&control->recorder, e);
    return !tt__link_check(world->messages, e->to) &&
           !tt__ask_call(world->messages, e->to, e->group, e->seq, text, sizeof text, &word, ASK_MS);
}

static bool in_same_call(const edge *a, const edge *b) { return a->group == b->group && a->seq == b->seq; }

/* Follow the chain from this rank until it closes; false if it doesn't, or does not hold. */
static bool follow_chain(tt__world *world, chain *c) {
    int place[TT__MAX_RANKS];
    for (int r = 0; r < world->size; r++)
        place[r] = -1;
    c->count = 0;
    for (int at = world->rank; place[at] < 0;) {
        edge *e = &c->edges[c->count];
        if (!edge_from(world, at, e))
            return false;
        place[at] = c->count++;
        at = e->to;
        c->circle = place[at];
    }
    bool firm = false;
    for (int i = 0; i < c->count; i++) {
        if (in_same_call(&c->edges[i], &c->edges[place[c->edges[i].to]]))
            continue;
        if (!is_firm(world, &c->edges[i]))
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

static void edge_call_text(tt__world *world, const edge *e, char *text, size_t size) {
    const tt__control *control = world->peers[e->from].control;
    tt__record record;
    uint32_t word;
    if (control && tt__record_read(&control->recorder, e->record, &record))
        tt__record_text(&control->recorder, &record, text, size);
    else if (control || !tt__ask_call(world->messages, e->from, e->group, e->seq, text, size, &word, ASK_MS))
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
    edge_call_text(world, e, call, sizeof call); /* gives the lock back: `mine` may go */
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
