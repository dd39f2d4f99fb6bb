/* A worker's process between fork and exec. */
#include "elastic/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static int set_number(const char *name, int value) {
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    return setenv(name, text, 1);
}

/* Set torchrun's environment variables. Returns 0, or -1 (out of memory). */
static int set_environment(const tt__job *job, int i) {
    int rank = job->first_rank + i;
    const struct {
        const char *name;
        int value;
    } numbers[] = {
        {"RANK", rank},
        {"LOCAL_RANK", i},
        {"ROLE_RANK", rank},
        {"GROUP_RANK", job->node},
        {"WORLD_SIZE", job->world},
        {"LOCAL_WORLD_SIZE", job->workers},
        {"ROLE_WORLD_SIZE", job->world},
        {"GROUP_WORLD_SIZE", job->nodes},
        {"MASTER_PORT", job->master_port},
        {"TORCHELASTIC_RESTART_COUNT", job->attempt},
        {"TORCHELASTIC_MAX_RESTARTS", job->max_restarts},
    };
    char error_file[PATH_MAX];
    int failed = 0;
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++)
        failed |= set_number(numbers[n].name, numbers[n].value);
    failed |= setenv("MASTER_ADDR", job->master_addr, 1);
    failed |= setenv("ROLE_NAME", job->role, 1);
    failed |= setenv("TORCHELASTIC_RUN_ID", job->run_id, 1);
    failed |= setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
    failed |= setenv("TORCHELASTIC_ERROR_FILE", tt__job_error_file(job, i, error_file), 1);
    failed |= setenv("TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT", 1);
    failed |= setenv("TT_JOB_SOCKET", job->socket_name, 1);
    failed |= setenv("NCCL_ASYNC_ERROR_HANDLING", "1", 0);
    failed |= setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1", 0);
    if (job->omp_threads)
        failed |= set_number("OMP_NUM_THREADS", job->omp_threads);
    return failed;
}

/* Open a log file in place of stdout or stderr. If that can't be, say so, and go on without: output elsewhere is better
 * than no job. */
static int set_file(const tt__job *job, int i, int std) {
    int fd = tt__logs_open(job->logs, job->attempt, i, std), to = std == TT__STDOUT ? STDOUT_FILENO : STDERR_FILENO;
    if (fd >= 0)
        return dup2(fd, to);
    char path[PATH_MAX];
    int errnum = errno;
    tt__logs_path(job->logs, job->attempt, i, tt__logs_file(std), path);
    dprintf(STDERR_FILENO, "tutti run: can't open %s (%s): what rank %d writes to %s is not kept\n", path,
            strerror(errnum), job->first_rank + i, std == TT__STDOUT ? "stdout" : "stderr");
    return 0;
}

static int set_logs(const tt__job *job, int i) {
    const tt__logs *logs = job->logs;
    char path[PATH_MAX];
    int failed = 0;
    if (logs->dir) {
        tt__logs_make_folder(logs, job->attempt, i);
        unlink(tt__job_error_file(job, i, path)); /* of workers that were started before under the same number */
    }
    if (logs->files[i] & TT__STDOUT) {
        failed |= set_file(job, i, TT__STDOUT) < 0;
    } else if (logs->hidden[i]) {
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        failed |= null < 0 || dup2(null, STDOUT_FILENO) < 0;
    }
    if (logs->files[i] & TT__STDERR)
        failed |= set_file(job, i, TT__STDERR) < 0;
    return failed ? -1 : 0;
}

/* Set the standard streams. Rank 0 reads the launcher's stdin; the others see end of file, since readers would take
 * pieces of it from each other. */
static int set_streams(const tt__job *job, int i, int stderr_end) {
    if (job->first_rank + i != 0) {
        int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (null < 0 || (null != STDIN_FILENO && dup2(null, STDIN_FILENO) < 0))
            return -1;
    }
    if (dup2(stderr_end, STDERR_FILENO) < 0)
        return -1;
    return job->logs ? set_logs(job, i) : 0;
}

int tt__worker_exec(const tt__job *job, int i, int stderr_end, pid_t keeper) {
    setpgid(0, job->group);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != keeper) /* it died before the line above */
        return ESRCH;
    if (set_environment(job, i) || set_streams(job, i, stderr_end))
        return errno;
    if (job->secret_fd >= 0 && fcntl(job->secret_fd, F_SETFD, 0))
        return errno;
    sigprocmask(SIG_SETMASK, &job->worker_mask, NULL);
    execvp(job->file, job->argv); /* with a slash in it no search, but a script without "#!" goes to sh */
    return errno;
}
