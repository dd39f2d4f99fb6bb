#include "launch/local/children.h"

#include "base/machine/clock.h"
#include "base/process/proc_state.h"
#include "base/process/waits.h"

#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static bool ignored_before; /* SIGCHLD, by a parent's wish */

void tt__children_keep_ends(void) {
    struct sigaction action;
    if (sigaction(SIGCHLD, NULL, &action) || action.sa_handler != SIG_IGN)
        return;
    ignored_before = true;
    signal(SIGCHLD, SIG_DFL);
}

void tt__children_restore_signal(void) {
    if (ignored_before)
        signal(SIGCHLD, SIG_IGN);
}

static bool is_pid(const struct dirent *entry) { return entry->d_name[0] >= '1' && entry->d_name[0] <= '9'; }

size_t tt__children(pid_t *pids, size_t max) {
    size_t n = 0;
    pid_t self = getpid();
    DIR *proc = opendir("/proc");
    if (!proc)
        return 0;
    for (const struct dirent *entry; n < max && (entry = readdir(proc));)
        if (is_pid(entry) && tt__proc_look(atoi(entry->d_name)).parent == self)
            pids[n++] = (pid_t)atoi(entry->d_name);
    closedir(proc);
    return n;
}

static int is_among(pid_t pid, const pid_t *pids, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (pids[i] == pid)
            return 1;
    return 0;
}

/* Kill and reap the present children once. A child's pid can't be reused before it is reaped here, so no other process
 * is hit. */
static size_t kill_once(const pid_t *spared, size_t spared_count, tt__reaped_fn reaped, void *user) {
    enum { MAX = 1024 };
    pid_t pids[MAX];
    size_t n = tt__children(pids, MAX), left = 0;
    for (size_t i = 0; i < n; i++) {
        if (is_among(pids[i], spared, spared_count))
            continue;
        int status;
        kill(pids[i], SIGKILL);
        if (waitpid(pids[i], &status, WNOHANG | __WALL) == pids[i] && reaped)
            reaped(user, pids[i], status);
        left++; /* even if reaped: its children are ours from now on, so look again */
    }
    return left;
}

size_t tt__children_kill(const pid_t *spared, size_t spared_count, tt__reaped_fn reaped, void *user,
                         int64_t timeout_ms) {
    int64_t deadline = tt__deadline_ms(timeout_ms);
    size_t left;
    while ((left = kill_once(spared, spared_count, reaped, user)) && tt__left_ms(deadline))
        tt__sleep_ms(1);
    return left;
}
