/* One rank of several is killed or stopped while all train; the others must learn of it in time, and end well. */
#ifndef TESTS_SUPPORT_BLOW_H
#define TESTS_SUPPORT_BLOW_H

#include "support/ranks.h"

#include "base/machine/clock.h"

enum { BLOW_HEARTBEAT_MS = 1500 };

typedef struct blow {
    int world, victim;
    bool stops;  /* SIGSTOP, not SIGKILL */
    int wait_us; /* wait after tell_under_way() before the blow */
} blow;

/* A group whose ranks notice a frozen one soon. `transport`: NULL: shared memory. */
static inline tt_group *join_watchful(tt_store *store, int rank, int world, const char *transport) {
    tt_group *group = NULL;
    CHECK_OK(tt_init_process_group(&group, .store = store, .rank = rank, .world_size = world, .timeout_ms = PATIENCE_MS,
                                   .heartbeat_ms = BLOW_HEARTBEAT_MS, .transport = transport));
    return group;
}

/* The victim says that it is under way. */
static inline void tell_under_way(tt_store *store) { CHECK_OK(tt_store_set(store, "victim", "", 0)); }

/* A survivor says that it has learned of the blow, at this time. */
static inline void tell_learned(tt_store *store, int rank, int64_t at_ns) {
    char key[40], text[40];
    int n = snprintf(text, sizeof text, "%lld", (long long)at_ns);
    snprintf(key, sizeof key, "learned/%d", rank);
    CHECK_OK(tt_store_set(store, key, text, (size_t)n));
}

/* Wait until survivor `rank` has told when it learned of the blow. */
static inline int64_t learned_ns(tt_store *store, int rank) {
    char key[40];
    tt_store_value value;
    snprintf(key, sizeof key, "learned/%d", rank);
    assert_int_equal(tt_store_get(store, key, &value), TT_OK);
    int64_t ns = strtoll(value.data, NULL, 10);
    tt_store_value_free(&value);
    return ns;
}

/* Run the ranks, and strike. Returns what was wrong, or NULL. Waits for all survivors' ends before it asks for their
 * times, as one that failed has told none. */
static inline const char *blow_strike(const blow *b, rank_body body, void *arg) {
    static const char *const under_way[] = {"victim"};
    const int64_t limit_ms = (b->stops ? BLOW_HEARTBEAT_MS + 500 : 1000) + leeway_ms();
    const char *wrong = NULL;
    ranks ranks;
    tt_store *store = NULL;
    start_ranks(&ranks, b->world, body, arg);
    assert_int_equal(tt_tcp_store(&store, "127.0.0.1", tt_store_server_port(ranks.server)), TT_OK);
    assert_int_equal(tt_store_wait(store, under_way, 1, PATIENCE_MS), TT_OK);
    usleep((useconds_t)b->wait_us); /* the victim may be anywhere in its step */
    int64_t struck = tt__now_ns();
    kill(ranks.pid[b->victim], b->stops ? SIGSTOP : SIGKILL);
    for (int r = 0; r < b->world; r++)
        if (r != b->victim && end_of_rank(&ranks, r))
            wrong = "a survivor ended badly";
    for (int r = 0; r < b->world && !wrong; r++)
        if (r != b->victim && learned_ns(store, r) - struck >= limit_ms * 1000000)
            wrong = "a survivor learned of it too late";
    kill(ranks.pid[b->victim], SIGKILL);
    if (end_of_rank(&ranks, b->victim) != 128 + SIGKILL && !wrong)
        wrong = "the victim ended by itself";
    tt_store_free(store);
    tt_store_server_free(ranks.server);
    return wrong;
}

#endif
