/* The state of the thread that communicates with the other launchers, and how it uses the store. Its parts:
 *
 *   nodes_thread.c   the loop: orders of the launcher, looks, the end; what the launcher calls
 *   nodes_round.c    who takes part: the coordinator composes rounds, all take them
 *   nodes_news.c     what other members announce; the coordinator repeats it
 *   nodes_beat.c     who is there
 *   nodes_join.c     connecting, cards; who coordinates, where etcd says so
 *   nodes_talk.c     what all use: events for the launcher, members, the store
 *
 * Each uses those below it. */
#ifndef TT_LAUNCH_CLUSTER_NODES_TALK_H
#define TT_LAUNCH_CLUSTER_NODES_TALK_H

#include "launch/cluster/nodes.h"
#include "net/secure/secret.h"

#include <tutti/store.h>

#include <jansson.h>
#include <pthread.h>

enum { TT__NODES_KEY = 64 };

struct tt__nodes {
    tt__nodes_member member;
    int events_fd, wake_fd; /* eventfds: to the launcher, to the thread */

    pthread_t thread;
    bool started;
    pthread_mutex_t lock; /* of all below */
    bool stop;
    bool unsure; /* the first event is a round that may have gone on without this node */
    tt__nodes_event *events, **events_end;
    struct tt__order *orders, **orders_end; /* nodes_thread.c */
};

/* What a member has told of itself: its card, which it puts when it comes. */
typedef enum tt__card_state { TT__CARD_NONE, TT__CARD_LISTED, TT__CARD_READ } tt__card_state;

/* What is known of a member. */
typedef struct tt__node {
    tt__card_state card;
    bool signs; /* what it writes is signed, with `nonce` as its context */
    char nonce[33];
    int workers;
    uint64_t role; /* a hash of its --role */
    bool wants_trace;
    tt__counts counts; /* as its card says */
    bool brings;       /* its card says that it has workers that wait for a round after counts.recovery */
    char hostname[64];

    bool told; /* the launcher knows that it has come */
    bool lost;
    bool done; /* it has announced that nothing of the job is left there */
    bool left; /* it has read all that it needs */

    int attempts_over; /* one more than the last attempt of which it has no worker left, except those that are kept */
    bool kept;         /* workers of that attempt are kept */
    bool well;         /* its workers of that attempt have ended well, of their own accord */

    int64_t beats;      /* last seen */
    int64_t beat_ms;    /* when that grew */
    bool silent;        /* in the last look, that had not grown for the heartbeat */
    int64_t news;       /* how many it has announced */
    int64_t news_first; /* the first that is still there */
    int64_t news_taken; /* how many have been read */
    int64_t refused_ms; /* when something of it was last refused; 0: never */
} tt__node;

/* How far this member has come in joining. */
typedef struct tt__joining_talk {
    bool introduced;  /* its card is put */
    bool greeted;     /* the coordinator has named its nonce, and so is of this life; it itself always is */
    json_t *foretold; /* the end, announced by a coordinator that has not greeted; NULL: none */
} tt__joining_talk;

/* What this launcher announces. */
typedef struct tt__own_news {
    int64_t sent;
    int64_t first;     /* those before it are deleted */
    int64_t of_before; /* those up to this one are of earlier attempts, and may be deleted */
} tt__own_news;

/* Has the coordinator given this member up? A member that does not know begins nothing. */
typedef struct tt__trust {
    int64_t heard_ms;      /* when it was last known that the coordinator has not */
    int64_t awaited_beats; /* not 0: that will be known again when the coordinator's beats have reached this number */
    bool given_up;         /* it has */
} tt__trust;

/* The coordinator composes a round. */
typedef struct tt__composing {
    bool ordered;      /* the launcher wants one */
    bool told_waiting; /* the user was told which nodes are missing */
    tt__counts counts; /* of the round */
    int64_t since_ms;  /* when it was ordered */
    int64_t came_ms;   /* when the last member came */
} tt__composing;

/* A reader's look at the calls of all nodes. */
typedef struct tt__job_look_state {
    int id; /* 0: none is under way */
    int64_t until_ms;
    bool *shown; /* (round->n) which nodes have answered it */
    tt__snapshot seen;
} tt__job_look_state;

typedef struct tt__talk {
    tt__nodes *nodes;
    tt__secret secret;
    tt_store *store;
    tt_store *notes; /* the same, for notes to the ranks of this round; NULL: none yet */
    bool cut;        /* the store can't be reached any more */

    int id; /* this member's number */
    char nonce[33];
    int64_t began_ms, beats;
    tt__joining_talk joining;
    tt__own_news own_news;
    tt__trust trust;

    tt__node *of; /* (known) by number; the coordinator has all members, others the coordinator alone */
    int known;
    size_t list_read;
    bool all_connected;     /* in the last look at beats: the connections of all that were read are there */
    int64_t hurry_until_ms; /* news are expected: read them more often */
    json_t *repeats;        /* the coordinator: what members have announced, to be repeated to all; NULL: nothing */
    size_t repeated_bytes;  /* the length of that */

    tt__round *round; /* the last one; NULL: none yet */
    tt__composing composing;
    bool closed; /* the job waits for no further nodes */
    /* one more than the last attempt for which ON_ALL_GONE was posted, or of which no worker is left here */
    int attempts_over;
    tt__job_look_state look;

    bool done;         /* the launcher's DONE was carried out */
    bool failed, over; /* ON_NO_ROUND, ON_OVER were posted */
} tt__talk;

/* Is the launcher done with the thread? */
bool tt__talk_stopped(const tt__talk *t);

/* ---- members */

/* Find what is known of member `id`; NULL: nothing is. */
tt__node *tt__talk_node(const tt__talk *t, int id);

/* Make room for what the coordinator knows of member `id`. */
tt_status tt__talk_make_room(tt__talk *t, int id);

/* Return the number of member `id` in the round, or -1. */
int tt__talk_node_number(const tt__talk *t, int id);

/* As the coordinator: list the nonces of those whose cards are read, for news that may be the first that they take. */
json_t *tt__talk_nonces(const tt__talk *t);

/* May nodes come and go? */
static inline bool tt__talk_is_elastic(const tt__talk *t) {
    return t->nodes->member.job->min_nodes < t->nodes->member.job->max_nodes;
}

/* Does each node have a number of its own (--node-rank)? Else members get theirs as they come. */
static inline bool tt__talk_is_numbered(const tt__talk *t) { return t->nodes->member.job->number >= 0; }

/* Does it take part, as far as is known? */
static inline bool tt__node_lives(const tt__node *node) {
    return node->card == TT__CARD_READ && !node->lost && !node->done;
}

/* Can these be a job's? An attempt of -1: it has had none. */
static inline bool tt__counts_are_sane(const tt__counts *c) {
    return c->attempt >= -1 && c->attempt < TT__COUNT_MAX && c->restarts >= 0 && c->restarts < TT__COUNT_MAX &&
           c->recovery >= 0 && c->recovery < TT__COUNT_MAX;
}

/* Is a member that is lost replaced, so that others go on without it? */
static inline bool tt__talk_replaces(const tt__talk *t) {
    return !tt__talk_is_numbered(t) && (tt__talk_is_elastic(t) || t->nodes->member.job->max_restarts > 0);
}

/* Leave a coordinator that does not answer, to look for another (tt__talk_watch_election()). False: this member stays.
 * It leaves only with etcd, and before the first round or if it is itself the coordinator, which can't reach its own
 * store and makes way. */
static inline bool tt__talk_leave_coordinator(tt__talk *t) {
    const tt__nodes_member *m = &t->nodes->member;
    bool leaves = m->election && (!t->round || m->coordinates) && !t->failed && !t->joining.foretold;
    t->cut = t->cut || leaves;
    return leaves;
}

/* ---- events for the launcher */

/* Post an event, which takes over what it holds. False: no memory; its round, end or node then stays the
 * caller's. */
bool tt__talk_post(tt__talk *t, tt__nodes_event *event);
/* Post an event for the machine. `text` becomes the event's, where it has one. */
void tt__talk_tell_machine(tt__talk *t, tt__event event, const char *text);
/* The same: node `number` is lost (TT__ON_LOST), or leaves (TT__ON_LEFT). */
void tt__talk_tell_lost(tt__talk *t, tt__event_kind kind, int number, const char *why);
/* Tell the user which nodes this one waits for. */
void tt__talk_say_waits(tt__talk *t, const char *text);

/* Joining has failed, or another round; the launcher is told so once. */
void tt__talk_fail(tt__talk *t, const char *text);

/* The coordinator was there, and has gone before the first round: tell the launcher to join anew, or, if each node has
 * its own number, that joining has failed. */
void tt__talk_miss_coordinator(tt__talk *t, const char *text);

/* Member `id` is lost. The launcher is told, if that is in the round. */
void tt__talk_lose(tt__talk *t, int id, const char *text);

/* ---- the store */

/* Note how a call to the store ended, and return that. If it failed, the coordinator, which serves the store, is gone
 * or can't be reached: `cut`, and the launcher is told what follows. */
tt_status tt__talk_note_status(tt__talk *t, tt_status status);

/* Say that this member has read all that it needs. */
tt_status tt__talk_put_left(tt__talk *t);

/* Read which members have said so: sets `left` of those that are known. *n := how many have. */
tt_status tt__talk_read_left(tt__talk *t, int *n);

/* "tutti/nodes/WHAT/ID", "tutti/nodes/news/ID/NUMBER". */
void tt__talk_key(char key[TT__NODES_KEY], const char *what, int id);
void tt__talk_news_key(char key[TT__NODES_KEY], int id, int64_t number);

/* Read the value of `key`; false: it has none yet, or the store does not answer. */
bool tt__talk_fetch(tt__talk *t, const char *key, tt_store_value *value);

/* The same of what member `id`, whose card is here, has put; false also if its signature is refused. */
bool tt__talk_fetch_signed(tt__talk *t, int id, const char *key, tt_store_value *value);

/* A value that is to be read, of member `id`. number: of its news. */
typedef struct tt__wanted {
    int id;
    int64_t number;
    char key[TT__NODES_KEY];
} tt__wanted;

/* Take a value, which is freed afterwards. */
typedef void tt__talk_take(tt__talk *t, const tt__wanted *wanted, tt_store_value *value);

/* Does every key of the list have a value? `otherwise`: the answer if the store does not say. */
bool tt__talk_are_there(tt__talk *t, const tt__wanted *list, int n, bool otherwise);

/* Read values that are there, all at once: one after the other would keep all members waiting for a time that grows
 * with their number. */
void tt__talk_fetch_all(tt__talk *t, const tt__wanted *list, int n, tt__talk_take *take);

/* Is the member's connection to the store still there? True, too, if the store does not answer. */
bool tt__talk_is_connected(tt__talk *t, int id);

/* Put this launcher's next beat. */
tt_status tt__talk_beat(tt__talk *t);

/* Announce something: JSON with "what"; "node" is set, whose news it is. Takes `news`, which may be NULL. A failure is
 * the store's: `cut`. */
void tt__talk_announce_json(tt__talk *t, json_t *news);

/* Delete this launcher's news up to own_news.of_before. */
void tt__talk_delete_news(tt__talk *t);

/* Log, now and then, that something under a member's name is refused. */
void tt__talk_refuse(tt__talk *t, int id, const char *key);

/* ---- nodes_join.c */

/* Connect and introduce this launcher. Tries for a short while, so that the launcher can end this; false: not yet, or
 * never. */
bool tt__talk_connect(tt__talk *t);

/* Read the cards that are still missing: the coordinator reads all, the others the coordinator's, and then put their
 * own. */
void tt__talk_read_cards(tt__talk *t);

/* If the coordinator is gone, look for another one; as the coordinator, check whether another one has replaced it. */
void tt__talk_watch_election(tt__talk *t);

/* As the coordinator: is it still known to be the only one? */
bool tt__talk_may_compose(tt__talk *t);

/* ---- nodes_beat.c */

/* Put a beat and read those of the others: a member without one for the heartbeat is lost. */
void tt__talk_exchange_beats(tt__talk *t);

/* Read the others' news more often for a moment. */
void tt__talk_expect_news(tt__talk *t);

/* ---- nodes_news.c */

/* Take the news that beats have told of. */
void tt__talk_read_news(tt__talk *t);

/* ---- nodes_round.c */

/* As the coordinator: compose the round that is ordered, if all that it takes are here; tell of newcomers. */
void tt__talk_compose(tt__talk *t);

/* Take the round that the coordinator has announced. */
void tt__talk_take_round(tt__talk *t, const json_t *news);

/* As the coordinator: order a round with these numbers, or the first one that this launcher coordinates. */
void tt__talk_order_round(tt__talk *t, const tt__counts *counts);
void tt__talk_order_first_round(tt__talk *t);

/* As the coordinator: once no node that takes part has a worker of the attempt left, and all that they announced is
 * read, tell the launcher (ON_ALL_GONE). */
void tt__talk_tell_all_gone(tt__talk *t);

/* As the coordinator: end joining, or further rounds, with an error on all nodes. */
void tt__talk_fail_all(tt__talk *t, const char *text);

/* As the coordinator: wait until the others have read all they need from the store. */
void tt__talk_wait_for_leavers(tt__talk *t);

/* The round that is pending, if there is one, still stands: the coordinator was heard at this time. */
void tt__nodes_believe(tt__nodes *nodes, int64_t now_ms);

#endif
