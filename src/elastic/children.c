#include "elastic/children.h"

#include "base/clock.h"
#include "base/fd.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* State and parent of `pid`, both 0 if it is gone. The name in /proc/PID/stat may hold spaces and parentheses: what
 * follows the last ')' counts. */
static void read_stat(const char *pid, char *state, pid_t *parent) {
    char path[64], text[512];
    *state = 0;
    *parent = 0;
    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    int fd = tt__fd(open(path, O_RDONLY | O_CLOEXEC));
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[n < 0 ? 0 : n] = '\0';
    const char *rest = strrchr(text, ')');
    if (!rest || sscanf(rest + 1, " %c %d", state, parent) != 2)
        *state = 0;
}

static pid_t parent_pid(const char *pid) {
    char state;
    pid_t parent;
    read_stat(pid, &state, &parent);
    return parent;
}

char tt__process_state(int64_t pid) {
    char text[24], state;
    pid_t parent;
    snprintf(text, sizeof text, "%lld", (long long)pid);
    read_stat(text, &state, &parent);
    return state;
}

size_t tt__children(pid_t *pids, size_t max) {
    size_t n = 0;
    pid_t self = getpid();
    DIR *proc = opendir("/proc");
    if (!proc)
        return 0;
    for (const struct dirent *entry; n < max && (entry = readdir(proc));)
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && parent_pid(entry->d_name) == self)
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
        poll(NULL, 0, 1);
    return left;
}
