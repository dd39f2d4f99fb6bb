/* A job on several hosts, started by one command: a launcher on each, by ssh. */
#ifndef TT_LAUNCH_ADAPTERS_SSH_JOB_H
#define TT_LAUNCH_ADAPTERS_SSH_JOB_H

#include "launch/adapters/hosts.h"

typedef struct tt__ssh_job {
    const tt__hosts *hosts;  /* the first is node 0 */
    const char *command;     /* "run", "launch" */
    char **flags;            /* its flags as typed, except those that are made here; NULL-terminated */
    char **program;          /* and its arguments; NULL-terminated */
    const char *master_addr; /* NULL: the first host's */
    int master_port;         /* 0: any */
    int64_t grace_ms;        /* the ranks', from SIGTERM to SIGKILL */
    const char *secret;      /* of the job */

    void *user;
    void (*say)(void *user, const char *line); /* a line for the user */
} tt__ssh_job;

/* Start a launcher on each host and wait for all. This host needs no ssh. TUTTI_SSH is a command with flags to use
 * instead of ssh, such as "ssh -p 2222"; exit code 255 means that it failed. A signal to this process (SIGINT, SIGTERM,
 * SIGHUP, SIGQUIT) reaches every launcher, a second one ends ssh. ssh is also ended if it takes much longer than the
 * grace period after the launchers were told to end. If this process ends, in whatever way, the launchers end their
 * ranks. *exit_code := the first failing launcher's, node 0's before others; 1 where a host can't be reached. Errors,
 * with nothing left running: TT_ERR_SYSTEM, TT_ERR_MEMORY. */
tt_status tt__ssh_job_run(const tt__ssh_job *job, int *exit_code);

#endif
