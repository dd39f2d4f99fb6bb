#include "base/proc_state.h"

#include "base/fd.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Read /proc/PID/NAME, as far as it fits; "": it can't be read. */
static void proc_read(pid_t pid, const char *name, char *text, size_t size) {
    char path[48];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    int fd = tt__fd(open(path, O_RDONLY | O_CLOEXEC));
    ssize_t n = fd < 0 ? 0 : read(fd, text, size - 1);
    if (fd >= 0)
        close(fd);
    text[n < 0 ? 0 : n] = '\0';
}

/* Read /proc/PID/stat; returns what follows the process's name, or NULL. The name may hold spaces and brackets: the
 * last bracket ends it. */
static const char *proc_read_stat(pid_t pid, char *text, size_t size) {
    proc_read(pid, "stat", text, size);
    const char *name_end = strrchr(text, ')');
    return name_end ? name_end + 1 : NULL;
}

tt__proc tt__proc_look(pid_t pid) {
    char text[512];
    tt__proc found = {.pid = pid};
    const char *fields = proc_read_stat(pid, text, sizeof text);
    if (!fields || sscanf(fields, " %c %d %d %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %" SCNu64,
                          &found.state, &found.parent, &found.group, &found.session, &found.started) != 5)
        return (tt__proc){0};
    return found;
}

char tt__proc_state(pid_t pid) { return tt__proc_look(pid).state; }

/* Stopping is a switch of its own, so that not even the shortest run between two stops is missed. */
static uint64_t proc_switches(pid_t pid) {
    static const char *const names[] = {"\nvoluntary_ctxt_switches:", "\nnonvoluntary_ctxt_switches:"};
    char text[4096];
    uint64_t sum = 0;
    proc_read(pid, "status", text, sizeof text);
    for (int i = 0; i < 2; i++) {
        const char *at = strstr(text, names[i]);
        sum += at ? strtoull(at + strlen(names[i]), NULL, 10) : 0;
    }
    return sum;
}

uint64_t tt__proc_activity(pid_t pid) {
    char text[512];
    unsigned long user = 0, system = 0;
    const char *fields = proc_read_stat(pid, text, sizeof text);
    if (!fields || sscanf(fields, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
        return 0;
    return user + system + proc_switches(pid);
}
