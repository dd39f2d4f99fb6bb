/* A job: what `tutti run` starts, and how. On several nodes each has a launcher of its own
 * (cluster/nodes.h); this is one of them.
 *
 *   launcher  the process that the user started. It serves the store, passes stderr on, decides what is started and
 *             ended (machine/job_machine.h), and reports.
 *   keeper    its only child (local/keeper.h). Parent of the workers and, as a child subreaper, of every orphan below
 *             them. It makes and removes the directory of error files, so that none is left wherever a SIGKILL hits the
 *             launcher.
 *   worker    one rank. Whatever it starts itself is a descendant.
 *
 * Deaths, in every order:
 *   worker    the keeper reaps it and reports it to the launcher, which decides about the others, and whether all are
 *             started again. One keeper serves all attempts.
 *   launcher  its end of the socket closes, however it dies: the keeper kills until it has no child left (keeper.c).
 *   keeper    the workers get SIGKILL from the kernel (PR_SET_PDEATHSIG); their descendants fall to the launcher, a
 *             subreaper too, which kills until none is left.
 *
 * Each worker leads a session, except a rank 0 that reads from a terminal. The keeper has a process group of its own,
 * so that a SIGKILL to the job's group leaves it alive to clean up. */
#ifndef TT_LAUNCH_JOB_H
#define TT_LAUNCH_JOB_H

#include "launch/local/logs.h"
#include "launch/local/snapshot.h"

#include <tutti/store.h>

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/types.h>

/* etcd, where launchers find the one that serves the job's store: election.h. */
typedef struct tt__etcd_place {
    const char *endpoints;                      /* as tt_etcd_store() takes them */
    const char *ca_file, *cert_file, *key_file; /* NULL: as the environment says */
} tt__etcd_place;

/* How look() reads a running job, and prints for the user. */
typedef struct tt__job_look {
    void *user;
    const void *(*recorder)(void *user, int i, size_t *size); /* as tt__watch_recorder() */
    /* Write where a rank of the job runs: "host h1, pid 7", or what is known here. Returns `text`. */
    const char *(*place)(void *user, int rank, char *text, size_t size);
    void (*say)(void *user, const char *line);  /* a line on stderr, after "tutti run: " */
    void (*show)(void *user, const char *line); /* as tt__streams_show() */
} tt__job_look;

/* Most workers of a node, most nodes that ever join a job, and the highest number of an attempt or a round that is
 * believed: all sums of them fit into an int. */
enum { TT__WORKERS_MAX = 4096, TT__MEMBERS_MAX = 1 << 16, TT__COUNT_MAX = 1 << 30 };

/* Identifies a folder, whatever its name: the numbers of its file system and of the folder in that. */
typedef struct tt__folder_id {
    uint64_t device, inode;
} tt__folder_id;

typedef struct tt__job {
    const char *file;            /* what is executed: a path with a slash in it */
    char **argv;                 /* its arguments, NULL-terminated; argv[0] included */
    int local_rank_at;           /* argv[local_rank_at] becomes each worker's "--NAME=N"; 0: no argument does */
    const char *local_rank_name; /* NAME: "local-rank" or "local_rank" */
    int workers;                 /* on this node */
    int min_nodes, max_nodes;    /* on how many nodes it may run */
    int number;                  /* this node's own number (--node-rank); -1: it gets one when it joins */
    int serves;                  /* if number is -1: does this node serve the store? 1 yes, 0 no, -1 if it can */
    const char *master_addr;     /* MASTER_ADDR, as the workers see it */
    const char *bind_addr;       /* the address to serve the store on */
    const char *own_addr;        /* this node's, as others reach it; used with `etcd` */
    const tt__etcd_place *etcd;  /* where master_addr and master_port come from; NULL: they are given */
    int master_port;             /* 0 = any free one (on one node); the launcher fills in the one it got */
    tt_store_auth store_auth;
    size_t store_memory; /* bytes; 0 = the store's default */
    bool has_secret;
    int secret_fd;            /* where workers inherit it, as TT_SECRET_FD of its environment says; -1 = none */
    const char *role;         /* ROLE_NAME */
    bool virtual_local_rank;  /* LOCAL_RANK is 0 for all, and each sees only its own device */
    const char *signal_names; /* "SIGTERM,SIGINT": the signals that end the job in order */
    sigset_t signals;         /* the same */
    const cpu_set_t *cpus;    /* (workers) where each may run; NULL: where this process may */
    const char *run_id;       /* TORCHELASTIC_RUN_ID */
    bool events;              /* write torchrun's events: events.c */
    const char *rdzv_backend; /* as these events name it */
    int omp_threads;          /* OMP_NUM_THREADS, or 0 = leave it as it is */
    int max_restarts;         /* TORCHELASTIC_MAX_RESTARTS */
    bool node_0_reports;      /* node 0 reports failures, and its stderr has the same reader as this one */
    int64_t settle_ms;        /* how long the others have to end by themselves after the first failure */
    int64_t grace_ms;         /* from SIGTERM to SIGKILL */
    int64_t join_ms;          /* how long to wait for other nodes */
    int64_t last_call_ms;     /* how long without a new node until fewer than max_nodes begin */
    int64_t rejoin_ms;        /* if nodes may come and go: how long a node that lost the job looks for it */
    int64_t heartbeat_ms;     /* a node that is silent for so long is lost */

    const tt__logs *logs; /* where the workers' output goes; NULL: to the launcher's streams */

    int health; /* a socket that listens for health checks, which tt__job_run() takes over; -1: none */

    /* Called when all workers have ended, with their last calls (which it may take); NULL: not called. */
    tt_status (*at_end)(const struct tt__job *job, tt__snapshot *snapshot);
    const char *trace; /* for at_end: where to write a trace */

    /* Write the stacks of process `pid`, thread `thread`'s first, from instruction `pc` on (0: all). Called in a child
     * of the launcher, which is ended if it takes long. NULL: not called. */
    void (*stacks)(pid_t pid, pid_t thread, uint64_t pc, FILE *out);
    /* Write the last calls, if any, of the snapshot's only rank, which has ended. May take the snapshot's contents.
     * NULL: not called. */
    void (*last_calls)(tt__snapshot *snapshot, FILE *out);
    /* Return the process of the snapshot's only rank if that is in a group and in no call; else 0. Takes the
     * snapshot's contents. NULL: not called. */
    pid_t (*idle)(tt__snapshot *snapshot);

    /* Called every look_ms while the workers run; 0: never. */
    void (*look)(const struct tt__job *job, const tt__job_look *look);
    int64_t look_ms;
    void *look_user; /* for look() */

    /* Set by tt__job_run(). */
    bool coordinates;                    /* this node serves the store */
    int attempt;                         /* how often all workers were started again */
    int restarts;                        /* how often some were because one failed: TORCHELASTIC_RESTART_COUNT */
    int recovery;                        /* how often some went on while others were started: TT_ROUND */
    int node, nodes;                     /* this node's number, and how many the attempt has */
    int first_rank, world;               /* ranks first_rank .. first_rank + workers - 1 are here */
    int first_role_rank, role_world;     /* the same among the ranks of the nodes with this one's role */
    char socket_name[TT__JOB_NAME_SIZE]; /* where it is watched: watch.h */
    char error_dir[256];                 /* private directory of the workers' error files */
    /* the directory that the keeper made; zeros: not known. Another one of that name is left alone */
    tt__folder_id error_dir_id;
    sigset_t worker_mask; /* the signal mask that workers are given back */
    pid_t group;          /* the process group of the launcher, and of a rank 0 on a terminal */
} tt__job;

/* Run `job` to its end. *exit_code := the command's exit code. Errors, with nothing left running: the job could not
 * start (TT_ERR_NET the store's port, TT_ERR_PEER other nodes, TT_ERR_SYSTEM, TT_ERR_MEMORY). */
tt_status tt__job_run(tt__job *job, int *exit_code);

/* Tell the launchers of the other nodes why this one can't run the job, so that they end; `job` is not run then. Blocks
 * until they know it, at most TT__TELL_MS. */
enum { TT__TELL_MS = 30000 };
void tt__job_tell_problem(const tt__job *job, const char *problem);

#endif
