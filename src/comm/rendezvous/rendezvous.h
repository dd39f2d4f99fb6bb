/* How ranks find each other: a rank learns its own number (env://, tcp://, file://, etcd://), and meets the others
 * through the store. */
#ifndef TT_COMM_RENDEZVOUS_RENDEZVOUS_H
#define TT_COMM_RENDEZVOUS_RENDEZVOUS_H

#include "base/export.h"
#include "comm/rendezvous/launchers.h"
#include "comm/world.h"
#include "net/secure/secret.h"

#include <tutti/comm.h>

/* Who this rank is and where the store is served. */
typedef struct tt__meeting {
    int rank, world;
    char host[256];
    int port;           /* 0: no store needed (a world of one) */
    bool serves;        /* this rank serves the store */
    char etcd[512];     /* the store is in etcd, at these servers, below `path`; empty: it is not */
    char path[1024];    /* the store is this file; empty: it is served at host and port */
    bool needs_secret;  /* the launcher says that there are several hosts, and rank 0 serves the store */
    char secret_of[96]; /* srun's name of the job and its step, whose secret MUNGE can bring; "": it can't */
    const char *whence; /* how the place was found, if nobody named it; or NULL */
} tt__meeting;

/* Read the environment: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, then the variables of launchers (launchers.h).
 * Of the options these count: rank and world_size, if given (world_size > 0); a store, with which no place is needed;
 * or_alone. */
tt_status tt__meeting_from_env(const tt__environment *environment, tt__meeting *meeting,
                               const tt_init_process_group_args *args);

/* Read "tcp://host:port[?rank=R&world_size=N]". */
tt_status tt__meeting_from_tcp(tt__meeting *meeting, const char *url, int rank, int world);

/* Read "file:///path[?rank=R&world_size=N]". */
tt_status tt__meeting_from_file(tt__meeting *meeting, const char *url, int rank, int world);

/* Read "etcd://host:port/job[?rank=R&world_size=N]"; of the options rank and world_size count. */
tt_status tt__meeting_from_etcd(tt__meeting *meeting, const char *url, const tt_init_process_group_args *args);

/* Check rank and world size: RANK >= WORLD_SIZE is an error, for example. */
tt_status tt__meeting_check(const char *where, int64_t rank, int64_t world);

/* Was this process started as a rank by a launcher that serves a store (TORCHELASTIC_USE_AGENT_STORE)? */
bool tt__has_agent_store(void);

/* Does that launcher serve the store at this place? It does so at MASTER_ADDR and MASTER_PORT; a program that meets
 * elsewhere serves its own. */
bool tt__agent_serves_store(const char *host, int port);

/* Name this host: ranks whose hosts have the same name can share memory. */
TT__EXPORT tt_status tt__host_id(char *text, size_t size);

/* The card a rank leaves in the store. */
typedef struct tt__card {
    int world;
    long pid;
    char host_id[128];  /* ranks with the same can share memory */
    char pid_space[32]; /* ranks with the same see each other's pids */
    char hostname[72];
    char socket[64];   /* abstract Unix address */
    char nonce[33];    /* whoever knows it has read the store */
    char transport[8]; /* "auto", "shm", "tcp" */
    /* As tt_init_process_group() has them, without white space; rank 0's hold for all. One character more than it
     * allows. */
    char algorithms[1025];
} tt__card;

/* Fill in this process's card, without socket and nonce. `algorithms` may be NULL. */
tt_status tt__card_make(tt__card *card, int world, const char *transport, const char *algorithms);

/* The store in which a launcher notes how ranks end. It is connected to when a note is first looked for. */
typedef struct tt__notes {
    tt_store *store;
    bool is_tried;
} tt__notes;

/* Where and how long ranks meet to exchange something. */
typedef struct tt__rendezvous {
    tt_store *store;
    const char *prefix; /* of the keys */
    int rank, world;
    int64_t deadline_ms;
    int64_t heartbeat_ms; /* a stopped rank is named within this time, if the job's launcher sees it */
    tt__notes *notes;     /* NULL: in `store` */
} tt__rendezvous;

/* Leave a text (texts[rank * size], without its NUL shorter than `size`) under `kind`, signed if the job has a secret
 * (store/signed.h), and read all ranks'. TT_ERR_TIMEOUT names the missing ranks; TT_ERR_PEER one that the launcher saw
 * end or stop before; TT_ERR_AUTH one whose text was not signed with the same secret. */
tt_status tt__texts_exchange(const tt__rendezvous *rendezvous, const char *kind, size_t size, char *texts);

/* The same with a function that is called once, when the wait has become long (TT_WAIT_NOTICE), if no launcher of ours
 * knows the ranks. If it fails, the wait ends. */
typedef tt_status tt__long_wait(const tt__rendezvous *at, const tt__secret *secret);
tt_status tt__texts_exchange_asking(const tt__rendezvous *rendezvous, const char *kind, size_t size, char *texts,
                                    tt__long_wait *waits_long);

/* End the others' waiting for this rank's text, which will not come. */
void tt__texts_give_up(tt_store *store, const char *prefix, const char *kind, int world);

/* Write this rank's card, read all (cards[0..world-1], its own included). TT_ERR_MISMATCH: world sizes differ. */
tt_status tt__cards_exchange(const tt__rendezvous *rendezvous, tt__card *cards);

/* Write a text made of all cards' nonces: only ranks of this meeting have it, if none has read an old card. A signature
 * that covers it was made in this meeting, whatever store it lies in. */
enum { TT__MEETING_SIZE = 2 * TT__MAC_SIZE + 1 };
void tt__cards_meeting(const tt__card *cards, int world, char text[TT__MEETING_SIZE]);

/* The text, or card, of a rank that has given up. */
#define TT__GIVEN_UP "given up"

/* Announce that joining failed, with the thread's last error, unless another rank has announced a failure before; and
 * end the others' waiting for cards and texts under "net". To be called before connections are closed, so that peers
 * find the reason. Returns the status. If this rank knows only that a connection ended, the recorded error becomes how
 * the rank ended, by its launcher's note, or the other rank's error. */
tt_status tt__joining_failed(const tt__rendezvous *rendezvous);

/* A rank that joins a job: what tt__native_join() needs. */
typedef struct tt__member {
    int rank, world;
    int64_t timeout_ms, heartbeat_ms;
    tt_device_type device; /* that this process uses, for back ends */
    int device_index;
    tt_store *store;             /* to meet through; not needed for a world of one */
    tt__notes *notes;            /* of the launcher; NULL: in `store` */
    char prefix[96];             /* of the keys */
    const char *transport;       /* the option of tt_init_process_group(); never NULL */
    const char *algorithms;      /* the option, or NULL */
    tt__agent_store agent_store; /* of the launcher that started these ranks */
} tt__member;

/* ---- fresh_prefix.c: a prefix of keys that no earlier attempt of a job has used, in a store that outlives attempts */

/* May the store hold what ranks of an earlier attempt left, without this rank's environment saying which attempt this
 * is? Yes under torchrun, whose agents keep their store, and each count restarts for themselves. */
bool tt__needs_fresh_prefix(void);

/* Agree with the other ranks on a prefix, which rank 0 draws. Blocks until all ranks are here. member->prefix is set.
 * Errors: as tt__texts_exchange(). */
tt_status tt__fresh_prefix(tt__member *member);

/* ---- job_secret.c: the secret of ranks that srun starts */

/* Get a secret if the meeting needs one, the environment names none, and MUNGE can bring it. TT_OK also if there is
 * nothing to do. Errors: as tt__asking_ask(); TT_ERR_AUTH MUNGE can't be used, or the credential is another user's or
 * job's. */
tt_status tt__job_secret_find(const tt__meeting *meeting, int64_t timeout_ms);

/* Fail, as there is no secret: TT_ERR_AUTH. `why`: in parentheses; or NULL. */
tt_status tt__job_secret_missing(const tt__meeting *meeting, const char *why);

/* ---- joining_watch.c
 *
 * Learning, while ranks join, that one of them won't: by its launcher's note that it has ended, or by another rank's
 * note that joining has failed. */

typedef struct tt__joining_watch {
    const tt__rendezvous *rendezvous;
    int64_t due_ms, pause_ms; /* of the next look */
} tt__joining_watch;

/* Begin to watch. `rendezvous` is borrowed. */
void tt__joining_watch_begin(tt__joining_watch *watch, const tt__rendezvous *rendezvous);

/* Is a look due? Ever more rarely, down to every 1.6 s. */
bool tt__joining_watch_due(const tt__joining_watch *watch);

/* Look after the ranks that are still absent. Fails with TT_ERR_PEER if one of them has ended, or any rank has failed
 * to join. A store that does not answer is no failure of a rank. */
tt_status tt__joining_watch_look(tt__joining_watch *watch, const tt__rankset *absent);

#endif
