/* Ranks of a test that are workers of a group, named worker0, worker1, ... */
#ifndef TESTS_SUPPORT_WORKER_RANKS_H
#define TESTS_SUPPORT_WORKER_RANKS_H

#include "support/ranks.h"

#include <tutti/rpc.h>

typedef struct worker_options {
    const char *transport; /* NULL: the library's default */
    int64_t heartbeat_ms;  /* 0: the library's default */
    int max_threads;       /* 0: the library's default */
} worker_options;

/* Join the group of all ranks, and become a worker of it. The caller shuts the worker down, and destroys the group. */
static inline tt_rpc *become_worker(tt_store *store, int rank, int world, worker_options o, tt_group **group) {
    tt_rpc *rpc = NULL;
    char name[20];
    snprintf(name, sizeof name, "worker%d", rank);
    CHECK_OK(tt_init_process_group(group, .store = store, .rank = rank, .world_size = world, .timeout_ms = PATIENCE_MS,
                                   .heartbeat_ms = o.heartbeat_ms, .transport = o.transport));
    CHECK_OK(tt_rpc_init(&rpc, name, .group = *group, .max_threads = o.max_threads, .join_timeout_ms = PATIENCE_MS));
    return rpc;
}

#endif
