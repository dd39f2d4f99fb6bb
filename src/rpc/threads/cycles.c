#include "rpc/threads/cycles.h"

#include "base/error.h"
#include "base/machine/clock.h"
#include "base/random_bytes.h"
#include "rpc/calls/calling.h"
#include "rpc/calls/sending.h"
#include "rpc/functions/served_call.h"
#include "rpc/functions/serving.h"
#include "rpc/threads/waiting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LONG_MS = 500,     /* a wait of this length begins a search. The time doubles before each further search */
    RARELY_MS = 30000, /* the longest time before a further search */
    AT_ONCE = 8,       /* searches that begin within LONG_MS; the newest waits come first */
    PROBES_MAX =
        4096,        /* probes and marks kept here for a worker; beyond that, questions are answered with "may go on" */
    PATH_SIZE = 700, /* bytes of a path's text */
    SEARCH_MS = 10000 /* after this time probes and marks are dropped */
};

/* Flags of a PROBED packet: the call that was asked about is stuck; it is queued; a later call of the path is
 * queued. */
enum { STUCK = 1, QUEUED = 2, QUEUES = 4 };

/* A worker that was asked and has not answered. Nobody else can answer for it. */
typedef struct question {
    struct question *next;
    int to;
} question;

/* A question of a search that is being answered here, or a mark: a call that the search has seen. */
typedef struct tt__rpc_probe {
    struct tt__rpc_probe *next;
    uint64_t search; /* a random number; only workers that were asked know it */
    uint32_t id;     /* that answers from other workers carry */
    /* the worker that asked, or this one, if the search began here; its `probes` counts this probe */
    int asker;
    uint32_t asker_id; /* the id of that worker's probe */

    /* Of a search that began here: the call that the thread waits for, and the call in which it waits (0: none). */
    int origin_to;
    uint32_t origin_call;
    uint64_t origin_node;
    bool in_cycle; /* the search has come back to origin_node */

    uint64_t node;       /* of a mark: the tt__serve_key() of the call */
    bool path_is_told;   /* the text of the path has ended, because the search branches */
    int steps;           /* calls seen here */
    bool queued, queues; /* the first call of the path is queued; a later one is */
    question *open;      /* questions that were sent and not answered yet */
    int64_t since_ms;
    char path[PATH_SIZE];
} tt__rpc_probe;

/* What is known of a call or a future after looking at it. */
typedef enum look {
    LOOK_MAY_GO_ON,
    LOOK_STUCK,
    LOOK_ASKED /* another worker was asked; its answer will tell */
} look;

static look look_at_call(tt_rpc *rpc, tt__rpc_probe *probe, tt_rpc_call *call);

/* ---- probes */

static tt__rpc_probe *new_probe(tt_rpc *rpc, uint64_t search, int asker, uint64_t node) {
    tt__rpc_probe *probe = calloc(1, sizeof *probe);
    if (!probe)
        return NULL;
    probe->search = search;
    probe->asker = asker;
    rpc->peers[asker]->probes++;
    probe->id = ++rpc->last_probe;
    probe->node = node;
    probe->since_ms = tt__now_ms();
    probe->next = rpc->probes;
    rpc->probes = probe;
    return probe;
}

static void drop_probe_at(tt_rpc *rpc, tt__rpc_probe **at) {
    tt__rpc_probe *probe = *at;
    *at = probe->next;
    rpc->peers[probe->asker]->probes--;
    for (question *q; (q = probe->open);) {
        probe->open = q->next;
        free(q);
    }
    free(probe);
}

static void drop_probe(tt_rpc *rpc, const tt__rpc_probe *probe) {
    tt__rpc_probe **at = &rpc->probes;
    while (*at != probe)
        at = &(*at)->next;
    drop_probe_at(rpc, at);
}

static tt__rpc_probe *probe_of(const tt_rpc *rpc, uint32_t id) {
    tt__rpc_probe *probe = rpc->probes;
    while (probe && probe->id != id)
        probe = probe->next;
    return probe;
}

/* Has the search seen this call before? Notes if it is the call that the search began in. */
static bool was_here(const tt_rpc *rpc, uint64_t search, uint64_t node) {
    bool was = false;
    for (tt__rpc_probe *probe = rpc->probes; probe; probe = probe->next) {
        if (probe->search != search)
            continue;
        was |= probe->node == node;
        probe->in_cycle |= probe->origin_node == node;
    }
    return was;
}

/* Take the question that a worker answers; false: it was not asked. */
static bool take_asked(tt__rpc_probe *probe, int from) {
    question **at = &probe->open;
    while (*at && (*at)->to != from)
        at = &(*at)->next;
    question *answered = *at;
    if (!answered)
        return false;
    *at = answered->next;
    free(answered);
    return true;
}

static void add_path(tt__rpc_probe *probe, const char *text) {
    size_t n = strlen(probe->path);
    if (probe->path_is_told)
        return;
    snprintf(probe->path + n, sizeof probe->path - n, "%s", text);
}

/* ---- answers */

/* Fail the call that the search's thread waits for: it can never end. */
static void search_found(tt_rpc *rpc, const tt__rpc_probe *probe) {
    char why[PATH_SIZE + TT__RPC_NAME_SIZE + 120];
    snprintf(why, sizeof why, "calls wait for each other, and none can go on: worker %s waits for %s", rpc->name,
             probe->path);
    tt__call_fail(rpc, probe->origin_to, probe->origin_call, TT_ERR_MISMATCH, why);
    tt__rpc_notice(rpc);
}

static void send_answer(tt_rpc *rpc, int to, uint32_t id, int flags, const char *path) {
    tt__rpc_encoder e;
    tt__encoder_begin(&e, "");
    tt__encoder_text(&e, path);
    if (!tt__encoder_finish(&e, NULL)) {
        tt__rpc_header *header = tt__encoder_header(&e);
        header->kind = TT__RPC_PROBED;
        header->flags = (uint8_t)flags;
        header->id = id;
        tt_ignore(tt__rpc_send(rpc, to, e.data, e.size, NULL));
    }
    tt__encoder_free(&e, true);
}

/* Answer the question, or end the search that began here. If calls of the cycle are queued, only a caller of one of
 * them gets the error: its function has not begun, so giving it up undoes nothing. */
static void end_probe(tt_rpc *rpc, tt__rpc_probe *probe, bool stuck) {
    if (probe->asker != rpc->id)
        send_answer(rpc, probe->asker, probe->asker_id,
                    stuck ? STUCK | (probe->queued ? QUEUED : 0) | (probe->queues ? QUEUES : 0) : 0,
                    stuck ? probe->path : "");
    else if (stuck && probe->in_cycle && (probe->queued || !probe->queues))
        search_found(rpc, probe);
    drop_probe(rpc, probe);
}

/* ---- looking */

/* Ask worker `to` whether the call that this worker made to it can go on. */
static look ask_about_call(tt_rpc *rpc, tt__rpc_probe *probe, int to, uint32_t call) {
    tt__rpc_header header = {.kind = TT__RPC_PROBE, .id = probe->id, .context = probe->search, .serial = call};
    question *asks = calloc(1, sizeof *asks);
    if (!asks || tt__rpc_send_header(rpc, to, header)) {
        free(asks);
        return LOOK_MAY_GO_ON; /* it is lost, which ends the call */
    }
    *asks = (question){probe->open, to};
    probe->open = asks;
    return LOOK_ASKED;
}

static look look_at_future(tt_rpc *rpc, tt__rpc_probe *probe, tt_future *future) {
    int to;
    uint32_t id;
    tt_rpc_call *maker;
    if (!future || tt__future_done(future))
        return LOOK_MAY_GO_ON;
    if (tt__call_of_future(rpc, future, &to, &id)) {
        tt_rpc_call *own = to == rpc->id ? tt__serve_find(rpc, to, id) : NULL;
        return to != rpc->id ? ask_about_call(rpc, probe, to, id)
               : own         ? look_at_call(rpc, probe, own)
                             : LOOK_MAY_GO_ON;
    }
    maker = tt__serve_maker(rpc, future);
    return maker ? look_at_call(rpc, probe, maker) : LOOK_MAY_GO_ON;
}

static tt_future *future_awaited_in(const tt_rpc *rpc, const tt_rpc_call *call) {
    const tt__rpc_wait *wait = rpc->waits;
    while (wait && wait->call != call)
        wait = wait->next;
    return wait ? wait->future : NULL;
}

/* Look at all calls that threads run here. A queued call begins when any one of them ends, so one that may go on is
 * enough. */
static look look_at_all_calls(tt_rpc *rpc, tt__rpc_probe *probe, const tt_rpc_call *queued) {
    look all = LOOK_STUCK;
    tt_future *later;
    if (!tt__rpc_pool_is_stuck(rpc) && !tt__serve_is_aside(queued))
        return LOOK_MAY_GO_ON;
    add_path(probe, "one of its threads, which all wait in calls like these");
    probe->path_is_told = true;
    for (tt_rpc_call *call = tt__serve_next(rpc, NULL); call; call = tt__serve_next(rpc, call)) {
        if (tt__serve_state(call, &later) != TT__SERVED_RUNS)
            continue;
        look one = look_at_call(rpc, probe, call);
        if (one == LOOK_MAY_GO_ON)
            return one;
        if (one == LOOK_ASKED)
            all = one;
    }
    return all;
}

/* Mark a call that is served here, and look at what it waits for. */
static look look_at_call(tt_rpc *rpc, tt__rpc_probe *probe, tt_rpc_call *call) {
    char step[TT__RPC_NAME_SIZE + TT__RPC_FUNCTION_NAME + 60];
    tt_future *later;
    int bytes;
    const char *function = tt__serve_function(call, &bytes);
    if (bytes)
        snprintf(step, sizeof step, "worker %s, %.*s()", rpc->name, bytes, function);
    else
        snprintf(step, sizeof step, "worker %s, where a reference is fetched", rpc->name);
    add_path(probe, step);
    probe->steps++;
    if (was_here(rpc, probe->search, tt__serve_key(call)))
        return LOOK_STUCK;
    if (!new_probe(rpc, probe->search, probe->asker, tt__serve_key(call)))
        return LOOK_MAY_GO_ON;
    add_path(probe, ", which waits for ");
    switch (tt__serve_state(call, &later)) {
    case TT__SERVED_RUNS:
        return look_at_future(rpc, probe, future_awaited_in(rpc, call));
    case TT__SERVED_QUEUED:
        if (probe->steps == 1)
            probe->queued = true;
        else
            probe->queues = true;
        return look_at_all_calls(rpc, probe, call);
    case TT__SERVED_LATER:
        return look_at_future(rpc, probe, later);
    default:
        return LOOK_MAY_GO_ON;
    }
}

static void begin_search(tt_rpc *rpc, tt__rpc_wait *wait) {
    int to;
    uint32_t id;
    if (!tt__call_of_future(rpc, wait->future, &to, &id))
        return;
    uint64_t search;
    if (tt__random_bytes(&search, sizeof search))
        return;
    tt__rpc_probe *probe = new_probe(rpc, search, rpc->id, 0);
    if (!probe)
        return;
    probe->origin_to = to;
    probe->origin_call = id;
    probe->origin_node = wait->call ? tt__serve_key(wait->call) : 0;
    /* A cycle leads back to the call in which the thread waits. */
    if (wait->call)
        new_probe(rpc, search, rpc->id, tt__serve_key(wait->call));
    look came = look_at_future(rpc, probe, wait->future);
    if (came != LOOK_ASKED)
        end_probe(rpc, probe, came == LOOK_STUCK);
}

/* Drop probes and marks that are older than SEARCH_MS. */
static void drop_old_probes(tt_rpc *rpc, int64_t now_ms) {
    for (tt__rpc_probe **at = &rpc->probes; *at;) {
        tt__rpc_probe *probe = *at;
        if (now_ms - probe->since_ms < SEARCH_MS) {
            at = &probe->next;
            continue;
        }
        drop_probe_at(rpc, at);
    }
}

void tt__cycles_look(tt_rpc *rpc, int64_t now_ms) {
    if (rpc->probes)
        drop_old_probes(rpc, now_ms);
    if (now_ms - rpc->searched_ms >= LONG_MS) {
        rpc->searched_ms = now_ms;
        rpc->searches = 0;
    }
    for (tt__rpc_wait *wait = rpc->waits; wait && rpc->searches < AT_ONCE; wait = wait->next) {
        if (!wait->search_ms) {
            wait->search_ms = now_ms + LONG_MS;
            wait->pause_ms = LONG_MS;
        }
        if (now_ms < wait->search_ms || tt__future_done(wait->future))
            continue;
        wait->pause_ms = 2 * wait->pause_ms < RARELY_MS ? 2 * wait->pause_ms : RARELY_MS;
        wait->search_ms = now_ms + wait->pause_ms;
        rpc->searches++;
        begin_search(rpc, wait);
    }
}

/* ---- other workers */

static tt_status take_probe(tt_rpc *rpc, tt__rpc_peer *from, const tt__rpc_header *header) {
    tt_rpc_call *call = tt__serve_find(rpc, from->id, (uint32_t)header->serial);
    tt__rpc_probe *probe = call && from->probes < PROBES_MAX ? new_probe(rpc, header->context, from->id, 0) : NULL;
    if (!probe) {
        send_answer(rpc, from->id, header->id, 0, "");
        return TT_OK;
    }
    probe->asker_id = header->id;
    look came = look_at_call(rpc, probe, call);
    if (came != LOOK_ASKED)
        end_probe(rpc, probe, came == LOOK_STUCK);
    return TT_OK;
}

static tt_status take_probe_answer(tt_rpc *rpc, const tt__rpc_peer *from, const tt__rpc_packet_view *view) {
    tt__rpc_probe *probe = probe_of(rpc, view->header.id);
    tt__rpc_decoder decoder = {
        .view = view, .at = view->value, .end = view->value + view->header.value_bytes, .own = false};
    tt_rpc_value path;
    tt_status status = tt__decode_value(&decoder, &path);
    if (!status && path.kind != TT_RPC_TEXT)
        status = tt__fail(TT_ERR_PROTOCOL,
                          "expected the answer about a waiting call to be a text, got another kind of value");
    if (status) {
        tt_rpc_value_free(&path); /* what was read of it */
        return status;
    }
    if (!probe || !take_asked(probe, from->id))
        return TT_OK; /* the probe was dropped */
    if (!(view->header.flags & STUCK)) {
        end_probe(rpc, probe, false);
    } else {
        bool begins = !probe->steps; /* the call that was asked about is the first of the path */
        probe->queued |= begins && view->header.flags & QUEUED;
        probe->queues |= view->header.flags & QUEUES || (!begins && view->header.flags & QUEUED);
        add_path(probe, path.bytes.data);
        if (!probe->open)
            end_probe(rpc, probe, true);
    }
    return TT_OK;
}

tt_status tt__cycles_told(tt_rpc *rpc, tt__rpc_peer *from, const tt__rpc_packet_view *view) {
    return view->header.kind == TT__RPC_PROBE ? take_probe(rpc, from, &view->header)
                                              : take_probe_answer(rpc, from, view);
}

void tt__cycles_drop(tt_rpc *rpc) { drop_old_probes(rpc, INT64_MAX); }
