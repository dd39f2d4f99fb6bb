/* What members announce, and the events that this makes. */
#include "base/text/json.h"
#include "launch/cluster/nodes_talk.h"

#include "base/build.h"
#include "base/error.h"
#include "store/signed.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEVERAL_BYTES = 1 << 20, AT_ONCE = 2048 }; /* at most: of news repeated in one piece; read at one time */

/* The number; -1: it is none of a job. */
static int number_in(const json_t *news, const char *name) {
    json_int_t number = json_integer_value(json_object_get(news, name));
    return number >= 0 && number < TT__COUNT_MAX ? (int)number : -1;
}

static const char *text_in(const json_t *news) {
    const char *text = json_string_value(json_object_get(news, "text"));
    return text ? text : "";
}

/* ---- of any member, which the coordinator repeats */

/* Is it the end of one of the node's ranks, as its launcher can have seen it? */
static bool is_plausible_end(const tt__round_node *node, const tt__remote_end *end) {
    enum { ERRNOS = 4096 };
    const tt__worker *w = &end->worker;
    return end->rank >= node->first_rank && end->rank < node->first_rank + node->workers && w->exec_errno >= 0 &&
           w->exec_errno < ERRNOS && w->sent_signal >= 0 && w->sent_signal < NSIG;
}

static void take_end(tt__talk *t, int node, const json_t *news) {
    tt__remote_end *end = calloc(1, sizeof *end);
    json_int_t when = 0, error_s = 0, signal_s = 0;
    const char *message = NULL, *tail = NULL;
    int secondary = 0, waited = 0, pid = 0;
    if (!end)
        return;
    tt__worker *w = &end->worker;
    if (json_unpack((json_t *)(uintptr_t)news, "{s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:b, s:s, s:s, s:I, s:I, s:I}",
                    "attempt", &end->attempt, "rank", &end->rank, "pid", &pid, "status", &w->status, "exec_errno",
                    &w->exec_errno, "told", &w->sent_signal, "secondary", &secondary, "waited", &waited, "message",
                    &message, "tail", &tail, "when", &when, "error_s", &error_s, "signal_s", &signal_s) ||
        !is_plausible_end(&t->round->of[node], end)) {
        tt__remote_end_free(end);
        return;
    }
    end->node = node;
    w->ended = true;
    w->pid = pid;
    w->secondary = secondary;
    w->waited = waited;
    w->error_s = error_s < 0 ? 0 : error_s;
    w->signal_s = signal_s < 0 ? 0 : signal_s;
    w->when.realtime_ns = tt__ns_checked(when < 0 ? 0 : when);
    w->message = *message ? strdup(message) : NULL;
    const char *account = json_string_value(json_object_get(news, "account"));
    w->account = account && *account ? strdup(account) : NULL;
    end->tail = strdup(tail);
    if (!tt__talk_post(t, &(tt__nodes_event){.event = {.kind = TT__ON_REMOTE_END, .end = end}}))
        tt__remote_end_free(end);
}

static void take_signal_news(tt__talk *t, int node, int sig) {
    if (sig > 0 && sig < NSIG)
        tt__talk_tell_machine(t, (tt__event){.kind = TT__ON_REMOTE_SIGNAL, .remote_signal = {node, sig}}, NULL);
}

static void take_success(tt__talk *t, const json_t *news) {
    if (t->round && number_in(news, "attempt") == t->round->attempt)
        t->closed = true;
}

/* What the launchers of a round tell each other; false: it is something else. */
static bool take_common(tt__talk *t, int from, const char *what, const json_t *news) {
    int node = tt__talk_node_number(t, from);
    if (node < 0)
        return false;
    if (!strcmp(what, "ended"))
        take_end(t, node, news);
    else if (!strcmp(what, "done"))
        tt__talk_tell_lost(t, TT__ON_LEFT, node, "its launcher has ended");
    else if (!strcmp(what, "signal"))
        take_signal_news(t, node, number_in(news, "signal"));
    else if (!strcmp(what, "look"))
        tt__talk_post(t, &(tt__nodes_event){.kind = TT__NODES_LOOK, .look = number_in(news, "id")});
    else if (!strcmp(what, "success"))
        take_success(t, news);
    else if (!strcmp(what, "gone") && json_is_true(json_object_get(news, "kept")))
        tt__talk_tell_machine(t,
                              (tt__event){.kind = TT__ON_REMOTE_WAIT,
                                          .remote_wait = {number_in(news, "attempt"), number_in(news, "blamed")}},
                              NULL);
    else
        return false;
    return true;
}

/* ---- to the coordinator */

/* Announce what is to be repeated to all: in one piece, so that what a member reads does not grow with how many have
 * something to say at one time. */
static void repeat_all(tt__talk *t) {
    json_t *of = t->repeats;
    t->repeats = NULL;
    t->repeated_bytes = 0;
    if (of)
        tt__talk_announce_json(t, json_pack("{s:s, s:o}", "what", "several", "of", of));
}

static void repeat_later(tt__talk *t, json_t *news, size_t size) {
    if (t->repeated_bytes + size > SEVERAL_BYTES)
        repeat_all(t);
    if (!t->repeats)
        t->repeats = json_array();
    json_array_append(t->repeats, news);
    t->repeated_bytes += size;
}

static void take_members_news(tt__talk *t, int id, const char *text, json_t *news, const char *what) {
    tt__node *node = &t->of[id];
    if (number_in(news, "node") != id) {
        tt__log(TT_LOG_WARNING, "news of node %d are not its own", id);
        return;
    }
    if (!strcmp(what, "gone")) {
        node->attempts_over = number_in(news, "attempt") + 1;
        node->kept = json_is_true(json_object_get(news, "kept"));
        node->well = json_is_true(json_object_get(news, "well"));
    }
    if (!strcmp(what, "done"))
        node->done = true;
    if (take_common(t, id, what, news) && !TT__MUTANT(news_not_repeated))
        repeat_later(t, news, strlen(text));
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

/* Do the news name this member's nonce? Then they were not made before its time. */
static bool name_this_member(const tt__talk *t, const json_t *news) {
    size_t i;
    json_t *nonce;
    json_array_foreach(json_object_get(news, "to"), i, nonce) {
        const char *text = json_string_value(nonce);
        if (text && !strcmp(text, t->nonce))
            return true;
    }
    return false;
}

/* Set aside the news of the end, if the coordinator has not greeted this member: they may be a recording of an earlier
 * job, so they count only if nothing more comes from the coordinator (tt__talk_miss_coordinator()). False: it has, and
 * they count now. */
static bool set_aside_end(tt__talk *t, const json_t *news) {
    t->joining.greeted = t->joining.greeted || name_this_member(t, news);
    if (t->joining.greeted)
        return false;
    json_decref(t->joining.foretold);
    t->joining.foretold = json_incref((json_t *)(uintptr_t)news);
    return true;
}

static void take_one_of_coordinator(tt__talk *t, const json_t *news) {
    const char *what = json_string_value(json_object_get(news, "what"));
    int attempt = number_in(news, "attempt");
    int from = number_in(news, "node");
    if (!what)
        return;
    if (!strcmp(what, "round"))
        tt__talk_take_round(t, news);
    else if (!strcmp(what, "over")) {
        if (!set_aside_end(t, news))
            take_job_over(t);
    } else if (!strcmp(what, "failed")) {
        if (!set_aside_end(t, news))
            take_failed(t, news);
    } else if (!strcmp(what, "refused") && number_in(news, "member") == t->id && name_this_member(t, news))
        tt__talk_fail(t, text_in(news));
    else if (!strcmp(what, "waits"))
        tt__talk_say_waits(t, text_in(news));
    else if (!t->round)
        return; /* of before this member's time */
    else if (!strcmp(what, "lost"))
        take_lost_member(t, news);
    else if (!strcmp(what, "regroup"))
        tt__talk_tell_machine(t, (tt__event){.kind = TT__ON_REGROUP, .regroup = {.attempt = attempt}}, text_in(news));
    else if (!strcmp(what, "last"))
        tt__talk_tell_machine(t, (tt__event){.kind = TT__ON_LAST, .last = {attempt}}, NULL);
    else if (from != t->id)
        take_common(t, from, what, news);
}

static void take_coordinators_news(tt__talk *t, const json_t *news, const char *what) {
    size_t i;
    json_t *one;
    if (strcmp(what, "several") != 0)
        take_one_of_coordinator(t, news);
    else
        json_array_foreach(json_object_get(news, "of"), i, one) take_one_of_coordinator(t, one);
}

/* ---- reading */

static void take_news(tt__talk *t, int id, const char *text) {
    json_t *news = tt__json_loads(text, 0, NULL);
    const char *what = json_string_value(json_object_get(news, "what"));
    if (t->nodes->member.job->max_restarts || tt__talk_is_elastic(t))
        tt__talk_expect_news(t);
    if (!what)
        tt__log(TT_LOG_WARNING, "news of node %d are not understood", id);
    else if (t->nodes->member.coordinates)
        take_members_news(t, id, text, news, what);
    else
        take_coordinators_news(t, news, what);
    json_decref(news);
}

static bool is_read(const tt__talk *t, int id) {
    return id != t->id && t->of[id].card == TT__CARD_READ && !t->of[id].lost;
}

static void skip_deleted(tt__talk *t, int id) {
    tt__node *node = &t->of[id];
    if (node->news_taken + 1 >= node->news_first)
        return;
    node->news_taken = node->news_first - 1;
    if (t->round && !t->nodes->member.coordinates) /* before a round, they were from before this member came */
        tt__talk_lose(t, t->id, "it was silent, and node 0 has gone on without it");
}

/* Take the next news of member `id`. */
static void take_next(tt__talk *t, int id, const char *text) {
    t->of[id].news_taken++;
    take_news(t, id, text);
}

static void read_news_of(tt__talk *t, int id) {
    char key[TT__NODES_KEY];
    tt_store_value value;
    while (is_read(t, id) && t->of[id].news_taken < t->of[id].news && !t->cut && !t->failed) {
        const tt__node *node = &t->of[id];
        tt__talk_news_key(key, id, node->news_taken + 1 + TT__MUTANT(news_number_skipped));
        if (!tt__talk_fetch_signed(t, id, key, &value))
            return;
        take_next(t, id, value.data);
        tt_store_value_free(&value);
    }
}

/* Take what came, if it is the member's next. */
static void take_one_news(tt__talk *t, const tt__wanted *of, tt_store_value *value) {
    const tt__node *node = tt__talk_node(t, of->id);
    bool due = is_read(t, of->id) && of->number == node->news_taken + 1 && !t->failed;
    if (due && node->signs && tt__signed_open(value, &t->secret, of->key, node->nonce))
        tt__talk_refuse(t, of->id, of->key);
    else if (due)
        take_next(t, of->id, value->data);
}

/* List the news that are to be read, at most so many: of each member in order. */
static int list_unread(const tt__talk *t, tt__wanted *list) {
    int n = 0;
    for (int id = 0; id < t->known; id++)
        for (int64_t k = t->of[id].news_taken + 1; is_read(t, id) && k <= t->of[id].news && n < AT_ONCE; k++) {
            list[n] = (tt__wanted){.id = id, .number = k};
            tt__talk_news_key(list[n++].key, id, k + TT__MUTANT(news_number_skipped));
        }
    return n;
}

void tt__talk_read_news(tt__talk *t) {
    tt__wanted *list = malloc(AT_ONCE * sizeof *list);
    for (int id = 0; id < t->known; id++)
        if (is_read(t, id))
            skip_deleted(t, id);
    int n = list ? list_unread(t, list) : 0;
    bool all = n && tt__talk_are_there(t, list, n, false);
    if (all)
        tt__talk_fetch_all(t, list, n, take_one_news);
    for (int id = 0; id < t->known && !all && !t->cut; id++)
        if (is_read(t, id))
            read_news_of(t, id);
    free(list);
    if (t->repeats && !t->cut)
        repeat_all(t);
}
