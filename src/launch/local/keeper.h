/* The keeper process: starts workers, reports how each ended, and never leaves one behind. Roles and deaths: job.h. */
#ifndef TT_LAUNCH_LOCAL_KEEPER_H
#define TT_LAUNCH_LOCAL_KEEPER_H

#include "launch/job.h"

/* Messages between launcher and keeper, one packet each. */
typedef enum tt__keeper_kind {
    /* To the keeper. */
    TT__KEEPER_PLACE,    /* which ranks this node has, of how many */
    TT__KEEPER_STREAM,   /* with a descriptor: what the worker gets as its stderr */
    TT__KEEPER_START,    /* start the workers that are not there. What those of their numbers have left behind is gone,
                            or goes on */
    TT__KEEPER_SIGNAL,   /* send a signal to the workers that live and all that they started, who have not got it; wake
                            those that are stopped */
    TT__KEEPER_PASS,     /* the same, but not to the job's process group, which a terminal's signal has reached; also
                            SIGWINCH, SIGSTOP and SIGCONT, which may come again and again, and SIGWINCH wakes nobody */
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

/* Say what could not be done, "can't open /dev/null"; NULL: the program itself could not be executed. */
const char *tt__start_step_text(int step);

/* What the keeper can't do without: "signalfd()", ...; NULL-terminated. */
extern const char *const tt__keeper_needs[];

typedef struct tt__keeper_message {
    int32_t kind;
    int32_t worker; /* which, of this node, from 0 on; -1: none */
    union {
        struct {
            int32_t first_rank, world, node, nodes, restarts;
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
            int32_t need, errnum; /* tt__keeper_needs[need] */
        } unable;
        int32_t unkillable; /* DONE */
    };
} tt__keeper_message;

typedef struct tt__keeper {
    pid_t pid;  /* 0 = none */
    int socket; /* the launcher's end, a non-blocking SOCK_SEQPACKET; -1 = none */
} tt__keeper;

/* Fork the keeper, and become the parent of the processes that its workers leave behind. The process must have one
 * thread only: what the keeper does is not restricted to async-signal-safe calls. Descriptors that are opened later
 * reach the keeper, and through it the workers, only if they are sent. */
tt_status tt__keeper_start(tt__keeper *keeper, tt__job *job);

/* Send SIGNAL, PASS, SWEEP or KILL (sig: unused); false if the keeper is gone. */
bool tt__keeper_send(const tt__keeper *keeper, tt__keeper_kind kind, int sig);
void tt__keeper_send_place(const tt__keeper *keeper, const tt__job *job);

/* Kill worker `i`. */
void tt__keeper_kill_worker(const tt__keeper *keeper, int i);

/* Start the workers that are not there, as job->attempt and job->master_port say; stderr_ends[i] becomes the stderr of
 * worker i. A keeper that takes nothing of this for TT__KEEPER_TAKE_MS is killed. */
enum { TT__KEEPER_TAKE_MS = 5000 };
void tt__keeper_start_workers(const tt__keeper *keeper, const tt__job *job, const int *stderr_ends);

/* Kill the keeper: the kernel kills its workers. */
void tt__keeper_kill(const tt__keeper *keeper);

/* Close the socket: the keeper kills what is left and ends. */
void tt__keeper_dismiss(tt__keeper *keeper);

/* Wait until the keeper's process has ended, if there is one. */
void tt__keeper_wait(const tt__keeper *keeper);

/* Receive the next message: 1; none at the moment: 0; the keeper is gone: -1. */
int tt__keeper_receive(const tt__keeper *keeper, tt__keeper_message *message);

/* Become worker `i` (called in a child of the keeper): streams, environment, signals, exec. Returns the errno of what
 * failed, the *step. */
int tt__worker_exec(const tt__job *job, int i, int stderr_end, pid_t keeper, tt__start_step *step);

#endif
