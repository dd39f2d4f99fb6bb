/* Which members are there: their beats, and what the store says of their connections. */
#include "base/text/format.h"
#include "launch/cluster/nodes_talk.h"

#include "base/build.h"
#include "base/error.h"
#include "base/machine/clock.h"
#include "store/signed.h"

#include <stdio.h>
#include <stdlib.h>

/* A connection has ended, and no beat has come for so long: the beats that were on their way have. */
enum { LAST_BEATS_MS = 300, HURRY_MS = 1000 };

void tt__talk_expect_news(tt__talk *t) { t->hurry_until_ms = tt__deadline_ms(HURRY_MS); }

/* Take a member's beat; false: it is not later than the last. */
static bool take_beat(tt__node *node, const char *beat) {
    long long beats, news, first;
    if (sscanf(beat, "%lld %lld %lld", &beats, &news, &first) != 3 ||
        (TT__MUTANT(old_beat_counts) ? beats < node->beats : beats <= node->beats))
        return false;
    node->beats = beats;
    node->news = news;
    node->news_first = first;
    node->beat_ms = tt__now_ms();
    node->silent = false;
    return true;
}

/* Return why a member without a new beat is lost, or NULL. `connected`: every member is. A member must be silent for
 * too long in two looks, because this process itself may have stood still: its store may answer it before it has read
 * what others have sent meanwhile. */
static const char *why_lost(tt__talk *t, int id, bool connected, char text[160]) {
    tt__node *node = tt__talk_node(t, id);
    int64_t silent = tt__now_ms() - node->beat_ms;
    bool too_long = !TT__MUTANT(silent_node_not_lost) && silent >= t->nodes->member.heartbeat_ms,
         late = !connected && silent > LAST_BEATS_MS;
    bool asks = t->nodes->member.coordinates && (too_long || late);
    if (asks && !tt__talk_is_connected(t, id) && !t->cut)
        return "its launcher has ended";
    bool before = node->silent;
    node->silent = too_long;
    if (!too_long || !before)
        return NULL;
    tt__format(text, 160, "its launcher has been silent for %.1f s", (double)silent / 1000);
    return text;
}

static void miss_beat(tt__talk *t, int id, bool connected) {
    tt__node *node = tt__talk_node(t, id);
    char silent[160], all[300];
    const char *why = why_lost(t, id, connected, silent);
    bool unread = id > 0 && node->news_taken < node->news; /* it may have said that it goes */
    if (!why || (unread && tt__now_ms() - node->beat_ms < 2 * t->nodes->member.heartbeat_ms))
        return;
    if (node->done) { /* it has gone */
        node->lost = true;
        return;
    }
    snprintf(all, sizeof all, "node %d (%s) is lost: %s", id, node->hostname, why);
    if (!t->round && t->nodes->member.coordinates && !tt__talk_numbers(t)) {
        tt__talk_fail_all(t, all);
    } else if (!t->round && id == 0) {
        if (!tt__talk_will_look_again(t))
            tt__talk_miss_coordinator(t, all);
    } else {
        tt__talk_lose(t, id, why);
        if (t->nodes->member.coordinates)
            tt__talk_announce_json(t, json_pack("{s:s, s:i, s:s}", "what", "lost", "member", id, "text", why));
    }
}

static void take_member_beat(tt__talk *t, int id, const char *key, tt_store_value *value, bool connected) {
    tt__node *node = tt__talk_node(t, id);
    bool refused = node->signs && tt__signed_open(value, &t->secret, key, node->nonce);
    if (refused)
        tt__talk_refuse(t, id, key);
    bool grew = !refused && take_beat(node, value->data);
    tt_store_value_free(value);
    if (!grew)
        miss_beat(t, id, connected);
}

/* Whose beats are read: those of all, or of the coordinator. */
static bool is_heard(const tt__talk *t, int id) {
    const tt__node *node = &t->of[id];
    return node->here && !node->lost && id != t->id;
}

/* Are the connections of all whose beats are read still there? */
static bool all_connected(tt__talk *t, char (*keys)[TT__NODES_KEY], const char **names, int n) {
    bool all = true;
    int k = 0;
    if (!t->nodes->member.coordinates)
        return true;
    for (int id = 0; id < t->known && k < n; id++)
        if (is_heard(t, id))
            tt__talk_key(keys[k++], "alive", id);
    tt__talk_check(t, tt_store_check(t->store, names, n, &all));
    return all;
}

static void read_beats(tt__talk *t, int n) {
    char(*keys)[TT__NODES_KEY] = malloc((size_t)n * sizeof *keys);
    const char **names = malloc((size_t)n * sizeof *names);
    tt_store_value *values = malloc((size_t)n * sizeof *values);
    int *ids = malloc((size_t)n * sizeof *ids), k = 0;
    for (int i = 0; names && keys && i < n; i++)
        names[i] = keys[i];
    if (keys && names && values && ids) {
        bool connected = all_connected(t, keys, names, n);
        for (int id = 0; id < t->known && k < n; id++)
            if (is_heard(t, id)) {
                ids[k] = id;
                tt__talk_key(keys[k++], "beat", id);
            }
        if (!t->cut && !tt__talk_check(t, tt_store_multi_get(t->store, names, k, values)))
            for (int i = 0; i < k; i++)
                take_member_beat(t, ids[i], keys[i], &values[i], connected);
    }
    free(ids);
    free(values);
    free(names);
    free(keys);
}

void tt__talk_exchange_beats(tt__talk *t) {
    int n = 0;
    tt__talk_check(t, tt__talk_beat(t));
    for (int id = 0; id < (t->nodes->member.coordinates ? t->known : 1); id++)
        n += is_heard(t, id);
    if (n && !t->cut)
        read_beats(t, n);
}
