#include "launch/cluster/nodes.h"

#include "base/build.h"
#include "base/error.h"
#include "base/files/fd.h"
#include "base/process/threads.h"
#include "launch/cluster/blob.h"
#include "launch/cluster/nodes_talk.h"

#include <jansson.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ---- life */

static tt_status start_thread(tt__nodes *nodes) {
    tt_status status =
        tt__thread_create(&nodes->thread, tt__nodes_thread, nodes, "the thread that talks to other nodes");
    nodes->started = !status;
    return status;
}

tt_status tt__nodes_start(tt__nodes **out, const tt__nodes_member *member) {
    tt__nodes *nodes = *out = calloc(1, sizeof *nodes);
    if (!nodes)
        return tt__fail(TT_ERR_MEMORY, "no memory for a job of %d nodes", member->max_nodes);
    nodes->member = *member;
    nodes->events_end = &nodes->events;
    nodes->orders_end = &nodes->orders;
    pthread_mutex_init(&nodes->lock, NULL);
    nodes->events_fd = tt__fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    nodes->wake_fd = tt__fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    tt_status status = TT_OK;
    if (nodes->events_fd < 0 || nodes->wake_fd < 0)
        status = tt__fail_errno(TT_ERR_SYSTEM, errno, "can't make an eventfd");
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
        tt__nodes_wake(nodes->wake_fd);
        pthread_join(nodes->thread, NULL);
    }
    for (tt__nodes_event *event; (event = nodes->events);) {
        nodes->events = event->next;
        tt__nodes_event_free(event);
    }
    for (tt__order *order; (order = nodes->orders);) {
        nodes->orders = order->next;
        tt__order_free(order);
    }
    if (nodes->events_fd >= 0)
        close(nodes->events_fd);
    if (nodes->wake_fd >= 0)
        close(nodes->wake_fd);
    pthread_mutex_destroy(&nodes->lock);
    free(nodes);
}

/* ---- orders. What there is no memory for is not said: nothing here is worth ending a job for. */

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
    tt__nodes_wake(nodes->wake_fd);
}

static void order_post_news(tt__nodes *nodes, json_t *news) {
    if (news)
        order_post(nodes, &(tt__order){.kind = TT__ORDER_NEWS, .news = news});
}

void tt__nodes_set(tt__nodes *nodes, const char *key, const char *text) {
    tt__order order = {.kind = TT__ORDER_SET, .bytes = strdup(text), .size = strlen(text)};
    snprintf(order.key, sizeof order.key, "%s", key);
    if (order.bytes)
        order_post(nodes, &order);
}

void tt__nodes_announce_end(tt__nodes *nodes, int attempt, int rank, const tt__worker *w, const char *tail) {
    order_post_news(nodes, json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:b, s:o, s:o, s:o, s:I, s:I, s:I}",
                                     "what", "ended", "attempt", attempt, "rank", rank, "pid", (int)w->pid, "status",
                                     w->status, "exec_errno", w->exec_errno, "told", w->sent_signal, "secondary",
                                     !TT__MUTANT(consequence_not_told) && w->secondary, "waited",
                                     !TT__MUTANT(waited_not_told) && w->waited, "message", tt__talk_json(w->message),
                                     "tail", tt__talk_json(tail), "account", tt__talk_json(w->account), "when",
                                     (json_int_t)w->when.realtime_ns, "error_s", (json_int_t)w->error_s, "signal_s",
                                     (json_int_t)w->signal_s));
}

void tt__nodes_announce_signal(tt__nodes *nodes, int sig) {
    order_post_news(nodes, json_pack("{s:s, s:i}", "what", "signal", "signal", sig));
}

void tt__nodes_announce_gone(tt__nodes *nodes, const tt__gone *gone) {
    order_post_news(nodes, json_pack("{s:s, s:i, s:b, s:b, s:i}", "what", "gone", "attempt", gone->attempt, "kept",
                                     (int)gone->kept, "well", (int)gone->well, "blamed", gone->blamed));
    order_post(nodes,
               &(tt__order){.kind = TT__ORDER_GONE, .attempt = gone->attempt, .kept = gone->kept, .well = gone->well});
}

void tt__nodes_announce_success(tt__nodes *nodes, int attempt) {
    order_post_news(nodes, json_pack("{s:s, s:i}", "what", "success", "attempt", attempt));
    order_post(nodes, &(tt__order){.kind = TT__ORDER_CLOSE});
}

void tt__nodes_order_round(tt__nodes *nodes, int attempt, int restarts, int recovery, tt_store_server *renewed) {
    order_post(nodes, &(tt__order){.kind = TT__ORDER_ROUND,
                                   .attempt = attempt,
                                   .restarts = restarts,
                                   .recovery = recovery,
                                   .renewed = renewed});
}

void tt__nodes_announce_regroup(tt__nodes *nodes, int attempt, const char *why) {
    order_post_news(nodes,
                    json_pack("{s:s, s:i, s:o}", "what", "regroup", "attempt", attempt, "text", tt__talk_json(why)));
}

void tt__nodes_announce_last(tt__nodes *nodes, int attempt) {
    order_post_news(nodes, json_pack("{s:s, s:i}", "what", "last", "attempt", attempt));
}

void tt__nodes_look(tt__nodes *nodes, int64_t timeout_ms) {
    order_post(nodes, &(tt__order){.kind = TT__ORDER_LOOK, .timeout_ms = timeout_ms});
}

/* Put a snapshot under "KEY" and this member's number. */
static void order_post_blob(tt__nodes *nodes, const char *key, const tt__snapshot *snapshot) {
    tt__order order = {.kind = TT__ORDER_SET, .own = true};
    void *bytes;
    snprintf(order.key, sizeof order.key, "%s", key);
    if (tt__blob_pack(snapshot, snapshot->info.node, &bytes, &order.size))
        return;
    order.bytes = bytes;
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
    order_post(nodes, &(tt__order){.kind = TT__ORDER_DONE});
}
