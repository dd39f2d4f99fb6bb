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

#endif
