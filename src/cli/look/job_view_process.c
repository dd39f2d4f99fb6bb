/* Recorders of processes that no launcher watches, found through /proc: those of all ranks whose memory a process
 * maps. */
#include "cli/look/job_view.h"

#include "base/error.h"
#include "base/files/fd.h"
#include "base/machine/host_name.h"
#include "base/process/proc_state.h"
#include "base/text/plain_text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_MEMORIES = 1024, SEARCHED = 1 << 20, STEP = 64 };

static const char MEMORY_NAME[] = "/memfd:tutti";

/* Return a thread that lives: the kernel shows what a process has through any of these, and nothing through one that
 * has ended. */
static pid_t shown_by(pid_t pid) {
    pid_t living = tt__proc_living_thread(pid);
    return living ? living : pid;
}

/* List the inodes of the memories that process `pid` maps; returns how many, or -1 (errno). */
static int mapped_memories(pid_t pid, unsigned long inodes[MAX_MEMORIES]) {
    char path[64], line[512];
    int n = 0;
    snprintf(path, sizeof path, "/proc/%d/maps", (int)shown_by(pid));
    FILE *file = fopen(path, "re");
    if (!file)
        return -1;
    while (n < MAX_MEMORIES && fgets(line, sizeof line, file)) {
        unsigned long inode = 0;
        if (!strstr(line, MEMORY_NAME) || sscanf(line, "%*s %*s %*s %*s %lu", &inode) != 1)
            continue;
        bool known = false;
        for (int i = 0; i < n; i++)
            known = known || inodes[i] == inode;
        if (!known)
            inodes[n++] = inode;
    }
    fclose(file);
    return n;
}

/* Find the recorder in the memory. */
static bool find_recorder(int memory, tt__job_recorder *at) {
    tt__recorder *recorder = malloc(sizeof *recorder);
    bool found = false;
    for (off_t offset = 0; recorder && !found && offset < SEARCHED; offset += STEP) {
        if (pread(memory, recorder, sizeof recorder->magic, offset) != (ssize_t)sizeof recorder->magic)
            break;
        found = recorder->magic == TT__RECORDER_MAGIC &&
                pread(memory, recorder, sizeof *recorder, offset) == (ssize_t)sizeof *recorder;
        if (found)
            *at = (tt__job_recorder){recorder->rank, sizeof *recorder, (uint64_t)offset};
    }
    free(recorder);
    return found;
}

/* Add the rank whose memory is descriptor `fd` of `pid`, if it is one of `inodes`, from which it is then removed. */
static tt_status add_if_wanted(tt__snapshot *snapshot, pid_t pid, const char *fd, unsigned long *inodes, int n) {
    char path[300], name[64];
    struct stat info;
    snprintf(path, sizeof path, "/proc/%d/fd/%.255s", (int)shown_by(pid), fd);
    ssize_t length = readlink(path, name, sizeof name - 1);
    if (length <= 0 || strncmp(name, MEMORY_NAME, strlen(MEMORY_NAME)) != 0)
        return TT_OK;
    /* The name proves nothing: it may be a FIFO, or memory that its owner shrinks while we look at it. */
    int memory = stat(path, &info) || !S_ISREG(info.st_mode)
                     ? -1
                     : tt__fd(open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (memory < 0 || !tt__is_sealed_memory(memory) || fstat(memory, &info))
        info.st_ino = 0;
    for (int i = 0; i < n && info.st_ino; i++) {
        tt__job_rank rank = {.pid = pid, .state = TT__JOB_RUNNING, .now = tt__moment_now()};
        if (inodes[i] != info.st_ino || !find_recorder(memory, &rank.at))
            continue;
        inodes[i] = 0;
        rank.rank = rank.at.rank;
        tt__host_name(rank.hostname, sizeof rank.hostname);
        return tt__snapshot_add(snapshot, &rank, memory);
    }
    if (memory >= 0)
        close(memory);
    return TT_OK;
}

/* Add the ranks of all descriptors of `pid`. */
static tt_status add_process(tt__snapshot *snapshot, pid_t pid, unsigned long *inodes, int n) {
    char path[64];
    tt_status status = TT_OK;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)shown_by(pid));
    DIR *fds = opendir(path);
    for (const struct dirent *fd; !status && fds && (fd = readdir(fds));)
        if (fd->d_name[0] != '.')
            status = add_if_wanted(snapshot, pid, fd->d_name, inodes, n);
    if (fds)
        closedir(fds);
    return status;
}

/* Copy a name out of memory that its owner may write to, and may not have ended. */
static void take_name_of(char *to, size_t size, const char *from, size_t room) {
    size_t n = strnlen(from, room < size ? room : size - 1);
    memcpy(to, from, n);
    to[n] = '\0';
    tt__make_plain_name(to);
}

static void fill_info(tt__snapshot *snapshot, pid_t pid) {
    const tt__recorder *recorder = NULL;
    for (int i = 0; i < snapshot->n; i++)
        if (snapshot->ranks[i].rank.pid == pid)
            recorder = snapshot->ranks[i].recorder;
    snapshot->info = (tt__job_info){.nodes = 1, .local_ranks = snapshot->n, .world = snapshot->n};
    tt__host_name(snapshot->info.hostname, sizeof snapshot->info.hostname);
    if (!recorder)
        return;
    snapshot->info.world = recorder->world;
    snapshot->info.started_realtime_ns = tt__ns_checked(recorder->begin.realtime_ns);
    take_name_of(snapshot->info.program, sizeof snapshot->info.program, recorder->program, sizeof recorder->program);
}

tt_status tt__view_process(tt__snapshot *snapshot, pid_t pid) {
    unsigned long inodes[MAX_MEMORIES];
    tt__ticks_init();
    int n = mapped_memories(pid, inodes);
    if (n < 0)
        return tt__fail_errno(TT_ERR_NOT_FOUND, errno, "can't look at process %d", (int)pid);
    tt_status status = add_process(snapshot, pid, inodes, n);
    DIR *processes = opendir("/proc");
    for (const struct dirent *entry; !status && processes && snapshot->n < n && (entry = readdir(processes));) {
        long other = strtol(entry->d_name, NULL, 10);
        if (other > 0 && other != pid)
            status = add_process(snapshot, (pid_t)other, inodes, n);
    }
    if (processes)
        closedir(processes);
    if (!status && !snapshot->n)
        status = tt__fail(TT_ERR_NOT_FOUND, "process %d shares no memory as a rank of Tutti, or is another user's",
                          (int)pid);
    if (status)
        tt__snapshot_free(snapshot);
    else
        fill_info(snapshot, pid);
    return status;
}
