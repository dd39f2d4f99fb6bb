/* Ranks simulated in one process, for test_algorithms.c alone: their messages are delivered in random order, each seed
 * another, or all take the same time; sends end before or after they are received. */
#ifndef TESTS_UNIT_ALGORITHM_SIM_H
#define TESTS_UNIT_ALGORITHM_SIM_H

#include "comm/collective/choose.h"
#include "comm/collective/hierarchical/hierarchical.h"
#include "comm/collective/message/rounds.h"
#include "comm/native_group.h"
#include "comm/reduce/reduce_tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_RANKS = 128, MAX_WORKS = 2 * MAX_RANKS, MAX_MOVING = 2 * MAX_RANKS * MAX_RANKS };

/* ---- the simulation */

/* One end of a message that waits for the other. */
typedef struct end {
    struct end *next;
    tt__message *message; /* NULL: a send that is done already; its data were copied */
    void *data;
    size_t bytes;
    uint32_t group, seq, step;
    int from, to;
    long time;
} end;

typedef struct pair {
    end *send, *recv;
} pair;

static struct {
    int ranks;
    tt__world world;
    tt__peer peers[MAX_RANKS];
    int all[MAX_RANKS];
    tt_group groups[MAX_RANKS], local[MAX_RANKS], cross[MAX_RANKS];
    tt__native native[MAX_RANKS], local_native[MAX_RANKS], cross_native[MAX_RANKS];
    int by_host[MAX_RANKS], place[MAX_RANKS];
    int local_ranks[MAX_RANKS][MAX_RANKS], cross_ranks[MAX_RANKS][MAX_RANKS];
    tt_work *works[MAX_WORKS]; /* not done */
    int work_count;
    end *sends[MAX_RANKS], *recvs[MAX_RANKS]; /* by receiver, without the other end */
    pair moving[MAX_MOVING];
    int moving_count;
    bool timed;
    long now;
    size_t sent[MAX_RANKS]; /* bytes */
    size_t left[MAX_RANKS]; /* bytes that a host sent to others */
    uint32_t random;
} sim;

static tt__tuning tuning;

static uint32_t draw(uint32_t below) {
    sim.random = sim.random * 1664525u + 1013904223u;
    return (sim.random >> 8) % below;
}

static bool fits(const end *a, const end *b) {
    return a->from == b->from && a->group == b->group && a->seq == b->seq && a->step == b->step;
}

/* The other end, taken out of its list. */
static end *other_end(end **list, const end *of) {
    for (end **at = list; *at; at = &(*at)->next)
        if (fits(*at, of)) {
            end *found = *at;
            *at = found->next;
            return found;
        }
    return NULL;
}

static void finish_message(end *e) {
    if (e->message) {
        e->message->done = true;
        atomic_fetch_sub(e->message->pending, 1);
    }
}

static void post_end(tt_work *work, size_t slot, int peer, uint32_t step, void *data, size_t bytes, bool is_send) {
    tt_group *group = work->group;
    end *e = calloc(1, sizeof *e);
    tt__message *m = &work->messages[slot];
    assert_true(slot < work->message_count);
    *m = (tt__message){.pending = &work->pending, .bytes = bytes};
    atomic_fetch_add(&work->pending, 1);
    int self = group->ranks[group->rank];
    *e = (end){.message = m,
               .data = data,
               .bytes = bytes,
               .group = group->id,
               .seq = work->seq,
               .step = step,
               .time = sim.now};
    e->from = is_send ? self : group->ranks[peer];
    e->to = is_send ? group->ranks[peer] : self;
    assert_int_not_equal(e->from, e->to);
    if (is_send) {
        sim.sent[self] += bytes;
        sim.left[sim.peers[self].host] += sim.peers[self].host == sim.peers[e->to].host ? 0 : bytes;
        if (sim.timed || draw(2)) { /* done at once, as small messages and those in a socket's buffer are */
            e->data = malloc(bytes + 1);
            if (bytes)
                memcpy(e->data, data, bytes);
            finish_message(e);
            e->message = NULL;
        }
    }
    end *other = other_end(is_send ? &sim.recvs[e->to] : &sim.sends[e->to], e);
    if (!other) {
        end **list = is_send ? &sim.sends[e->to] : &sim.recvs[e->to];
        e->next = *list;
        *list = e;
        return;
    }
    assert_true(sim.moving_count < MAX_MOVING);
    sim.moving[sim.moving_count++] = is_send ? (pair){e, other} : (pair){other, e};
}

static void deliver(int i) {
    pair p = sim.moving[i];
    sim.moving[i] = sim.moving[--sim.moving_count];
    assert_int_equal(p.send->bytes, p.recv->bytes);
    if (p.send->bytes)
        memcpy(p.recv->data, p.send->data, p.send->bytes);
    finish_message(p.send);
    finish_message(p.recv);
    if (!p.send->message)
        free(p.send->data);
    free(p.send);
    free(p.recv);
}

/* Functions that the algorithms call; the linker puts these in the place of the library's (see CMakeLists.txt). */
tt_status __wrap_tt__work_messages(tt_work *work, size_t n);
void __wrap_tt__work_send(tt_work *work, size_t slot, int to, uint32_t step, const void *data, size_t bytes);
void __wrap_tt__work_recv(tt_work *work, size_t slot, int from, uint32_t step, void *data, size_t bytes);
tt_status __wrap_tt__work_scratch(tt_work *work, size_t bytes);

tt_status __wrap_tt__work_messages(tt_work *work, size_t n) {
    work->messages = calloc(n + 1, sizeof *work->messages);
    work->message_count = n;
    return TT_OK;
}

void __wrap_tt__work_send(tt_work *work, size_t slot, int to, uint32_t step, const void *data, size_t bytes) {
    post_end(work, slot, to, step, (void *)(uintptr_t)data, bytes, true);
}

void __wrap_tt__work_recv(tt_work *work, size_t slot, int from, uint32_t step, void *data, size_t bytes) {
    post_end(work, slot, from, step, data, bytes, false);
}

tt_status __wrap_tt__work_scratch(tt_work *work, size_t bytes) {
    assert_null(work->scratch); /* asked for once */
    work->scratch = aligned_alloc(64, (bytes + 64) & ~(size_t)63);
    memset(work->scratch, 0xa5, bytes);
    return TT_OK;
}

static tt_work *begin(tt_group *group, const tt_call *call, const tt__algorithm *algorithm) {
    tt_work *work = calloc(1, sizeof *work);
    work->group = group;
    work->call = *call;
    work->algorithm = algorithm ? algorithm : tt__choose_by(&tuning, group, call);
    work->packed_as = tt__choose_packed(work);
    work->seq = ++group->native->seq;
    work->wait = (tt__wait){.what = TT__MESSAGES};
    sim.works[sim.work_count++] = work;
    return work;
}

static bool is_ready(const tt_work *work) {
    return work->wait.what == TT__CHILD ? work->child->done : atomic_load(&work->pending) <= work->wait.target;
}

static void free_work(tt_work *work) {
    free(work->messages);
    free(work->scratch);
    free(work);
}

static void step(int i) {
    tt_work *work = sim.works[i];
    if (work->wait.what == TT__CHILD) {
        free_work(work->child);
        work->child = NULL;
    }
    tt__next next = work->algorithm->next(work);
    assert_true(next == TT__NEXT_DONE || next == TT__NEXT_WAIT || next == TT__NEXT_CALL);
    if (next == TT__NEXT_CALL) {
        work->child = begin(work->child_call.group, &work->child_call.call, NULL);
        work->child->parent = work;
        work->wait = (tt__wait){.what = TT__CHILD};
    }
    if (next == TT__NEXT_DONE) {
        assert_int_equal(atomic_load(&work->pending), 0);
        work->done = true;
        sim.works[i] = sim.works[--sim.work_count];
        if (!work->parent)
            free_work(work);
    }
}

/* Some work that can go on, or -1. */
static int find_ready(void) {
    int first = sim.work_count ? (int)draw((uint32_t)sim.work_count) : 0;
    for (int i = 0; i < sim.work_count; i++)
        if (is_ready(sim.works[(first + i) % sim.work_count]))
            return (first + i) % sim.work_count;
    return -1;
}

static bool deliver_due(void) {
    for (int i = 0; i < sim.moving_count; i++) {
        const pair *p = &sim.moving[i];
        if (p->send->time + 1 <= sim.now) {
            deliver(i);
            return true;
        }
    }
    return false;
}

/* Until all works are done. */
static void run(const char *what) {
    while (sim.work_count) {
        int ready = find_ready();
        if (sim.timed) {
            if (ready >= 0)
                step(ready);
            else if (!deliver_due() && sim.now++ > 100000)
                fail_msg("%s: nobody can go on", what);
        } else if (ready >= 0 && (!sim.moving_count || draw(3))) {
            step(ready);
        } else if (sim.moving_count) {
            deliver((int)draw((uint32_t)sim.moving_count));
        } else {
            fail_msg("%s: nobody can go on", what);
        }
    }
    assert_int_equal(sim.moving_count, 0);
    for (int r = 0; r < sim.ranks; r++) {
        assert_null(sim.sends[r]);
        assert_null(sim.recvs[r]);
    }
}

/* ---- worlds */

static void make_group(tt_group *group, tt__native *native, int rank, int size, int *ranks, uint32_t id) {
    memset(group, 0, sizeof *group);
    memset(native, 0, sizeof *native);
    group->native = native;
    group->rank = rank, group->size = size, group->ranks = ranks, group->id = id, group->native->world = &sim.world;
}

/* `hosts` hosts, numbered block by block, or in turn. */
static void make_world(int ranks, int hosts, bool in_turn) {
    int each = ranks / hosts;
    memset(&sim, 0, sizeof sim);
    sim.ranks = ranks;
    sim.random = 12345;
    sim.world.peers = sim.peers;
    sim.world.size = ranks;
    sim.world.hosts = hosts;
    sim.world.tuning = &tuning;
    for (int r = 0; r < ranks; r++) {
        sim.all[r] = r;
        sim.peers[r].host = in_turn ? r % hosts : r / each;
        sim.place[r] = in_turn ? r % hosts * each + r / hosts : r;
        sim.by_host[sim.place[r]] = r;
        make_group(&sim.groups[r], &sim.native[r], r, ranks, sim.all, 1);
    }
    for (int r = 0; r < ranks && hosts > 1; r++) {
        int host = sim.peers[r].host, number = in_turn ? r / hosts : r % each;
        for (int i = 0; i < each; i++)
            sim.local_ranks[r][i] = in_turn ? i * hosts + host : host * each + i;
        for (int h = 0; h < hosts; h++)
            sim.cross_ranks[r][h] = in_turn ? number * hosts + h : h * each + number;
        make_group(&sim.local[r], &sim.local_native[r], number, each, sim.local_ranks[r], 100 + (uint32_t)host);
        make_group(&sim.cross[r], &sim.cross_native[r], host, hosts, sim.cross_ranks[r], 300 + (uint32_t)number);
        sim.native[r].local = &sim.local[r];
        sim.native[r].cross = &sim.cross[r];
        sim.native[r].by_host = sim.by_host;
        sim.native[r].place = sim.place;
        sim.native[r].subtrees = !in_turn && (each & (each - 1)) == 0;
    }
}

#endif
