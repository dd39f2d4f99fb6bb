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
    const char *whence; /* how the place was found, where nobody named it; or NULL */
} tt__meeting;

/* Look at the variables of launchers, RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT first (launchers.h). Of the options
 * these count: rank and world_size are given instead (world_size > 0); a store is there, so that no place is needed;
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

/* Where a launcher notes how ranks end: its store, connected to when that is first looked at. */
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
    int64_t heartbeat_ms; /* within which a rank that is stopped is named, if the job's launcher sees it */
    tt__notes *notes;     /* NULL: in `store` */
} tt__rendezvous;

/* Leave a text (texts[rank * size], without its NUL shorter than `size`) under `kind`, signed if the job has a secret
 * (store/signed.h), and read all ranks'. TT_ERR_TIMEOUT names the missing ranks; TT_ERR_PEER one that the launcher saw
 * end or stop before; TT_ERR_AUTH one whose text was not signed with the same secret. */
tt_status tt__texts_exchange(const tt__rendezvous *rendezvous, const char *kind, size_t size, char *texts);

/* The same, with a function that is called once where no launcher of ours knows the ranks, when the wait has become
 * long (TT_WAIT_NOTICE): if it fails, that ends the wait. */
typedef tt_status tt__long_wait(const tt__rendezvous *at, const tt__secret *secret);
tt_status tt__texts_exchange_asking(const tt__rendezvous *rendezvous, const char *kind, size_t size, char *texts,
                                    tt__long_wait *waits_long);

/* End the others' waiting for this rank's text, which will not come. */
void tt__texts_give_up(tt_store *store, const char *prefix, const char *kind, int world);

/* Write this rank's card, read all (cards[0..world-1], the own included). TT_ERR_MISMATCH: world sizes differ. */
tt_status tt__cards_exchange(const tt__rendezvous *rendezvous, tt__card *cards);

/* Write a text that ranks have in common in this meeting alone, if none has read an old card: of what each drew for its
 * own. What is signed over it was written in this meeting, whatever store it is left in. */
enum { TT__MEETING_SIZE = 2 * TT__MAC_SIZE + 1 };
void tt__cards_meeting(const tt__card *cards, int world, char text[TT__MEETING_SIZE]);

/* The text, also instead of a card, of a rank that has given up. */
#define TT__GIVEN_UP "given up"

/* Announce that joining failed, with the thread's last error, unless another rank has announced a failure before; and
 * end the waiting for cards and texts under "net". To be called before anything is closed, so that ranks that see it
 * closed find the reason. Returns the status; the error is recorded: how the launcher says that a rank ended, or the
 * other rank's error, if this one knows only that a connection ended. */
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
    const char *transport;       /* as tt_init_process_group() has it; never NULL */
    const char *algorithms;      /* likewise, or NULL */
    tt__agent_store agent_store; /* whose ranks these are */
} tt__member;

#endif
