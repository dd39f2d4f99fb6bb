/* Handing the launcher a rank's flight recorder. */
#include "base/error.h"
#include "base/files/fd.h"
#include "comm/record/recorder.h"
#include "net/job/job_socket.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
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
