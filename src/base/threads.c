#include "base/threads.h"

#include "base/fd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- threads of the library */

typedef struct start {
    void *(*run)(void *);
    void *arg;
} start;

/* How many run, in the process that started them: a forked child has none of them. */
static _Atomic int own_threads;
static _Atomic pid_t own_process;

static int count_own(int more) {
    pid_t self = getpid();
    if (atomic_exchange(&own_process, self) != self)
        atomic_store(&own_threads, 0);
    return atomic_fetch_add(&own_threads, more) + more;
}

static void *thread_run(void *arg) {
    start given = *(start *)arg;
    free(arg);
    void *result = given.run(given.arg);
    count_own(-1);
    return result;
}

int tt__thread_create(pthread_t *thread, void *(*run)(void *), void *arg) {
    sigset_t all, before;
    start *given = malloc(sizeof *given);
    if (!given)
        return ENOMEM;
    *given = (start){.run = run, .arg = arg};
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int errnum = pthread_create(thread, NULL, thread_run, given);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (errnum)
        free(given);
    else
        count_own(1); /* rather too late than too early: see tt__program_has_ended() */
    return errnum;
}

/* ---- threads of the program */

int tt__program_threads(void) {
    DIR *tasks = opendir("/proc/self/task");
    int n = 0;
    if (!tasks)
        return 2;
    for (const struct dirent *task; (task = readdir(tasks));)
        n += task->d_name[0] != '.';
    closedir(tasks);
    return n - count_own(0);
}

/* Has the main thread ended, of which the kernel keeps the remains (state Z) while other threads run? */
static bool main_has_ended(void) {
    char text[256];
    int fd = tt__fd(open("/proc/self/stat", O_RDONLY | O_CLOEXEC));
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[n < 0 ? 0 : n] = '\0';
    const char *name_end = strrchr(text, ')');
    return name_end && name_end[1] == ' ' && name_end[2] == 'Z';
}

bool tt__program_has_ended(void) { return main_has_ended() && tt__program_threads() <= 1; }

/* ---- conditions */

void tt__cond_init(pthread_cond_t *condition) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}
