/* The endpoints of a store's replicas, as a user writes them: "HOST:PORT,HOST:PORT,HOST:PORT". */
#ifndef TT_STORE_REPLICA_PLACE_H
#define TT_STORE_REPLICA_PLACE_H

#include "net/net.h"
#include "store/replica_words.h"

#include <netdb.h>

typedef struct tt__replica_place {
    int n;
    struct {
        char host[NI_MAXHOST];
        int port;
    } at[TT__REPLICAS_MAX];
} tt__replica_place;

/* Read them: three or five, each another one. A host without a port has `port`; 0: each must have one. `what` begins
 * the error's text ("--replicas"). */
tt_status tt__replica_place_read(tt__replica_place *place, const char *what, const char *endpoints, int port);

enum { TT__REPLICA_LIST_SIZE = TT__REPLICAS_MAX * (TT__NET_ENDPOINT_SIZE + 1) };

/* Write them as they are read. */
void tt__replica_place_text(const tt__replica_place *place, char text[TT__REPLICA_LIST_SIZE]);

/* May another replica's list mean the same ones, in the same order? Hosts may have other names there, but what is in
 * both lists must be at the same place. */
bool tt__replica_place_agrees(const tt__replica_place *place, tt__span list);

#endif
