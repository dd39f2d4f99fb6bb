/* What members announce, and what is made of it. */
#include "elastic/nodes_talk.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int number_in(const json_t *news, const char *name) {
    return (int)json_integer_value(json_object_get(news, name));
}

static const char *text_in(const json_t *news) {
    const char *text = json_string_value(json_object_get(news, "text"));
    return text ? text : "";
}

/* ---- of any member, which the coordinator repeats */

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
        event->rank < 0 || event->rank >= t->round->world) {
        tt__nodes_event_free(event);
        return;
    }
    event->node = node;
    w->ended = true;
    w->pid = pid;
    w->secondary = secondary;
    w->error_s = error_s < 0 ? 0 : error_s;
    w->signal_s = signal_s < 0 ? 0 : signal_s;
    w->when.realtime_ns = tt__ns_checked(when < 0 ? 0 : when);
    w->message = *message ? strdup(message) : NULL;
    const char *account = json_string_value(json_object_get(news, "account"));
    w->account = account && *account ? strdup(account) : NULL;
    event->text = strdup(tail);
    tt__nodes_post(t->nodes, event);
}

static void take_success(tt__talk *t, const json_t *news) {
    if (t->round && number_in(news, "attempt") == t->round->attempt)
        t->closed = true;
}

static void take_recovery(tt__talk *t, int node, const json_t *news) {
    tt__nodes_event *event = tt__talk_event(TT__NODES_RECOVER);
    if (!event)
        return;
    event->node = node;
    event->value = number_in(news, "attempt");
    event->rank = number_in(news, "blamed");
    tt__nodes_post(t->nodes, event);
}

/* What the launchers of a round tell each other; false: it is something else. */
static bool take_common(tt__talk *t, int from, const char *what, const json_t *news) {
    int node = tt__talk_node_number(t, from);
    if (node < 0)
        return false;
    if (!strcmp(what, "ended"))
        take_end(t, node, news);
    else if (!strcmp(what, "done"))
        tt__talk_post(t, TT__NODES_DONE, node, 0, NULL);
    else if (!strcmp(what, "signal"))
        tt__talk_post(t, TT__NODES_SIGNAL, node, number_in(news, "signal"), NULL);
    else if (!strcmp(what, "look"))
        tt__talk_post(t, TT__NODES_LOOK, node, number_in(news, "id"), NULL);
    else if (!strcmp(what, "success"))
        take_success(t, news);
    else if (!strcmp(what, "gone") && json_is_true(json_object_get(news, "kept")))
        take_recovery(t, node, news);
    else
        return false;
    return true;
}

/* ---- to the coordinator */

static void take_members_news(tt__talk *t, int id, const char *text, const json_t *news, const char *what) {
    tt__node *node = &t->of[id];
    if (number_in(news, "node") != id) {
        tt__log(TT_LOG_WARNING, "news of node %d are not its own", id);
        return;
    }
    if (!strcmp(what, "gone")) {
        node->gone = number_in(news, "attempt") + 1;
        node->kept = json_is_true(json_object_get(news, "kept"));
    }
    if (!strcmp(what, "done"))
        node->done = true;
    if (take_common(t, id, what, news))
        tt__talk_announce(t, text, strlen(text));
}

/* ---- from the coordinator */

static void take_lost_member(tt__talk *t, const json_t *news) {
    int lost = number_in(news, "member");
    const char *text = text_in(news);
    char own[160];
    snprintf(own, sizeof own, "node 0 says so of this one: %.100s", text);
    tt__talk_lose(t, lost, lost == t->id ? own : text);
}

static void take_job_over(tt__talk *t) {
    t->of[0].done = true;
    t->closed = true;
}

static void take_failed(tt__talk *t, const json_t *news) {
    tt__talk_fail(t, text_in(news));
    tt_ignore(tt__talk_put_left(t));
}

static void take_coordinators_news(tt__talk *t, const json_t *news, const char *what) {
    int attempt = number_in(news, "attempt");
    int from = number_in(news, "node");
    if (!strcmp(what, "round"))
        tt__talk_take_round(t, news);
    else if (!strcmp(what, "over"))
        take_job_over(t);
    else if (!strcmp(what, "failed"))
        take_failed(t, news);
    else if (!strcmp(what, "refused") && number_in(news, "member") == t->id)
        tt__talk_fail(t, text_in(news));
    else if (!strcmp(what, "waits"))
        tt__talk_post(t, TT__NODES_WAITS, 0, 0, text_in(news));
    else if (!t->round)
        return; /* of before this member's time */
    else if (!strcmp(what, "lost"))
        take_lost_member(t, news);
    else if (!strcmp(what, "regroup"))
        tt__talk_post(t, TT__NODES_REGROUP, 0, attempt, text_in(news));
    else if (!strcmp(what, "last"))
        tt__talk_post(t, TT__NODES_END, 0, attempt, NULL);
    else if (from != t->id)
        take_common(t, from, what, news);
}

/* ---- reading */

static void take_news(tt__talk *t, int id, const char *text) {
    json_t *news = json_loads(text, 0, NULL);
    const char *what = json_string_value(json_object_get(news, "what"));
    if (t->nodes->member.max_restarts || tt__talk_is_elastic(t))
        tt__talk_expect_news(t);
    if (!what)
        tt__log(TT_LOG_WARNING, "news of node %d are not understood", id);
    else if (t->nodes->member.coordinates)
        take_members_news(t, id, text, news, what);
    else
        take_coordinators_news(t, news, what);
    json_decref(news);
}

static void read_news_of(tt__talk *t, int id) {
    tt__node *node = &t->of[id];
    char key[TT__NODES_KEY];
    tt_store_value value;
    if (node->news_taken + 1 < node->news_first) {
        node->news_taken = node->news_first - 1;
        if (t->round && !t->nodes->member.coordinates) /* else they were of before this member's time */
            tt__talk_lose(t, t->id, "it was silent, and node 0 has gone on without it");
    }
    while (node->news_taken < node->news && !t->cut && !t->failed) {
        tt__talk_news_key(key, id, node->news_taken + 1);
        if (!tt__talk_get(t, id, key, &value))
            return;
        node->news_taken++;
        take_news(t, id, value.data);
        tt_store_value_free(&value);
        node = &t->of[id];
    }
}

void tt__talk_read_news(tt__talk *t) {
    for (int id = 0; id < t->known && !t->cut; id++)
        if (id != t->id && t->of[id].here && !t->of[id].lost)
            read_news_of(t, id);
}
