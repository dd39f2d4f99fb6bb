/* What the processes of a job and their launcher tell each other: packets on the job's own socket, and words in shared
 * memory. The socket is an abstract Unix socket of the launcher, on each host of the job. No store is needed, so the
 * host of the store may be lost.
 *
 *   rank     -> launcher  TT__JOB_RECORDER with a descriptor of the memory of its flight recorder. The connection stays
 *                         open as long as that memory is in use.
 *   reader   -> launcher  TT__JOB_LIST, with or without descriptors
 *   rank     -> launcher  TT__JOB_CRASH on the recorder's connection, from the handler of a signal that will end it
 *   launcher -> rank      TT__JOB_SEEN there: its stack has been read as far as possible; it may end
 *   process  -> launcher  TT__JOB_TIMERS with a descriptor of the memory of its timers (tt__timers). The connection
 *                         stays open as long as the process lives.
 *   rank     -> launcher  TT__JOB_AWAITS on the recorder's connection: the rank wants to hear of rounds there
 *   launcher -> rank      TT__JOB_ROUND there: the next round, once all living ranks wait for it (recovery, below)
 *   launcher -> rank      TT__JOB_WANTED there: the launcher would like a new round, though all is well; ends a join,
 *                         too
 *   launcher -> rank      TT__JOB_NO_ROUND there, to a rank that waits for a round: there won't be one, and why
 *   launcher -> reader    TT__JOB_INFO, TT__JOB_RANK for each rank (with a descriptor, if it has shown a recorder and
 *                         the reader wants that), TT__JOB_END
 *   launcher -> caller    TT__JOB_REFUSED, and then the end: to a process of another user than the launcher's and root,
 *                         or if there are too many callers
 *
 * Each is one packet. */
#ifndef TT_NET_JOB_SOCKET_H
#define TT_NET_JOB_SOCKET_H

#include "base/machine/clock.h"

#include <tutti/base.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

/* The socket's name is "tutti-job/PID/NONCE". TT_JOB_SOCKET in a rank's environment is this name; /proc/net/unix has
 * "@" before it. */
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
    uint64_t offset; /* in the descriptor's file, a multiple of TT__RECORDER_ALIGN */
} tt__job_recorder;

enum { TT__RECORDER_ALIGN = 128 }; /* comm/record/recorder.h checks it */

/* A reader's request. */
typedef struct tt__job_list {
    int32_t bare; /* not 0: without descriptors, because the kernel lets a user have only so many in packets */
} tt__job_list;

/* A rank's thread got a signal that ends the process. */
typedef struct tt__job_crash {
    int32_t signal, code; /* of siginfo_t */
    uint64_t address;     /* si_addr, if the kernel raised the signal */
    uint64_t pc;          /* the instruction; 0: unknown */
    int32_t thread;
    int32_t jumped; /* `address` has no instruction; `pc` is the call or jump that led there */
} tt__job_crash;

typedef struct tt__job_info {
    int64_t pid; /* of the launcher */
    int64_t started_realtime_ns;
    int32_t world, first_rank, local_ranks; /* the job's ranks; this node's first, and how many it has */
    int32_t node, nodes;
    char program[128], run_id[64], hostname[64];
} tt__job_info;

typedef enum tt__job_rank_state { TT__JOB_STARTING, TT__JOB_RUNNING, TT__JOB_ENDED } tt__job_rank_state;

typedef struct tt__job_rank {
    int32_t rank, node;
    int64_t pid;
    int32_t state;       /* tt__job_rank_state */
    int32_t wait_status; /* if ENDED */
    int32_t order;       /* the rank's place in the order in which the node's ranks ended: 0, 1, ... */
    bool secondary;      /* it ended because another one did */
    bool stopped;        /* by a signal; set for ranks of other nodes: a reader sees those of its host itself */
    uint64_t activity;   /* tt__proc_activity() of a stopped rank */
    tt__moment ended;    /* when */
    tt__moment now;      /* the present time on its host, later than all in the recorder */
    tt__job_recorder at; /* where its recorder is in the descriptor's file; size 0: it has none */
    char hostname[64];
} tt__job_rank;

/* A round. A wanted round has only its number; a round that won't come has its number and `reason`. */
typedef struct tt__job_round {
    int32_t number, rank, world; /* rank: the receiver's; -1: it doesn't take part */
    int32_t port;                /* of the job's store */
    char host[256];              /* of the job's store */
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

/* Accept a connection: a non-blocking socket, or -1 if there is none. Also -1 if its caller was refused because it is
 * another user's, or its user is unknown; the first refusal is logged. */
int tt__job_socket_accept(int listener);

/* Refuse a caller: tell it why, and close the socket. */
void tt__job_refuse(int fd, const char *why);

/* Connect to a launcher. The socket waits at most timeout_ms for each packet. TT_ERR_NOT_FOUND nobody listens there;
 * TT_ERR_AUTH the socket is another user's. */
tt_status tt__job_socket_connect(int *fd, const char *name, int64_t timeout_ms);

/* Return how long a rank that crashes waits for TT__JOB_SEEN: TT_CRASH_STACKS, in seconds (default 1); 0: a rank sends
 * no TT__JOB_CRASH. */
int64_t tt__job_crash_ms(void);

/* Return the process at the other end, which connected or listens; 0: unknown. */
pid_t tt__job_socket_peer(int fd);

/* Send a packet of `kind`, whose other fields are filled in, with the descriptor `attached`, or none if that is -1.
 * False: it could not be sent. */
bool tt__job_send(int fd, tt__job_kind kind, tt__job_packet *packet, int attached);

/* Send a packet with a descriptor. While too many descriptors of this user are in packets, try again, for
 * `patience_ms`. */
bool tt__job_hand_over(int fd, tt__job_kind kind, tt__job_packet *packet, int attached, int64_t patience_ms);

/* Receive one packet: 1. 0: none now (non-blocking socket), or none in time. -1: the other side is gone, sent something
 * else, or refuses this process (*packet is TT__JOB_REFUSED). *attached: a descriptor, which the caller closes, or
 * -1. */
int tt__job_receive(int fd, tt__job_packet *packet, int *attached);

/* After -1, record the error: TT_ERR_AUTH this process was refused, and why; TT_ERR_NET `who` has ended. */
tt_status tt__job_fail_ended(const tt__job_packet *packet, const char *who);

/* ---- the timers of a process (tt_expires()), in memory that the process hands to its launcher. If one expires, the
 * launcher ends the process. It reads that memory as a file: nothing that the process does to it can harm the launcher.
 * ---- */

enum { TT__TIMERS = 64 };

/* What the launcher prints of a timer that has expired. */
typedef struct tt__timer_text {
    int64_t after_ms;
    int32_t thread, line;    /* of the call that set it; line 0: unknown */
    char name[64], file[48]; /* ends with 0; "": none */
} tt__timer_text;

typedef struct tt__timers {
    /* When each expires, in ms of CLOCK_MONOTONIC; 0: it is not set. Written after the timer's text, which stays until
     * this number changes. */
    _Atomic int64_t expires_ms[TT__TIMERS];
    tt__timer_text texts[TT__TIMERS];
} tt__timers;

/* ---- recovery: a rank writes four words into its flight recorder, which the launcher maps; the launcher answers by
 * packets.
 *
 * All ranks may want a round although nobody was lost: a call may have timed out. A round's number is higher than that
 * of the round before, not always by one. If a rank has several recorders, the newest counts. After the rank's end it
 * can still be read, and tells whether the rank stopped as agreed. A new worker finds the round in which it begins as
 * TT_ROUND in its environment; absent: 0. ---- */

typedef struct tt__recovery_words {
    _Atomic uint32_t recovers;    /* 1: this process survives a failure of others */
    _Atomic uint32_t wants_round; /* the round that it waits for; 0: none */
    _Atomic uint32_t lost;        /* 1 + the rank, of its present round, that its last TT_ERR_PEER blamed; 0: none */
    _Atomic uint32_t stopped_by;  /* the signal for which all ranks agreed to stop; 0: none */
} tt__recovery_words;

/* Return the store's key under which the end of a rank is noted: "tutti/ended/RANK", from round 1 on
 * "tutti/ended/RANK/ROUND", because another worker may have had the number before. */
static inline const char *tt__ended_key(char key[64], int rank, int round) {
    if (round)
        snprintf(key, 64, "tutti/ended/%d/%d", rank, round);
    else
        snprintf(key, 64, "tutti/ended/%d", rank);
    return key;
}

/* A copy of the words. */
typedef struct tt__recovery {
    uint32_t recovers, wants_round, lost, stopped_by;
} tt__recovery;

/* The offset of the words in a recorder; comm/record/recorder.h checks it. */
enum { TT__RECOVERY_AT = 192 };

/* Read the words of a recorder of `size` bytes, which another process may be writing. False: there are none. */
static inline bool tt__recovery_read(const void *recorder, size_t size, tt__recovery *out) {
    *out = (tt__recovery){0};
    if (!recorder || size < TT__RECOVERY_AT + sizeof(tt__recovery_words))
        return false;
    const tt__recovery_words *words = (const void *)((const char *)recorder + TT__RECOVERY_AT);
    out->wants_round = atomic_load_explicit(&words->wants_round, memory_order_acquire); /* written last */
    out->recovers = atomic_load_explicit(&words->recovers, memory_order_relaxed);
    out->lost = atomic_load_explicit(&words->lost, memory_order_relaxed);
    out->stopped_by = atomic_load_explicit(&words->stopped_by, memory_order_relaxed);
    return true;
}

#endif
