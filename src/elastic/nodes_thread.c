/* The thread that communicates with the other launchers. It reads the store a few times a second, and at once when its
 * launcher has an order. */
#include "elastic/nodes_own.h"

#include "base/clock.h"
#include "base/error.h"
#include "elastic/blob.h"

#include <jansson.h>

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BEAT_MS = 200, CONNECT_MS = 2000, QUIET_MS = 3000 };

/* The thread's own state. */
typedef struct talk {
    tt__nodes *nodes;
    tt_store *store;
    bool cut;            /* the store is not to be had any more */
    bool joined, failed; /* JOINED, FAILED were posted */
    bool told_waiting;
    bool done, over; /* the launcher's DONE was carried out; OVER was posted */
    int64_t began_ms, beats, news;
    int looks; /* 0: none under way; else its number */
    int64_t look_until_ms;
    bool *shown; /* (nodes) by whom it is answered */
    tt__snapshot seen;
} talk;

static bool thread_stopped(talk *t) {
    pthread_mutex_lock(&t->nodes->lock);
    bool stop = t->nodes->stop;
    pthread_mutex_unlock(&t->nodes->lock);
    return stop;
}

static tt__nodes_event *new_event(tt__nodes_kind kind) {
    tt__nodes_event *event = calloc(1, sizeof *event);
    if (event)
        event->kind = kind;
    return event;
}

static void post_event(talk *t, tt__nodes_kind kind, int node, int value, const char *text) {
    tt__nodes_event *event = new_event(kind);
    if (!event)
        return;
    event->node = node;
    event->value = value;
    event->text = text ? strdup(text) : NULL;
    tt__nodes_post(t->nodes, event);
}

static void fail_joining(talk *t, const char *text) {
    if (!t->failed)
        post_event(t, TT__NODES_FAILED, t->nodes->member.node, 0, text);
    t->failed = true;
}

static void lose_node(talk *t, int node, const char *text) {
    t->nodes->of[node].lost = true;
    post_event(t, TT__NODES_LOST, node, 0, text);
}

/* Check a call to the store. If it failed, node 0, which serves it, is gone or can't be reached. */
static tt_status check_store(talk *t, tt_status status) {
    if (!status || t->cut)
        return status;
    t->cut = true;
    if (!t->joined) {
        tt__fail_prefix("node 0 ended before all nodes had come (it says why)");
        fail_joining(t, tt_last_error());
    } else if (!t->nodes->of[0].lost) {
        tt__fail_prefix("the store that it serves does not answer");
        lose_node(t, 0, tt_last_error());
    }
    return status;
}

static void key_of(char key[TT__NODES_KEY], const char *what, int node) {
    snprintf(key, TT__NODES_KEY, "tutti/nodes/%s/%d", what, node);
}

/* ---- joining */

static json_t *card_of(const tt__nodes_member *m) {
    char hostname[64] = "";
    gethostname(hostname, sizeof hostname - 1);
    return json_pack("{s:s, s:s, s:i, s:i, s:b, s:b, s:b, s:s}", "version", tt_version(), "run_id", m->run_id, "nodes",
                     m->nodes, "workers", m->workers, "trace", (int)m->wants_trace, "has_secret", (int)m->has_secret,
                     "demands_it", (int)m->demands_it, "hostname", hostname);
}

static tt_status put_card(talk *t) {
    const tt__nodes_member *m = &t->nodes->member;
    char key[TT__NODES_KEY];
    int64_t claims;
    key_of(key, "claim", m->node);
    TT__TRY(tt_store_add(t->store, key, 1, &claims));
    if (claims != 1)
        return tt__fail(TT_ERR_INVALID, "another launcher is node %d already (--node-rank)", m->node);
    json_t *card = card_of(m);
    char *text = card ? json_dumps(card, JSON_COMPACT) : NULL;
    json_decref(card);
    if (!text)
        return tt__fail(TT_ERR_MEMORY, "no memory to join a job of %d nodes", m->nodes);
    key_of(key, "beat", m->node);
    tt_status status = tt_store_set(t->store, key, "0", 1);
    key_of(key, "card", m->node);
    if (!status)
        status = tt_store_set(t->store, key, text, strlen(text));
    free(text);
    return status;
}

/* Try for a short while, so that the launcher can end this; false: not yet, or never. */
static bool connect_store(talk *t) {
    const tt__nodes_member *m = &t->nodes->member;
    int64_t left = t->began_ms + m->join_ms - tt__now_ms();
    tt_status status = tt_tcp_store(&t->store, m->host, m->port, .timeout_ms = CONNECT_MS);
    if (status == TT_ERR_TIMEOUT && left > 0) {
        if (!t->told_waiting)
            post_event(t, TT__NODES_WAITS, 0, 0, "waiting for node 0, which serves the store");
        t->told_waiting = true;
        return false;
    }
    if (!status) {
        tt_store_set_timeout_ms(t->store, m->heartbeat_ms);
        status = put_card(t);
    }
    if (status == TT_ERR_TIMEOUT)
        tt__fail_prefix("node 0 did not come within %lld s", (long long)m->join_ms / 1000);
    if (status)
        fail_joining(t, tt_last_error());
    t->cut = status != TT_OK;
    return !status;
}

/* Check that the other launchers have the job secret: the store also serves clients without a proof, such as PyTorch's
 * on its own machine. */
static tt_status check_secret(const tt__nodes_member *own, int k, const tt__nodes_member *other) {
    bool lacks = own->demands_it && !other->has_secret;
    if (!lacks && (!other->demands_it || own->has_secret))
        return TT_OK;
    return tt__fail(TT_ERR_AUTH,
                    "node %d has no job secret, but node %d has one: start all nodes with the same --secret-file, "
                    "TT_SECRET or TT_SECRET_FILE (or with --store-auth=none, to do without)",
                    lacks ? k : own->node, lacks ? own->node : k);
}

static tt_status check_card(const tt__nodes_member *m, int k, const char *version, const tt__nodes_member *other) {
    if (strcmp(version, tt_version()) != 0)
        return tt__fail(TT_ERR_INVALID, "node %d runs Tutti %.20s, this one %s", k, version, tt_version());
    if (strcmp(other->run_id, m->run_id) != 0)
        return tt__fail(TT_ERR_INVALID, "node %d belongs to job \"%.60s\", this one to \"%.60s\" (--rdzv-id)", k,
                        other->run_id, m->run_id);
    if (other->nodes != m->nodes)
        return tt__fail(TT_ERR_INVALID, "node %d was started with --nnodes=%d, this one with --nnodes=%d", k,
                        other->nodes, m->nodes);
    if (other->workers < 1)
        return tt__fail(TT_ERR_PROTOCOL, "node %d says that it has %d workers", k, other->workers);
    return check_secret(m, k, other);
}

static tt_status take_card(talk *t, int k, const char *text) {
    tt__node *node = &t->nodes->of[k];
    tt__nodes_member other = {.node = k};
    const char *version, *hostname;
    int trace = 0, has_secret = 0, demands_it = 0;
    json_t *card = json_loads(text, 0, NULL);
    tt_status status = TT_OK;
    if (!card || json_unpack(card, "{s:s, s:s, s:i, s:i, s:b, s:b, s:b, s:s}", "version", &version, "run_id",
                             &other.run_id, "nodes", &other.nodes, "workers", &other.workers, "trace", &trace,
                             "has_secret", &has_secret, "demands_it", &demands_it, "hostname", &hostname))
        status = tt__fail(TT_ERR_PROTOCOL, "what node %d says of itself is not understood: \"%.100s\"", k, text);
    if (!status) {
        other.has_secret = has_secret;
        other.demands_it = demands_it;
        status = check_card(&t->nodes->member, k, version, &other);
    }
    if (!status) {
        snprintf(node->hostname, sizeof node->hostname, "%s", hostname);
        t->nodes->want_final = t->nodes->want_final || trace;
        node->workers = other.workers;
        node->here = true;
        node->beat_ms = tt__now_ms();
    }
    json_decref(card);
    return status;
}

/* Number the ranks through the nodes, when all have joined. */
static void number_ranks(talk *t) {
    tt__nodes *nodes = t->nodes;
    for (int k = 0; k < nodes->member.nodes; k++) {
        nodes->of[k].first_rank = nodes->world;
        nodes->world += nodes->of[k].workers;
    }
    t->joined = true;
    post_event(t, TT__NODES_JOINED, nodes->member.node, 0, NULL);
}

static void tell_missing(talk *t) {
    char text[256] = "waiting for";
    size_t used = strlen(text);
    for (int k = 0; k < t->nodes->member.nodes && used < sizeof text; k++)
        if (!t->nodes->of[k].here)
            used += (size_t)snprintf(text + used, sizeof text - used, " node %d", k);
    int64_t waited = tt__now_ms() - t->began_ms;
    if (waited > t->nodes->member.join_ms) {
        tt__fail(TT_ERR_TIMEOUT, "not all of %d nodes came within %lld s: %s", t->nodes->member.nodes,
                 (long long)t->nodes->member.join_ms / 1000, text);
        fail_joining(t, tt_last_error());
    } else if (waited > QUIET_MS && !t->told_waiting) {
        t->told_waiting = true;
        post_event(t, TT__NODES_WAITS, 0, 0, text);
    }
}

static void read_cards(talk *t) {
    bool all = true;
    for (int k = 0; k < t->nodes->member.nodes && !t->cut && !t->failed; k++) {
        char key[TT__NODES_KEY];
        const char *keys[] = {key};
        bool there = false;
        tt_store_value value;
        if (t->nodes->of[k].here)
            continue;
        key_of(key, "card", k);
        if (check_store(t, tt_store_check(t->store, keys, 1, &there)))
            return;
        all = all && there;
        if (!there || check_store(t, tt_store_get(t->store, key, &value)))
            continue;
        if (take_card(t, k, value.data))
            fail_joining(t, tt_last_error());
        tt_store_value_free(&value);
    }
    if (t->cut || t->failed)
        return;
    if (all)
        number_ranks(t);
    else
        tell_missing(t);
}

/* ---- beats */

static void put_news(talk *t, const char *text, size_t size) {
    int64_t number;
    char key[TT__NODES_KEY];
    if (check_store(t, tt_store_add(t->store, "tutti/nodes/news", 1, &number)))
        return;
    key_of(key, "news", (int)number);
    check_store(t, tt_store_set(t->store, key, text, size));
}

static void see_beat(talk *t, int k, const char *beat) {
    tt__node *node = &t->nodes->of[k];
    const tt__nodes_member *m = &t->nodes->member;
    int64_t now = tt__now_ms();
    if (strcmp(beat, node->beat) != 0) {
        snprintf(node->beat, sizeof node->beat, "%s", beat);
        node->beat_ms = now;
        return;
    }
    if (k == m->node || node->done || node->lost || now - node->beat_ms < m->heartbeat_ms)
        return;
    char text[160];
    snprintf(text, sizeof text, "its launcher has been silent for %.1f s", (double)(now - node->beat_ms) / 1000);
    if (!t->joined) {
        tt__fail(TT_ERR_PEER, "node %d (%s) is lost: %s", k, node->hostname, text);
        fail_joining(t, tt_last_error());
        return;
    }
    lose_node(t, k, text);
    char news[64];
    int n = snprintf(news, sizeof news, "{\"what\":\"lost\",\"lost\":%d,\"node\":%d}", k, m->node);
    put_news(t, news, (size_t)n);
}

static void exchange_beats(talk *t) {
    char key[TT__NODES_KEY], number[24];
    key_of(key, "beat", t->nodes->member.node);
    int n = snprintf(number, sizeof number, "%lld", (long long)++t->beats);
    check_store(t, tt_store_set(t->store, key, number, (size_t)n));
    for (int k = 0; k < t->nodes->member.nodes && !t->cut; k++) {
        tt_store_value value;
        if (!t->nodes->of[k].here || k == t->nodes->member.node)
            continue;
        key_of(key, "beat", k);
        if (check_store(t, tt_store_get(t->store, key, &value)))
            return;
        see_beat(t, k, value.data);
        tt_store_value_free(&value);
    }
}

/* ---- news */

static void take_end(talk *t, int node, const json_t *news) {
    tt__nodes_event *event = new_event(TT__NODES_ENDED);
    json_int_t when = 0;
    const char *message = NULL, *tail = NULL;
    int secondary = 0, pid = 0;
    if (!event)
        return;
    tt__worker *w = &event->worker;
    if (json_unpack((json_t *)(uintptr_t)news, "{s:i, s:i, s:i, s:i, s:i, s:b, s:s, s:s, s:I}", "rank", &event->rank,
                    "pid", &pid, "status", &w->status, "exec_errno", &w->exec_errno, "told", &w->sent_signal,
                    "secondary", &secondary, "message", &message, "tail", &tail, "when", &when) ||
        event->rank < 0 || event->rank >= t->nodes->world) {
        tt__nodes_event_free(event);
        return;
    }
    event->node = node;
    w->ended = true;
    w->pid = pid;
    w->secondary = secondary;
    w->when.realtime_ns = tt__ns_checked(when < 0 ? 0 : when);
    w->message = *message ? strdup(message) : NULL;
    event->text = strdup(tail);
    tt__nodes_post(t->nodes, event);
}

static void take_lost(talk *t, int by, int lost) {
    const tt__nodes_member *m = &t->nodes->member;
    char text[96];
    if (lost < 0 || lost >= m->nodes || t->nodes->of[lost].lost)
        return;
    if (lost == m->node)
        snprintf(text, sizeof text, "node %d has heard nothing of it for the heartbeat", by);
    else
        snprintf(text, sizeof text, "node %d has lost it", by);
    lose_node(t, lost, text);
}

static void take_news(talk *t, const char *text) {
    json_t *news = json_loads(text, 0, NULL);
    const char *what = json_string_value(json_object_get(news, "what"));
    int node = (int)json_integer_value(json_object_get(news, "node"));
    bool own = node == t->nodes->member.node;
    if (what && node >= 0 && node < t->nodes->member.nodes) {
        if (!strcmp(what, "done"))
            t->nodes->of[node].done = true;
        else if (!strcmp(what, "ended") && !own)
            take_end(t, node, news);
        else if (!strcmp(what, "signal") && !own)
            post_event(t, TT__NODES_SIGNAL, node, (int)json_integer_value(json_object_get(news, "signal")), NULL);
        else if (!strcmp(what, "lost") && !own)
            take_lost(t, node, (int)json_integer_value(json_object_get(news, "lost")));
        else if (!strcmp(what, "look") && !own)
            post_event(t, TT__NODES_LOOK, node, (int)json_integer_value(json_object_get(news, "id")), NULL);
    }
    json_decref(news);
}

static void read_news(talk *t) {
    int64_t count = 0;
    if (check_store(t, tt_store_add(t->store, "tutti/nodes/news", 0, &count)))
        return;
    while (t->news < count) {
        char key[TT__NODES_KEY];
        tt_store_value value;
        key_of(key, "news", (int)(t->news + 1));
        if (check_store(t, tt_store_get(t->store, key, &value)))
            return;
        t->news++;
        take_news(t, value.data);
        tt_store_value_free(&value);
    }
}

/* ---- looks */

static void end_look(talk *t) {
    tt__nodes_event *event = new_event(TT__NODES_SEEN);
    if (event)
        event->snapshot = t->seen;
    else
        tt__snapshot_free(&t->seen);
    t->seen = (tt__snapshot){0};
    t->looks = 0;
    if (event)
        tt__nodes_post(t->nodes, event);
}

static void begin_look(talk *t, int64_t timeout_ms) {
    int64_t id;
    char news[64];
    if (t->looks)
        return;
    if (!t->joined || t->cut || check_store(t, tt_store_add(t->store, "tutti/nodes/looks", 1, &id))) {
        end_look(t);
        return;
    }
    t->looks = (int)id;
    t->look_until_ms = tt__deadline_ms(timeout_ms);
    memset(t->shown, 0, (size_t)t->nodes->member.nodes * sizeof *t->shown);
    int n = snprintf(news, sizeof news, "{\"what\":\"look\",\"id\":%lld,\"node\":%d}", (long long)id,
                     t->nodes->member.node);
    put_news(t, news, (size_t)n);
}

/* Read what node k put under `key` into `snapshot`, if it has; false: not yet. */
static bool read_blob(talk *t, const char *key, tt__snapshot *snapshot) {
    bool there = false;
    tt_store_value value;
    if (check_store(t, tt_store_check(t->store, &key, 1, &there)) || !there ||
        check_store(t, tt_store_get(t->store, key, &value)))
        return false;
    if (tt__blob_unpack(snapshot, value.data, value.size))
        tt__log(TT_LOG_WARNING, "%s: %s", key, tt_last_error());
    tt_store_value_free(&value);
    check_store(t, tt_store_delete_key(t->store, key, NULL));
    return true;
}

static void continue_look(talk *t) {
    bool all = true;
    for (int k = 0; k < t->nodes->member.nodes; k++) {
        char key[TT__NODES_KEY];
        if (t->shown[k] || t->nodes->of[k].lost || k == t->nodes->member.node)
            continue;
        snprintf(key, sizeof key, "tutti/nodes/look/%d/%d", t->looks, k);
        t->shown[k] = !t->cut && read_blob(t, key, &t->seen);
        all = all && t->shown[k];
    }
    if (all || t->cut || tt__now_ms() > t->look_until_ms)
        end_look(t);
}

/* ---- the end */

static void read_final(talk *t, tt__snapshot *snapshot) {
    for (int k = 0; k < t->nodes->member.nodes && !t->cut; k++) {
        char key[TT__NODES_KEY];
        key_of(key, "final", k);
        if (k != t->nodes->member.node && !t->nodes->of[k].lost)
            read_blob(t, key, snapshot);
    }
}

/* Wait, on node 0, until the other nodes have read all they need from the store. */
static void wait_for_leavers(talk *t) {
    int64_t deadline = tt__deadline_ms(t->nodes->member.heartbeat_ms), left = 0;
    int expected = 0;
    for (int k = 1; k < t->nodes->member.nodes; k++)
        expected += !t->nodes->of[k].lost;
    while (!t->cut && !thread_stopped(t) && left < expected && tt__left_ms(deadline) > 0) {
        if (!check_store(t, tt_store_add(t->store, "tutti/nodes/left", 0, &left)) && left < expected)
            poll(NULL, 0, 20);
    }
}

static void check_over(talk *t) {
    bool all = true;
    for (int k = 0; k < t->nodes->member.nodes; k++)
        all = all && (t->nodes->of[k].done || t->nodes->of[k].lost);
    if (!t->done || t->over || !(all || t->cut))
        return;
    tt__nodes_event *event = new_event(TT__NODES_OVER);
    if (!event)
        return;
    if (t->nodes->member.wants_trace)
        read_final(t, &event->snapshot);
    if (t->nodes->member.node == 0)
        wait_for_leavers(t);
    else if (!t->cut)
        check_store(t, tt_store_add(t->store, "tutti/nodes/left", 1, NULL));
    t->over = true;
    tt__nodes_post(t->nodes, event);
}

/* ---- the loop */

static tt__order *next_order(talk *t) {
    tt__nodes *nodes = t->nodes;
    pthread_mutex_lock(&nodes->lock);
    tt__order *order = nodes->orders;
    if (order && !(nodes->orders = order->next))
        nodes->orders_end = &nodes->orders;
    pthread_mutex_unlock(&nodes->lock);
    return order;
}

static void execute_orders(talk *t) {
    for (tt__order *order; (order = next_order(t));) {
        if (order->kind == TT__ORDER_DONE)
            t->done = true;
        else if (order->kind == TT__ORDER_LOOK)
            begin_look(t, order->timeout_ms);
        else if (order->kind == TT__ORDER_SET && t->store && !t->cut)
            check_store(t, tt_store_set(t->store, order->key, order->bytes, order->size));
        else if (order->kind == TT__ORDER_NEWS && t->store && !t->cut)
            put_news(t, order->bytes, order->size);
        free(order->bytes);
        free(order);
    }
}

static void talk_step(talk *t) {
    if (!t->store && !t->failed && !connect_store(t))
        return;
    if (!t->cut && t->store)
        exchange_beats(t);
    if (!t->cut && !t->joined && !t->failed)
        read_cards(t);
    execute_orders(t);
    if (!t->cut && t->joined)
        read_news(t);
    if (t->looks)
        continue_look(t);
    check_over(t);
}

static void sleep_a_beat(const talk *t) {
    struct pollfd wake = {.fd = t->nodes->wake_fd, .events = POLLIN};
    uint64_t count;
    if (poll(&wake, 1, t->looks ? BEAT_MS / 8 : BEAT_MS) > 0 && read(wake.fd, &count, sizeof count) < 0)
        count = 0;
}

void *tt__nodes_thread(void *arg) {
    tt__nodes *nodes = arg;
    talk t = {.nodes = nodes, .began_ms = tt__now_ms()};
    t.shown = calloc((size_t)nodes->member.nodes, sizeof *t.shown);
    if (!t.shown)
        fail_joining(&t, "no memory to join the other nodes");
    while (!thread_stopped(&t)) {
        if (t.shown)
            talk_step(&t);
        sleep_a_beat(&t);
    }
    if (t.shown && t.joined)
        execute_orders(&t); /* a last word */
    tt__snapshot_free(&t.seen);
    tt_store_free(t.store);
    free(t.shown);
    return NULL;
}
