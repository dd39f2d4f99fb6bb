/* Copying a recorder that another process wrote. It may be written meanwhile, and may hold anything at all. */
#include "base/text/plain_text.h"
#include "comm/record/recorder.h"

#include <string.h>

static void name_copy(char *to, const char *from, size_t size) {
    memcpy(to, from, size);
    to[size - 1] = '\0';
    tt__make_plain_name(to);
}

static void records_copy(tt__recorder *copy, const tt__recorder *theirs) {
    tt__call_record record;
    tt__record_list list;
    tt__record_device ran;
    for (uint32_t i = 0; i < TT__RECORDS; i++) {
        uint32_t number = atomic_load_explicit(&theirs->records[i].number, memory_order_acquire);
        if ((number - 1) % TT__RECORDS == i && tt__record_read(theirs, number, &record))
            tt__record_put(copy, &record);
        number = atomic_load_explicit(&theirs->devices[i].number, memory_order_acquire);
        if ((number - 1) % TT__RECORDS == i && tt__record_read_device(theirs, number, &ran))
            tt__record_put_device(copy, &ran);
    }
    for (uint32_t i = 0; i < TT__LISTS; i++) {
        uint32_t number = atomic_load_explicit(&theirs->lists[i].number, memory_order_acquire);
        if (number % TT__LISTS == i && tt__record_read_list(theirs, number, &list))
            tt__record_put_list(copy, &list);
    }
}

static void rpc_copy(tt__recorder *copy, const tt__recorder *theirs) {
    tt__rpc_record record;
    for (uint32_t i = 0; i < TT__RPC_RECORDS; i++) {
        uint32_t number = atomic_load_explicit(&theirs->rpc_records[i].number, memory_order_acquire);
        if ((number - 1) % TT__RPC_RECORDS == i && tt__rpc_record_read(theirs, number, &record))
            tt__rpc_record_put(copy, &record);
    }
    for (int i = 0; i < TT__RPC_FUNCTIONS; i++)
        name_copy(copy->rpc_functions[i], theirs->rpc_functions[i], sizeof copy->rpc_functions[i]);
    bool is_worker = tt__rpc_shown_read(theirs, &copy->rpc);
    atomic_store(&copy->rpc.version, is_worker ? 2 : 0);
}

bool tt__recorder_copy(tt__recorder *copy, const tt__recorder *theirs) {
    memset((void *)copy, 0, sizeof *copy);
    copy->magic = theirs->magic;
    if (copy->magic != TT__RECORDER_MAGIC)
        return false;
    copy->rank = theirs->rank;
    copy->world = theirs->world;
    copy->pid = theirs->pid;
    copy->serial = theirs->serial;
    copy->begin = tt__moment_checked(theirs->begin);
    atomic_store(&copy->offset_ns, tt__ns_checked(atomic_load(&theirs->offset_ns)));
    name_copy(copy->program, theirs->program, sizeof copy->program);
    name_copy(copy->hostname, theirs->hostname, sizeof copy->hostname);
    atomic_store(&copy->recovery.recovers, atomic_load(&theirs->recovery.recovers));
    atomic_store(&copy->recovery.wants_round, atomic_load(&theirs->recovery.wants_round));
    atomic_store(&copy->recovery.lost, atomic_load(&theirs->recovery.lost));
    atomic_store(&copy->recovery.stopped_by, atomic_load(&theirs->recovery.stopped_by));
    atomic_store(&copy->calls, atomic_load_explicit(&theirs->calls, memory_order_acquire));
    if (!tt__recorder_waiting(theirs, &copy->waiting))
        copy->waiting = (tt__waiting){.version = 0};
    atomic_store(&copy->waiting.version, 0);
    bool said = tt__recorder_progress(theirs, &copy->progress);
    atomic_store(&copy->progress.version, said ? 2 : 0);
    bool averaged = tt__recorder_averaging(theirs, &copy->averaging);
    atomic_store(&copy->averaging.version, averaged ? 2 : 0);
    for (int i = 0; i < TT__FILES; i++)
        name_copy(copy->files[i], theirs->files[i], sizeof copy->files[i]);
    for (int i = 0; i < TT__GROUPS_NAMED; i++) {
        atomic_store(&copy->groups[i].id, atomic_load_explicit(&theirs->groups[i].id, memory_order_acquire));
        copy->groups[i].size = theirs->groups[i].size;
        name_copy(copy->groups[i].ranks, theirs->groups[i].ranks, sizeof copy->groups[i].ranks);
    }
    records_copy(copy, theirs);
    rpc_copy(copy, theirs);
    return true;
}
