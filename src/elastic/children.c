#include "elastic/children.h"

#include "base/clock.h"
#include "base/fd.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* What /proc says of a process. */
typedef struct process_stat {
    pid_t pid, parent, group; /* 0: it is gone */
    char state;
} process_stat;

/* The name in /proc/PID/stat may hold spaces and parentheses: what follows the last ')' counts. */
static process_stat read_stat(const char *pid) {
    char path[64], text[512];
    process_stat found = {.pid = (pid_t)atoi(pid)};
    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    int fd = tt__fd(open(path, O_RDONLY | O_CLOEXEC));
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[n < 0 ? 0 : n] = '\0';
    const char *rest = strrchr(text, ')');
    if (!rest || sscanf(rest + 1, " %c %d %d", &found.state, &found.parent, &found.group) != 3)
        return (process_stat){0};
    return found;
}

char tt__process_state(int64_t pid) {
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)pid);
    return read_stat(text).state;
}

static bool is_pid(const struct dirent *entry) { return entry->d_name[0] >= '1' && entry->d_name[0] <= '9'; }

size_t tt__children(pid_t *pids, size_t max) {
    size_t n = 0;
    pid_t self = getpid();
    DIR *proc = opendir("/proc");
    if (!proc)
        return 0;
    for (const struct dirent *entry; n < max && (entry = readdir(proc));)
        if (is_pid(entry) && read_stat(entry->d_name).parent == self)
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

/* List all processes, allocated; *n of them. */
static process_stat *all_processes(size_t *n) {
    process_stat *all = NULL;
    DIR *proc = opendir("/proc");
    *n = 0;
    for (const struct dirent *entry; proc && (entry = readdir(proc));) {
        if (!is_pid(entry))
            continue;
        if (*n % 256 == 0) {
            process_stat *more = realloc(all, (*n + 256) * sizeof *all);
            if (!more)
                break;
            all = more;
        }
        all[(*n)++] = read_stat(entry->d_name);
    }
    if (proc)
        closedir(proc);
    return all;
}

static const process_stat *find_process(const process_stat *all, size_t n, pid_t pid) {
    for (size_t i = 0; i < n; i++)
        if (all[i].pid == pid)
            return &all[i];
    return NULL;
}

/* Do all processes from the parent of `p` up to one of the roots belong to the group? */
static bool left_the_group(const process_stat *p, const process_stat *all, size_t n, const pid_t *roots,
                           size_t root_count, pid_t group) {
    if (!p->pid || p->group == group)
        return false;
    for (size_t depth = 0; depth < n && (p = find_process(all, n, p->parent)) && p->group == group; depth++)
        if (is_among(p->pid, roots, root_count))
            return true;
    return false;
}

size_t tt__strays(const pid_t *roots, size_t root_count, pid_t group, pid_t *pids, size_t max) {
    size_t n, found = 0;
    process_stat *all = all_processes(&n);
    for (size_t i = 0; i < n && found < max; i++)
        if (left_the_group(&all[i], all, n, roots, root_count, group))
            pids[found++] = all[i].pid;
    free(all);
    return found;
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
