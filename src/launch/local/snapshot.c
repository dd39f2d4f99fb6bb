#include "launch/local/snapshot.h"

#include "base/error.h"
#include "base/files/fd.h"
#include "base/machine/clock.h"
#include "base/process/threads.h"
#include "base/text/plain_text.h"
#include "net/local_socket.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* More ranks than this nobody has. */
enum { TT__RANKS_BELIEVED = 1 << 20 };

/* Map a recorder. The memory of a stranger may be smaller than it claims, or become so. */
void tt__seen_map(tt__seen_rank *seen) {
    int memory = seen->memory;
    const tt__job_recorder *at = &seen->rank.at;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), before = at->offset % page, size = before + at->size;
    struct stat info;
    if (!at->size || !tt__is_sealed_memory(memory) || fstat(memory, &info) || (uint64_t)info.st_size < at->size ||
        (uint64_t)info.st_size - at->size < at->offset)
        return;
    void *mapping = mmap(NULL, size, PROT_READ, MAP_SHARED, memory, (off_t)(at->offset - before));
    if (mapping == MAP_FAILED)
        return;
    seen->mapping = mapping;
    seen->mapped = size;
    seen->recorder = (const char *)mapping + before;
}

void tt__seen_unmap(tt__seen_rank *seen) {
    if (seen->mapping)
        munmap(seen->mapping, seen->mapped);
    seen->mapping = NULL;
    seen->recorder = NULL;
}

static bool bool_checked(const bool *written) {
    unsigned char byte;
    memcpy(&byte, written, 1);
    return byte != 0;
}

static void text_checked(char *text, size_t size) {
    text[size - 1] = '\0';
    tt__make_plain_name(text);
}

/* Bring what another process says of a rank to what it can be. */
static tt_status rank_checked(tt__job_rank *rank, const tt__job_rank *theirs) {
    memcpy(rank, theirs, sizeof *rank);
    if (rank->rank < 0 || rank->rank >= TT__RANKS_BELIEVED || rank->node < 0 || rank->node >= TT__RANKS_BELIEVED)
        return tt__fail(TT_ERR_PROTOCOL, "expected the number of a rank and its node, got %d and %d", rank->rank,
                        rank->node);
    rank->secondary = bool_checked(&theirs->secondary);
    rank->stopped = bool_checked(&theirs->stopped);
    if (rank->state < TT__JOB_STARTING || rank->state > TT__JOB_ENDED)
        rank->state = TT__JOB_STARTING;
    rank->ended = tt__moment_checked(rank->ended);
    rank->now = tt__moment_checked(rank->now);
    text_checked(rank->hostname, sizeof rank->hostname);
    return TT_OK;
}

static tt__job_info info_checked(tt__job_info info) {
    info.started_realtime_ns = tt__ns_checked(info.started_realtime_ns);
    text_checked(info.program, sizeof info.program);
    text_checked(info.run_id, sizeof info.run_id);
    text_checked(info.hostname, sizeof info.hostname);
    return info;
}

tt_status tt__snapshot_add(tt__snapshot *snapshot, const tt__job_rank *rank, int memory) {
    size_t n = (size_t)snapshot->n;
    tt__seen_rank *ranks = realloc(snapshot->ranks, (n + 1) * sizeof *ranks);
    if (!ranks) {
        if (memory >= 0)
            close(memory);
        return tt__fail(TT_ERR_MEMORY, "no memory for what %d ranks do", snapshot->n + 1);
    }
    snapshot->ranks = ranks;
    ranks[n] = (tt__seen_rank){.memory = memory};
    if (rank_checked(&ranks[n].rank, rank)) {
        if (memory >= 0)
            close(memory);
        return TT_ERR_PROTOCOL;
    }
    if (memory >= 0)
        tt__seen_map(&ranks[n]);
    snapshot->n++;
    return TT_OK;
}

void tt__snapshot_free(tt__snapshot *snapshot) {
    for (int i = 0; i < snapshot->n; i++) {
        tt__seen_unmap(&snapshot->ranks[i]);
        if (snapshot->ranks[i].memory >= 0)
            close(snapshot->ranks[i].memory);
    }
    free(snapshot->ranks);
    *snapshot = (tt__snapshot){0};
}

/* Receive packets up to TT__JOB_END. */
static tt_status take_answer(tt__snapshot *snapshot, int fd, const char *name) {
    for (;;) {
        tt__job_packet packet;
        char who[TT__JOB_NAME_SIZE + 32];
        int memory, got = tt__job_receive(fd, &packet, &memory);
        tt_status status = TT_OK;
        if (got == 0)
            return tt__fail(TT_ERR_TIMEOUT, "the launcher at \"%s\" does not answer in time", name);
        if (got < 0) {
            snprintf(who, sizeof who, "the launcher at \"%s\"", name);
            return tt__job_fail_ended(&packet, who);
        }
        if (packet.kind == TT__JOB_RANK)
            status = tt__snapshot_add(snapshot, &packet.rank, memory);
        else if (memory >= 0)
            close(memory);
        if (packet.kind == TT__JOB_INFO)
            snapshot->info = info_checked(packet.info);
        TT__TRY(status);
        if (packet.kind == TT__JOB_END)
            return TT_OK;
    }
}

static tt_status ask_launcher(tt__snapshot *snapshot, const char *name, bool bare, int64_t timeout_ms) {
    tt__job_packet packet = {.list = {.bare = bare}};
    int fd;
    *snapshot = (tt__snapshot){0};
    TT__TRY(tt__job_socket_connect(&fd, name, timeout_ms));
    (void)tt__job_send(fd, TT__JOB_LIST, &packet, -1); /* where that fails there may be a refusal to read, or an end */
    tt_status status = take_answer(snapshot, fd, name);
    close(fd);
    if (status)
        tt__snapshot_free(snapshot);
    return status;
}

tt_status tt__snapshot_ask(tt__snapshot *snapshot, const char *name, int64_t timeout_ms) {
    return ask_launcher(snapshot, name, false, timeout_ms);
}

/* ---- all jobs ---- */

static void *ask_of_job(void *arg) {
    tt__job_heard *job = arg;
    tt__snapshot snapshot;
    job->status = ask_launcher(&snapshot, job->name, true, job->timeout_ms);
    job->info = snapshot.info;
    tt__snapshot_free(&snapshot);
    return NULL;
}

/* A launcher that is stopped answers nothing until the timeout: a thread waits for each. */
void tt__jobs_ask(tt__job_heard *jobs, int n, int64_t timeout_ms) {
    for (int i = 0; i < n; i++) {
        jobs[i].timeout_ms = timeout_ms;
        jobs[i].apart = n > 1 && !tt__thread_create(&jobs[i].thread, ask_of_job, &jobs[i], "a thread for a launcher");
    }
    for (int i = 0; i < n; i++) {
        if (jobs[i].apart)
            tt__thread_join(jobs[i].thread);
        else
            ask_of_job(&jobs[i]);
    }
}

/* Return the name in a line of /proc/net/unix of a listening socket of this user, or NULL. Connections to it have the
 * same name. Another user's is not called: root's launcher would refuse it, others might never take the call. */
static const char *listener_name(char *line) {
    unsigned flags = 0;
    unsigned long inode = 0;
    char *name = strstr(line, "@" TT__JOB_SOCKET_PREFIX);
    if (!name || sscanf(line, "%*s %*s %*s %x %*s %*s %lu", &flags, &inode) != 2 ||
        !(flags & 0x10000)) /* __SO_ACCEPTCON */
        return NULL;
    name[strcspn(name, "\n")] = '\0';
    return tt__local_socket_may_be(inode, name + 1, geteuid()) ? name + 1 : NULL;
}

tt_status tt__jobs_find(tt__job_heard **jobs, int *n) {
    FILE *file = fopen("/proc/net/unix", "re");
    char line[512];
    *jobs = NULL;
    *n = 0;
    if (!file)
        return tt__fail_errno(TT_ERR_IO, errno, "can't read /proc/net/unix");
    while (fgets(line, sizeof line, file)) {
        const char *name = listener_name(line);
        tt__job_heard *more = name ? realloc(*jobs, (size_t)(*n + 1) * sizeof *more) : NULL;
        if (!more)
            continue;
        *jobs = more;
        more[*n] = (tt__job_heard){.status = TT_ERR_NOT_FOUND};
        snprintf(more[(*n)++].name, sizeof more->name, "%s", name);
    }
    fclose(file);
    return TT_OK;
}
