/* Which members are there: their beats, and what the store says of their connections. */
#include "base/text/format.h"
#include "launch/cluster/nodes_talk.h"

#include "base/build.h"
#include "base/error.h"
#include "base/machine/clock.h"
#include "store/signed.h"

#include <stdio.h>
#include <stdlib.h>

/* LAST_BEATS_MS: once a connection has ended, beats that were sent before arrive within this time. */
enum { LAST_BEATS_MS = 300, HURRY_MS = 1000 };

void tt__talk_expect_news(tt__talk *t) { t->hurry_until_ms = tt__deadline_ms(HURRY_MS); }

/* Take a member's beat; false: it is not later than the last. */
static bool take_beat(tt__node *node, const char *beat) {
    enum { SHIFT = 48 }; /* no member ever counts so far */
    long long beats, news, first;
    if (sscanf(beat, "%lld %lld %lld", &beats, &news, &first) != 3 || (beats | news | first) >> SHIFT ||
        (TT__MUTANT(old_beat_counts) ? beats < node->beats : beats <= node->beats))
        return false;
    node->beats = beats;
    node->news = news;
    node->news_first = first;
    node->beat_ms = tt__now_ms();
    node->silent = false;
    return true;
}

/* Return why a member without a new beat is lost, or NULL. A member must be silent for too long in two looks,
 * because this process itself may have stood still: its store may answer it before it has read what others have sent
 * meanwhile. */
static const char *why_lost(tt__talk *t, int id, char text[160]) {
    tt__node *node = tt__talk_node(t, id);
    int64_t silent = tt__now_ms() - node->beat_ms;
    bool too_long = !TT__MUTANT(silent_node_not_lost) && silent >= t->nodes->member.job->heartbeat_ms,
         late = !t->all_connected && silent > LAST_BEATS_MS;
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

static void miss_beat(tt__talk *t, int id) {
    tt__node *node = tt__talk_node(t, id);
    char silent[160], all[300];
    const char *why = why_lost(t, id, silent);
    bool unread = id > 0 && node->news_taken < node->news; /* unread news may say that it leaves */
    if (!why || (unread && tt__now_ms() - node->beat_ms < 2 * t->nodes->member.job->heartbeat_ms))
        return;
    if (node->done) { /* it has left in order */
        node->lost = true;
        return;
    }
    snprintf(all, sizeof all, "node %d (%s) is lost: %s", id, node->hostname, why);
    if (!t->round && t->nodes->member.coordinates && tt__talk_is_numbered(t)) {
        tt__talk_fail_all(t, all);
    } else if (!t->round && id == 0) {
        if (!tt__talk_leave_coordinator(t))
            tt__talk_miss_coordinator(t, all);
    } else {
        tt__talk_lose(t, id, why);
        if (t->nodes->member.coordinates)
            tt__talk_announce_json(t, json_pack("{s:s, s:i, s:s}", "what", "lost", "member", id, "text", why));
    }
}

static void take_member_beat(tt__talk *t, const tt__wanted *of, tt_store_value *value) {
    tt__node *node = tt__talk_node(t, of->id);
    bool refused = node->signs && tt__signed_open(value, &t->secret, of->key, node->nonce);
    if (refused)
        tt__talk_refuse(t, of->id, of->key);
    if (refused || !take_beat(node, value->data))
        miss_beat(t, of->id);
}

/* Are the beats of member `id` read? */
static bool is_heard(const tt__talk *t, int id) {
    const tt__node *node = &t->of[id];
    return node->card == TT__CARD_READ && !node->lost && id != t->id;
}

/* List the members whose beats are read, with their keys "tutti/nodes/WHAT/ID": the coordinator reads all, the
 * others only the coordinator's. Returns how many. */
static int list_heard(const tt__talk *t, const char *what, tt__wanted *list) {
    int n = 0, members = t->nodes->member.coordinates ? t->known : 1;
    for (int id = 0; id < members; id++)
        if (is_heard(t, id)) {
            list[n].id = id;
            tt__talk_key(list[n++].key, what, id);
        }
    return n;
}

void tt__talk_exchange_beats(tt__talk *t) {
    tt__talk_note_status(t, tt__talk_beat(t));
    tt__wanted *list = t->cut || !t->known ? NULL : malloc((size_t)t->known * sizeof *list);
    int n = list ? list_heard(t, "alive", list) : 0;
    t->all_connected = !n || !t->nodes->member.coordinates || tt__talk_are_there(t, list, n, true);
    if (n && !t->cut)
        tt__talk_fetch_all(t, list, list_heard(t, "beat", list), take_member_beat);
    free(list);
}
