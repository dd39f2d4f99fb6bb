#include "comm/rendezvous/launchers.h"

#include "base/error.h"
#include "base/hash.h"
#include "base/text/parse.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the table */

/* A launcher that gives its tasks rank and size in plain variables. */
typedef struct launcher_row {
    const char *name, *rank, *size, *local_rank, *local_size;
    const char *job;    /* a variable that is the same in all processes of the job, on all hosts, and in no other's */
    const char *socket; /* NULL, or the variable of a descriptor made by the job's one server on each host */
    bool may_be_slurm;  /* srun sets rank and size as well, if it is told to */
} launcher_row;

static const launcher_row rows[] = {
    {.name = "mpirun (Open MPI)",
     .rank = "OMPI_COMM_WORLD_RANK",
     .size = "OMPI_COMM_WORLD_SIZE",
     .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
     .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE",
     .job = "PMIX_NAMESPACE"},
    {.name = "mpirun (MPICH or Intel MPI)",
     .rank = "PMI_RANK",
     .size = "PMI_SIZE",
     .local_rank = "MPI_LOCALRANKID",
     .local_size = "MPI_LOCALNRANKS",
     .job = "I_MPI_HYDRA_UUID",
     .socket = "PMI_FD",
     .may_be_slurm = true},
};

/* By variables the processes of a PMIx server know their rank, and nothing else. */
static const launcher_row pmix_row = {.name = "a PMIx server",
                                      .rank = "PMIX_RANK",
                                      .size = "WORLD_SIZE",
                                      .local_rank = "PMIX_LOCAL_RANK",
                                      .local_size = "PMIX_LOCAL_SIZE",
                                      .job = "PMIX_NAMESPACE"};

static bool is_row(const tt__environment *environment, const launcher_row *row) {
    return tt__environment_value(environment, row->rank) && tt__environment_value(environment, row->size);
}

/* A port that follows from the job's name. */
static int port_of(const char *job) { return tt__slurm_port((uint32_t)tt__fnv_text(TT__FNV, job), 0); }

static void set_job(tt__launched *launched, const char *kind, const char *name) {
    snprintf(launched->job, sizeof launched->job, "%s-%s", kind, name);
    for (char *c = launched->job; *c; c++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.", *c))
            *c = '_';
}

/* For several hosts: no mpirun tells where rank 0 is. In a Slurm job assume the first of the job's hosts; if the user
 * chose another, rank 0 can't serve there and reports that. */
static void find_mpi_place(const tt__environment *environment, const launcher_row *row, tt__launched *launched) {
    const char *job = tt__environment_value(environment, row->job);
    const char *hosts = tt__environment_value(environment, "SLURM_JOB_NODELIST");
    const char *slurm = tt__environment_value(environment, "SLURM_JOB_ID");
    const char *fd = row->socket ? tt__environment_value(environment, row->socket) : NULL;
    long maker = fd ? environment->maker_of(environment, fd) : 0;
    char name[24];
    if (job) {
        set_job(launched, "mpi", job);
        launched->port = port_of(job);
    } else {
        if (slurm)
            launched->port = port_of(slurm);
        if (maker > 0) {
            snprintf(name, sizeof name, "%ld", maker);
            set_job(launched, "pmi", name);
        }
    }
    if (launched->local_world == launched->world || !hosts || !launched->port)
        return;
    if (tt__slurm_host(hosts, 0, launched->host, sizeof launched->host) == 1)
        launched->whence = "the first host of SLURM_JOB_NODELIST; the port follows from the job's number";
    else
        launched->host[0] = '\0';
}

static tt_status look_at_row(const tt__environment *environment, const launcher_row *row, tt__launched *launched) {
    const char *local_rank = tt__environment_value(environment, row->local_rank);
    const char *local_size = tt__environment_value(environment, row->local_size);
    int64_t r, n, local_r = -1, local_n = 0;
    TT__TRY(tt__parse_i64(row->rank, tt__environment_value(environment, row->rank), 0, INT32_MAX, &r));
    TT__TRY(tt__parse_i64(row->size, tt__environment_value(environment, row->size), 1, INT32_MAX, &n));
    if (local_rank)
        TT__TRY(tt__parse_i64(row->local_rank, local_rank, 0, INT32_MAX, &local_r));
    if (local_size)
        TT__TRY(tt__parse_i64(row->local_size, local_size, 1, INT32_MAX, &local_n));
    *launched = (tt__launched){.name = row->name,
                               .rank_name = row->rank,
                               .size_name = row->size,
                               .rank = (int)r,
                               .world = (int)n,
                               .local_rank = (int)local_r,
                               .local_world = (int)local_n};
    find_mpi_place(environment, row, launched);
    return TT_OK;
}

/* ---- RANK and WORLD_SIZE */

/* Kubeflow numbers pods, not processes, even if a pod is to run several. */
static tt_status check_pods(const tt__environment *environment) {
    const char *each = tt__environment_value(environment, "PET_NPROC_PER_NODE");
    if (!each || !strcmp(each, "1") || strspn(each, "0123456789") != strlen(each) ||
        tt__environment_value(environment, "LOCAL_RANK"))
        return TT_OK;
    return tt__fail(TT_ERR_INVALID,
                    "RANK=%s numbers a pod of %s processes (PET_NPROC_PER_NODE), not this process: start the "
                    "program with `tutti run PROGRAM`, which reads the PET_ variables",
                    environment->get(environment, "RANK"), each);
}

static tt_status look_at_rank_and_size(const tt__environment *environment, tt__launched *launched) {
    const char *local_rank = tt__environment_value(environment, "LOCAL_RANK");
    const char *local_size = tt__environment_value(environment, "LOCAL_WORLD_SIZE");
    int64_t r, n, local_r = -1, local_n = 0;
    TT__TRY(tt__parse_i64("RANK", environment->get(environment, "RANK"), 0, INT32_MAX, &r));
    TT__TRY(tt__parse_i64("WORLD_SIZE", environment->get(environment, "WORLD_SIZE"), 1, INT32_MAX, &n));
    TT__TRY(check_pods(environment));
    if (local_rank)
        TT__TRY(tt__parse_i64("LOCAL_RANK", local_rank, 0, INT32_MAX, &local_r));
    if (local_size)
        TT__TRY(tt__parse_i64("LOCAL_WORLD_SIZE", local_size, 1, INT32_MAX, &local_n));
    *launched = (tt__launched){.name = tt__environment_value(environment, "TT_JOB_SOCKET")         ? "tutti run"
                                       : tt__environment_value(environment, "TORCHELASTIC_RUN_ID") ? "torchrun"
                                                                                                   : "the environment",
                               .rank_name = "RANK",
                               .size_name = "WORLD_SIZE",
                               .by_rank_and_size = true,
                               .rank = (int)r,
                               .world = (int)n,
                               .local_rank = (int)local_r,
                               .local_world = (int)local_n};
    return TT_OK;
}

/* If only one of RANK and WORLD_SIZE is set, it may be left over from the user's script: it must not contradict the
 * launcher. */
static tt_status check_leftover(const tt__environment *environment, const tt__launched *launched, const char *name,
                                int number, const char *whence) {
    const char *value = tt__environment_value(environment, name);
    char text[16];
    snprintf(text, sizeof text, "%d", number);
    if (!value || !strcmp(value, text))
        return TT_OK;
    return tt__fail(TT_ERR_INVALID, "%s=%.40s is set, but %s says %s=%d: unset it, or set both RANK and WORLD_SIZE",
                    name, value, launched->name, whence, number);
}

/* ---- what is no launcher, but looks like one */

/* Is a batch script's job one of several tasks? Each node has at least one, if no number was requested. */
static bool wants_several_tasks(const tt__environment *environment) {
    static const char *const counts[] = {"SLURM_NTASKS", "SLURM_JOB_NUM_NODES", "SLURM_NNODES"};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const char *count = tt__environment_value(environment, counts[i]);
        if (count)
            return strcmp(count, "1") != 0;
    }
    return false;
}

static void note_what_is_seen(const tt__environment *environment, tt__launched *launched) {
    const char *task = tt__environment_value(environment, "SLURM_PROCID");
    const char *tasks = tt__environment_value(environment, "SLURM_NTASKS");
    const char *job = tt__environment_value(environment, "SLURM_JOB_ID");
    const char *pmix = tt__environment_value(environment, "PMIX_RANK");
    const char *nodes = tt__environment_value(environment, "PET_NNODES");
    const char *each = tt__environment_value(environment, "PET_NPROC_PER_NODE");
    char *saw = launched->saw;
    size_t size = sizeof launched->saw;
    if (pmix) {
        launched->wanted_several = true;
        snprintf(saw, size, "saw PMIX_RANK=%.20s, but a PMIx server tells no number of processes", pmix);
        launched->to_do = "set WORLD_SIZE, MASTER_ADDR (rank 0's host) and MASTER_PORT";
    } else if (nodes || each) {
        launched->wanted_several = true;
        snprintf(saw, size, "saw PET_%s=%.40s, which is meant for a launcher", nodes ? "NNODES" : "NPROC_PER_NODE",
                 nodes ? nodes : each);
        launched->to_do = "start the program with `tutti run PROGRAM`, which reads the PET_ variables";
    } else if (task) {
        launched->wanted_several = wants_several_tasks(environment);
        snprintf(saw, size,
                 "saw SLURM_PROCID=%.20s%s%.20s, but no SLURM_STEP_ID of a task: this is a batch script or a shell, "
                 "one process without srun",
                 task, tasks ? " and SLURM_NTASKS=" : "", tasks ? tasks : "");
        launched->to_do = "start the program with `srun PROGRAM`";
    } else if (job) {
        snprintf(saw, size, "saw SLURM_JOB_ID=%.40s: this is within an allocation, but not in a step", job);
        launched->to_do = "start the program with `srun PROGRAM`";
    }
}

/* ---- */

static tt_status look_at_launchers(const tt__environment *environment, tt__launched *launched) {
    tt__launched slurm;
    bool is_task;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!is_row(environment, &rows[i]))
            continue;
        TT__TRY(look_at_row(environment, &rows[i], launched));
        if (!rows[i].may_be_slurm)
            return TT_OK;
        TT__TRY(tt__slurm_look(environment, &slurm, &is_task));
        if (is_task && slurm.rank == launched->rank && slurm.world == launched->world)
            *launched = slurm;
        return TT_OK;
    }
    TT__TRY(tt__slurm_look(environment, &slurm, &is_task));
    if (is_task)
        *launched = slurm;
    else if (is_row(environment, &pmix_row))
        return look_at_row(environment, &pmix_row, launched);
    return TT_OK;
}

tt_status tt__launched_look(const tt__environment *environment, tt__launched *launched) {
    *launched = (tt__launched){.local_rank = -1};
    if (environment->get(environment, "RANK") && environment->get(environment, "WORLD_SIZE"))
        return look_at_rank_and_size(environment, launched);
    TT__TRY(look_at_launchers(environment, launched));
    if (!launched->name) {
        note_what_is_seen(environment, launched);
        return TT_OK;
    }
    if (launched->rank >= launched->world)
        return tt__fail(TT_ERR_INVALID, "%s: %s=%d in a world of %s=%d", launched->name, launched->rank_name,
                        launched->rank, launched->size_name, launched->world);
    TT__TRY(check_leftover(environment, launched, "RANK", launched->rank, launched->rank_name));
    return check_leftover(environment, launched, "WORLD_SIZE", launched->world, launched->size_name);
}

int tt__launched_local_rank(const tt__environment *environment, int fallback) {
    tt__launched launched;
    tt__saved_error before;
    tt__error_save(&before);
    bool told = !tt__launched_look(environment, &launched) && launched.name && launched.local_rank >= 0;
    tt__error_restore(&before);
    return told ? launched.local_rank : fallback;
}
