/* The protocol of a job's own socket: an abstract Unix socket of its launcher, on each host of the job.
 *
 *   rank     -> launcher  TT__JOB_RECORDER with a descriptor of the memory that its flight recorder lies in. The
 *                         connection stays open as long as that memory is in use.
 *   reader   -> launcher  TT__JOB_LIST, with or without descriptors
 *   rank     -> launcher  TT__JOB_CRASH on that connection, from the handler of a signal that will end it
 *   launcher -> rank      TT__JOB_SEEN: its stack has been read, as far as it will be; it may end
 *   process  -> launcher  TT__JOB_TIMERS with a descriptor of the memory that its timers lie in (job_timers.h). The
 *                         connection stays open as long as the process lives.
 *   rank     -> launcher  TT__JOB_AWAITS on the connection of a recorder: rounds (recovery_words.h) are told here
 *   launcher -> rank      TT__JOB_ROUND there: the next round, when all that live wait for it
 *   launcher -> rank      TT__JOB_WANTED there: a round that it would like, while all is well; ends a join, too
 *   launcher -> rank      TT__JOB_NO_ROUND there, to one that waits for a round: there won't be one, and why
 *   launcher -> reader    TT__JOB_INFO, TT__JOB_RANK for each rank (with a descriptor, if it has shown a recorder and
 *                         the reader wants that), TT__JOB_END
 *
 *   launcher -> caller    TT__JOB_REFUSED, and then the end: to a process of another user than the launcher's and root,
 *                         or where there are too many callers
 *
 * Each is one packet. */
#ifndef TT_NET_JOB_SOCKET_H
#define TT_NET_JOB_SOCKET_H

#include "base/machine/clock.h"

#include <tutti/base.h>

#include <sys/types.h>

/* Names of such sockets: "tutti-job/PID/NONCE", what TT_JOB_SOCKET in a rank's environment says; "@" before it in
 * /proc/net/unix. */
#define TT__JOB_SOCKET_PREFIX "tutti-job/"

enum { TT__JOB_NAME_SIZE = 96 };

typedef enum tt__job_kind {
    TT__JOB_RECORDER = 1,
    TT__JOB_LIST,
    TT__JOB_INFO,
    TT__JOB_RANK,
    TT__JOB_END,
    TT__JOB_CRASH,
    TT__JOB_SEEN,
    TT__JOB_TIMERS,
    TT__JOB_AWAITS,
    TT__JOB_ROUND,
    TT__JOB_WANTED,
    TT__JOB_NO_ROUND,
    TT__JOB_REFUSED
} tt__job_kind;

typedef struct tt__job_recorder {
    int32_t rank;
    uint32_t size;
    uint64_t offset; /* in the descriptor's file */
} tt__job_recorder;

/* What a reader asks for. */
typedef struct tt__job_list {
    int32_t bare; /* not 0: ranks without descriptors, of which the kernel lets a user have only so many on their way */
} tt__job_list;

/* A rank's thread got a signal that ends the process. */
typedef struct tt__job_crash {
    int32_t signal, code; /* siginfo_t's, */
    uint64_t address;     /* and si_addr, where the kernel raised it */
    uint64_t pc;          /* the instruction; 0: not known */
    int32_t thread;
    int32_t jumped; /* there is no instruction at `address`; `pc` is that of the call or jump before */
} tt__job_crash;

typedef struct tt__job_info {
    int64_t pid; /* of the launcher */
    int64_t started_realtime_ns;
    int32_t world, first_rank, local_ranks; /* of the job; here */
    int32_t node, nodes;
    char program[128], run_id[64], hostname[64];
} tt__job_info;

typedef enum tt__job_rank_state { TT__JOB_STARTING, TT__JOB_RUNNING, TT__JOB_ENDED } tt__job_rank_state;

typedef struct tt__job_rank {
    int32_t rank, node;
    int64_t pid;
    int32_t state;       /* tt__job_rank_state */
    int32_t wait_status; /* if ENDED */
    int32_t order;       /* in which the node's ranks ended: 0, 1, ... */
    bool secondary;      /* it ended because another one did */
    /* by a signal; valid for ranks of other nodes: a reader can see those of its own host itself */
    bool stopped;
    uint64_t activity;   /* tt__proc_activity() of a stopped rank */
    tt__moment ended;    /* when */
    tt__moment now;      /* of its host, later than what the recorder says */
    tt__job_recorder at; /* where its recorder lies in the descriptor; size 0: it has none */
    char hostname[64];
} tt__job_rank;

/* A round; a wanted one is its number alone, one that won't be its number and `reason`. */
typedef struct tt__job_round {
    int32_t number, rank, world; /* rank: the receiver's, -1: it is not in it */
    int32_t port;                /* of the job's store, */
    char host[256];              /* and its address */
    char reason[400];            /* why there is another round, or none: one line */
} tt__job_round;

typedef struct tt__job_refusal {
    char why[200]; /* one line */
} tt__job_refusal;

typedef struct tt__job_packet {
    uint64_t magic;
    int32_t kind; /* tt__job_kind */
    union {
        tt__job_recorder recorder;
        tt__job_list list;
        tt__job_info info;
        tt__job_rank rank;
        tt__job_crash crash;
        tt__job_round round;
        tt__job_refusal refusal;
    };
} tt__job_packet;

/* Make a new name for this process's socket. */
tt_status tt__job_socket_name(char name[TT__JOB_NAME_SIZE]);

/* Make a listening socket of that name for a launcher, non-blocking. */
tt_status tt__job_socket_listen(int *fd, const char *name);

/* Accept a connection: a non-blocking socket, or -1 if there is none or its caller was refused, as it is another user's
 * or of none that is known; the first of these is logged. */
int tt__job_socket_accept(int listener);

/* Refuse a caller: tell it why, and close the socket. */
void tt__job_refuse(int fd, const char *why);

/* Connect to a launcher. The socket waits at most timeout_ms in each packet. TT_ERR_NOT_FOUND nobody listens there;
 * TT_ERR_AUTH it is another user's. */
tt_status tt__job_socket_connect(int *fd, const char *name, int64_t timeout_ms);

/* How long a rank that crashes waits for TT__JOB_SEEN: TT_CRASH_STACKS, in seconds (default 1); 0: ranks don't tell. */
int64_t tt__job_crash_ms(void);

/* Return the process that connected this socket, or that listens at its other end; 0: not known. */
pid_t tt__job_socket_peer(int fd);

/* Send one packet of `kind` (the rest of it filled in), with a descriptor unless that is -1. False: it could not be
 * sent. */
bool tt__job_send(int fd, tt__job_kind kind, tt__job_packet *packet, int attached);

/* Send a packet with a descriptor. For `patience_ms`, while too many of this user's are on their way, try again. */
bool tt__job_hand_over(int fd, tt__job_kind kind, tt__job_packet *packet, int attached, int64_t patience_ms);

/* Receive one packet: 1; 0: none now (non-blocking sockets), or not in time; -1: the other side is gone, or sent
 * something else, or refuses this process: then *packet is TT__JOB_REFUSED. *attached: the caller's, or -1. */
int tt__job_receive(int fd, tt__job_packet *packet, int *attached);

/* After -1: record the error: TT_ERR_AUTH this process was refused, and why; TT_ERR_NET `who` has ended. */
tt_status tt__job_fail_ended(const tt__job_packet *packet, const char *who);

#endif
