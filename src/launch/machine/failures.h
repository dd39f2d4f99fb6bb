/* How workers ended, and which of them failed first. */
#ifndef TT_LAUNCH_MACHINE_FAILURES_H
#define TT_LAUNCH_MACHINE_FAILURES_H

#include "base/machine/clock.h"
#include "base/process/proc_state.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* What the launcher knows of a worker. */
typedef struct tt__worker {
    pid_t pid;             /* 0: not started */
    int exec_errno;        /* not 0: it could not be started; why is in `message`, or its program can't be executed */
    int start_step;        /* what failed then: tt__start_step */
    bool ended;            /* the fields below are valid */
    int status;            /* wait status */
    int order;             /* 0, 1, ...: in which order this node's workers ended */
    int sent_signal;       /* the signal that the launcher had sent it before, or all ranks had agreed on; 0: none */
    bool late;             /* the launcher killed it, as it did not come to the next round */
    bool secondary;        /* it has reported that it ended because another one did */
    bool waited;           /* it survives the loss of others, and waited for the next round when it ended */
    int64_t signal_s;      /* when `sent_signal` was sent, in seconds since 1970 */
    char *message;         /* from its error file; allocated, or NULL */
    const char *traceback; /* Python's call stack, behind `message` in the same memory; NULL: none */
    char *account;         /* what the launcher saw of it: its stack, its last calls; lines; allocated, or NULL */
    char *idle;            /* what it did while others waited for its call in vain; lines; allocated, or NULL */
    tt__proc_stop stop;    /* as health checks have seen it */
    int64_t error_s;       /* when it failed, as its error file says, in seconds since 1970; 0: it does not say */
    tt__moment when;       /* it ended */
} tt__worker;

/* "exit code 3" or "signal 9 (SIGKILL)". Returns `text`. */
const char *tt__end_text(int wait_status, char *text, size_t size);

/* Return the exit code as a shell gives it: the worker's, or 128 + signal. */
int tt__end_code(int wait_status);

/* Write the name of a signal: "SIGKILL", "SIGRTMIN+1", or "signal 33" if it has none. Returns `text`. */
const char *tt__signal_name(int sig, char *text, size_t size);

/* Did it end because the launcher told it to? Not if it can't be executed, or had reported a failure before. */
bool tt__was_told_to_end(const tt__worker *worker);

/* Did something else cause its failure: another rank, the loss that made it wait for the next round, or a signal of the
 * launcher? */
bool tt__is_consequence(const tt__worker *worker);

/* Find which of `n` workers of one node failed first; -1: none failed. It is the earliest that failed neither
 * because of another (secondary) nor while it waited for the next round, nor after a signal of the launcher; if
 * there is none, the earliest secondary one; else the earliest that waited; else the earliest of the rest. The time
 * of a failure is the one in the rank's error file, to the second, as in PyTorch; else that of its end. Of ends less
 * than TT__TIE_MS apart, a crash (SIGKILL, SIGSEGV, ...) comes before an exit code. */
int tt__first_failure(const tt__worker *workers, int n);

/* Did both ranks fail by themselves and say the same, as ranks do whose calls differ? Then neither is more to blame,
 * whichever ended first. What the launcher says of ranks that it killed does not count. */
bool tt__failed_alike(const tt__worker *a, int rank_a, const tt__worker *b, int rank_b);

/* Return the worker's message, without its own rank's number before it. */
const char *tt__failure_words(const tt__worker *worker, int rank);

/* ---- failures on all nodes */

/* A worker that failed on another node. */
typedef struct tt__remote_end {
    struct tt__remote_end *next;
    int attempt, node, rank;
    tt__worker worker; /* its texts are owned */
    char *tail;        /* the last lines of its stderr; allocated, or NULL */
} tt__remote_end;

/* A node that is lost. */
typedef struct tt__lost_node {
    struct tt__lost_node *next;
    int node;
    char *why; /* how that was seen; allocated, or NULL: there was no memory */
} tt__lost_node;

/* What is known of an attempt's failures. */
typedef struct tt__ledger {
    tt__worker *workers; /* (count) this node's; borrowed */
    int count, first_rank;
    tt__remote_end *others; /* in no order */
    tt__lost_node *lost;    /* the latest first */
    int64_t lost_ns;        /* when the first of `lost` was heard of, on this machine's clock */
} tt__ledger;

/* The first failure: one of this node's workers, or one of another node. */
typedef struct tt__failure {
    const tt__worker *worker;
    int own;                     /* its index in ledger->workers; -1: it is `other` */
    const tt__remote_end *other; /* or NULL */
    int rank;
    bool alike; /* others failed alike; this is the lowest of these ranks */
} tt__failure;

/* Find the first failure on all nodes, as tt__first_failure() does on one; false: there is none. Clocks of nodes
 * differ, so a rank that waited may seem to have ended before the one that made it wait. And node 0 may order the next
 * round before it hears of an end that the others count in this one. Of those that failed alike it is the lowest rank,
 * so that all nodes name the same one. */
bool tt__ledger_first(const tt__ledger *ledger, tt__failure *first);

/* Could a worker not be executed, here or on another node? */
bool tt__ledger_unexecutable(const tt__ledger *ledger);

/* How many of this node's workers have ended. */
int tt__ledger_ended(const tt__ledger *ledger);

/* NULL is allowed. */
void tt__remote_end_free(tt__remote_end *end);
void tt__lost_node_free(tt__lost_node *lost);

/* Forget the other nodes' failures, and the lost nodes. The workers are the owner's to forget. */
void tt__ledger_clear(tt__ledger *ledger);

#endif
