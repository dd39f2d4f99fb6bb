/* Groups on every kind of engine: native ones on shared memory and on messages, and a plug-in's. */
#ifndef TESTS_SUPPORT_ENGINES_H
#define TESTS_SUPPORT_ENGINES_H

#include "support/hosts.h"
#include "support/ranks.h"

enum engines { ENGINE_SHARED, ENGINE_MESSAGES, ENGINE_PLUGIN, ENGINES };

/* The plug-in of tests/support/stream_backend.c. */
static inline const char *stream_backend_path(void) {
    static char path[512];
    snprintf(path, sizeof path, "%s/tests/support/libstream.so", getenv("TT_BUILD"));
    return path;
}

static inline tt_group *join_engine(enum engines engine, tt_store *store, int rank, int world) {
    tt_group *group = NULL;
    hosts_enter(engine == ENGINE_MESSAGES ? HOSTS_TCP : HOSTS_ONE, rank);
    CHECK_OK(tt_init_process_group(&group, .backend = engine == ENGINE_PLUGIN ? stream_backend_path() : NULL,
                                   .store = store, .rank = rank, .world_size = world, .timeout_ms = PATIENCE_MS,
                                   .heartbeat_ms = CALM_MS));
    return group;
}

typedef struct engine_body {
    enum engines engine;
    group_fn fn;
} engine_body;

static inline int run_on_engine(tt_store *store, int rank, int world, void *arg) {
    const engine_body *body = arg;
    tt_group *group = join_engine(body->engine, store, rank, world);
    body->fn(group, rank, (void *)store);
    tt_destroy_process_group(group);
    return 0;
}

/* fn(group, rank, store) as `world` ranks, on each engine. */
static inline void on_all_engines(int world, group_fn fn) {
    for (enum engines engine = 0; engine < ENGINES; engine++) {
        engine_body body = {engine, fn};
        with_ranks(world, run_on_engine, &body);
    }
}

#endif
