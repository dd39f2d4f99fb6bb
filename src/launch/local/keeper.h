/* The keeper process: starts workers, reports how each ended, and never leaves one behind. Roles and deaths: job.h. */
#ifndef TT_LAUNCH_LOCAL_KEEPER_H
#define TT_LAUNCH_LOCAL_KEEPER_H

#include "launch/job.h"

/* Messages between launcher and keeper, one packet each. */
typedef enum tt__keeper_kind {
    /* To the keeper. */
    TT__KEEPER_PLACE,  /* which ranks this node has, of how many */
    TT__KEEPER_STREAM, /* with a descriptor: what the worker gets as its stderr */
    TT__KEEPER_START,  /* start the missing workers. What their predecessors started is gone, or goes on */
    TT__KEEPER_SIGNAL, /* send a signal, once, to the living workers and all that they started; wake stopped ones */
    /* as SIGNAL, except to the job's process group, which the terminal's signal has reached; also SIGWINCH, SIGSTOP and
     * SIGCONT, which may come repeatedly; SIGWINCH does not wake stopped ones */
    TT__KEEPER_PASS,
    TT__KEEPER_SWEEP,    /* as SIGNAL, to what workers left behind */
    TT__KEEPER_KILL,     /* kill every descendant */
    TT__KEEPER_KILL_ONE, /* kill the worker, not what it has started */
    /* To the launcher. */
    TT__KEEPER_STARTED,     /* the worker is a process */
    TT__KEEPER_NOT_STARTED, /* the worker can't be started */
    TT__KEEPER_ENDED,       /* the worker has ended */
    TT__KEEPER_LEFTOVERS,   /* all workers have ended, but other processes are still there */
    TT__KEEPER_FOLDER,      /* job->error_dir is made */
    TT__KEEPER_NO_FOLDER,   /* job->error_dir can't be made: the keeper ends */
    TT__KEEPER_UNABLE,      /* the keeper can't get what it needs, and ends */
    /* nothing is left but `unkillable` processes. The keeper starts the workers again if it is told so; it removes
     * job->error_dir and ends when the launcher closes its end of the socket */
    TT__KEEPER_DONE
} tt__keeper_kind;

/* The steps from fork to a running worker, one of which may fail. */
typedef enum tt__start_step {
    TT__STEP_EXEC,
    TT__STEP_FORK,
    TT__STEP_PARENT,
    TT__STEP_ENVIRONMENT,
    TT__STEP_NULL,
    TT__STEP_STREAMS,
    TT__STEP_CPUS,
    TT__STEP_SECRET,
    TT__STEPS
} tt__start_step;

/* What the keeper can't do without. */
typedef enum tt__keeper_need { TT__NEED_SIGNALS, TT__NEED_EPOLL, TT__NEED_MEMORY, TT__NEED_SUBREAPER } tt__keeper_need;

typedef struct tt__keeper_message {
    int32_t kind;
    int32_t worker; /* which, of this node, from 0 on; -1: none */
    union {
        struct {
            int32_t first_rank, world, first_role_rank, role_world, node, nodes, restarts;
        } place;
        struct {
            int32_t attempt, recovery, master_port;
        } start;
        int32_t sig; /* SIGNAL, PASS, SWEEP */
        struct {
            int32_t pid;
        } started;
        struct {
            int32_t errnum, step; /* tt__start_step */
            int32_t pid;          /* 0: there was no process */
        } not_started;
        struct {
            int32_t status;    /* wait status */
            int32_t signalled; /* an order may have sent it a signal before */
        } ended;
        tt__folder_id folder;
        int32_t errnum; /* NO_FOLDER */
        struct {
            int32_t need, errnum; /* tt__keeper_need */
        } unable;
        int32_t unkillable; /* DONE */
    };
} tt__keeper_message;

typedef struct tt__keeper {
    pid_t pid;  /* 0 = none */
    int socket; /* the launcher's end, a non-blocking SOCK_SEQPACKET; -1 = none */
} tt__keeper;

/* Fork the keeper, and become a subreaper: if the keeper dies, what its workers started falls to this process. The
 * process must have one thread only: what the keeper does is not restricted to async-signal-safe calls. Descriptors
 * that are opened later reach the keeper, and through it the workers, only if they are sent. */
tt_status tt__keeper_start(tt__keeper *keeper, tt__job *job);

/* Send SIGNAL, PASS, SWEEP or KILL (sig: unused); false if the keeper is gone. */
bool tt__keeper_send(const tt__keeper *keeper, tt__keeper_kind kind, int sig);
void tt__keeper_send_place(const tt__keeper *keeper, const tt__job *job);

/* Kill worker `i`. */
void tt__keeper_kill_worker(const tt__keeper *keeper, int i);

/* Start the missing workers, as job->attempt and job->master_port say; stderr_ends[i] becomes the stderr of worker
 * i. A keeper that has not taken all of this after TT__KEEPER_TAKE_MS is killed. */
enum { TT__KEEPER_TAKE_MS = 5000 };
void tt__keeper_start_workers(const tt__keeper *keeper, const tt__job *job, const int *stderr_ends);

/* Kill the keeper: the kernel kills its workers. */
void tt__keeper_kill(const tt__keeper *keeper);

/* Close the socket: the keeper kills what is left and ends. */
void tt__keeper_dismiss(tt__keeper *keeper);

/* Wait until the keeper's process has ended, if there is one. After timeout_ms it is killed. */
void tt__keeper_wait(const tt__keeper *keeper, int64_t timeout_ms);

/* Receive the next message: 1; none at the moment: 0; the keeper is gone: -1. */
int tt__keeper_receive(const tt__keeper *keeper, tt__keeper_message *message);

/* Become worker `i` (called in a child of the keeper): streams, environment, signals, exec. Returns on failure only:
 * an errno, and in *step what failed. */
int tt__worker_exec(const tt__job *job, int i, int stderr_end, pid_t keeper, tt__start_step *step);

/* Call set() for each variable of this node's worker `i`; only_missing: the worker keeps its own value, if it has one.
 * Returns 0, or -1 as soon as set() is not 0. */
int tt__worker_env(const tt__job *job, int i,
                   int (*set)(void *user, const char *name, const char *value, bool only_missing), void *user);

#endif
