/* A worker's process between fork and exec. */
#include "launch/local/children.h"
#include "launch/local/error_files.h"
#include "launch/local/keeper.h"
#include "launch/local/worker_env.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

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
    char path[PATH_MAX];
    int failed = 0;
    if (logs->dir) {
        tt__logs_make_folder(logs, job->attempt, i);
        unlink(tt__job_error_file(job, i, path)); /* of workers that were started before under the same number */
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
