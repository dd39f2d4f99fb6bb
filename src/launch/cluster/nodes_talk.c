#include "launch/cluster/nodes_talk.h"

#include "base/build.h"
#include "base/error.h"
#include "base/machine/clock.h"
#include "base/process/waits.h"
#include "base/text/json.h"
#include "base/text/plain_text.h"
#include "launch/cluster/nodes.h"
#include "store/signed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REFUSED_MS = 10000 }; /* between log lines about one member */

bool tt__talk_stopped(const tt__talk *t) {
    pthread_mutex_lock(&t->nodes->lock);
    bool stop = t->nodes->stop;
    pthread_mutex_unlock(&t->nodes->lock);
    return stop;
}

/* ---- members */

tt__node *tt__talk_node(const tt__talk *t, int id) { return id >= 0 && id < t->known ? &t->of[id] : NULL; }

tt_status tt__talk_make_room(tt__talk *t, int id) {
    if (id < t->known)
        return TT_OK;
    int n = t->known * 2 > id + 1 ? t->known * 2 : id + 1;
    tt__node *of = id < TT__MEMBERS_MAX ? realloc(t->of, (size_t)n * sizeof *of) : NULL;
    if (!of)
        return tt__fail(TT_ERR_MEMORY, "no memory for a job of %d nodes", n);
    memset(of + t->known, 0, (size_t)(n - t->known) * sizeof *of);
    t->of = of;
    t->known = n;
    return TT_OK;
}

int tt__talk_node_number(const tt__talk *t, int id) {
    for (int k = 0; t->round && k < t->round->n; k++)
        if (t->round->of[k].member == id)
            return k;
    return -1;
}

json_t *tt__talk_nonces(const tt__talk *t) {
    json_t *list = json_array();
    for (int id = 1; list && id < t->known; id++)
        if (*t->of[id].nonce)
            json_array_append_new(list, json_string(t->of[id].nonce));
    return list;
}

/* ---- the queue of events on their way from the thread to the launcher */

int tt__nodes_fd(const tt__nodes *nodes) { return nodes->events_fd; }

void tt__nodes_event_free(tt__nodes_event *event) {
    tt__event *told = &event->event;
    if (event->kind == TT__NODES_FOR_MACHINE && told->kind == TT__ON_ROUND)
        free(told->round.round);
    else if (event->kind == TT__NODES_FOR_MACHINE && told->kind == TT__ON_REMOTE_END)
        tt__remote_end_free(told->end);
    else if (event->kind == TT__NODES_FOR_MACHINE && (told->kind == TT__ON_LOST || told->kind == TT__ON_LEFT))
        tt__lost_node_free(told->lost.node);
    free(event->text);
    tt__snapshot_free(&event->snapshot);
    free(event);
}

bool tt__talk_post(tt__talk *t, tt__nodes_event *event) {
    tt__nodes *nodes = t->nodes;
    tt__nodes_event *copy = malloc(sizeof *copy);
    if (!copy) {
        free(event->text);
        tt__snapshot_free(&event->snapshot);
        return false;
    }
    *copy = *event;
    pthread_mutex_lock(&nodes->lock);
    *nodes->events_end = copy;
    nodes->events_end = &copy->next;
    pthread_mutex_unlock(&nodes->lock);
    tt__wake_ring(nodes->events_fd);
    return true;
}

static bool is_round(const tt__nodes_event *event) {
    return event->kind == TT__NODES_FOR_MACHINE && event->event.kind == TT__ON_ROUND;
}

/* Is it a round that may have gone on without this node, as the coordinator was not heard for half a heartbeat? */
static bool is_doubtful(const tt__nodes *nodes, const tt__nodes_event *event) {
    return is_round(event) && event->believed_ms != TT__BELIEVED_ALWAYS &&
           tt__now_ms() - event->believed_ms >= nodes->member.job->heartbeat_ms / 2;
}

tt__nodes_event *tt__nodes_next(tt__nodes *nodes) {
    pthread_mutex_lock(&nodes->lock);
    tt__nodes_event *event = nodes->events;
    nodes->unsure = event && is_doubtful(nodes, event);
    if (nodes->unsure)
        event = NULL;
    if (event && !(nodes->events = event->next))
        nodes->events_end = &nodes->events;
    if (!event && nodes->events_fd >= 0)
        tt__wake_clear(nodes->events_fd);
    pthread_mutex_unlock(&nodes->lock);
    return event;
}

static tt__nodes_event **find_round(tt__nodes *nodes) {
    tt__nodes_event **at = &nodes->events;
    while (*at && (!is_round(*at) || (*at)->believed_ms == TT__BELIEVED_ALWAYS))
        at = &(*at)->next;
    return at;
}

void tt__nodes_believe(tt__nodes *nodes, int64_t now_ms) {
    pthread_mutex_lock(&nodes->lock);
    tt__nodes_event *round = *find_round(nodes);
    bool waits = round && (nodes->unsure || round->believed_ms == TT__BELIEVED_NOT_YET);
    if (round)
        round->believed_ms = now_ms;
    pthread_mutex_unlock(&nodes->lock);
    if (waits)
        tt__wake_ring(nodes->events_fd);
}

/* Replace the pending round, and all later events, by ON_MISSED. False: no round is pending. */
static bool take_back_round(tt__nodes *nodes) {
    pthread_mutex_lock(&nodes->lock);
    tt__nodes_event **at = find_round(nodes), *round = *at;
    if (round) {
        free(round->event.round.round);
        round->event = (tt__event){.kind = TT__ON_MISSED};
        for (tt__nodes_event *event; (event = round->next);) {
            round->next = event->next;
            tt__nodes_event_free(event);
        }
        nodes->events_end = &round->next;
    }
    pthread_mutex_unlock(&nodes->lock);
    if (round)
        tt__wake_ring(nodes->events_fd);
    return round != NULL;
}

/* ---- events */

void tt__talk_tell_machine(tt__talk *t, tt__event told, const char *text) {
    tt__nodes_event event = {.event = told, .text = text ? strdup(text) : NULL};
    if (event.text)
        tt__make_plain_name(event.text); /* of one line: others may have written it */
    if (told.kind == TT__ON_NO_ROUND)
        event.event.text = event.text ? event.text : "the other nodes can't be joined";
    else if (told.kind == TT__ON_REGROUP || told.kind == TT__ON_NEWCOMER)
        event.event.regroup.why = event.text ? event.text : "the nodes change";
    tt__talk_post(t, &event);
}

void tt__talk_tell_lost(tt__talk *t, tt__event_kind kind, int number, const char *why) {
    tt__lost_node *node = malloc(sizeof *node);
    if (!node)
        return;
    *node = (tt__lost_node){.node = number, .why = strdup(why)};
    if (node->why)
        tt__make_plain_name(node->why);
    if (!tt__talk_post(t, &(tt__nodes_event){.event = {.kind = kind, .lost = {node}}}))
        tt__lost_node_free(node);
} /* NOLINT(clang-analyzer-unix.Malloc): the event has it */

void tt__talk_say_waits(tt__talk *t, const char *text) {
    char *copy = strdup(text);
    if (copy)
        tt__make_plain_name(copy);
    tt__talk_post(t, &(tt__nodes_event){.kind = TT__NODES_WAITS, .text = copy});
}

void tt__talk_fail(tt__talk *t, const char *text) {
    if (!t->failed)
        tt__talk_tell_machine(t, (tt__event){.kind = TT__ON_NO_ROUND}, text);
    t->failed = true;
}

void tt__talk_lose(tt__talk *t, int id, const char *text) {
    tt__node *node = tt__talk_node(t, id);
    int number = tt__talk_node_number(t, id);
    bool job = !t->nodes->member.coordinates && (id == 0 || id == t->id); /* for this member the whole job is lost */
    if (node && !TT__MUTANT(loss_not_remembered))
        node->lost = true;
    t->trust.given_up = t->trust.given_up || (job && id);
    if (job && tt__talk_replaces(t) && take_back_round(t->nodes))
        return;
    if (number >= 0)
        tt__talk_tell_lost(t, TT__ON_LOST, number, text);
}

/* Believe the end that a coordinator announced without having greeted this member; false: it announced none. */
static bool take_foretold(tt__talk *t) {
    const char *what = json_string_value(json_object_get(t->joining.foretold, "what"));
    const char *text = json_string_value(json_object_get(t->joining.foretold, "text"));
    if (!what || t->joining.greeted)
        return false;
    if (strcmp(what, "over") != 0)
        tt__talk_fail(t, text ? text : "");
    t->of[0].done = t->closed = true;
    return true;
}

void tt__talk_miss_coordinator(tt__talk *t, const char *text) {
    if (take_foretold(t))
        return;
    if (tt__talk_is_numbered(t) || !t->known || t->of[0].card != TT__CARD_READ || t->failed) {
        tt__talk_fail(t, text);
        return;
    }
    t->failed = true;
    tt__talk_tell_machine(t, (tt__event){.kind = TT__ON_COORDINATOR_GONE}, NULL);
}

/* ---- the store */

tt_status tt__talk_note_status(tt__talk *t, tt_status status) {
    if (!status || t->cut)
        return status;
    t->cut = true;
    if (tt__talk_leave_coordinator(t))
        return status;
    if (!t->round) {
        tt__fail_prefix("node 0 ended before all nodes had come (it says why)");
        tt__talk_miss_coordinator(t, tt_last_error());
    } else if (!t->of[0].lost) {
        tt__fail_prefix("the store that it serves does not answer");
        tt__talk_lose(t, 0, tt_last_error());
    }
    return status;
}

#define LEFT "tutti/nodes/left"

tt_status tt__talk_put_left(tt__talk *t) {
    char text[16];
    int n = snprintf(text, sizeof text, "%d ", t->id);
    return tt_store_append(t->store, LEFT, text, (size_t)n);
}

tt_status tt__talk_read_left(tt__talk *t, int *n) {
    const char *keys[] = {LEFT};
    bool there = false;
    tt_store_value value;
    *n = 0;
    TT__TRY(tt_store_check(t->store, keys, 1, &there));
    if (!there)
        return TT_OK;
    TT__TRY(tt_store_get(t->store, LEFT, &value));
    for (char *at = value.data, *end; at < (char *)value.data + value.size; at = end + 1) {
        long id = strtol(at, &end, 10);
        if (end == at || *end != ' ')
            break;
        tt__node *node = id < t->known ? tt__talk_node(t, (int)id) : NULL;
        if (node)
            node->left = true;
        ++*n;
    }
    tt_store_value_free(&value);
    return TT_OK;
}

void tt__talk_key(char key[TT__NODES_KEY], const char *what, int id) {
    snprintf(key, TT__NODES_KEY, "tutti/nodes/%s/%d", what, id);
}

void tt__talk_news_key(char key[TT__NODES_KEY], int id, int64_t number) {
    snprintf(key, TT__NODES_KEY, "tutti/nodes/news/%d/%lld", id, (long long)number);
}

bool tt__talk_fetch(tt__talk *t, const char *key, tt_store_value *value) {
    bool there = false;
    return !tt__talk_note_status(t, tt_store_check(t->store, &key, 1, &there)) && there &&
           !tt__talk_note_status(t, tt_store_get(t->store, key, value));
}

/* List the keys, for a call to the store; NULL: no memory. */
static const char **keys_of(const tt__wanted *list, int n) {
    const char **keys = malloc((size_t)n * sizeof *keys);
    for (int i = 0; keys && i < n; i++)
        keys[i] = list[i].key;
    return keys;
}

bool tt__talk_are_there(tt__talk *t, const tt__wanted *list, int n, bool there) {
    const char **keys = keys_of(list, n);
    if (keys)
        tt__talk_note_status(t, tt_store_check(t->store, keys, n, &there));
    free(keys);
    return there;
}

void tt__talk_fetch_all(tt__talk *t, const tt__wanted *list, int n, tt__talk_take *take) {
    const char **keys = keys_of(list, n);
    tt_store_value *values = malloc((size_t)n * sizeof *values);
    if (keys && values && !t->cut && !tt__talk_note_status(t, tt_store_multi_get(t->store, keys, n, values)))
        for (int i = 0; i < n; i++) {
            take(t, &list[i], &values[i]);
            tt_store_value_free(&values[i]);
        }
    free(values);
    free(keys);
}

bool tt__talk_is_connected(tt__talk *t, int id) {
    char key[TT__NODES_KEY];
    const char *keys[] = {key};
    bool there = true;
    tt__talk_key(key, "alive", id);
    tt__talk_note_status(t, tt_store_check(t->store, keys, 1, &there));
    return there;
}

/* ---- signed values */

/* Set a key that this launcher alone writes. */
static tt_status put_own(tt__talk *t, const char *key, const void *bytes, size_t size) {
    return tt__signed_set(t->store, &t->secret, key, t->nonce, bytes, size);
}

void tt__talk_refuse(tt__talk *t, int id, const char *key) {
    char who[32], whose[32];
    int64_t now = tt__now_ms();
    tt__node *node = tt__talk_node(t, id);
    if (!node || (node->refused_ms && now - node->refused_ms < REFUSED_MS))
        return;
    node->refused_ms = now;
    snprintf(who, sizeof who, "node %d", t->id);
    snprintf(whose, sizeof whose, "node %d", id);
    tt__signed_refuse(who, whose, key);
}

bool tt__talk_fetch_signed(tt__talk *t, int id, const char *key, tt_store_value *value) {
    const tt__node *node = tt__talk_node(t, id);
    if (!node || !tt__talk_fetch(t, key, value))
        return false;
    if (!node->signs || !tt__signed_open(value, &t->secret, key, node->nonce))
        return true;
    tt_store_value_free(value);
    tt__talk_refuse(t, id, key);
    return false;
}

tt_status tt__talk_beat(tt__talk *t) {
    char key[TT__NODES_KEY], numbers[72];
    tt__talk_key(key, "beat", t->id);
    int n = snprintf(numbers, sizeof numbers, "%lld %lld %lld", (long long)++t->beats, (long long)t->own_news.sent,
                     (long long)t->own_news.first);
    return put_own(t, key, numbers, (size_t)n);
}

static void announce_text(tt__talk *t, const char *text, size_t size) {
    char key[TT__NODES_KEY];
    tt__talk_news_key(key, t->id, t->own_news.sent + 1);
    if (tt__talk_note_status(t, put_own(t, key, text, size)))
        return;
    t->own_news.sent++;
    tt__talk_note_status(t, tt__talk_beat(t));
}

void tt__talk_announce_json(tt__talk *t, json_t *news) {
    if (news)
        json_object_set_new(news, "node", json_integer(t->id));
    char *text = news ? tt__json_dumps(news, JSON_COMPACT) : NULL;
    json_decref(news);
    if (text)
        announce_text(t, text, strlen(text));
    free(text);
}

void tt__talk_delete_news(tt__talk *t) {
    char key[TT__NODES_KEY];
    while (!t->cut && t->own_news.first <= t->own_news.of_before) {
        tt__talk_news_key(key, t->id, t->own_news.first++);
        tt__talk_note_status(t, tt_store_delete_key(t->store, key, NULL));
    }
}
