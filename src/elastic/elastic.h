/* The inside of an elastic job. */
#ifndef TT_ELASTIC_ELASTIC_H
#define TT_ELASTIC_ELASTIC_H

#include "elastic/next_round.h"
#include "elastic/standing_record.h"
#include "elastic/state_parts.h"
#include "elastic/stop_wish.h"

/* Commits count up from a state that the ranks of a round have agreed on, in which they are the same on all of them. A
 * rank that was cut off for some rounds may have others of the same numbers. */
typedef struct tt__line {
    int64_t round; /* -1: none, */
    uint64_t id;   /* drawn by one of its ranks */
} tt__line;

struct tt_elastic {
    int64_t timeout_ms, heartbeat_ms, round_wait_ms;
    char *transport, *algorithms; /* or NULL */
    bool or_alone, disabled;
    tt_group *group; /* NULL: between two rounds */
    int round, rank, world;
    tt__parts parts;
    tt__bytes kept[2]; /* copies of the state; the newest is kept[newest] */
    int newest;
    int64_t commits; /* -1: there is none */
    tt__line line;   /* what the commits belong to */
    bool synced;     /* since it joined the group, this rank has the same state as the others */
    bool due;        /* all ranks know that the launcher wants another round */
    bool changed;    /* by the last restore */
    tt_elastic_change change;
    char reason[512];
    tt__standing_record standing;
    tt__stop_wish stop;
    int64_t look_ms; /* when to look again whether another round is wanted */
};

/* Wait for the round after the present one, leave the group, and join; if a rank is lost meanwhile, the round after
 * that. */
tt_status tt__elastic_next_round(tt_elastic *e);

/* Does another round mend this failure of a call on a group? */
static inline bool tt__elastic_mends(tt_status status) {
    return status == TT_ERR_PEER || status == TT_ERR_ABORTED || status == TT_ERR_TIMEOUT || status == TT_ERR_NET;
}

#endif
