#include "base/process/proc_state.h"

#include "base/files/fd.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Read /proc/PID/NAME, or its first size - 1 bytes; "": it can't be read. */
static void proc_read(pid_t pid, const char *name, char *text, size_t size) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    int fd = tt__fd(open(path, O_RDONLY | O_CLOEXEC));
    ssize_t n = fd < 0 ? 0 : read(fd, text, size - 1);
    if (fd >= 0)
        close(fd);
    text[n < 0 ? 0 : n] = '\0';
}

/* Read /proc/PID/NAME, a "stat" file; return what follows the process's name, or NULL. The name may hold spaces and
 * brackets: the last bracket ends it. */
static const char *proc_read_stat(pid_t pid, const char *name, char *text, size_t size) {
    proc_read(pid, name, text, size);
    const char *name_end = strrchr(text, ')');
    return name_end ? name_end + 1 : NULL;
}

tt__proc tt__proc_look(pid_t pid) {
    char text[512];
    tt__proc found = {.pid = pid};
    const char *fields = proc_read_stat(pid, "stat", text, sizeof text);
    if (!fields || sscanf(fields, " %c %d %d %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %" SCNu64,
                          &found.state, &found.parent, &found.group, &found.session, &found.started) != 5)
        return (tt__proc){0};
    return found;
}

/* Call look() for each thread, until it returns true. */
static void for_threads(pid_t pid, bool (*look)(pid_t pid, pid_t tid, void *user), void *user) {
    char path[32];
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *threads = opendir(path);
    for (const struct dirent *entry; threads && (entry = readdir(threads));)
        if (entry->d_name[0] != '.' && look(pid, (pid_t)atoi(entry->d_name), user))
            break;
    if (threads)
        closedir(threads);
}

static bool thread_has_ended(char state) { return state == 'Z' || state == 'X'; }

typedef struct living {
    pid_t tid; /* 0: none */
    char state;
} living;

static bool find_living(pid_t pid, pid_t tid, void *user) {
    char name[32], text[512], state;
    snprintf(name, sizeof name, "task/%d/stat", (int)tid);
    const char *fields = proc_read_stat(pid, name, text, sizeof text);
    bool lives = fields && sscanf(fields, " %c", &state) == 1 && !thread_has_ended(state);
    if (lives)
        *(living *)user = (living){tid, state};
    return lives;
}

/* /proc shows a main thread that has ended by pthread_exit() as a zombie while others live. */
static living living_thread(pid_t pid, char main_state) {
    living found = {main_state ? pid : 0, main_state};
    if (!thread_has_ended(main_state))
        return found;
    found.tid = 0;
    for_threads(pid, find_living, &found);
    return found;
}

char tt__proc_state(pid_t pid) { return living_thread(pid, tt__proc_look(pid).state).state; }

pid_t tt__proc_living_thread(pid_t pid) { return living_thread(pid, tt__proc_look(pid).state).tid; }

bool tt__proc_main_ended(pid_t pid) {
    pid_t living = tt__proc_living_thread(pid);
    return living && living != pid;
}

/* Each stop counts as a switch, so even the shortest run between two stops is noticed. */
static bool add_switches(pid_t pid, pid_t tid, void *user) {
    static const char *const names[] = {"\nvoluntary_ctxt_switches:", "\nnonvoluntary_ctxt_switches:"};
    char name[32], text[4096];
    uint64_t *sum = user;
    snprintf(name, sizeof name, "task/%d/status", (int)tid);
    proc_read(pid, name, text, sizeof text);
    for (int i = 0; i < 2; i++) {
        const char *at = strstr(text, names[i]);
        *sum += at ? strtoull(at + strlen(names[i]), NULL, 10) : 0;
    }
    return false;
}

uint64_t tt__proc_activity(pid_t pid) {
    char text[512];
    unsigned long user = 0, system = 0;
    uint64_t switches = 0;
    char state;
    const char *fields = proc_read_stat(pid, "stat", text, sizeof text);
    if (!fields || sscanf(fields, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &state, &user, &system) != 3)
        return 0;
    if (thread_has_ended(state))
        for_threads(pid, add_switches, &switches);
    else
        add_switches(pid, pid, &switches);
    return user + system + switches;
}

int64_t tt__proc_stopped_ms(tt__proc_stop *stop, pid_t pid, int64_t now_ms) {
    bool stopped = tt__proc_state(pid) == 'T';
    uint64_t activity = stopped ? tt__proc_activity(pid) : 0;
    if (!stopped)
        *stop = (tt__proc_stop){0};
    else if (!stop->since_ms || activity != stop->activity)
        *stop = (tt__proc_stop){now_ms, activity};
    return stopped ? now_ms - stop->since_ms : 0;
}
