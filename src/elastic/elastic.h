/* The inside of an elastic job. Its floors: restore.c > elastic.c > state_parts.c > standing_record.c,
 * stop_wish.c. */
#ifndef TT_ELASTIC_ELASTIC_H
#define TT_ELASTIC_ELASTIC_H

#include "base/bytes.h"
#include "comm/record/recorder.h"
#include "comm/rendezvous/launcher_notes.h"
#include "net/job/job_socket.h"

#include <tutti/elastic.h>

#include <signal.h>
#include <stdbool.h>

/* ---- stop_wish.c: SIGTERM and SIGUSR1 as a wish to stop, on which ranks agree */

/* What the program did with these signals before. Zeroed: not watching. */
typedef struct tt__stop_wish {
    bool watching;
    struct sigaction term, usr1;
} tt__stop_wish;

/* Note the signals, instead of what the program did with them, until tt__stop_wish_end(). */
void tt__stop_wish_begin(tt__stop_wish *wish);
void tt__stop_wish_end(tt__stop_wish *wish);

/* Return the signal that came first since tt__stop_wish_begin(); 0: none. */
int tt__stop_wish_signal(const tt__stop_wish *wish);

/* ---- state_parts.c: what the state of an elastic job is made of, and copies of it */

typedef struct tt__elastic_part {
    char *name;
    tt_elastic_part_class cls;
    void *user;
} tt__elastic_part;

typedef struct tt__parts {
    tt__elastic_part *list;
    size_t count, capacity;
    size_t bound; /* how many of them, from the first on, stand on a group */
} tt__parts;

/* Append a part of this name, which is copied. Errors: TT_ERR_MEMORY. */
tt_status tt__parts_append(tt__parts *parts, const char *name, const tt_elastic_part_class *cls, void *user);

/* Write a copy of all parts to `out`, in place of what it held. */
tt_status tt__parts_save(const tt__parts *parts, tt__bytes *out);

/* Set all parts to what a copy holds, which another rank may have made. TT_ERR_MISMATCH: it holds other parts. */
tt_status tt__parts_load(const tt__parts *parts, const tt__bytes *copy);

/* Bind all parts to the group. */
tt_status tt__parts_bind(tt__parts *parts, tt_group *group);

/* Unbind all parts from the group, also if only some were bound. */
void tt__parts_unbind(tt__parts *parts);

/* Destroy all. */
void tt__parts_free(tt__parts *parts);

/* ---- standing_record.c: the connection of a process to its launcher between groups */

/* A recorder of this process's own that stands between its groups. In it the launcher reads what the process wants
 * while it has no group because joining one failed. On its connection the launcher tells of rounds. */
typedef struct tt__standing_record {
    tt__recorder *recorder; /* NULL: no launcher watches */
    int memory;             /* descriptor of the recorder's memory */
    int socket;             /* descriptor of the connection to the launcher; -1: there is none */
} tt__standing_record;

/* Claim this process's standing record. A process may have one only, since signals and what the launcher is told are
 * the process's. False: it is claimed already. A forked child may claim its own. */
bool tt__standing_record_claim(void);
void tt__standing_record_release(void);

/* Make the record and show it to the launcher, if there is a launcher. */
tt_status tt__standing_record_open(tt__standing_record *standing, int rank, int world);

/* Show it to the launcher again, as that of this rank, in place of a group's recorder that has ended or soon will. */
void tt__standing_record_show(tt__standing_record *standing, int rank, int world);

/* Receive a packet of the launcher through standing->socket within `ms`: 1; 0: none came; -1: the launcher has
 * ended. */
int tt__standing_record_receive(int socket, tt__job_packet *packet, int ms);

void tt__standing_record_close(tt__standing_record *standing);

/* ---- the next round, as the launcher tells it (net/job/job_socket.h) */

/* A round, as the launcher tells it. */
typedef struct tt__round_news {
    tt__seat seat;    /* rank -1: this process is not in it */
    char reason[400]; /* one line */
} tt__round_news;

/* Check and copy what the launcher told. TT_ERR_PROTOCOL: it makes no sense. */
tt_status tt__round_read(tt__round_news *news, const tt__job_round *told);

/* Wait until the launcher tells, over `socket`, of a round after `round`. Errors: TT_ERR_TIMEOUT it doesn't; TT_ERR_NET
 * it has ended; TT_ERR_ABORTED a signal of `stop` came; the thread's last error, with the launcher's words, if it says
 * that no round follows. */
tt_status tt__round_await(int socket, tt__round_news *news, int round, int64_t wait_ms, const tt__stop_wish *stop);

/* Has the launcher told since the last call that it wants a round above `round`? Never waits. */
bool tt__round_wanted(int socket, int round);

/* ---- elastic.c */

/* Commits are numbered from a state that the ranks of a round have agreed on, so commits of one line and number are the
 * same on all ranks. A rank that was cut off for some rounds may have other commits of the same numbers. */
typedef struct tt__line {
    int64_t round; /* in which it began; -1: none */
    uint64_t id;   /* drawn by a rank of that round */
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
    bool changed;    /* the last restore has set `change` */
    tt_elastic_change change;
    char reason[512];
    tt__standing_record standing;
    tt__stop_wish stop;
    int64_t look_ms; /* when to look again whether another round is wanted */
};

/* Wait for the round after the present one, leave the group, and join it; if a rank is lost meanwhile, go on to the
 * next round. */
tt_status tt__elastic_next_round(tt_elastic *e);

/* Return 1 + the rank that the thread's last error blames for the failure; 0: it blames none. */
uint32_t tt__elastic_blamed_rank(void);

/* Does another round mend this failure of a call on a group? */
static inline bool tt__elastic_mends(tt_status status) {
    return status == TT_ERR_PEER || status == TT_ERR_ABORTED || status == TT_ERR_TIMEOUT || status == TT_ERR_NET;
}

#endif
