#include "base/proc_state.h"

#include "base/fd.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The name of the process may hold spaces and brackets: the last bracket ends it. */
tt__proc tt__proc_look(pid_t pid) {
    char path[40], text[256];
    tt__proc found = {.pid = pid};
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = tt__fd(open(path, O_RDONLY | O_CLOEXEC));
    if (fd < 0)
        return (tt__proc){0};
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n < 0 ? 0 : n] = '\0';
    const char *name_end = strrchr(text, ')');
    if (!name_end || sscanf(name_end + 1, " %c %d %d", &found.state, &found.parent, &found.group) != 3)
        return (tt__proc){0};
    return found;
}

char tt__proc_state(pid_t pid) { return tt__proc_look(pid).state; }
