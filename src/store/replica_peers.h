/* A replica's connections to the others: a thread for each connects, says who it is, sends what is queued, and asks
 * now and then whether the other is still there. What the others say comes over connections of theirs. */
#ifndef TT_STORE_REPLICA_PEERS_H
#define TT_STORE_REPLICA_PEERS_H

#include "store/client.h"
#include "store/replica_place.h"

#include <pthread.h>

typedef struct tt__replica_peer_view {
    bool up;
    unsigned times; /* how often it was connected: another number, another connection */
    tt__replica_hello hello;
    char why[320]; /* it is not up */
} tt__replica_peer_view;

typedef struct tt__replica_peer {
    struct tt__replica_peers *all;
    const char *host;
    int port, member;
    pthread_t thread;
    bool started;
    pthread_cond_t wake;
    /* under the lock */
    tt__bytes queue;
    tt__replica_peer_view view;
    int fd; /* of its connection; -1 */
} tt__replica_peer;

typedef struct tt__replica_peers {
    pthread_mutex_t lock;
    tt__replica_peer peers[TT__REPLICAS_MAX];
    int n;
    bool stop;
    tt__replica_hello own;
    const tt__replica_place *place;
    tt__store_access access;
    void (*news)(void *user); /* from the peers' threads: a view has changed */
    void *user;
} tt__replica_peers;

/* Prepare; `peers` was zeroed; news, user, own, place and access set. */
void tt__replica_peers_init(tt__replica_peers *peers);
/* Connect to a replica from now on. `host` is borrowed. */
tt_status tt__replica_peers_add(tt__replica_peers *peers, int member, const char *host, int port);
/* End the threads, which takes a moment where one is just connecting. */
void tt__replica_peers_free(tt__replica_peers *peers);

/* Say from the next connection on that this replica is in a cluster. */
void tt__replica_peers_joined(tt__replica_peers *peers, uint64_t cluster);

/* Be another process from now on, in no cluster: all connections are made anew. */
void tt__replica_peers_anew(tt__replica_peers *peers, uint64_t id);

tt__replica_peer_view tt__replica_peers_view(tt__replica_peers *peers, int member);

/* Queue a message for a member; false: it is not connected, or reads too slowly. */
bool tt__replica_peers_tell(tt__replica_peers *peers, int member, const tt__bytes *words);

#endif
