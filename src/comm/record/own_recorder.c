#include "comm/record/own_recorder.h"

#include "base/error.h"
#include "base/files/fd.h"
#include "base/process/fork.h"
#include "base/text/parse.h"
#include "comm/record/recorder.h"
#include "net/job/job_socket.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PATIENCE_MS = 200 };

/* Open the memory for reading only, which is all that the launcher needs. Without /proc it gets our own descriptor. */
static int read_only(int memory_fd) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", memory_fd);
    return tt__fd(open(path, O_RDONLY | O_CLOEXEC));
}

int tt__recorder_publish(const tt__recorder *recorder, int memory_fd, size_t offset) {
    const char *name = getenv("TT_JOB_SOCKET");
    int socket;
    if (!name || !*name)
        return -1;
    if (tt__job_socket_connect(&socket, name, PATIENCE_MS)) {
        tt__log(TT_LOG_INFO, "the launcher does not watch this rank: %s", tt_last_error());
        return -1;
    }
    tt__job_packet packet = {.recorder = {.rank = recorder->rank, .size = sizeof *recorder, .offset = offset}};
    int memory = read_only(memory_fd);
    bool sent = tt__job_hand_over(socket, TT__JOB_RECORDER, &packet, memory >= 0 ? memory : memory_fd, PATIENCE_MS);
    if (memory >= 0)
        close(memory);
    if (sent)
        return socket;
    close(socket);
    return -1;
}

/* Read a number that the launcher set for this process; `otherwise` if there is none, or it makes no sense. */
static int launched_as(const char *variable, int otherwise) {
    const char *text = secure_getenv(variable);
    int64_t number = otherwise;
    if (text && tt__parse_i64(variable, text, 0, INT32_MAX, &number))
        number = otherwise;
    tt_clear_error();
    return (int)number;
}

void tt__own_recorder_open(tt__own_recorder *own, int number) {
    *own = (tt__own_recorder){.memory = tt__sealed_memory("tutti-worker", sizeof(tt__recorder)), .socket = -1};
    void *at = own->memory < 0 ? MAP_FAILED
                               : mmap(NULL, sizeof(tt__recorder), PROT_READ | PROT_WRITE, MAP_SHARED, own->memory, 0);
    if (at == MAP_FAILED) {
        if (own->memory >= 0)
            close(own->memory);
        return;
    }
    own->recorder = at;
    tt__recorder_init(own->recorder, launched_as("RANK", number), launched_as("WORLD_SIZE", 1));
    if (!tt__progress_attach_first(own->recorder))
        return;
    own->socket = tt__recorder_publish(own->recorder, own->memory, 0);
    tt__fork_fd_drop(own->socket);
}

void tt__own_recorder_close(tt__own_recorder *own) {
    if (!own->recorder)
        return;
    tt__progress_detach(own->recorder);
    munmap(own->recorder, sizeof *own->recorder);
    tt__fork_fd_forget(own->socket);
    if (own->socket >= 0)
        close(own->socket);
    close(own->memory);
    own->recorder = NULL;
}
