/* The keeper process: starts workers, reports how each ended, and never leaves one behind. Roles and deaths: job.h. */
#ifndef TT_ELASTIC_KEEPER_H
#define TT_ELASTIC_KEEPER_H

#include "elastic/job.h"

/* Messages between launcher and keeper, one packet each. Workers are counted from 0 on each node. */
typedef enum tt__keeper_kind {
    /* To the keeper. */
    TT__KEEPER_WORLD,    /* value = how many ranks the job has, rank = the first of this node */
    TT__KEEPER_NODES,    /* value = how many nodes, rank = the number of this one, pid = how many restarts there were */
    TT__KEEPER_STREAM,   /* with a descriptor: what worker `rank` gets as its descriptor number `value` (stderr's) */
    TT__KEEPER_START,    /* start the workers that are not there; value = MASTER_PORT, rank = the attempt, pid = the
                          recovery. What those of their numbers have left behind is gone, or goes on */
    TT__KEEPER_SIGNAL,   /* send signal `value` to the workers that live and all that they started, who have not got it;
                          wake those that are stopped */
    TT__KEEPER_PASS,     /* the same, but not to the job's process group, which a terminal's signal has reached; also
                          SIGWINCH, SIGSTOP and SIGCONT, which may come again and again, and SIGWINCH wakes nobody */
    TT__KEEPER_SWEEP,    /* as SIGNAL, to what workers left behind */
    TT__KEEPER_KILL,     /* kill every descendant */
    TT__KEEPER_KILL_ONE, /* kill worker `rank`, not what it has started */
    /* To the launcher. */
    TT__KEEPER_STARTED,     /* worker `rank` has `pid` */
    TT__KEEPER_NOT_STARTED, /* worker `rank` can't be started; value = errno + TT__STEP_FACTOR * the step that failed */
    TT__KEEPER_ENDED,       /* worker `rank`; value = its wait status; pid = 0: no order has sent it a signal before */
    TT__KEEPER_LEFTOVERS,   /* all workers ended; value = other processes that are still there */
    TT__KEEPER_FOLDER,      /* job->error_dir is made, and is `folder` */
    TT__KEEPER_NO_FOLDER,   /* job->error_dir can't be made, value = errno: the keeper ends */
    TT__KEEPER_UNABLE,      /* a system call has failed, tt__keeper_needs[rank], value = errno: the keeper ends */
    /* nothing is left but `value` processes that can't be killed. The keeper starts the workers again if it is told so;
     * it removes job->error_dir and ends when the launcher closes its end of the socket */
    TT__KEEPER_DONE
} tt__keeper_kind;

/* What a process does on its way to be a worker. */
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

enum { TT__STEP_FACTOR = 1 << 16 };

/* Say what could not be done, "can't open /dev/null"; NULL: the program itself could not be executed. */
const char *tt__start_step_text(int step);

/* What the keeper can't do without: "signalfd()", ...; NULL-terminated. */
extern const char *const tt__keeper_needs[];

typedef struct tt__keeper_message {
    int32_t kind, rank, value, pid;
    tt__folder_id folder;
} tt__keeper_message;

typedef struct tt__keeper {
    pid_t pid;  /* 0 = none */
    int socket; /* the launcher's end, a non-blocking SOCK_SEQPACKET; -1 = none */
} tt__keeper;

/* Fork the keeper. The process must have one thread only: what the keeper does is not restricted to async-signal-safe
 * calls. Descriptors that are opened later reach the keeper, and through it the workers, only if they are sent. */
tt_status tt__keeper_start(tt__keeper *keeper, tt__job *job);

/* Send a message; false if the keeper is gone. */
bool tt__keeper_send(const tt__keeper *keeper, tt__keeper_kind kind, int value);
void tt__keeper_send_world(const tt__keeper *keeper, const tt__job *job);

/* Kill worker `i`. */
void tt__keeper_kill_worker(const tt__keeper *keeper, int i);

/* Start the workers that are not there, as job->attempt and job->master_port say; stderr_ends[i] becomes the stderr of
 * worker i. A keeper that takes nothing of this for TT__KEEPER_TAKE_MS is killed. */
enum { TT__KEEPER_TAKE_MS = 5000 };
void tt__keeper_start_workers(const tt__keeper *keeper, const tt__job *job, const int *stderr_ends);

/* Receive the next message: 1; none at the moment: 0; the keeper is gone: -1. */
int tt__keeper_receive(const tt__keeper *keeper, tt__keeper_message *message);

/* Become worker `i` (called in a child of the keeper): streams, environment, signals, exec. Returns the errno of what
 * failed, the *step. */
int tt__worker_exec(const tt__job *job, int i, int stderr_end, pid_t keeper, tt__start_step *step);

#endif
