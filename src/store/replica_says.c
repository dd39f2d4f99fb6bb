/* What a replica says of itself to who runs it: whom it waits for, and what that means. */
#ifdef TT__RAFT
#include "store/replica_own.h"

#include "base/clock.h"
#include "base/error.h"

#include <stdio.h>
#include <string.h>

/* Nothing that is over soon is said; what lasts is said again. */
enum { LOOK_MS = 250, LASTS_MS = 2000, AGAIN_MS = 60000 };

enum { LIST_SIZE = TT__REPLICAS_MAX * (TT__NET_ENDPOINT_SIZE + 330) };

/* Those that are meant, and how they stand. */
typedef struct seen {
    int reached, gone, anew; /* with what the store holds, this one too; not connected; connected, but new */
    int holders;             /* connected, of a store that was there before this one */
    bool is_gone[TT__REPLICAS_MAX], is_anew[TT__REPLICAS_MAX], holds[TT__REPLICAS_MAX];
} seen;

static int most_of(const tt__replica *r) { return r->place.n / 2 + 1; }

static bool is_configured(const tt__replica *r, uint64_t id) {
    for (unsigned i = 0; i < r->raft.configuration.n; i++)
        if (r->raft.configuration.servers[i].id == id)
            return true;
    return false;
}

static void look_at_all(tt__replica *r, seen *s) {
    *s = (seen){.reached = 1};
    for (int i = 0; i < r->place.n; i++) {
        tt__replica_peer_view view = tt__replica_peers_view(&r->peers, i);
        if (i == r->member)
            continue;
        s->is_gone[i] = !view.up;
        s->is_anew[i] = view.up && r->started && !is_configured(r, view.hello.id);
        s->holds[i] = view.up && !r->started && view.hello.cluster;
        s->gone += s->is_gone[i];
        s->anew += s->is_anew[i];
        s->holders += s->holds[i];
        s->reached += !s->is_gone[i] && !s->is_anew[i];
    }
}

/* List members: "A, B", and why they are not there. */
static const char *list(tt__replica *r, const bool *which, bool why, char text[LIST_SIZE]) {
    size_t used = 0;
    *text = '\0';
    for (int i = 0; i < r->place.n && used < LIST_SIZE; i++) {
        char where[TT__NET_ENDPOINT_SIZE];
        if (!which[i])
            continue;
        tt__replica_peer_view view = tt__replica_peers_view(&r->peers, i);
        tt__net_endpoint_text(r->place.at[i].host, r->place.at[i].port, where);
        used += (size_t)snprintf(text + used, LIST_SIZE - used, "%s%s", used ? ", " : "", where);
        if (why && used < LIST_SIZE)
            used += (size_t)snprintf(text + used, LIST_SIZE - used, " (%.300s)", view.why);
    }
    return text;
}

/* Before there is a store. */
static void say_new(tt__replica *r, const seen *s, bool why, char *text, size_t size) {
    char names[LIST_SIZE];
    if (s->gone)
        snprintf(text, size, "store: %d of %d replicas reached, all must be for the store to begin: waiting for %s",
                 s->reached, r->place.n, list(r, s->is_gone, why, names));
    else if (s->holders && s->holders < most_of(r))
        snprintf(text, size,
                 "store: %s still %s a store, of which %d of %d replicas must be there, and the others have come back "
                 "without it: what it held is lost; start %s again, too",
                 list(r, s->holds, false, names), s->holders == 1 ? "has" : "have", most_of(r), r->place.n,
                 s->holders == 1 ? "this one" : "these");
}

/* While too few are there to agree on anything. */
static void say_too_few(tt__replica *r, const seen *s, char *text, size_t size) {
    char names[LIST_SIZE];
    int missing = most_of(r) - s->reached;
    if (s->reached >= most_of(r))
        return;
    int used =
        snprintf(text, size, "store: %d of %d replicas reached, %d must be: ", s->reached, r->place.n, most_of(r));
    text += used;
    size -= (size_t)used;
    if (missing > s->gone)
        snprintf(text, size, "%s came back without what the store held, which is lost: start this replica again, too",
                 list(r, s->is_anew, false, names));
    else
        snprintf(text, size, "nothing is written until %s%s %s back; start %s again",
                 missing == s->gone ? ""
                 : missing == 1     ? "one of "
                                    : "two of ",
                 list(r, s->is_gone, false, names), missing == 1 ? "is" : "are", missing == 1 ? "it" : "them");
}

static void say(tt__replica *r, bool why, char *text, size_t size) {
    seen s;
    *text = '\0';
    look_at_all(r, &s);
    if (r->started && !r->in) { /* it doesn't know yet which of the others belong */
        s.reached += s.anew;
        s.anew = 0;
    }
    if (!r->started)
        say_new(r, &s, why, text, size);
    else
        say_too_few(r, &s, text, size);
}

static bool is_led(tt__replica *r) {
    raft_id id = 0;
    const char *address = NULL;
    if (r->started && !r->leads)
        r->lib->raft_leader(&r->raft, &id, &address);
    return r->leads || id;
}

static void on_says(uv_timer_t *timer) {
    tt__replica *r = timer->data;
    tt__replica_says *s = &r->says;
    char text[TT__REPLICA_SAYS_SIZE];
    int64_t now_ms = tt__now_ms();
    if (*r->failed)
        return;
    say(r, false, text, sizeof text);
    if (strcmp(text, s->text) != 0) {
        memcpy(s->text, text, sizeof text);
        s->since_ms = now_ms;
        s->said_ms = 0;
    }
    if (*text && now_ms - s->since_ms >= LASTS_MS && (!s->said_ms || now_ms - s->said_ms >= AGAIN_MS)) {
        say(r, true, text, sizeof text);
        if (!*text) /* it is over just now */
            return;
        tt__log(s->level, "%s", text);
        s->said_ms = now_ms;
        s->waited = true;
    } else if (!*text && s->waited && is_led(r)) {
        seen all;
        look_at_all(r, &all);
        tt__log(s->level, "store: %d of %d replicas reached: the store is served", all.reached, r->place.n);
        s->waited = false;
    }
}

void tt__replica_says_begin(tt__replica *r, uv_loop_t *loop) {
    uv_timer_init(loop, &r->says.timer);
    r->says.timer.data = r;
    uv_timer_start(&r->says.timer, on_says, LOOK_MS, LOOK_MS);
}
#endif
typedef int tt__replica_says_is_optional; /* ISO C wants something in every file */
