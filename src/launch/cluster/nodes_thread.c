/* The thread that communicates with the other launchers, and the orders that the launcher has for it. It reads the
 * store a few times a second, and at once when there is an order. */
#include "launch/cluster/nodes.h"

#include "base/build.h"
#include "base/error.h"
#include "base/machine/clock.h"
#include "base/process/threads.h"
#include "base/process/waits.h"
#include "base/text/json.h"
#include "launch/cluster/nodes_talk.h"
#include "launch/local/snapshot.h"
#include "store/server/renewal.h"
#include "store/signed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BEAT_MS = 200, NOTES_MS = 1000 };

/* An order of the launcher for the thread. */
typedef struct tt__order {
    struct tt__order *next;
    enum {
        ORDER_NOTE, /* set `key`, for the ranks */
        ORDER_BLOB, /* set `key` and this member's number, for the other launchers */
        ORDER_NEWS,
        ORDER_LOOK,
        ORDER_GONE,
        ORDER_CLOSE,
        ORDER_ROUND,
        ORDER_DONE
    } kind;
    char key[TT__NODES_KEY];
    void *bytes; /* NOTE, BLOB: the value */
    size_t size;
    json_t *news;             /* NEWS */
    int64_t timeout_ms;       /* LOOK */
    tt__gone gone;            /* GONE */
    tt__counts counts;        /* ROUND */
    tt_store_server *renewed; /* ROUND: or NULL */
} tt__order;

static void order_free(tt__order *order) {
    free(order->bytes);
    json_decref(order->news);
    free(order);
}

/* ---- in the launcher: orders. An order for which there is no memory is dropped: none is worth ending a job for. */

/* Post a copy of an order. Takes over what it holds. */
static void order_post(tt__nodes *nodes, const tt__order *order) {
    tt__order *new = malloc(sizeof *new);
    if (!new) {
        free(order->bytes);
        json_decref(order->news);
        return;
    }
    *new = *order;
    pthread_mutex_lock(&nodes->lock);
    *nodes->orders_end = new;
    nodes->orders_end = &new->next;
    pthread_mutex_unlock(&nodes->lock);
    tt__wake_ring(nodes->wake_fd);
}

static void order_post_news(tt__nodes *nodes, json_t *news) {
    if (news)
        order_post(nodes, &(tt__order){.kind = ORDER_NEWS, .news = news});
}

void tt__nodes_leave_note(tt__nodes *nodes, const char *key, const char *text) {
    tt__order order = {.kind = ORDER_NOTE, .bytes = strdup(text), .size = strlen(text)};
    snprintf(order.key, sizeof order.key, "%s", key);
    if (order.bytes)
        order_post(nodes, &order);
}

void tt__nodes_announce_end(tt__nodes *nodes, int attempt, int rank, const tt__worker *w, const char *tail) {
    order_post_news(nodes, json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:b, s:o, s:o, s:o, s:I, s:I, s:I}",
                                     "what", "ended", "attempt", attempt, "rank", rank, "pid", (int)w->pid, "status",
                                     w->status, "exec_errno", w->exec_errno, "told", w->sent_signal, "secondary",
                                     !TT__MUTANT(consequence_not_told) && w->secondary, "waited",
                                     !TT__MUTANT(waited_not_told) && w->waited, "message", tt__json_text(w->message),
                                     "tail", tt__json_text(tail), "account", tt__json_text(w->account), "when",
                                     (json_int_t)w->when.realtime_ns, "error_s", (json_int_t)w->error_s, "signal_s",
                                     (json_int_t)w->signal_s));
}

void tt__nodes_announce_signal(tt__nodes *nodes, int sig) {
    order_post_news(nodes, json_pack("{s:s, s:i}", "what", "signal", "signal", sig));
}

void tt__nodes_announce_gone(tt__nodes *nodes, const tt__gone *gone) {
    order_post_news(nodes, json_pack("{s:s, s:i, s:b, s:b, s:i}", "what", "gone", "attempt", gone->attempt, "kept",
                                     (int)gone->kept, "well", (int)gone->well, "blamed", gone->blamed));
    order_post(nodes, &(tt__order){.kind = ORDER_GONE, .gone = *gone});
}

void tt__nodes_announce_success(tt__nodes *nodes, int attempt) {
    order_post_news(nodes, json_pack("{s:s, s:i}", "what", "success", "attempt", attempt));
    order_post(nodes, &(tt__order){.kind = ORDER_CLOSE});
}

void tt__nodes_order_round(tt__nodes *nodes, const tt__counts *counts, tt_store_server *renewed) {
    order_post(nodes, &(tt__order){.kind = ORDER_ROUND, .counts = *counts, .renewed = renewed});
}

void tt__nodes_announce_regroup(tt__nodes *nodes, int attempt, const char *why) {
    order_post_news(nodes,
                    json_pack("{s:s, s:i, s:o}", "what", "regroup", "attempt", attempt, "text", tt__json_text(why)));
}

void tt__nodes_announce_last(tt__nodes *nodes, int attempt) {
    order_post_news(nodes, json_pack("{s:s, s:i}", "what", "last", "attempt", attempt));
}

void tt__nodes_look(tt__nodes *nodes, int64_t timeout_ms) {
    order_post(nodes, &(tt__order){.kind = ORDER_LOOK, .timeout_ms = timeout_ms});
}

/* Put a snapshot under "KEY" and this member's number. */
static void order_post_blob(tt__nodes *nodes, const char *key, const tt__snapshot *snapshot) {
    tt__order order = {.kind = ORDER_BLOB};
    snprintf(order.key, sizeof order.key, "%s", key);
    if (tt__blob_pack(snapshot, snapshot->info.node, &order.bytes, &order.size))
        return;
    order_post(nodes, &order);
}

void tt__nodes_show(tt__nodes *nodes, int id, const tt__snapshot *snapshot) {
    char key[TT__NODES_KEY];
    snprintf(key, sizeof key, "tutti/nodes/look/%d/", id);
    order_post_blob(nodes, key, snapshot);
}

void tt__nodes_announce_done(tt__nodes *nodes, const tt__snapshot *final) {
    if (final)
        order_post_blob(nodes, "tutti/nodes/final/", final);
    order_post_news(nodes, json_pack("{s:s}", "what", "done"));
    order_post(nodes, &(tt__order){.kind = ORDER_DONE});
}

/* ---- in the thread: looks */

static void end_look(tt__talk *t) {
    tt__talk_post(t, &(tt__nodes_event){.kind = TT__NODES_SEEN, .snapshot = t->look.seen});
    t->look.seen = (tt__snapshot){0};
    t->look.id = 0;
}

static void begin_look(tt__talk *t, int64_t timeout_ms) {
    int64_t id;
    if (t->look.id)
        return;
    if (!t->round || t->cut || tt__talk_note_status(t, tt_store_add(t->store, "tutti/nodes/looks", 1, &id))) {
        end_look(t);
        return;
    }
    t->look.id = (int)id;
    t->look.until_ms = tt__deadline_ms(timeout_ms);
    memset(t->look.shown, 0, (size_t)t->round->n * sizeof *t->look.shown);
    tt__talk_announce_json(t, json_pack("{s:s, s:i}", "what", "look", "id", (int)id));
}

/* Read what node `k` put under `key` into `snapshot`, if it has; false: not yet. The coordinator does not repeat it,
 * and members don't know each other's nonces: the context is the coordinator's. */
static bool read_blob(tt__talk *t, int k, const char *key, tt__snapshot *snapshot) {
    tt_store_value value;
    if (!tt__talk_fetch(t, key, &value))
        return false;
    if (tt__signed_open(&value, &t->secret, key, t->of[0].nonce) ||
        tt__blob_unpack(snapshot, t->round->of[k].workers, value.data, value.size))
        tt__log(TT_LOG_WARNING, "%s: %s", key, tt_last_error());
    tt_store_value_free(&value);
    tt__talk_note_status(t, tt_store_delete_key(t->store, key, NULL));
    return true;
}

static void continue_look(tt__talk *t) {
    bool all = true;
    for (int k = 0; t->round && k < t->round->n; k++) {
        char key[TT__NODES_KEY];
        int id = t->round->of[k].member;
        const tt__node *node = tt__talk_node(t, id);
        if (t->look.shown[k] || (node && node->lost) || id == t->id)
            continue;
        snprintf(key, sizeof key, "tutti/nodes/look/%d/%d", t->look.id, id);
        t->look.shown[k] = !t->cut && read_blob(t, k, key, &t->look.seen);
        all = all && t->look.shown[k];
    }
    if (all || t->cut || tt__now_ms() > t->look.until_ms)
        end_look(t);
}

/* ---- the end */

static void read_final(tt__talk *t, tt__snapshot *snapshot) {
    for (int k = 0; k < t->round->n && !t->cut; k++) {
        char key[TT__NODES_KEY];
        tt__talk_key(key, "final", t->round->of[k].member);
        if (t->round->of[k].member != t->id)
            read_blob(t, k, key, snapshot);
    }
}

/* Have all nodes ended, as far as this one can know? */
static bool all_ended(const tt__talk *t) {
    /* without the store no other node can be reached */
    if (!TT__MUTANT(waits_for_unreachable_store) && t->cut)
        return true;
    if (!t->nodes->member.coordinates)
        return t->of[0].done || t->of[0].lost;
    for (int k = 0; t->round && k < t->round->n; k++)
        if (TT__MUTANT(end_waits_for_lost) ? !t->of[t->round->of[k].member].done
                                           : tt__node_lives(&t->of[t->round->of[k].member]))
            return false;
    return true;
}

/* Once all nodes have ended: as the coordinator, tell the others; then tell the launcher. */
static void tell_if_over(tt__talk *t) {
    bool spare = !t->round && !t->nodes->member.coordinates && t->known && t->of[0].done;
    if (t->over || t->failed || !(t->done || spare) || !all_ended(t))
        return;
    if (t->nodes->member.coordinates && t->round && !t->cut)
        tt__talk_announce_json(t, json_pack("{s:s, s:o}", "what", "over", "to", tt__talk_nonces(t)));
    tt__nodes_event event = {.event = {.kind = TT__ON_OVER}};
    if (t->nodes->member.job->at_end && t->round)
        read_final(t, &event.snapshot);
    if (t->nodes->member.coordinates) {
        if (!TT__MUTANT(node_0_leaves_early))
            tt__talk_wait_for_leavers(t);
    } else if (!t->cut)
        tt__talk_note_status(t, tt__talk_put_left(t));
    t->over = tt__talk_post(t, &event);
}

/* ---- orders are carried out */

static tt__order *next_order(tt__talk *t) {
    tt__nodes *nodes = t->nodes;
    pthread_mutex_lock(&nodes->lock);
    tt__order *order = nodes->orders;
    if (order && !(nodes->orders = order->next))
        nodes->orders_end = &nodes->orders;
    pthread_mutex_unlock(&nodes->lock);
    return order;
}

static void take_own_gone(tt__talk *t, const tt__gone *gone) {
    if (t->nodes->member.coordinates) {
        t->of[0].attempts_over = gone->attempt + 1;
        t->of[0].kept = gone->kept;
        t->of[0].well = gone->well;
    } else if (gone->attempt >=
               t->attempts_over) { /* the first time: later news the coordinator may not read before a round */
        t->own_news.of_before = t->own_news.sent;
        t->attempts_over = gone->attempt + 1;
    }
}

static void take_own_done(tt__talk *t) {
    t->done = true;
    if (t->nodes->member.coordinates && t->known)
        t->of[0].done = true;
}

static void put_blob(tt__talk *t, tt__order *order) {
    size_t used = strlen(order->key);
    snprintf(order->key + used, sizeof order->key - used, "%d", t->id);
    tt__talk_note_status(
        t, tt__signed_set(t->store, &t->secret, order->key, t->known ? t->of[0].nonce : "", order->bytes, order->size));
}

/* Leave a note for the ranks. They know the store's life since its last renewal, and this launcher's own connection
 * may be older. So the note goes over another one. Only the texts of errors depend on it. */
static void leave_note(tt__talk *t, const tt__order *order) {
    const tt__nodes_member *m = &t->nodes->member;
    if (!t->notes && tt_tcp_store(&t->notes, m->host, m->port, .timeout_ms = NOTES_MS))
        t->notes = NULL;
    if (t->notes &&
        tt__signed_set(t->notes, &t->secret, order->key, tt__store_life(t->notes), order->bytes, order->size)) {
        tt_store_free(t->notes);
        t->notes = NULL;
    }
    if (!t->notes)
        tt__log(TT_LOG_DEBUG, "how a rank ended is not noted: %s", tt_last_error());
}

static void announce(tt__talk *t, tt__order *order) {
    tt__talk_announce_json(t, order->news);
    order->news = NULL;
    if (t->nodes->member.job->max_restarts || tt__talk_is_elastic(t))
        tt__talk_expect_news(t);
}

/* Order the next round. All earlier writes must reach the store before it is renewed. Writes have no reply, so a
 * question follows: its reply comes after them. */
static void renew_and_order_round(tt__talk *t, const tt__order *order) {
    char key[TT__NODES_KEY];
    const char *keys[] = {key};
    bool there;
    tt__talk_key(key, "beat", t->id);
    if (order->renewed && t->store && !t->cut)
        tt__talk_note_status(t, tt_store_check(t->store, keys, 1, &there));
    if (order->renewed)
        tt__store_server_renew(order->renewed);
    tt__talk_order_round(t, &order->counts);
}

static void execute_order(tt__talk *t, tt__order *order) {
    bool can_talk = t->store && !t->cut;
    if (order->kind == ORDER_DONE)
        take_own_done(t);
    else if (order->kind == ORDER_GONE)
        take_own_gone(t, &order->gone);
    else if (order->kind == ORDER_ROUND)
        renew_and_order_round(t, order);
    else if (order->kind == ORDER_CLOSE)
        t->closed = true;
    else if (order->kind == ORDER_LOOK)
        begin_look(t, order->timeout_ms);
    else if (order->kind == ORDER_NOTE && can_talk && !t->trust.given_up)
        leave_note(t, order);
    else if (order->kind == ORDER_BLOB && can_talk && !t->trust.given_up)
        put_blob(t, order);
    else if (order->kind == ORDER_NEWS && can_talk)
        announce(t, order);
}

/* Is it known that the coordinator has not given this member up, or does that not matter? */
static bool is_trusted(const tt__talk *t) {
    bool asks = tt__talk_replaces(t) && !t->nodes->member.coordinates && t->round && !t->trust.given_up && !t->cut;
    return !asks || tt__now_ms() - t->trust.heard_ms < t->nodes->member.job->heartbeat_ms / 2;
}

/* Note that all that the coordinator has said is read. If this member stood still, the coordinator may be giving it
 * up right now: two beats later it has said so. */
static void note_heard(tt__talk *t) {
    int64_t now = tt__now_ms();
    bool late = t->trust.heard_ms && now - t->trust.heard_ms >= t->nodes->member.job->heartbeat_ms / 2;
    if (late && !t->trust.awaited_beats)
        t->trust.awaited_beats = t->of[0].beats + 2;
    if (late && t->of[0].beats < t->trust.awaited_beats)
        return;
    t->trust.awaited_beats = 0;
    t->trust.heard_ms = now;
    if (!t->trust.given_up)
        tt__nodes_believe(t->nodes, now);
}

static void execute_orders(tt__talk *t) {
    for (tt__order *order; is_trusted(t) && (order = next_order(t));) {
        execute_order(t, order);
        order_free(order);
    }
}

/* ---- the loop */

static void talk_step(tt__talk *t) {
    tt__talk_watch_election(t);
    if (!t->store && !t->failed && !tt__talk_connect(t))
        return;
    if (!t->cut && t->store)
        tt__talk_exchange_beats(t);
    if (!t->cut && !t->failed && t->store)
        tt__talk_read_cards(t);
    execute_orders(t);
    if (!t->cut && !t->failed && t->store)
        tt__talk_read_news(t);
    if (!t->cut && t->store && t->known && t->of[0].card == TT__CARD_READ)
        note_heard(t);
    if (t->nodes->member.coordinates && !t->cut && !t->failed && t->store) {
        tt__talk_tell_all_gone(t);
        if (tt__talk_may_compose(t))
            tt__talk_compose(t);
    }
    if (t->look.id)
        continue_look(t);
    tell_if_over(t);
}

static void sleep_a_beat(const tt__talk *t) {
    struct pollfd wake = {.fd = t->nodes->wake_fd, .events = POLLIN};
    bool often = t->look.id || tt__now_ms() < t->hurry_until_ms || (!t->round && t->store);
    if (tt__poll(&wake, 1, often ? BEAT_MS / 8 : BEAT_MS))
        tt__wake_clear(wake.fd);
}

static void talk_free(tt__talk *t) {
    tt__snapshot_free(&t->look.seen);
    json_decref(t->repeats);
    json_decref(t->joining.foretold);
    tt_store_free(t->notes);
    tt_store_free(t->store);
    tt__secret_wipe(&t->secret);
    free(t->look.shown);
    free(t->round);
    free(t->of);
}

static void *talk_until_stopped(void *arg) {
    tt__nodes *nodes = arg;
    tt__talk t = {.nodes = nodes, .began_ms = tt__now_ms()};
    if (tt__secret_load(&t.secret))
        tt__talk_fail(&t, tt_last_error());
    if (nodes->member.coordinates)
        tt__talk_order_first_round(&t);
    while (!tt__talk_stopped(&t)) {
        if (!t.over) /* the coordinator's store may go from then on */
            talk_step(&t);
        sleep_a_beat(&t);
    }
    if (t.round)
        execute_orders(&t); /* a last word */
    talk_free(&t);
    return NULL;
}

/* ---- in the launcher: the beginning and the end of the thread */

static tt_status start_thread(tt__nodes *nodes) {
    tt_status status =
        tt__thread_create(&nodes->thread, talk_until_stopped, nodes, "the thread that talks to other nodes");
    nodes->started = !status;
    return status;
}

tt_status tt__nodes_start(tt__nodes **out, const tt__nodes_member *member) {
    tt__nodes *nodes = *out = calloc(1, sizeof *nodes);
    if (!nodes)
        return tt__fail(TT_ERR_MEMORY, "no memory for a job of %d nodes", member->job->max_nodes);
    nodes->member = *member;
    nodes->events_end = &nodes->events;
    nodes->orders_end = &nodes->orders;
    pthread_mutex_init(&nodes->lock, NULL);
    nodes->wake_fd = -1;
    tt_status status = tt__wake_open(&nodes->events_fd);
    if (!status)
        status = tt__wake_open(&nodes->wake_fd);
    if (!status)
        status = start_thread(nodes);
    if (status) {
        tt__nodes_free(nodes);
        *out = NULL;
    }
    return status;
}

void tt__nodes_free(tt__nodes *nodes) {
    if (!nodes)
        return;
    pthread_mutex_lock(&nodes->lock);
    nodes->stop = true;
    pthread_mutex_unlock(&nodes->lock);
    if (nodes->started) {
        tt__wake_ring(nodes->wake_fd);
        tt__thread_join(nodes->thread);
    }
    for (tt__nodes_event *event; (event = nodes->events);) {
        nodes->events = event->next;
        tt__nodes_event_free(event);
    }
    for (tt__order *order; (order = nodes->orders);) {
        nodes->orders = order->next;
        order_free(order);
    }
    tt__wake_close(nodes->events_fd);
    tt__wake_close(nodes->wake_fd);
    pthread_mutex_destroy(&nodes->lock);
    free(nodes);
}
