/* A worker's process between fork and exec. */

#include "base/process/threads.h"
#include "launch/local/children.h"
#include "launch/local/error_files.h"
#include "launch/local/keeper.h"
#include "launch/local/worker_timers.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* ---- the environment that a worker gets: torchrun's variables */

typedef struct setter {
    int (*set)(void *user, const char *name, const char *value, bool only_missing);
    void *user;
} setter;

static int put_env_text(const setter *s, const char *name, const char *value) {
    return s->set(s->user, name, value, false) ? -1 : 0;
}

static int put_env_number(const setter *s, const char *name, int value) {
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    return put_env_text(s, name, text);
}

/* Give the worker entry `i` of the list of devices in the variable, or number `i`. */
static int put_env_device(const setter *s, const char *name, const char *list, int i) {
    char own[128];
    if (!list)
        return put_env_number(s, name, i);
    for (int k = 0; k < i && *list; k++)
        list += strcspn(list, ",") + (list[strcspn(list, ",")] == ',');
    list += strspn(list, " ");
    snprintf(own, sizeof own, "%.*s", (int)strcspn(list, ", "), list);
    return put_env_text(s, name, own);
}

/* Let the worker see only its own device, as number 0: --virtual-local-rank. */
static int put_env_devices(const setter *s, int i) {
    const char *cuda = getenv("CUDA_VISIBLE_DEVICES"), *hip = getenv("HIP_VISIBLE_DEVICES");
    bool has_hip = hip && *hip;
    if (put_env_device(s, "CUDA_VISIBLE_DEVICES", has_hip ? hip : cuda, i))
        return -1;
    return has_hip ? put_env_device(s, "HIP_VISIBLE_DEVICES", hip, i) : 0;
}

int tt__worker_env(const tt__job *job, int i,
                   int (*set)(void *user, const char *name, const char *value, bool only_missing), void *user) {
    const setter s = {set, user};
    int rank = job->first_rank + i, failed = 0;
    const struct {
        const char *name;
        int value;
    } numbers[] = {
        {"RANK", rank},
        {"LOCAL_RANK", job->virtual_local_rank ? 0 : i},
        {"ROLE_RANK", job->first_role_rank + i},
        {"GROUP_RANK", job->node},
        {"WORLD_SIZE", job->world},
        {"LOCAL_WORLD_SIZE", job->workers},
        {"ROLE_WORLD_SIZE", job->role_world},
        {"GROUP_WORLD_SIZE", job->nodes},
        {"MASTER_PORT", job->master_port},
        {"TORCHELASTIC_RESTART_COUNT", job->restarts},
        {"TORCHELASTIC_MAX_RESTARTS", job->max_restarts},
        {"TT_ROUND", job->recovery},
        {"TT_FRESH_STORE", 1}, /* in each attempt; and all nodes count attempts alike */
    };
    char error_file[PATH_MAX];
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++)
        failed |= put_env_number(&s, numbers[n].name, numbers[n].value);
    const char *const texts[][2] = {
        {"MASTER_ADDR", job->master_addr},
        {"ROLE_NAME", job->role},
        {"TORCHELASTIC_RUN_ID", job->run_id},
        {"TORCHELASTIC_USE_AGENT_STORE", "True"},
        {"TORCHELASTIC_ERROR_FILE", tt__job_error_file(job, i, error_file)},
        {"TORCHELASTIC_SIGNALS_TO_HANDLE", job->signal_names},
        {"TT_JOB_SOCKET", job->socket_name},
    };
    for (size_t n = 0; n < sizeof texts / sizeof *texts; n++)
        failed |= put_env_text(&s, texts[n][0], texts[n][1]);
    if (tt__file_timers_path(job, error_file))
        failed |= put_env_text(&s, "TORCHELASTIC_TIMER_FILE", error_file);
    failed |= set(user, "NCCL_ASYNC_ERROR_HANDLING", "1", true);
    failed |= set(user, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1", true);
    if (job->virtual_local_rank)
        failed |= put_env_devices(&s, i);
    if (job->omp_threads)
        failed |= put_env_number(&s, "OMP_NUM_THREADS", job->omp_threads);
    if (!tt__openmp_waits_as_told())
        failed |= put_env_text(&s, TT__OPENMP_SPINS_VARIABLE, TT__OPENMP_SPINS);
    return failed ? -1 : 0;
}

static int set_variable(void *user, const char *name, const char *value, bool only_missing) {
    (void)user;
    return setenv(name, value, !only_missing);
}

/* Open a log file in place of stdout or stderr. If that can't be, say so, and go on without: output elsewhere is better
 * than no job. */
static int set_file(const tt__job *job, int i, int std, int stderr_end) {
    int fd = tt__logs_append(job->logs, job->attempt, i, tt__logs_file(std)),
        to = std == TT__STDOUT ? STDOUT_FILENO : STDERR_FILENO;
    if (fd >= 0)
        return dup2(fd, to);
    char path[PATH_MAX], line[PATH_MAX + 128];
    int errnum = errno;
    tt__logs_path(job->logs, job->attempt, i, tt__logs_file(std), path);
    int n = snprintf(line, sizeof line, "tutti run: can't open %s (%s): what rank %d writes to %s is not kept\n", path,
                     strerror(errnum), job->first_rank + i, std == TT__STDOUT ? "stdout" : "stderr");
    if (n > 0 && n < (int)sizeof line && write(stderr_end, line, (size_t)n) != n)
        return -1;
    return 0;
}

/* Put /dev/null in place of a stream. */
static int set_null(int std, int flags, tt__start_step *step) {
    *step = TT__STEP_NULL;
    int null = open("/dev/null", flags | O_CLOEXEC);
    if (null < 0)
        return -1;
    *step = TT__STEP_STREAMS;
    return null == std ? 0 : dup2(null, std);
}

static int set_logs(const tt__job *job, int i, int stderr_end, tt__start_step *step) {
    const tt__logs *logs = job->logs;
    int failed = 0;
    if (logs->dir) {
        tt__logs_make_folder(logs, job->attempt, i);
        tt__job_error_file_remove(job, i); /* left by earlier workers of the same number */
    }
    if (logs->files[i] & TT__STDOUT) {
        failed |= set_file(job, i, TT__STDOUT, stderr_end) < 0;
    } else if (logs->hidden[i]) {
        if (set_null(STDOUT_FILENO, O_WRONLY, step) < 0)
            return -1;
    }
    if (logs->files[i] & TT__STDERR)
        failed |= set_file(job, i, TT__STDERR, stderr_end) < 0;
    return failed ? -1 : 0;
}

/* Set the standard streams. Rank 0 reads the launcher's stdin; the others see end of file, since readers would take
 * pieces of it from each other. */
static int set_streams(const tt__job *job, int i, int stderr_end, tt__start_step *step) {
    if (job->first_rank + i != 0 && set_null(STDIN_FILENO, O_RDONLY, step) < 0)
        return -1;
    *step = TT__STEP_STREAMS;
    if (dup2(stderr_end, STDERR_FILENO) < 0)
        return -1;
    return job->logs ? set_logs(job, i, stderr_end, step) : 0;
}

/* A session of its own gives the rank a share of the CPUs as large as that of any other session (autogroup in
 * sched(7)). One that reads from a terminal stays with it: in its session, and in the process group that Ctrl-C and
 * Ctrl-Z reach. */
static void enter_session(const tt__job *job, int i) {
    if (job->first_rank + i == 0 && isatty(STDIN_FILENO))
        setpgid(0, job->group);
    else
        setsid();
}

int tt__worker_exec(const tt__job *job, int i, int stderr_end, pid_t keeper, tt__start_step *step) {
    char local_rank[32];
    enter_session(job, i);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    *step = TT__STEP_PARENT;
    if (getppid() != keeper) /* it died before the line above */
        return ESRCH;
    *step = TT__STEP_ENVIRONMENT;
    if (tt__worker_env(job, i, set_variable, NULL) || set_streams(job, i, stderr_end, step))
        return errno;
    *step = TT__STEP_CPUS;
    if (job->cpus && sched_setaffinity(0, sizeof *job->cpus, &job->cpus[i]))
        return errno;
    *step = TT__STEP_SECRET;
    if (job->secret_fd >= 0 && fcntl(job->secret_fd, F_SETFD, 0))
        return errno;
    *step = TT__STEP_EXEC;
    if (job->local_rank_at) {
        snprintf(local_rank, sizeof local_rank, "--%s=%d", job->local_rank_name, i);
        job->argv[job->local_rank_at] = local_rank;
    }
    tt__children_restore_signal();
    sigprocmask(SIG_SETMASK, &job->worker_mask, NULL);
    execvp(job->file, job->argv); /* with a slash in it no search, but a script without "#!" goes to sh */
    return errno;
}
