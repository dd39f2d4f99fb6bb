/* The recorder that stands between a process's groups, and its connection to the launcher. */
#include "elastic/elastic.h"

#include "base/error.h"
#include "base/files/fd.h"
#include "base/process/fork.h"
#include "comm/record/recovery.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static _Atomic pid_t owner;

bool tt__standing_record_claim(void) {
    pid_t before = atomic_load(&owner);
    return before != getpid() && atomic_compare_exchange_strong(&owner, &before, getpid());
}

void tt__standing_record_release(void) { atomic_store(&owner, 0); }

static void hang_up_record(tt__standing_record *standing) {
    tt__fork_fd_forget(standing->socket);
    if (standing->socket >= 0)
        close(standing->socket);
    standing->socket = -1;
}

tt_status tt__standing_record_open(tt__standing_record *standing, int rank, int world) {
    const char *job = getenv("TT_JOB_SOCKET");
    *standing = (tt__standing_record){.memory = -1, .socket = -1};
    if (!job || !*job)
        return TT_OK;
    standing->memory = tt__sealed_memory("tutti-recovery", sizeof(tt__recorder));
    if (standing->memory < 0)
        return tt__fail_errno(TT_ERR_SYSTEM, errno, "can't make memory that the launcher reads");
    void *at = mmap(NULL, sizeof(tt__recorder), PROT_READ | PROT_WRITE, MAP_SHARED, standing->memory, 0);
    if (at == MAP_FAILED)
        return tt__fail_errno(TT_ERR_SYSTEM, errno, "can't map memory that the launcher reads");
    standing->recorder = at;
    tt__recorder_init(standing->recorder, rank, world);
    tt__recovery_attach(standing->recorder);
    tt__standing_record_show(standing, rank, world);
    return TT_OK;
}

void tt__standing_record_show(tt__standing_record *standing, int rank, int world) {
    if (!standing->recorder)
        return;
    hang_up_record(standing);
    standing->recorder->rank = rank;
    standing->recorder->world = world;
    standing->socket = tt__recorder_publish(standing->recorder, standing->memory, 0);
    tt__fork_fd_drop(standing->socket);
    tt__job_packet packet = {0};
    if (standing->socket >= 0 && !tt__job_send(standing->socket, TT__JOB_AWAITS, &packet, -1))
        hang_up_record(standing);
}

int tt__standing_record_receive(int socket, tt__job_packet *packet, int ms) {
    struct pollfd one = {.fd = socket, .events = POLLIN};
    int attached = -1;
    if (poll(&one, 1, ms) <= 0)
        return 0;
    int got = tt__job_receive(socket, packet, &attached);
    if (attached >= 0)
        close(attached);
    return got;
}

void tt__standing_record_close(tt__standing_record *standing) {
    if (standing->recorder) {
        tt__recovery_detach(standing->recorder);
        hang_up_record(standing);
        munmap(standing->recorder, sizeof *standing->recorder);
    }
    if (standing->memory >= 0)
        close(standing->memory);
    *standing = (tt__standing_record){.memory = -1, .socket = -1};
}
