/* The launcher's machine in surroundings that a test makes: their state, how actions change them, what may happen in
 * them, and what must hold after each step. */
#ifndef MACHINE_SURROUNDINGS_H
#define MACHINE_SURROUNDINGS_H

#include "launch/machine/job_machine.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WORKERS = 2,
    TOLD_MAX = 2,
    ROUNDS_MAX = 4,
    STEP_MS = 7000, /* longer than any period here */
    SETTLE_MS = 500,
    GRACE_MS = 1500,
    OTHER_RANK = WORKERS
};

typedef enum life { ABSENT, ALIVE, ABLE, WAITING, GONE } life;

/* A machine and its surroundings. */
typedef struct world {
    tt__machine m;
    tt__worker workers[WORKERS];
    life life[WORKERS];
    int64_t now_ms, events;
    bool attempt;   /* the keeper owes ON_CLEARED */
    bool killed;    /* the keeper was told to kill all */
    bool leftovers; /* the keeper has told of leftovers */
    bool keeper_dead;
    bool reading;    /* stacks are being read: ON_IDLE_READ is owed */
    bool joining;    /* ON_ROUND or ON_NO_ROUND is owed */
    bool said_gone;  /* this node has announced that its workers are gone: a verdict is owed */
    bool said_done;  /* ON_OVER is owed */
    bool other_lost; /* the other node's launcher is lost */
    int signals, rounds, ordered;
    int starts, starts_after_end;
} world;

static const char *trouble; /* what a step did wrong */
static bool serves;         /* this node serves the store, in the job that is explored */

static void claim(bool holds, const char *what) {
    if (!holds && !trouble)
        trouble = what;
}

/* ---- states as values */

static world copy_of(const world *w) {
    world copy = *w;
    copy.m.ledger.workers = NULL; /* point_to_own() sets the copy's own */
    copy.m.ledger.others = NULL;
    copy.m.ledger.lost = NULL;
    copy.m.membership.round = copy.m.membership.next_round = NULL;
    for (const tt__remote_end *end = w->m.ledger.others; end; end = end->next) {
        tt__remote_end *new = calloc(1, sizeof *new);
        *new = *end;
        new->next = copy.m.ledger.others;
        copy.m.ledger.others = new;
    }
    for (const tt__lost_node *lost = w->m.ledger.lost; lost; lost = lost->next) {
        tt__lost_node *new = calloc(1, sizeof *new);
        *new = *lost;
        new->next = copy.m.ledger.lost;
        copy.m.ledger.lost = new;
    }
    for (int i = 0; i < 2; i++) {
        const tt__round *round = i ? w->m.membership.next_round : w->m.membership.round;
        size_t size = round ? sizeof *round + (size_t)round->n * sizeof *round->of : 0;
        tt__round *new = round ? malloc(size) : NULL;
        if (new)
            memcpy(new, round, size);
        *(i ? &copy.m.membership.next_round : &copy.m.membership.round) = new;
    }
    return copy;
}

static void point_to_own(world *w) { w->m.ledger.workers = w->workers; }
static void drop(world *w) { tt__machine_end(&w->m); }

static uint64_t mix(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ (hash >> 29);
}

static uint64_t until(const world *w, int64_t ms) {
    return ms == INT64_MAX ? 1u << 30 : (uint64_t)(ms - w->now_ms + 1);
}

/* A hash of the state, in which times are relative to now: equal states have equal numbers. */
static uint64_t number_of(const world *w) {
    const tt__machine *m = &w->m;
    const tt__attempt_state *a = &m->attempt;
    const tt__membership *me = &m->membership;
    uint64_t h = 1;
    for (int i = 0; i < WORKERS; i++) {
        const tt__worker *k = &w->workers[i];
        h = mix(h, (uint64_t)w->life[i] << 40 | (uint64_t)(uint32_t)k->status << 8 | (uint64_t)k->ended << 7 |
                       (uint64_t)k->waited << 6 | (uint64_t)k->secondary << 5 | (uint64_t)k->order << 3);
        h = mix(h, (uint64_t)k->sent_signal << 8 | (uint64_t)(k->pid != 0));
    }
    h = mix(h, (uint64_t)a->phase << 16 | (uint64_t)a->settling << 8 | (uint64_t)a->regroups << 3 |
                   (uint64_t)a->told_success << 2 | (uint64_t)a->kept << 1 | (a->late_ms != 0));
    h = mix(h, until(w, a->deadline_ms));
    h = mix(h, (uint64_t)me->state << 24 | (uint64_t)me->verdict.kind << 16 | (uint64_t)me->verdict.any_kept << 9 |
                   (uint64_t)me->verdict.well << 8 | (uint64_t)me->coordinates << 7 | (me->next_round != NULL) << 1 |
                   (me->round != NULL));
    h = mix(h, (uint64_t)(uint32_t)me->counts.attempt << 20 | (uint64_t)me->counts.restarts << 10 |
                   (uint64_t)me->counts.recovery);
    h = mix(h, (uint64_t)m->ending.stage << 40 | (uint64_t)m->ending.damage << 30 |
                   (uint64_t)m->ending.own_signal << 20 | (uint64_t)m->ending.remote_signal << 10 |
                   (uint64_t)m->ending.agreed_signal);
    for (const tt__remote_end *end = m->ledger.others; end; end = end->next)
        h = mix(h, 77 + (uint64_t)end->worker.secondary);
    for (const tt__lost_node *lost = m->ledger.lost; lost; lost = lost->next)
        h = mix(h, 99 + (uint64_t)lost->node);
    return mix(h, (uint64_t)w->signals << 40 | (uint64_t)w->rounds << 32 | (uint64_t)w->ordered << 24 |
                      (uint64_t)w->attempt << 8 | (uint64_t)w->killed << 7 | (uint64_t)w->leftovers << 6 |
                      (uint64_t)w->keeper_dead << 5 | (uint64_t)w->reading << 4 | (uint64_t)w->joining << 3 |
                      (uint64_t)w->said_gone << 2 | (uint64_t)w->said_done << 1 | w->other_lost);
}

/* ---- what actions do to the surroundings */

static tt__survivors survivors_of(const world *w) {
    tt__survivors s = {.blamed = -1};
    for (int i = 0; i < WORKERS; i++) {
        s.living += w->life[i] >= ALIVE && w->life[i] <= WAITING;
        s.able += w->life[i] == ABLE || w->life[i] == WAITING;
        s.waiting += w->life[i] == WAITING;
    }
    return s;
}

static void begin_workers(world *w) {
    w->starts++;
    w->starts_after_end += w->m.ending.own_signal || w->m.ending.stage == TT__DONE;
    for (int i = 0; i < WORKERS; i++) {
        if (w->life[i] == WAITING) /* the worker goes on in the round that it waited for */
            w->life[i] = ABLE;
        if (w->life[i] >= ALIVE && w->life[i] <= WAITING)
            continue;
        claim(!w->workers[i].ended, "a worker is started whose end is not forgotten");
        w->workers[i] = (tt__worker){.pid = 100 + i};
        w->life[i] = ALIVE;
    }
    w->attempt = true;
    w->killed = w->leftovers = w->said_gone = false;
}

static void forget_workers(world *w) {
    for (int i = 0; i < WORKERS; i++)
        if (!w->m.attempt.kept || w->workers[i].ended) {
            w->workers[i] = (tt__worker){0};
            w->life[i] = ABSENT;
        }
    tt__ledger_clear(&w->m.ledger);
}

/* Carry out an action. Returns the event that follows; TT__ON_TIME: none. */
static tt__event_kind carry_out_one(world *w, const tt__action *action) {
    switch (action->kind) {
    case TT__DO_START:
        begin_workers(w);
        break;
    case TT__DO_KILL:
        w->killed = true;
        break;
    case TT__DO_KILL_KEEPER:
        w->keeper_dead = true;
        break;
    case TT__DO_READ_IDLE:
        w->reading = true;
        break;
    case TT__DO_FORGET:
        forget_workers(w);
        break;
    case TT__DO_ANNOUNCE_GONE:
        w->said_gone = true;
        break;
    case TT__DO_ORDER_ROUND:
        claim(w->m.membership.coordinates, "a node that does not coordinate orders a round");
        w->ordered = 1;
        break;
    case TT__DO_REJOIN:
        w->joining = true;
        break;
    case TT__DO_NEXT:
        return TT__ON_NEXT;
    default:
        break;
    }
    return TT__ON_TIME;
}

/* Are all nodes that are lost in this node's round, whose list has their names? */
static bool knows_lost_nodes(const tt__machine *m) {
    const tt__round *round = m->membership.round;
    for (const tt__lost_node *lost = m->ledger.lost; lost; lost = lost->next)
        if (!round || lost->node < 0 || lost->node >= round->n)
            return false;
    return true;
}

static void check_state(const world *w) {
    const tt__machine *m = &w->m;
    tt__attempt_phase phase = m->attempt.phase;
    bool waits = phase == TT__SETTLING || phase == TT__TERMINATING;
    claim(!waits || m->attempt.deadline_ms != INT64_MAX, "a phase that ends in time has no deadline");
    claim(phase != TT__RUNNING || m->attempt.deadline_ms == INT64_MAX, "RUNNING has a deadline");
    claim(!tt__machine_works(m) || !m->attempt.kept, "workers are kept for another round while this one runs");
    claim(m->membership.counts.restarts <= m->job.max_restarts, "more restarts than there may be");
    claim(m->ending.damage != TT__KEEPER_LOST || m->ending.stage == TT__DONE, "the job goes on without a keeper");
    claim(!w->starts_after_end, "workers are started although the job was told to end");
    claim(m->membership.verdict.kind != TT__ALL_GONE || phase == TT__ATTEMPT_OVER || m->ending.stage != TT__GOES_ON,
          "all are gone, but an attempt runs");
    claim(phase != TT__RUNNING || m->membership.state == TT__TAKES_PART || tt__machine_is_done(m),
          "workers run in no round");
    claim(!m->job.alone || m->membership.state == TT__TAKES_PART, "a job of one node looks for others");
    claim(knows_lost_nodes(m), "a node is lost that is in no round here");
}

static void check_actions(const tt__machine *before, const tt__machine *after, const tt__actions *actions) {
    claim(!actions->overflowed, "there is no room for an action");
    for (int i = 0; i < actions->n; i++) {
        const tt__action *action = &actions->list[i];
        claim(action->kind != TT__DO_NEXT || i == actions->n - 1, "something is to be done after NEXT");
        claim(action->kind != TT__DO_START || after->attempt.phase == TT__RUNNING, "workers start in no attempt");
        claim(action->kind != TT__DO_START || !tt__machine_works(before), "workers start amid an attempt");
        claim(action->kind != TT__DO_KILL || after->attempt.phase == TT__KILLING, "killing is no phase");
        claim(action->kind != TT__DO_SIGNAL || after->attempt.phase == TT__TERMINATING, "a signal begins no phase");
    }
    claim(before->ending.stage != TT__DONE || after->ending.stage == TT__DONE, "what was done goes on");
}

/* Give the machine an event, and the events that follow from it. Returns the event's object that the machine did not
 * take over; or NULL. */
static void *give(world *w, tt__event event) {
    void *left = NULL;
    for (bool more = true, first = true; more; first = false) {
        tt__actions actions;
        tt__machine before = w->m;
        const tt__surroundings around = {
            .now_ms = w->now_ms, .realtime_ns = w->now_ms * 1000000, .survivors = survivors_of(w)};
        tt__machine_step(&w->m, &event, &around, &actions);
        check_actions(&before, &w->m, &actions);
        if (first && (event.kind == TT__ON_LOST || event.kind == TT__ON_LEFT))
            left = event.lost.node;
        else if (first && event.kind == TT__ON_REMOTE_END)
            left = event.end;
        else if (first && event.kind == TT__ON_ROUND)
            left = event.round.round;
        event.kind = TT__ON_TIME;
        for (int i = 0; i < actions.n; i++) {
            tt__event_kind next = carry_out_one(w, &actions.list[i]);
            event.kind = next != TT__ON_TIME ? next : event.kind;
        }
        more = event.kind != TT__ON_TIME;
    }
    if (w->m.ending.stage == TT__DONE && !w->m.job.alone)
        w->said_done = true;
    w->now_ms++;
    check_state(w);
    return left;
}

/* ---- what may happen */

typedef enum happening {
    FAILS,        /* worker n of this node */
    SUCCEEDS,     /* worker n */
    FOLLOWS,      /* worker n fails because of another */
    GETS_ABLE,    /* worker n survives the loss of others from now on */
    WANTS_ROUND,  /* worker n waits for the next round */
    LEAVES_SOME,  /* what workers started is still there */
    CLEARS,       /* the keeper has nothing left */
    CAN_NOT_KILL, /* the keeper has nothing left except a process that it can't kill */
    KEEPER_DIES,
    TIME_PASSES,
    READS,
    USER_SIGNAL,
    ROUND_COMES,
    NO_ROUND_COMES,
    OTHER_FAILS,
    OTHER_WAITS,
    OTHER_SIGNAL,
    OTHER_LOST,
    OTHER_LEAVES,
    SELF_LOST, /* the coordinator has lost this node */
    ALL_GONE,
    ALL_KEPT,
    LAST,
    REGROUP,
    NEWCOMER,
    MISSED,
    AGAIN,
    OVER,
    DEPOSED,
    HAPPENINGS
} happening;

static int living(const world *w) { return survivors_of(w).living; }

static bool may_happen(const world *w, happening what, int i) {
    const tt__machine *m = &w->m;
    bool lives = w->life[i] >= ALIVE && w->life[i] <= WAITING, single = i == 0;
    bool done = m->ending.stage == TT__DONE, nodes = !m->job.alone, member = nodes && !m->membership.coordinates;
    bool in_round = nodes && m->membership.round && !w->joining;
    switch (what) {
    case FAILS:
    case SUCCEEDS:
    case FOLLOWS:
        return lives && !done && !w->keeper_dead;
    case GETS_ABLE:
        return w->life[i] == ALIVE && !w->killed && !done;
    case WANTS_ROUND:
        return w->life[i] == ABLE && !w->killed && !done;
    case LEAVES_SOME:
        return single && w->attempt && !living(w) && !w->leftovers && !w->killed && !done && !w->keeper_dead;
    case CLEARS:
        return single && w->attempt && !done && !w->keeper_dead && (!living(w) || w->killed);
    case CAN_NOT_KILL:
        return single && w->attempt && w->killed && !done && !w->keeper_dead;
    case KEEPER_DIES:
        return single && !done;
    case TIME_PASSES:
        return single && !done;
    case READS:
        return single && w->reading && !done;
    case USER_SIGNAL:
        return single && w->signals < TOLD_MAX;
    case ROUND_COMES:
        return single && nodes && !done && w->rounds < ROUNDS_MAX &&
               (w->joining || w->ordered || (member && w->said_gone));
    case NO_ROUND_COMES:
        return single && nodes && !done && (w->joining || w->ordered || (member && w->said_gone));
    case OTHER_FAILS:
    case OTHER_WAITS:
    case OTHER_SIGNAL:
    case OTHER_LEAVES:
        return single && in_round && !w->other_lost && m->membership.state != TT__THROUGH;
    case OTHER_LOST: /* also of a round that came when this node was done, and was not taken */
        return single && !w->other_lost && (done ? nodes && w->joining : in_round);
    case SELF_LOST:
        return single && in_round && member && !done && m->membership.state == TT__TAKES_PART;
    case ALL_GONE:
    case ALL_KEPT:
        return single && in_round && m->membership.coordinates && w->said_gone && !w->ordered && !done;
    case LAST:
        return single && in_round && member && w->said_gone && !done;
    case REGROUP:
        return single && in_round && member && m->job.elastic && !done;
    case NEWCOMER:
        return single && in_round && m->membership.coordinates && m->job.elastic && !done;
    case MISSED:
        return single && member && !done && (w->joining || w->said_gone) && m->membership.round;
    case AGAIN:
        return single && nodes && w->joining && !done && w->rounds < ROUNDS_MAX;
    case OVER:
        return single && nodes && (w->said_done || (w->joining && !done)) && m->membership.state != TT__THROUGH;
    case DEPOSED:
        return single && in_round && m->membership.coordinates && !done;
    default:
        return false;
    }
}

static tt__round *new_round(const world *w) {
    tt__round *round = calloc(1, sizeof *round + 2 * sizeof *round->of);
    bool goes_on = survivors_of(w).waiting > 0 && w->m.attempt.kept;
    *round = (tt__round){.attempt = tt__machine_attempt(&w->m) + 1,
                         .restarts = w->m.membership.counts.restarts,
                         .recovery = goes_on ? w->m.membership.counts.recovery + 1 : 0,
                         .own = !serves,
                         .n = 2,
                         .world = 2 * WORKERS};
    round->of[1].first_rank = WORKERS;
    round->of[0].workers = round->of[1].workers = WORKERS;
    return round;
}

static void worker_ends(world *w, int i, int status, bool secondary) {
    tt__worker *k = &w->workers[i];
    k->order = tt__ledger_ended(&w->m.ledger);
    k->waited = w->life[i] == WAITING;
    k->ended = true;
    k->status = status;
    k->secondary = secondary;
    k->when.realtime_ns = w->now_ms * 1000000;
    w->life[i] = GONE;
    give(w, (tt__event){.kind = TT__ON_ENDED, .ended = {.worker = i}});
}

static void end_all(world *w) {
    for (int i = 0; i < WORKERS; i++)
        if (w->life[i] >= ALIVE && w->life[i] <= WAITING)
            worker_ends(w, i, SIGKILL, false);
}

static void clear(world *w, int unkillable) {
    w->attempt = w->killed = false;
    give(w, (tt__event){.kind = TT__ON_CLEARED, .unkillable = unkillable});
}

static void give_lost(world *w, tt__event_kind kind, int node) {
    tt__lost_node *lost = calloc(1, sizeof *lost);
    lost->node = node;
    free(give(w, (tt__event){.kind = kind, .lost = {lost}}));
}

static void give_round(world *w) {
    tt__round *round = new_round(w);
    w->rounds++;
    w->ordered = 0;
    w->joining = w->said_gone = w->other_lost = false;
    free(give(w, (tt__event){.kind = TT__ON_ROUND, .round = {round, serves}}));
}

static void give_remote_end(world *w) {
    tt__remote_end *end = calloc(1, sizeof *end);
    *end = (tt__remote_end){.attempt = tt__machine_attempt(&w->m),
                            .node = serves,
                            .rank = OTHER_RANK,
                            .worker = {.ended = true, .status = 1 << 8, .when = {.realtime_ns = w->now_ms * 1000000}}};
    free(give(w, (tt__event){.kind = TT__ON_REMOTE_END, .end = end}));
}

/* What happens on this node. */
static void happens_here(world *w, happening what, int i) {
    switch (what) {
    case FAILS:
        worker_ends(w, i, 3 << 8, false);
        break;
    case SUCCEEDS:
        worker_ends(w, i, 0, false);
        break;
    case FOLLOWS:
        worker_ends(w, i, 1 << 8, true);
        break;
    case GETS_ABLE:
        w->life[i] = ABLE;
        break;
    case WANTS_ROUND:
        w->life[i] = WAITING;
        break;
    case LEAVES_SOME:
        w->leftovers = true;
        give(w, (tt__event){.kind = TT__ON_LEFTOVERS});
        break;
    case CLEARS:
        end_all(w);
        clear(w, 0);
        break;
    case CAN_NOT_KILL:
        end_all(w);
        clear(w, 1);
        break;
    case KEEPER_DIES:
        w->keeper_dead = true;
        give(w, (tt__event){.kind = TT__ON_KEEPER_LOST});
        end_all(w);
        break;
    case TIME_PASSES:
        w->now_ms += STEP_MS;
        give(w, (tt__event){.kind = TT__ON_TIME});
        break;
    case READS:
        w->reading = false;
        give(w, (tt__event){.kind = TT__ON_IDLE_READ});
        break;
    case USER_SIGNAL:
        w->signals++;
        give(w, (tt__event){.kind = TT__ON_SIGNAL, .signal = {.sig = SIGTERM}});
        break;
    default:
        break;
    }
}

/* What happens on other nodes. */
static void happens_elsewhere(world *w, happening what) {
    int attempt = tt__machine_attempt(&w->m), other = w->m.membership.round ? 1 - w->m.membership.round->own : 1;
    switch (what) {
    case ROUND_COMES:
        give_round(w);
        break;
    case NO_ROUND_COMES:
        w->joining = w->said_gone = false;
        w->ordered = 0;
        give(w, (tt__event){.kind = TT__ON_NO_ROUND, .text = "none"});
        break;
    case OTHER_FAILS:
        give_remote_end(w);
        break;
    case OTHER_WAITS:
        give(w, (tt__event){.kind = TT__ON_REMOTE_WAIT, .remote_wait = {attempt, -1}});
        break;
    case OTHER_SIGNAL:
        give(w, (tt__event){.kind = TT__ON_REMOTE_SIGNAL, .remote_signal = {other, SIGTERM}});
        break;
    case OTHER_LOST:
        w->other_lost = true;
        give_lost(w, TT__ON_LOST, other);
        break;
    case OTHER_LEAVES:
        w->other_lost = true;
        give_lost(w, TT__ON_LEFT, other);
        break;
    case SELF_LOST:
        give_lost(w, TT__ON_LOST, 1 - other);
        break;
    case ALL_GONE:
    case ALL_KEPT:
        give(w, (tt__event){.kind = TT__ON_ALL_GONE, .all_gone = {attempt, what == ALL_KEPT, false}});
        break;
    case LAST:
        give(w, (tt__event){.kind = TT__ON_LAST, .last = {attempt}});
        break;
    case REGROUP:
        give(w, (tt__event){.kind = TT__ON_REGROUP, .regroup = {attempt, "nodes change"}});
        break;
    case NEWCOMER:
        give(w, (tt__event){.kind = TT__ON_NEWCOMER, .regroup = {0, "another node joins"}});
        break;
    case MISSED:
        w->said_gone = false;
        give(w, (tt__event){.kind = TT__ON_MISSED});
        break;
    case AGAIN:
        w->rounds++;
        give(w, (tt__event){.kind = TT__ON_COORDINATOR_GONE});
        break;
    case OVER:
        w->joining = false;
        give(w, (tt__event){.kind = TT__ON_OVER});
        break;
    case DEPOSED:
        give(w, (tt__event){.kind = TT__ON_DEPOSED});
        break;
    default:
        break;
    }
}

static void happens(world *w, happening what, int i) {
    if (what < ROUND_COMES)
        happens_here(w, what, i);
    else
        happens_elsewhere(w, what);
}

#endif
