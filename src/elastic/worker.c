/* A worker's process between fork and exec. */
#include "elastic/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
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
    char error_file[sizeof job->error_dir + 32];
    int failed = 0;
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++)
        failed |= set_number(numbers[n].name, numbers[n].value);
    failed |= setenv("MASTER_ADDR", job->master_addr, 1);
    failed |= setenv("ROLE_NAME", job->role, 1);
    failed |= setenv("TORCHELASTIC_RUN_ID", job->run_id, 1);
    failed |= setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
    failed |= setenv("TORCHELASTIC_ERROR_FILE", tt__job_error_file(job, i, error_file, sizeof error_file), 1);
    failed |= setenv("TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT", 1);
    failed |= setenv("TT_JOB_SOCKET", job->socket_name, 1);
    failed |= setenv("NCCL_ASYNC_ERROR_HANDLING", "1", 0);
    failed |= setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1", 0);
    if (job->omp_threads)
        failed |= set_number("OMP_NUM_THREADS", job->omp_threads);
    return failed;
}

/* Set the standard streams. Rank 0 reads the launcher's stdin; the others see end of file, since readers would take
 * pieces of it from each other. */
static int set_streams(int rank, int stderr_end) {
    if (rank != 0) {
        int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (null < 0 || (null != STDIN_FILENO && dup2(null, STDIN_FILENO) < 0))
            return -1;
    }
    return dup2(stderr_end, STDERR_FILENO) < 0 ? -1 : 0;
}

int tt__worker_exec(const tt__job *job, int i, int stderr_end, pid_t keeper) {
    setpgid(0, job->group);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != keeper) /* it died before the line above */
        return ESRCH;
    if (set_environment(job, i) || set_streams(job->first_rank + i, stderr_end))
        return errno;
    if (job->secret_fd >= 0 && fcntl(job->secret_fd, F_SETFD, 0))
        return errno;
    sigprocmask(SIG_SETMASK, &job->worker_mask, NULL);
    execvp(job->file, job->argv); /* with a slash in it no search, but a script without "#!" goes to sh */
    return errno;
}
