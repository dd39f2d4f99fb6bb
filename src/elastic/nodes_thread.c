/* The thread that communicates with the other launchers. It reads the store a few times a second, and at once when its
 * launcher has an order. */
#include "elastic/nodes_talk.h"

#include "base/clock.h"
#include "base/error.h"
#include "elastic/blob.h"
#include "store/signed.h"

#include <jansson.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BEAT_MS = 200, HURRY_MS = 1000 };

static bool thread_stopped(tt__talk *t) {
    pthread_mutex_lock(&t->nodes->lock);
    bool stop = t->nodes->stop;
    pthread_mutex_unlock(&t->nodes->lock);
    return stop;
}

/* ---- beats */

static void news_key(char key[TT__NODES_KEY], int node, int64_t number) {
    snprintf(key, TT__NODES_KEY, "tutti/nodes/news/%d/%lld", node, (long long)number);
}

static void put_news(tt__talk *t, const char *text, size_t size) {
    char key[TT__NODES_KEY];
    news_key(key, t->nodes->member.node, t->news + 1);
    if (tt__talk_check(t, tt__talk_put(t, key, text, size)))
        return;
    t->news++;
    tt__talk_check(t, tt__talk_beat(t));
}

/* Take node k's beat; false: it is not later than the last. */
static bool take_beat(tt__talk *t, int k, const char *beat) {
    tt__node *node = &t->nodes->of[k];
    long long beats, news;
    if (sscanf(beat, "%lld %lld", &beats, &news) != 2 || beats <= node->beats)
        return false;
    node->beats = beats;
    node->news = news;
    node->beat_ms = tt__now_ms();
    return true;
}

/* Node k has no new beat: is it lost? */
static void miss_beat(tt__talk *t, int k) {
    const tt__node *node = &t->nodes->of[k];
    const tt__nodes_member *m = &t->nodes->member;
    int64_t now = tt__now_ms();
    if (node->done || node->lost || now - node->beat_ms < m->heartbeat_ms)
        return;
    char text[160];
    snprintf(text, sizeof text, "its launcher has been silent for %.1f s", (double)(now - node->beat_ms) / 1000);
    if (!t->joined) {
        tt__fail(TT_ERR_PEER, "node %d (%s) is lost: %s", k, node->hostname, text);
        tt__talk_fail(t, tt_last_error());
        return;
    }
    tt__talk_lose(t, k, text);
    char news[64];
    int n = snprintf(news, sizeof news, "{\"what\":\"lost\",\"lost\":%d,\"node\":%d}", k, m->node);
    put_news(t, news, (size_t)n);
}

static void exchange_beats(tt__talk *t) {
    char key[TT__NODES_KEY];
    tt__talk_check(t, tt__talk_beat(t));
    for (int k = 0; k < t->nodes->member.nodes && !t->cut; k++) {
        tt_store_value value;
        if (!t->nodes->of[k].here || k == t->nodes->member.node)
            continue;
        tt__talk_key(key, "beat", k);
        bool grew = false;
        if (tt__talk_get(t, k, key, &value)) {
            grew = take_beat(t, k, value.data);
            tt_store_value_free(&value);
        }
        if (!grew && !t->cut)
            miss_beat(t, k);
    }
}

/* ---- news */

static void take_end(tt__talk *t, int node, const json_t *news) {
    tt__nodes_event *event = tt__talk_event(TT__NODES_ENDED);
    json_int_t when = 0, error_s = 0, signal_s = 0;
    const char *message = NULL, *tail = NULL;
    int secondary = 0, pid = 0;
    if (!event)
        return;
    tt__worker *w = &event->worker;
    if (json_unpack((json_t *)(uintptr_t)news, "{s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:s, s:s, s:I, s:I, s:I}",
                    "attempt", &event->value, "rank", &event->rank, "pid", &pid, "status", &w->status, "exec_errno",
                    &w->exec_errno, "told", &w->sent_signal, "secondary", &secondary, "message", &message, "tail",
                    &tail, "when", &when, "error_s", &error_s, "signal_s", &signal_s) ||
        event->rank < 0 || event->rank >= t->nodes->world) {
        tt__nodes_event_free(event);
        return;
    }
    event->node = node;
    w->ended = true;
    w->pid = pid;
    w->secondary = secondary;
    w->when.realtime_ns = tt__ns_checked(when < 0 ? 0 : when);
    w->error_s = error_s < 0 ? 0 : error_s;
    w->signal_s = signal_s < 0 ? 0 : signal_s;
    w->message = *message ? strdup(message) : NULL;
    event->text = strdup(tail);
    tt__nodes_post(t->nodes, event);
}

static void take_lost(tt__talk *t, int by, int lost) {
    const tt__nodes_member *m = &t->nodes->member;
    char text[96];
    if (lost < 0 || lost >= m->nodes || t->nodes->of[lost].lost)
        return;
    if (lost == m->node)
        snprintf(text, sizeof text, "node %d has heard nothing of it for the heartbeat", by);
    else
        snprintf(text, sizeof text, "node %d has lost it", by);
    tt__talk_lose(t, lost, text);
}

static void take_done(tt__talk *t, int node) {
    t->nodes->of[node].done = true;
    if (t->nodes->member.max_restarts)
        tt__talk_post(t, TT__NODES_DONE, node, 0, NULL);
}

/* Where attempts follow each other, those who wait for each other's news read them more often. */
static void expect_news(tt__talk *t) {
    if (t->nodes->member.max_restarts)
        t->hurry_until_ms = tt__deadline_ms(HURRY_MS);
}

static int attempt_in(const json_t *news) { return (int)json_integer_value(json_object_get(news, "attempt")); }

/* Take news of another node. */
static void take_news(tt__talk *t, int node, const char *text) {
    json_t *news = json_loads(text, 0, NULL);
    expect_news(t);
    const char *what = json_string_value(json_object_get(news, "what"));
    if (!what)
        tt__log(TT_LOG_WARNING, "news of node %d are not understood", node);
    else if (!strcmp(what, "done"))
        take_done(t, node);
    else if (!strcmp(what, "gone"))
        t->nodes->of[node].gone = attempt_in(news) + 1;
    else if (!strcmp(what, "again") && node == 0)
        tt__talk_post(t, TT__NODES_AGAIN, node, attempt_in(news), NULL);
    else if (!strcmp(what, "ended"))
        take_end(t, node, news);
    else if (!strcmp(what, "signal"))
        tt__talk_post(t, TT__NODES_SIGNAL, node, (int)json_integer_value(json_object_get(news, "signal")), NULL);
    else if (!strcmp(what, "lost"))
        take_lost(t, node, (int)json_integer_value(json_object_get(news, "lost")));
    else if (!strcmp(what, "look"))
        tt__talk_post(t, TT__NODES_LOOK, node, (int)json_integer_value(json_object_get(news, "id")), NULL);
    json_decref(news);
}

/* Take the news that node k's beat has told of. */
static void read_news_of(tt__talk *t, int k) {
    tt__node *node = &t->nodes->of[k];
    char key[TT__NODES_KEY];
    tt_store_value value;
    while (node->news_taken < node->news && !t->cut) {
        news_key(key, k, node->news_taken + 1);
        if (!tt__talk_get(t, k, key, &value))
            return;
        node->news_taken++;
        take_news(t, k, value.data);
        tt_store_value_free(&value);
    }
}

static void read_news(tt__talk *t) {
    for (int k = 0; k < t->nodes->member.nodes && !t->cut; k++)
        if (k != t->nodes->member.node)
            read_news_of(t, k);
}

/* ---- looks */

static void end_look(tt__talk *t) {
    tt__nodes_event *event = tt__talk_event(TT__NODES_SEEN);
    if (event)
        event->snapshot = t->seen;
    else
        tt__snapshot_free(&t->seen);
    t->seen = (tt__snapshot){0};
    t->looks = 0;
    if (event)
        tt__nodes_post(t->nodes, event);
}

static void begin_look(tt__talk *t, int64_t timeout_ms) {
    int64_t id;
    char news[64];
    if (t->looks)
        return;
    if (!t->joined || t->cut || tt__talk_check(t, tt_store_add(t->store, "tutti/nodes/looks", 1, &id))) {
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
static bool read_blob(tt__talk *t, int k, const char *key, tt__snapshot *snapshot) {
    tt_store_value value;
    if (!tt__talk_get(t, k, key, &value))
        return false;
    if (tt__blob_unpack(snapshot, value.data, value.size))
        tt__log(TT_LOG_WARNING, "%s: %s", key, tt_last_error());
    tt_store_value_free(&value);
    tt__talk_check(t, tt_store_delete_key(t->store, key, NULL));
    return true;
}

static void continue_look(tt__talk *t) {
    bool all = true;
    for (int k = 0; k < t->nodes->member.nodes; k++) {
        char key[TT__NODES_KEY];
        if (t->shown[k] || t->nodes->of[k].lost || k == t->nodes->member.node)
            continue;
        snprintf(key, sizeof key, "tutti/nodes/look/%d/%d", t->looks, k);
        t->shown[k] = !t->cut && read_blob(t, k, key, &t->seen);
        all = all && t->shown[k];
    }
    if (all || t->cut || tt__now_ms() > t->look_until_ms)
        end_look(t);
}

/* ---- the end */

static void read_final(tt__talk *t, tt__snapshot *snapshot) {
    for (int k = 0; k < t->nodes->member.nodes && !t->cut; k++) {
        char key[TT__NODES_KEY];
        tt__talk_key(key, "final", k);
        if (k != t->nodes->member.node && !t->nodes->of[k].lost)
            read_blob(t, k, key, snapshot);
    }
}

/* Wait, on node 0, until the other nodes have read all they need from the store. */
static void wait_for_leavers(tt__talk *t) {
    int64_t deadline = tt__deadline_ms(t->nodes->member.heartbeat_ms), left = 0;
    int expected = 0;
    for (int k = 1; k < t->nodes->member.nodes; k++)
        expected += !t->nodes->of[k].lost;
    while (!t->cut && !thread_stopped(t) && left < expected && tt__left_ms(deadline) > 0) {
        if (!tt__talk_check(t, tt_store_add(t->store, TT__NODES_LEFT, 0, &left)) && left < expected)
            poll(NULL, 0, 20);
    }
}

/* Delete this launcher's news of the attempt before: who has taken part in the last one has read them. */
static void delete_news(tt__talk *t, int attempt) {
    char key[TT__NODES_KEY];
    while (attempt > 0 && !t->cut && t->news_deleted < t->news_of[(attempt - 1) % 2]) {
        news_key(key, t->nodes->member.node, ++t->news_deleted);
        tt__talk_check(t, tt_store_delete_key(t->store, key, NULL));
    }
}

/* Has every node that still takes part no worker of this launcher's attempt? All that they announced of it is read. */
static void check_gone(tt__talk *t) {
    int own = t->nodes->of[t->nodes->member.node].gone;
    for (int k = 0; k < t->nodes->member.nodes; k++)
        if (t->nodes->of[k].gone < own && !t->nodes->of[k].done && !t->nodes->of[k].lost)
            return;
    if (t->gone == own)
        return;
    t->gone = own;
    tt__talk_post(t, TT__NODES_GONE, t->nodes->member.node, own - 1, NULL);
    delete_news(t, own - 1);
}

static void check_over(tt__talk *t) {
    bool all = true;
    for (int k = 0; k < t->nodes->member.nodes; k++)
        all = all && (t->nodes->of[k].done || t->nodes->of[k].lost);
    if (!t->done || t->over || !(all || t->cut))
        return;
    tt__nodes_event *event = tt__talk_event(TT__NODES_OVER);
    if (!event)
        return;
    if (t->nodes->member.wants_trace)
        read_final(t, &event->snapshot);
    if (t->nodes->member.node == 0)
        wait_for_leavers(t);
    else if (!t->cut)
        tt__talk_check(t, tt_store_add(t->store, TT__NODES_LEFT, 1, NULL));
    t->over = true;
    tt__nodes_post(t->nodes, event);
}

/* ---- the loop */

static tt__order *next_order(tt__talk *t) {
    tt__nodes *nodes = t->nodes;
    pthread_mutex_lock(&nodes->lock);
    tt__order *order = nodes->orders;
    if (order && !(nodes->orders = order->next))
        nodes->orders_end = &nodes->orders;
    pthread_mutex_unlock(&nodes->lock);
    return order;
}

static void take_own_gone(tt__talk *t, int attempt) {
    t->nodes->of[t->nodes->member.node].gone = attempt + 1;
    t->news_of[attempt % 2] = t->news;
}

static void execute_orders(tt__talk *t) {
    for (tt__order *order; (order = next_order(t));) {
        if (order->kind == TT__ORDER_DONE)
            t->done = t->nodes->of[t->nodes->member.node].done = true;
        else if (order->kind == TT__ORDER_GONE)
            take_own_gone(t, order->attempt);
        else if (order->kind == TT__ORDER_LOOK)
            begin_look(t, order->timeout_ms);
        else if (order->kind == TT__ORDER_SET && t->store && !t->cut)
            tt__talk_check(t, order->own
                                  ? tt__talk_put(t, order->key, order->bytes, order->size)
                                  : tt__signed_set(t->store, &t->secret, order->key, "", order->bytes, order->size));
        else if (order->kind == TT__ORDER_NEWS && t->store && !t->cut)
            put_news(t, order->bytes, order->size);
        if (order->kind == TT__ORDER_NEWS)
            expect_news(t);
        free(order->bytes);
        free(order);
    }
}

static void talk_step(tt__talk *t) {
    if (!t->store && !t->failed && !tt__talk_connect(t))
        return;
    if (!t->cut && t->store)
        exchange_beats(t);
    if (!t->cut && !t->joined && !t->failed)
        tt__talk_read_cards(t);
    execute_orders(t);
    if (!t->cut && t->joined)
        read_news(t);
    if (t->looks)
        continue_look(t);
    check_gone(t);
    check_over(t);
}

static void sleep_a_beat(const tt__talk *t) {
    struct pollfd wake = {.fd = t->nodes->wake_fd, .events = POLLIN};
    bool often = t->looks || tt__now_ms() < t->hurry_until_ms;
    uint64_t count;
    if (poll(&wake, 1, often ? BEAT_MS / 8 : BEAT_MS) > 0 && read(wake.fd, &count, sizeof count) < 0)
        count = 0;
}

void *tt__nodes_thread(void *arg) {
    tt__nodes *nodes = arg;
    tt__talk t = {.nodes = nodes, .began_ms = tt__now_ms()};
    t.shown = calloc((size_t)nodes->member.nodes, sizeof *t.shown);
    if (!t.shown)
        tt__talk_fail(&t, "no memory to join the other nodes");
    if (tt__secret_load(&t.secret))
        tt__talk_fail(&t, tt_last_error());
    while (!thread_stopped(&t)) {
        if (t.shown && !t.over) /* node 0's store may go from then on */
            talk_step(&t);
        sleep_a_beat(&t);
    }
    if (t.shown && t.joined)
        execute_orders(&t); /* a last word */
    tt__snapshot_free(&t.seen);
    tt_store_free(t.store);
    tt__secret_wipe(&t.secret);
    free(t.shown);
    return NULL;
}
