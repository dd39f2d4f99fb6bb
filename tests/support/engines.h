/* Groups on every kind of engine: native ones on shared memory and on messages, and plug-ins. */
#ifndef TESTS_SUPPORT_ENGINES_H
#define TESTS_SUPPORT_ENGINES_H

#include "base/build.h"
#include "support/hosts.h"
#include "support/ranks.h"

enum engines { ENGINE_SHARED, ENGINE_MESSAGES, ENGINE_PLUGIN, ENGINE_GLOO, ENGINE_MPI, ENGINES };

/* The plug-in of tests/support/stream_backend.c. */
static inline const char *stream_backend_path(void) {
    static char path[512];
    snprintf(path, sizeof path, "%s/tests/support/libstream.so", getenv("TT_BUILD"));
    return path;
}

static inline const char *engine_backend(enum engines engine) {
    return engine == ENGINE_PLUGIN ? stream_backend_path()
           : engine == ENGINE_GLOO ? "gloo"
           : engine == ENGINE_MPI  ? "mpi"
                                   : NULL;
}

/* Others' libraries may not be installed, and the thread sanitizer doesn't know what they do. */
static inline bool has_engine(enum engines engine) {
    char path[512];
    if (engine <= ENGINE_PLUGIN)
        return true;
    snprintf(path, sizeof path, "%s/lib/tutti/libtutti-backend-%s.so", getenv("TT_BUILD"), engine_backend(engine));
    return !TT__TSAN && access(path, R_OK) == 0;
}

static inline tt_group *join_engine(enum engines engine, tt_store *store, int rank, int world) {
    tt_group *group = NULL;
    hosts_enter(engine == ENGINE_MESSAGES ? HOSTS_TCP : HOSTS_ONE, rank);
    CHECK_OK(tt_init_process_group(&group, .backend = engine_backend(engine), .store = store, .rank = rank,
                                   .world_size = world, .timeout_ms = PATIENCE_MS, .heartbeat_ms = CALM_MS));
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

/* fn(group, rank, store) as `world` ranks, on each engine before `end`. */
static inline void on_engines(enum engines end, int world, group_fn fn) {
    for (enum engines engine = 0; engine < end; engine++) {
        engine_body body = {engine, fn};
        if (has_engine(engine))
            with_ranks(world, run_on_engine, &body);
    }
}

/* MPI can't take back what was begun: a process that fails or leaves with works under way waits a minute at its end. */
static inline void on_forgiving_engines(int world, group_fn fn) { on_engines(ENGINE_MPI, world, fn); }
static inline void on_all_engines(int world, group_fn fn) { on_engines(ENGINES, world, fn); }

#endif
