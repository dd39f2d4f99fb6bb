#include "sim/groups.h"

#include "base/error.h"
#include "base/machine/clock.h"
#include "comm/group.h"
#include "net/net.h"
#include "sim/cluster.h"
#include "sim/history.h"
#include "sim/network.h"
#include "sim/verdict.h"

#include <stdlib.h>
#include <string.h>

enum { GROUPS_STREAM = 9, MOST_BYTES = 64, SLICE_MS = 100, HEARD_MS = 20 };

/* A rank's end of a group. */
typedef struct sim_member {
    tt_group group; /* what the product gets */
    sim_ring *ring;
    sim_worker *w;
    sim_task *task;
    int64_t calls; /* calls made, the last of which may be under way */
    bool waiting, torn, gone;
    const void *large; /* a broadcast's bytes */
    uint8_t given[2][MOST_BYTES];
} sim_member;

static sim_ring *rings;

static sim_member *member_of(tt_group *group) { return (sim_member *)(void *)group; }

/* ---- failures */

typedef struct sim_notice {
    sim_member *member;
    tt_status status;
    char text[200];
} sim_notice;

static void fail_member(sim_member *m, tt_status status, const char *text) {
    if (m->group.failed || m->gone)
        return;
    m->group.failed = status;
    m->group.ended = true;
    snprintf(m->group.failure_text, sizeof m->group.failure_text, "%s", text);
    sim_wake(m->task);
}

static void notice_comes(void *arg) {
    sim_notice *notice = arg;
    fail_member(notice->member, notice->status, notice->text);
    free(notice);
}

static void notify(sim_member *m, int64_t in_ns, tt_status status, const char *text) {
    sim_notice *notice = sim_memory(malloc(sizeof *notice));
    *notice = (sim_notice){.member = m, .status = status};
    snprintf(notice->text, sizeof notice->text, "%s", text);
    sim_at(sim_now_ns() + in_ns, notice_comes, notice);
}

/* Tell all other ranks in the round of `ring` that `from` won't go on. */
static void spread(const sim_ring *ring, const sim_worker *from, tt_status status, const char *text) {
    for (sim_ring *r = rings; r; r = r->next)
        for (int i = 0; r->root == ring->root && i < r->n; i++) {
            sim_member *m = r->members[i];
            int64_t from_ns = m ? sim_network_reaches_ns(m->w->agent.machine, from->agent.machine) : SIM_NEVER;
            if (from_ns - sim_now_ns() < SIM_SILENCE_MS * SIM_MS && m->w != from && !m->gone)
                notify(m, from_ns - sim_now_ns() + sim_between(&m->w->agent.random, 1, 80) * SIM_MS, status, text);
        }
}

static int rank_in(const sim_ring *ring, const sim_worker *w) {
    for (int i = 0; i < ring->n; i++)
        if (ring->workers[i] == w)
            return i;
    return -1;
}

void sim_groups_lose(const sim_worker *w, bool silent) {
    char text[100];
    for (sim_ring *r = rings; r; r = r->next) {
        int rank = rank_in(r, w);
        if (rank < 0 || r != r->root || !r->members[rank] || r->members[rank]->gone)
            continue;
        snprintf(text, sizeof text, "rank %d has ended", rank);
        for (int i = 0; i < r->n && !silent; i++) /* its last messages may have reached some ranks, and not others */
            if (r->members[i] && r->members[i]->waiting)
                r->members[i]->torn = sim_chance(&r->members[i]->w->agent.random, 50);
        if (!silent && r->formed)
            spread(r, w, TT_ERR_PEER, text);
    }
}

/* ---- calls */

static bool is_away(const sim_worker *w) {
    return w->ended || w->agent.state != SIM_UP || w->agent.frozen_until_ns > sim_now_ns();
}

/* Does the store answer this rank? A store of another coordinator answers no ranks of earlier rounds:
 * docs/testing.md. */
static bool store_answers(const sim_worker *w) {
    return sim_store_is_served() && sim_cluster_agent(w->agent.node)->generation == sim_store_generation() &&
           sim_network_reaches(w->agent.machine, 0) &&
           sim_cluster_agent(sim_store_server())->frozen_until_ns <= sim_now_ns();
}

/* If the group that this one is a part of has failed, so has this one. */
static void fail_with_root(sim_member *m) {
    const sim_ring *root = m->ring->root;
    int rank = rank_in(root, m->w);
    if (root != m->ring && rank >= 0 && root->members[rank]->group.failed)
        fail_member(m, root->members[rank]->group.failed, root->members[rank]->group.failure_text);
}

/* Can some ranks not hear each other for a long time? */
static bool is_parted(const sim_ring *ring) {
    for (int i = 0; i < ring->n; i++)
        if (sim_network_reaches_ns(ring->workers[i]->agent.machine, ring->workers[0]->agent.machine) - sim_now_ns() >
            SIM_SILENCE_MS * SIM_MS)
            return true;
    return false;
}

/* Have all ranks come to the call, and can they all hear each other? */
static bool all_are_here(const sim_ring *ring, int64_t call) {
    for (int i = 0; i < ring->n; i++) {
        const sim_member *m = ring->members[i];
        if (!m || m->gone || m->group.failed || m->calls < call ||
            !sim_network_reaches(m->w->agent.machine, ring->members[0]->w->agent.machine))
            return false;
    }
    return true;
}

/* A rank that this one misses; -1: none. */
static int whom_it_misses(const sim_member *m) {
    const sim_ring *ring = m->ring;
    for (int i = 0; i < ring->n; i++) {
        const sim_member *other = ring->members[i];
        const sim_worker *w = ring->workers[i];
        if (w && (is_away(w) || !sim_network_reaches(w->agent.machine, m->w->agent.machine) || (other && other->gone) ||
                  w->ring != ring->root))
            return i;
    }
    return -1;
}

/* Make the next call of the group. */
static tt_status call_all(sim_member *m, const void *given, size_t size) {
    sim_ring *ring = m->ring;
    char text[100];
    int64_t silent_ns = -1, until_ms = tt__deadline_ms(m->group.timeout_ms);
    if (size > MOST_BYTES)
        sim_fail("simulator", "a call of %zu bytes on a virtual group", size);
    if (m->group.failed)
        return tt__fail(m->group.failed, "%s", m->group.failure_text);
    m->calls++;
    m->torn = false;
    m->waiting = true;
    memcpy(m->given[m->calls & 1], given, size);
    while (ring->done < m->calls && !m->group.failed) {
        fail_with_root(m);
        if (all_are_here(ring, m->calls)) {
            ring->done = m->calls;
            for (int i = 0; i < ring->n; i++)
                sim_wake(ring->members[i]->task);
            break;
        }
        int whom = whom_it_misses(m);
        silent_ns = whom < 0 ? -1 : silent_ns < 0 ? sim_now_ns() : silent_ns;
        bool late = tt__left_ms(until_ms) == 0;
        if (late || (silent_ns >= 0 && sim_now_ns() - silent_ns >= SIM_SILENCE_MS * SIM_MS)) {
            snprintf(text, sizeof text, late ? "the call took too long" : "rank %d has been silent", whom);
            spread(ring, m->w, late ? TT_ERR_TIMEOUT : TT_ERR_PEER, text);
            fail_member(m, late ? TT_ERR_TIMEOUT : TT_ERR_PEER, text);
            break;
        }
        m->task = sim_task_now();
        sim_wait(sim_now_ns() + (sim_between(&m->w->agent.random, 3, 5) * SLICE_MS) * SIM_MS);
    }
    if (ring->done >= m->calls) /* the time until this rank hears that the call is done */
        sim_wait(sim_now_ns() + sim_below(&m->w->agent.random, HEARD_MS * SIM_MS));
    if (is_parted(ring)) /* they were parted during the call: only part of what was sent may have come */
        m->torn = m->torn || sim_chance(&m->w->agent.random, 50);
    m->waiting = false;
    if (ring->done < m->calls || m->torn) {
        if (!m->group.failed)
            spread(ring, m->w, TT_ERR_PEER, "a rank has ended");
        fail_member(m, TT_ERR_PEER, "a rank has ended");
        return tt__fail(m->group.failed, "%s", m->group.failure_text);
    }
    return TT_OK;
}

static void *given_by(const sim_member *m, int rank) { return m->ring->members[rank]->given[m->calls & 1]; }

/* ---- meeting */

static sim_ring *new_ring(int n, int round) {
    sim_ring *ring = sim_memory(calloc(1, sizeof *ring));
    ring->next = rings;
    ring->root = ring;
    ring->n = n;
    ring->round = round;
    ring->workers = sim_memory(calloc((size_t)n, sizeof(sim_worker *)));
    ring->members = sim_memory(calloc((size_t)n, sizeof(sim_member *)));
    ring->had = sim_memory(calloc((size_t)n, sizeof *ring->had));
    return rings = ring;
}

static sim_member *new_member(sim_ring *ring, int rank, sim_worker *w, int64_t timeout_ms) {
    sim_member *m = sim_memory(calloc(1, sizeof *m));
    *m = (sim_member){.group = {.rank = rank, .size = ring->n, .timeout_ms = timeout_ms},
                      .ring = ring,
                      .w = w,
                      .task = sim_task_now()};
    ring->members[rank] = m;
    ring->workers[rank] = w;
    return m;
}

/* Find or make the ring where the ranks of a round meet: under its number, in the present store. */
static sim_ring *ring_of_round(const sim_place *place) {
    for (sim_ring *r = rings; r; r = r->next)
        if (r == r->root && r->generation == sim_store_generation() && r->renewals == sim_store_renewals() &&
            r->round == place->round)
            return r;
    sim_ring *ring = new_ring(place->world, place->round);
    ring->generation = sim_store_generation();
    ring->renewals = sim_store_renewals();
    return ring;
}

static sim_member *come(sim_worker *w, int64_t timeout_ms) {
    const sim_place *place = &w->place;
    sim_ring *ring = ring_of_round(place);
    if (ring->n != place->world)
        sim_fail("ranks", "in round %d a rank of launcher %d expects %d ranks, others %d", place->round, w->agent.node,
                 place->world, ring->n);
    if (place->rank < 0 || place->rank >= place->world || ring->workers[place->rank])
        sim_fail("ranks", "a process of launcher %d is rank %d of %d in round %d, as one of launcher %d", w->agent.node,
                 place->rank, place->world, place->round,
                 place->rank < 0 || place->rank >= place->world ? -1 : ring->workers[place->rank]->agent.node);
    w->ring = ring;
    ring->had[place->rank] = (sim_holding){w->synced_round, w->made, w->digest};
    return new_member(ring, place->rank, w, timeout_ms);
}

/* All ranks have come: form the group. Ranks that were lost meanwhile are soon missed. */
static void form(sim_ring *ring) {
    char text[100];
    ring->formed = true;
    sim_trace(-1, "the group of round %d is made, of %d ranks", ring->round, ring->n);
    for (int i = 0; i < ring->n; i++)
        if (ring->workers[i]->ended) {
            snprintf(text, sizeof text, "rank %d has ended", i);
            spread(ring, ring->workers[i], TT_ERR_PEER, text);
        }
    for (int i = 0; i < ring->n; i++)
        sim_wake(ring->members[i]->task);
}

/* A rank that ended before all had come, by its launcher's note; -1: none. */
static int rank_that_ended(const sim_ring *ring) {
    char key[64];
    for (int i = 0; i < ring->n; i++)
        if (sim_store_has(tt__ended_key(key, i, ring->round)))
            return i;
    return -1;
}

static tt_status wait_for_all(sim_member *m, int64_t until_ms) {
    sim_ring *ring = m->ring;
    int count = 0, ended;
    for (int i = 0; i < ring->n; i++)
        count += ring->members[i] && !ring->members[i]->gone;
    if (count == ring->n)
        form(ring);
    while (!ring->formed && !m->group.failed) {
        bool served = sim_store_is_served() && ring->generation == sim_store_generation();
        bool hears = store_answers(m->w);
        if (!served)
            return tt__fail(TT_ERR_NET, "the store has ended");
        if (hears && (ended = rank_that_ended(ring)) >= 0)
            return tt__fail(TT_ERR_PEER, "rank %d has ended", ended);
        if (!tt__left_ms(until_ms))
            return tt__fail(TT_ERR_TIMEOUT, "not all of %d ranks came: %d", ring->n, count);
        TT__TRY(tt__net_interrupted());
        sim_wait(sim_now_ns() + SLICE_MS * SIM_MS);
    }
    sim_wait(sim_now_ns() + sim_below(&m->w->agent.random, HEARD_MS * SIM_MS));
    return m->group.failed ? tt__fail(m->group.failed, "%s", m->group.failure_text) : TT_OK;
}

tt_status tt_init_process_group_with(const tt_init_process_group_args *args, size_t size) {
    sim_worker *w = sim_worker_now();
    int64_t until_ms = tt__deadline_ms(args->timeout_ms);
    (void)size;
    *args->out = NULL;
    while (!store_answers(w)) {
        if (!tt__left_ms(until_ms))
            return tt__fail(TT_ERR_TIMEOUT, "the store does not answer");
        TT__TRY(tt__net_interrupted());
        sim_wait(sim_now_ns() + SLICE_MS * SIM_MS);
    }
    sim_member *m = come(w, args->timeout_ms);
    tt_status status = wait_for_all(m, until_ms);
    if (status) {
        m->gone = true;
        spread(m->ring, w, TT_ERR_PEER, "a rank could not join");
        return status;
    }
    *args->out = &m->group;
    return TT_OK;
}

/* ---- the calls */

int tt_get_rank(const tt_group *group) { return group ? group->rank : -1; }
int tt_get_world_size(const tt_group *group) { return group ? group->size : -1; }

void tt_group_abort(tt_group *group, const char *reason) {
    sim_member *m = member_of(group);
    spread(m->ring, m->w, TT_ERR_ABORTED, reason);
    fail_member(m, TT_ERR_ABORTED, reason);
}

void tt_destroy_process_group(tt_group *group) {
    if (!group)
        return;
    sim_member *m = member_of(group);
    m->gone = true;
    if (m->ring == m->ring->root)
        m->w->ring = NULL;
}

tt_status tt_all_gather_with(const tt_all_gather_args *args, size_t size) {
    sim_member *m = member_of(args->group);
    size_t bytes = (size_t)args->count * 8; /* of TT_I64 */
    (void)size;
    TT__TRY(call_all(m, args->send, bytes));
    for (int i = 0; i < m->ring->n; i++)
        memcpy((uint8_t *)args->recv + (size_t)i * bytes, given_by(m, i), bytes);
    return TT_OK;
}

/* Only the maximum of TT_I32. */
tt_status tt_all_reduce_with(const tt_all_reduce_args *args, size_t size) {
    sim_member *m = member_of(args->group);
    int32_t *own = args->buf;
    (void)size;
    TT__TRY(call_all(m, own, (size_t)args->count * sizeof *own));
    for (int i = 0; i < m->ring->n; i++)
        for (int64_t k = 0; k < args->count; k++) {
            int32_t other = ((const int32_t *)given_by(m, i))[k];
            own[k] = other > own[k] ? other : own[k];
        }
    return TT_OK;
}

tt_status tt_broadcast_with(const tt_broadcast_args *args, size_t size) {
    sim_member *m = member_of(args->group), *root = m->ring->members[args->root];
    (void)size;
    m->large = args->buf;
    uint8_t *bytes = sim_memory(malloc((size_t)args->count + 1));
    if (m == root) { /* the root may go on and change its bytes before others have read them */
        memcpy(bytes, args->buf, (size_t)args->count);
        m->large = bytes;
    }
    TT__TRY(call_all(m, "", 0));
    root = m->ring->members[args->root];
    if (m != root)
        memcpy(args->buf, root->large, (size_t)args->count);
    return TT_OK;
}

typedef struct sim_wish {
    int32_t color, key;
} sim_wish;

/* How many ranks of this color come before `place` in the order of keys? */
static int count_before(const sim_member *m, int color, int64_t place) {
    int n = 0;
    for (int i = 0; i < m->ring->n; i++) {
        const sim_wish *wish = given_by(m, i);
        n += wish->color == color && wish->key * INT64_C(100000) + i < place;
    }
    return n;
}

/* The part of the group that has this color. */
static sim_ring *part_of(const sim_member *m, int color, int *rank) {
    const sim_wish *own = given_by(m, m->group.rank);
    int n = count_before(m, color, INT64_MAX);
    *rank = count_before(m, color, own->key * INT64_C(100000) + m->group.rank);
    for (sim_ring *r = rings; r; r = r->next)
        if (r->root == m->ring->root && r != r->root && r->call == m->calls && r->kind == color)
            return r;
    sim_ring *part = new_ring(n, m->ring->round);
    part->root = m->ring->root;
    part->call = (int)m->calls;
    part->kind = color;
    part->formed = true;
    for (int i = 0; i < m->ring->n; i++) {
        const sim_wish *wish = given_by(m, i);
        if (wish->color == color)
            part->workers[count_before(m, color, wish->key * INT64_C(100000) + i)] = m->ring->workers[i];
    }
    return part;
}

tt_status tt_group_split_with(const tt_group_split_args *args, size_t size) {
    sim_member *m = member_of(args->group);
    sim_wish wish = {args->color, args->key};
    int rank;
    (void)size;
    *args->out = NULL;
    TT__TRY(call_all(m, &wish, sizeof wish));
    if (args->color < 0)
        return TT_OK;
    sim_ring *part = part_of(m, args->color, &rank);
    *args->out = &new_member(part, rank, m->w, m->group.timeout_ms)->group;
    return TT_OK;
}
