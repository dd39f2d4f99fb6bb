#include "comm/record/own_recorder.h"

#include "base/error.h"
#include "base/files/fd.h"
#include "base/process/fork.h"
#include "base/text/parse.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* What the launcher says of this process; `otherwise` where it says nothing that can be. */
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
