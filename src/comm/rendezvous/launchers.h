/* What started this process, as its environment tells: a table of launchers and the variables they set. */
#ifndef TT_COMM_RENDEZVOUS_LAUNCHERS_H
#define TT_COMM_RENDEZVOUS_LAUNCHERS_H

#include <tutti/base.h>

typedef struct tt__environment {
    const char *(*get)(const struct tt__environment *environment, const char *name); /* as getenv() */
    /* The pid of the process that made the socket whose number is `fd`; 0: it can't be told. */
    long (*maker_of)(const struct tt__environment *environment, const char *fd);
} tt__environment;

/* The environment of this process. */
extern const tt__environment tt__own_environment;

typedef struct tt__launched {
    const char *name;                  /* "srun"; NULL: none is recognised */
    const char *rank_name, *size_name; /* the variables that say who this process is */
    bool by_rank_and_size;             /* known by RANK and WORLD_SIZE, whoever set them, or as the program says */
    bool is_srun;                      /* so MUNGE is probably available */
    int rank, world;
    int local_rank, local_world; /* on this host; -1 and 0: not told */
    /* Where rank 0 can be met, as far as the launcher tells. */
    char host[256];      /* "": not told */
    int port;            /* 0: not told. Other jobs probably get other ports */
    char job[96];        /* names this job and no other on this host, whoever its ranks' parents are; "": not told */
    const char *whence;  /* where host and port come from; NULL: not told */
    char saw[240];       /* if no launcher is recognised: what looked like one; or "" */
    const char *to_do;   /* if `saw`: what the user can do; or NULL */
    bool wanted_several; /* if `saw`: it looked as if it starts several processes */
} tt__launched;

/* Find out which launcher started this process. TT_OK also if there is none. TT_ERR_INVALID: a variable that counts
 * makes no sense, or two contradict each other. */
tt_status tt__launched_look(const tt__environment *environment, tt__launched *launched);

/* This process's rank among those of its host; `fallback` where no launcher tells. */
int tt__launched_local_rank(const tt__environment *environment, int fallback);

/* ---- slurm.c */

/* Was the process started as a task by srun? Then rank, world, their local counterparts, host, port and job are set,
 * and *is_task. TT_ERR_INVALID as above. */
tt_status tt__slurm_look(const tt__environment *environment, tt__launched *launched, bool *is_task);

/* The port of a job's step: from 10000 up, below those that the system hands out. */
int tt__slurm_port(int64_t job, int64_t step);

/* Write host number `n` of a list "node[01-03,05],gpu7" into `host`. 1: done; 0: the list has no more than `n`; -1: it
 * makes no sense, or the name is too long. */
int tt__slurm_host(const char *list, uint64_t n, char *host, size_t size);

/* How many tasks node number `node` has of "2(x3),1"; -1: it is not told, or the text makes no sense. */
int tt__slurm_tasks(const char *text, uint64_t node);

/* The value of a variable; NULL where it is not set, and where it is empty. */
const char *tt__environment_value(const tt__environment *environment, const char *name);

#endif
