/* Three replicas of a store on this machine, each a `tutti store` that can be killed, frozen and started again. */
#ifndef TT_TESTS_REPLICAS_H
#define TT_TESTS_REPLICAS_H

#include "store/replica_store.h"
#include "support/etcd.h"
#include "support/process.h"

enum { REPLICAS = 3 };

typedef struct replicas {
    process *running[REPLICAS]; /* member i's */
    int ports[REPLICAS];
    char list[128]; /* --replicas */
    tt__replica_place place;
    const char *more[4]; /* further words of the command line */
} replicas;

/* Start one more: it takes the first place that is free. */
static inline process *replicas_start_one(const replicas *r) {
    const char *argv[12] = {tutti(), "store", "--replicas", r->list};
    for (int i = 0; i < 4 && r->more[i]; i++)
        argv[4 + i] = r->more[i];
    const char *const environment[] = {"TT_LOG=debug", NULL};
    return process_start(argv, environment, -1);
}

static inline void replicas_stop_one(replicas *r, int i, int signal) {
    kill(r->running[i]->pid, signal);
    process_finish(r->running[i]);
    process_free(r->running[i]);
    r->running[i] = NULL;
}

/* Start member i, whose place alone is free. */
static inline void replicas_run(replicas *r, int i) {
    char where[64];
    snprintf(where, sizeof where, "replica %d of 3, serving on 127.0.0.1:%d\n", i + 1, r->ports[i]);
    r->running[i] = replicas_start_one(r);
    process_expect(r->running[i], 0, where, 1);
}

/* Start all, with other ports if another process was faster. Ends the test, skipped, where there is no libraft. */
static inline void replicas_open(replicas *r) {
    for (int tries = 0; tries < 5; tries++) {
        for (int i = 0; i < REPLICAS; i++)
            r->ports[i] = etcd_free_port();
        snprintf(r->list, sizeof r->list, "127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d", r->ports[0], r->ports[1],
                 r->ports[2]);
        if (tt__replica_place_read(&r->place, "test", r->list, 0))
            continue;
        int n = 0;
        for (bool good = true; good && n < REPLICAS; n += good) {
            char where[64];
            process *p = r->running[n] = replicas_start_one(r);
            snprintf(where, sizeof where, "replica %d of 3,", n + 1);
            while (p->fds[0] >= 0 && !strchr(p->text[0], '\n'))
                process_read(p, 100);
            good = strstr(p->text[0], where) != NULL;
            if (strstr(p->text[1], "libraft")) {
                fprintf(stderr, "skipped: %s", p->text[1]);
                exit(77);
            }
        }
        if (n == REPLICAS)
            return;
        for (int i = 0; i <= n; i++)
            replicas_stop_one(r, i, SIGKILL);
    }
    fail_msg("no three free ports");
}

static inline void replicas_close(replicas *r) {
    for (int i = 0; i < REPLICAS; i++)
        if (r->running[i]) {
            replicas_stop_one(r, i, SIGKILL);
        }
}

static inline tt_store *replicas_client(const replicas *r, int64_t timeout_ms) {
    tt_store *store = NULL;
    if (tt__replica_store(&store, &r->place, NULL, timeout_ms))
        fail_msg("%s", tt_last_error());
    return store;
}

/* Wait until all hold all of the store: then one of them may be lost. */
static inline void replicas_wait(replicas *r) {
    for (int i = 0; i < REPLICAS; i++)
        process_expect(r->running[i], 1, "holds all of the store", 1);
}

#endif
