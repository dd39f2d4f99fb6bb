/* How workers ended, which of them failed first, and the text that says so. */
#ifndef TT_ELASTIC_REPORT_H
#define TT_ELASTIC_REPORT_H

#include "base/proc_state.h"
#include "elastic/job.h"
#include "elastic/streams.h"

typedef struct tt__worker {
    pid_t pid;             /* 0 = not started */
    int exec_errno;        /* not 0: it could not be started; why is in `message`, or its program can't be executed */
    int start_step;        /* what failed then: tt__start_step */
    bool ended;            /* the fields below are valid */
    int status;            /* wait status */
    int order;             /* 0, 1, ...: in which order they ended */
    int sent_signal;       /* the signal the launcher had sent it before, 0 = none */
    bool late;             /* the launcher killed it, since it did not come to the next round */
    bool secondary;        /* it has reported that it ended because another one did */
    bool waited;           /* it survives the loss of others, and waited for the next round: this one was over */
    int64_t signal_s;      /* when, in seconds since 1970 */
    char *message;         /* from its error file, or NULL; allocated, */
    const char *traceback; /* likewise: Python's call stack, in the same memory behind it; NULL: none */
    char *account;         /* what the launcher saw of it: its stack, its last calls; lines, or NULL; allocated */
    char *idle;            /* what it did while others waited for its call in vain; lines, or NULL; allocated */
    tt__proc_stop stop;    /* as health checks have seen it */
    int64_t error_s;       /* and when it failed, in seconds since 1970; 0 = it does not say */
    tt__moment when;
} tt__worker;

/* "exit code 3" or "signal 9 (SIGKILL)". Returns `text`. */
const char *tt__end_text(int wait_status, char *text, size_t size);

/* Return the exit code as a shell gives it: the worker's, or 128 + signal. */
int tt__end_code(int wait_status);

/* Write the name of a signal, "SIGKILL"; "signal" if it has none. Returns `text`. */
const char *tt__signal_name(int sig, char *text, size_t size);

/* Read a torchelastic error file into the worker's message, traceback, error_s and secondary. */
void tt__error_file_read(const char *path, tt__worker *worker);

/* Did it end because the launcher told it to? Not if it can't be executed, or had reported a failure before. */
bool tt__was_told_to_end(const tt__worker *worker);

/* Did something else cause its failure: another rank, the loss that made it wait for the next round, or a signal of the
 * launcher? */
bool tt__is_consequence(const tt__worker *worker);

/* Find the rank that failed first, or -1 if none did: the earliest that failed neither because of another (secondary)
 * nor while it waited for the next round, nor after a signal of the launcher; if there is none, the earliest secondary
 * one; else the earliest that waited; else the earliest of the rest. When a rank failed is what its error file says, to
 * the second, as in PyTorch; else when it ended. Of ends less than TT__TIE_MS apart, a crash (SIGKILL, SIGSEGV, ...)
 * comes before an exit code.
 *
 * Clocks of nodes differ, so that a rank which waited may seem to have ended before the one that made it wait. And
 * node 0 may have ordered the next round before it hears of it, when the others still count it in this one. */
int tt__first_failure(const tt__worker *workers, int n);

/* Did both ranks fail by themselves and say the same, as all do whose calls differ? Then neither is more to blame,
 * whichever ended first. What the launcher says of those that it killed are not their words. */
bool tt__failed_alike(const tt__worker *a, int rank_a, const tt__worker *b, int rank_b);

/* Who failed first, of all nodes. */
typedef struct tt__first {
    int rank, node, local_rank;
    const char *hostname; /* NULL: there is one node only */
    const tt__worker *worker;
    const char *tail; /* the last lines of its stderr */
    bool alike;       /* others failed alike; this is the lowest of these ranks */
    bool unsure;      /* about when a node was lost, which is reported before */
} tt__first;

/* Report the first failure in full. started: when the job did. */
void tt__report_first(tt__streams *streams, const tt__job *job, const tt__first *first, const tt__moment *started);

/* Report the first failure of an attempt that is followed by another, in which ranks that survive go on, or all start
 * again. */
void tt__report_attempt(tt__streams *streams, const tt__job *job, const tt__first *first, bool recovers);

/* "rank 1 (pid 7) was killed by SIGKILL (signal 9)". Returns `text`. */
enum { TT__ATTEMPT_TEXT = 400 };
const char *tt__attempt_text(const tt__first *first, char *text, size_t size);

/* Report this node's workers but number `first` (-1: all) in a line each, equal ones together. */
void tt__report_others(tt__streams *streams, const tt__job *job, const tt__worker *workers, int first);

/* Report what workers did that made no call while others waited for them in vain. */
void tt__report_idle(tt__streams *streams, const tt__job *job, const tt__worker *workers);

#endif
