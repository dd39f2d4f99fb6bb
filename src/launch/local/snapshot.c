#include "launch/local/snapshot.h"

#include "base/error.h"
#include "base/files/fd.h"
#include "base/machine/clock.h"
#include "base/process/threads.h"
#include "base/text/plain_text.h"
#include "launch/polling.h"
#include "net/local_socket.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* No job has more ranks. */
enum { TT__RANKS_BELIEVED = 1 << 20 };

/* Map a recorder. Another process's memory may be smaller than it claims, or shrink. */
void tt__seen_map(tt__seen_rank *seen) {
    int memory = seen->memory;
    const tt__job_recorder *at = &seen->rank.at;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), before = at->offset % page, size = before + at->size;
    struct stat info;
    if (!at->size || at->offset % TT__RECORDER_ALIGN || !tt__is_sealed_memory(memory) || fstat(memory, &info) ||
        (uint64_t)info.st_size < at->size || (uint64_t)info.st_size - at->size < at->offset)
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

/* Copy what another process says of a rank, and check or correct it. */
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
        tt__close_fd(&memory);
        return tt__fail(TT_ERR_MEMORY, "no memory for what %d ranks do", snapshot->n + 1);
    }
    snapshot->ranks = ranks;
    ranks[n] = (tt__seen_rank){.memory = memory};
    if (rank_checked(&ranks[n].rank, rank)) {
        tt__close_fd(&memory);
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
        tt__close_fd(&snapshot->ranks[i].memory);
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
    /* if that fails, a refusal or the end of the connection can be read */
    (void)tt__job_send(fd, TT__JOB_LIST, &packet, -1);
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

/* Return the name in a line of /proc/net/unix of a listening socket of this user, or NULL. Connections to it have
 * the same name. Sockets of other users are left out: root's launcher would refuse us, others might never accept the
 * connection. */
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

/* ---- ranks of one node as bytes */

static const uint64_t MAGIC = UINT64_C(0x31626f6c42747454); /* "TttBlob1" */

typedef struct header {
    uint64_t magic;
    uint32_t ranks, rank_size;
} header;

static bool is_of_node(const tt__seen_rank *seen, int node) { return seen->rank.node == node; }

tt_status tt__blob_pack(const tt__snapshot *snapshot, int node, void **bytes, size_t *size) {
    header head = {MAGIC, 0, sizeof(tt__job_rank)};
    *size = sizeof head;
    for (int i = 0; i < snapshot->n; i++)
        if (is_of_node(&snapshot->ranks[i], node)) {
            head.ranks++;
            *size += sizeof(tt__job_rank) + (snapshot->ranks[i].recorder ? snapshot->ranks[i].rank.at.size : 0);
        }
    char *to = *bytes = malloc(*size);
    if (!to)
        return tt__fail(TT_ERR_MEMORY, "no memory for what %d ranks do", snapshot->n);
    memcpy(to, &head, sizeof head);
    to += sizeof head;
    for (int i = 0; i < snapshot->n; i++) {
        const tt__seen_rank *seen = &snapshot->ranks[i];
        tt__job_rank rank = seen->rank;
        if (!is_of_node(seen, node))
            continue;
        rank.at.offset = 0;
        rank.at.size = seen->recorder ? rank.at.size : 0;
        memcpy(to, &rank, sizeof rank);
        memcpy(to + sizeof rank, seen->recorder ? seen->recorder : "", rank.at.size);
        to += sizeof rank + rank.at.size;
    }
    return TT_OK;
}

/* Unpack one rank. Its recorder gets a file of its own, as if the rank had handed it in here. */
static tt_status unpack_rank(tt__snapshot *snapshot, const tt__job_rank *rank, const void *recorder) {
    int memory = rank->at.size ? tt__sealed_memory("tutti-record", rank->at.size) : -1;
    if (rank->at.size && (memory < 0 || pwrite(memory, recorder, rank->at.size, 0) != (ssize_t)rank->at.size)) {
        int errnum = errno;
        tt__close_fd(&memory);
        return tt__fail_errno(TT_ERR_SYSTEM, errnum, "can't keep what rank %d did", rank->rank);
    }
    return tt__snapshot_add(snapshot, rank, memory);
}

tt_status tt__blob_unpack(tt__snapshot *snapshot, int most, const void *bytes, size_t size) {
    const char *at = bytes, *end = at + size;
    header head = {0};
    if (size >= sizeof head)
        memcpy(&head, at, sizeof head);
    if (head.magic != MAGIC || head.rank_size != sizeof(tt__job_rank))
        return tt__fail(TT_ERR_PROTOCOL, "another node runs another version of Tutti");
    if (head.ranks > (uint32_t)most) /* each takes a descriptor */
        return tt__fail(TT_ERR_PROTOCOL, "another node shows %u ranks: expected at most %d", (unsigned)head.ranks,
                        most);
    at += sizeof head;
    for (uint32_t i = 0; i < head.ranks; i++) {
        tt__job_rank rank;
        if ((size_t)(end - at) < sizeof rank)
            return tt__fail(TT_ERR_PROTOCOL, "what another node says of its ranks is cut short");
        memcpy(&rank, at, sizeof rank);
        at += sizeof rank;
        if ((size_t)(end - at) < rank.at.size)
            return tt__fail(TT_ERR_PROTOCOL, "what another node says of its ranks is cut short");
        TT__TRY(unpack_rank(snapshot, &rank, at));
        at += rank.at.size;
    }
    return TT_OK;
}
