/* The state of the thread that communicates with the other launchers, and how it uses the store. For nodes_thread.c,
 * nodes_join.c and nodes_problem.c. */
#ifndef TT_ELASTIC_NODES_TALK_H
#define TT_ELASTIC_NODES_TALK_H

#include "elastic/nodes_own.h"
#include "net/secret.h"

#include <jansson.h>

typedef struct tt__talk {
    tt__nodes *nodes;
    tt_store *store;
    tt__secret secret;
    bool cut;            /* the store is not to be had any more */
    bool joined, failed; /* JOINED, FAILED were posted */
    bool told_waiting;
    bool done, over;               /* the launcher's DONE was carried out; OVER was posted */
    int gone;                      /* attempts for which GONE was posted */
    int64_t news_of[2];            /* of this launcher up to its "gone" of attempt k, at k % 2 */
    int64_t news_deleted;          /* of this launcher */
    int64_t hurry_until_ms;        /* news are expected: read them more often */
    int64_t began_ms, beats, news; /* beats and news of this launcher so far */
    int looks;                     /* 0: none under way; else its number */
    int64_t look_until_ms;
    bool *shown; /* (nodes) by whom it is answered */
    tt__snapshot seen;
} tt__talk;

/* ---- events for the launcher */

/* Make an event; NULL: no memory. */
tt__nodes_event *tt__talk_event(tt__nodes_kind kind);
void tt__talk_post(tt__talk *t, tt__nodes_kind kind, int node, int value, const char *text);

/* Joining has failed; the launcher is told so once. */
void tt__talk_fail(tt__talk *t, const char *text);

/* A launcher that had joined is lost. */
void tt__talk_lose(tt__talk *t, int node, const char *text);

/* ---- the store */

/* Check a call to the store. If it failed, node 0, which serves it, is gone or can't be reached. */
tt_status tt__talk_check(tt__talk *t, tt_status status);

/* Key of the count of those that have read all that they need. */
#define TT__NODES_LEFT "tutti/nodes/left"

/* "tutti/nodes/WHAT/NODE". */
void tt__talk_key(char key[TT__NODES_KEY], const char *what, int node);

/* Set a key that this launcher alone writes. */
tt_status tt__talk_put(tt__talk *t, const char *key, const void *bytes, size_t size);

/* Put this launcher's next beat. */
tt_status tt__talk_beat(tt__talk *t);

/* Read what launcher k, whose card is here, has put under `key`; false: nothing yet, or it is refused. */
bool tt__talk_get(tt__talk *t, int k, const char *key, tt_store_value *value);

/* Log, now and then, that something under node k's name is refused. */
void tt__talk_refuse(tt__talk *t, int k, const char *key);

/* Make a JSON string of a program's bytes, which need not be UTF-8; NULL is "". */
json_t *tt__talk_json(const char *text);

/* ---- joining, nodes_join.c */

/* Claim this launcher's number and put its card, with its first beat. */
tt_status tt__talk_put_card(tt__talk *t);

/* Connect and put the card. Tries for a short while, so that the launcher can end this; false: not yet, or never. */
bool tt__talk_connect(tt__talk *t);

/* Read the cards that are still missing; the last one makes `joined`. */
void tt__talk_read_cards(tt__talk *t);

#endif
