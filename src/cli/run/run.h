/* The parts of `tutti run`: each file but run.c turns some flags into a part of the job. */
#ifndef TT_CLI_RUN_RUN_H
#define TT_CLI_RUN_RUN_H

#include "cli/run/run_flags.h"
#include "launch/job.h"

#include <netdb.h>
#include <sched.h>

/* ---- run_meeting.c: --master-addr, --rdzv-backend, --rdzv-endpoint, --rdzv-conf */

/* Memory for the strings of a job. Zeroed = empty. */
typedef struct tt__run_meeting {
    char host[NI_MAXHOST], bind[NI_MAXHOST], run_id[40];
    char conf[8192];      /* --rdzv-conf, in pieces */
    const char *protocol; /* of these; NULL: not given */
    char endpoints[4096]; /* etcd's servers */
    tt__etcd_place etcd;
} tt__run_meeting;

/* Find where the ranks meet, for job->min_nodes and max_nodes. Blocks while the name of another host can't be resolved,
 * as long as other nodes are waited for. Errors: TT_ERR_INVALID, TT_ERR_UNSUPPORTED. */
tt_status tt__run_find_meeting_place(tt__job *job, tt__run_meeting *place, const tt__run_flags *flags);

/* Do several nodes meet at a loopback address? Nodes on other hosts would find themselves there. */
bool tt__run_meets_on_loopback(const tt__job *job);

/* ---- run_job.c: how many nodes and workers, what they are called, how long anything may take; their output */

/* Fill *job by the flags and the environment, whose strings it then points into, and into *place. Sets TT_LOG and
 * TT_WIRE, which the ranks inherit. Blocks as tt__run_find_meeting_place(). Errors: TT_ERR_INVALID,
 * TT_ERR_UNSUPPORTED, TT_ERR_SYSTEM, TT_ERR_MEMORY. */
tt_status tt__run_job_make(tt__job *job, tt__run_meeting *place, const tt__run_flags *flags);

/* Read how long ranks have from SIGTERM to SIGKILL: from flags or TORCH_ELASTIC_SHUTDOWN_TIMEOUT. */
tt_status tt__run_read_grace(int64_t *grace_ms, const tt__run_flags *flags);

/* Read TT_WAIT_NOTICE, which the ranks' log also uses, and check the other settings that ranks inherit. */
tt_status tt__run_read_notice(int64_t *ms, const tt__run_flags *flags);

/* Read --redirects, --tee and the filters into *logs, for job->workers, and set job->logs to it. tt__run_logs_free()
 * must follow, also after a failure. Errors: TT_ERR_INVALID, TT_ERR_MEMORY. */
tt_status tt__run_logs_read(tt__logs *logs, tt__job *job, const tt__run_flags *flags);

/* Make the directory, if files are wanted, and print its name on stderr. */
tt_status tt__run_logs_make(tt__logs *logs, const tt__job *job, const tt__run_flags *flags);

void tt__run_logs_free(tt__logs *logs);

/* ---- run_bind.c: which GPUs and CPUs workers get */

/* Return in *count how many workers --nproc-per-node=gpu (xpu) means: one for each NVIDIA GPU that the driver gives to
 * programs here; without libcuda.so.1, one for each that the kernel lists and CUDA_VISIBLE_DEVICES allows. Errors:
 * TT_ERR_UNSUPPORTED there is none, and the text says what was found; TT_ERR_SYSTEM, TT_ERR_TIMEOUT the driver does not
 * work. */
tt_status tt__count_devices(const char *kind, int64_t *count);

/* Check that each worker can have a GPU of its own in CUDA_VISIBLE_DEVICES (HIP_VISIBLE_DEVICES goes first), for
 * --virtual-local-rank; without the variables worker i gets number i. */
tt_status tt__check_visible_devices(const tt__job *job);

/* Divide the CPUs that this process may use among job->workers, as --bind or --numa-binding says: job->cpus := *cpus,
 * allocated; both NULL if nothing is to be bound. Errors: TT_ERR_INVALID the flags; TT_ERR_UNSUPPORTED hwloc can't
 * tell; TT_ERR_MEMORY. */
tt_status tt__run_bind(tt__job *job, cpu_set_t **cpus, const tt__run_flags *flags);

/* Print on stderr which CPUs each worker runs on. */
void tt__run_bind_tell(const tt__job *job);

/* ---- run_watch.c: what is shown of running workers, and of those that crash or hang */

/* Check the port of health checks. TT_ERR_INVALID. */
tt_status tt__run_watch_check(const tt__run_flags *flags);

/* Set job->stacks(), job->last_calls(), job->idle() and job->health. TT_ERR_SYSTEM: the port is taken. */
tt_status tt__run_watch_begin(tt__job *job, const tt__run_flags *flags);

/* Set job->look(): it prints a line for each wait that takes longer than notice_ms (0: none), and keeps a line with the
 * training's progress where stderr is a terminal and stdout is not. TT_ERR_MEMORY. */
tt_status tt__run_look_begin(tt__job *job, int64_t notice_ms);
void tt__run_look_end(tt__job *job);

/* ---- run_ssh.c: --ssh, --hostfile: one command for a job on several hosts */

/* Start a launcher, `tutti COMMAND`, on each of the hosts with the same flags, and wait for them. `program`: its index
 * in argv. Returns the exit code; errors are printed. */
int tt__run_on_hosts(const char *command, const tt__run_flags *flags, int argc, char **argv, int program);

#endif
