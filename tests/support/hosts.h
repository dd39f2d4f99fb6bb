/* Where a test's ranks live: what carries their bytes. */
#ifndef TESTS_SUPPORT_HOSTS_H
#define TESTS_SUPPORT_HOSTS_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum hosts {
    HOSTS_ONE,   /* shared memory */
    HOSTS_TCP,   /* one host, but TCP alone */
    HOSTS_PAIRS, /* ranks 0 and 1 on one host, 2 and 3 on the next ...: shared memory inside, TCP between */
    HOSTS_ALONE, /* each rank on its own, by its host's name */
    HOSTS
};

static inline const char *hosts_name(enum hosts hosts) {
    static const char *const names[] = {"one host", "one host over TCP", "hosts of two ranks", "hosts of one rank"};
    return names[hosts];
}

/* Does TT_STORM_HOSTS (one, tcp, pairs or alone) select these hosts? If it is unset, all are selected. */
static inline bool hosts_wanted(enum hosts hosts) {
    static const char *const short_names[] = {"one", "tcp", "pairs", "alone"};
    const char *only = getenv("TT_STORM_HOSTS");
    return !only || !*only || !strcmp(only, short_names[hosts]);
}

/* In a rank, before it joins. */
static inline void hosts_enter(enum hosts hosts, int rank) {
    char id[32];
    snprintf(id, sizeof id, "test-host-%d", hosts == HOSTS_PAIRS ? rank / 2 : rank);
    setenv("TT_TRANSPORT", hosts == HOSTS_TCP ? "tcp" : "auto", 1);
    if (hosts == HOSTS_PAIRS || hosts == HOSTS_ALONE)
        setenv("TT_HOST_ID", id, 1);
}

#endif
