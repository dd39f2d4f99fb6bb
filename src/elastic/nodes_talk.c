#include "elastic/nodes_talk.h"

#include "base/clock.h"
#include "base/error.h"
#include "store/signed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REFUSED_MS = 10000 }; /* between two log lines about one node */

tt__nodes_event *tt__talk_event(tt__nodes_kind kind) {
    tt__nodes_event *event = calloc(1, sizeof *event);
    if (event)
        event->kind = kind;
    return event;
}

void tt__talk_post(tt__talk *t, tt__nodes_kind kind, int node, int value, const char *text) {
    tt__nodes_event *event = tt__talk_event(kind);
    if (!event)
        return;
    event->node = node;
    event->value = value;
    event->text = text ? strdup(text) : NULL;
    tt__nodes_post(t->nodes, event);
}

void tt__talk_fail(tt__talk *t, const char *text) {
    if (!t->failed)
        tt__talk_post(t, TT__NODES_FAILED, t->nodes->member.node, 0, text);
    t->failed = true;
}

void tt__talk_lose(tt__talk *t, int node, const char *text) {
    t->nodes->of[node].lost = true;
    tt__talk_post(t, TT__NODES_LOST, node, 0, text);
}

tt_status tt__talk_check(tt__talk *t, tt_status status) {
    if (!status || t->cut)
        return status;
    t->cut = true;
    if (!t->joined) {
        tt__fail_prefix("node 0 ended before all nodes had come (it says why)");
        tt__talk_fail(t, tt_last_error());
    } else if (!t->nodes->of[0].lost) {
        tt__fail_prefix("the store that it serves does not answer");
        tt__talk_lose(t, 0, tt_last_error());
    }
    return status;
}

void tt__talk_key(char key[TT__NODES_KEY], const char *what, int node) {
    snprintf(key, TT__NODES_KEY, "tutti/nodes/%s/%d", what, node);
}

/* ---- signed values */

tt_status tt__talk_put(tt__talk *t, const char *key, const void *bytes, size_t size) {
    return tt__signed_set(t->store, &t->secret, key, t->nodes->of[t->nodes->member.node].nonce, bytes, size);
}

void tt__talk_refuse(tt__talk *t, int k, const char *key) {
    char who[32], whose[32];
    int64_t now = tt__now_ms();
    tt__node *node = &t->nodes->of[k];
    if (node->refused_ms && now - node->refused_ms < REFUSED_MS)
        return;
    node->refused_ms = now;
    snprintf(who, sizeof who, "node %d", t->nodes->member.node);
    snprintf(whose, sizeof whose, "node %d", k);
    tt__signed_refuse(who, whose, key);
}

bool tt__talk_get(tt__talk *t, int k, const char *key, tt_store_value *value) {
    const tt__node *node = &t->nodes->of[k];
    bool there = false;
    if (tt__talk_check(t, tt_store_check(t->store, &key, 1, &there)) || !there ||
        tt__talk_check(t, tt_store_get(t->store, key, value)))
        return false;
    if (!node->signs || !tt__signed_open(value, &t->secret, key, node->nonce))
        return true;
    tt_store_value_free(value);
    tt__talk_refuse(t, k, key);
    return false;
}

tt_status tt__talk_beat(tt__talk *t) {
    char key[TT__NODES_KEY], numbers[48];
    tt__talk_key(key, "beat", t->nodes->member.node);
    int n = snprintf(numbers, sizeof numbers, "%lld %lld", (long long)++t->beats, (long long)t->news);
    return tt__talk_put(t, key, numbers, (size_t)n);
}

json_t *tt__talk_json(const char *text) {
    json_t *string = json_string(text ? text : "");
    char *clean = string ? NULL : strdup(text);
    for (char *c = clean; c && *c; c++)
        if (*c & 0x80)
            *c = '?';
    if (clean)
        string = json_string(clean);
    free(clean);
    return string ? string : json_string("");
}
