/* What replicas of a store say to each other, and how it is written: pure functions over bytes. All is carried by
 * requests of the store's own wire, over connections that were admitted as those of its clients.
 *
 *   REPLICA_PEER  the first on a connection: who speaks (tt__replica_hello); the answer says who listens
 *   REPLICA_TELL  all that follows: the number of the cluster, what it is (tt__replica_tell), and that; no answer */
#ifndef TT_STORE_REPLICA_WORDS_H
#define TT_STORE_REPLICA_WORDS_H

#include "base/bytes.h"

#include <stdbool.h>
#include <stdint.h>

enum { TT__REPLICAS_MAX = 5 };

typedef struct tt__replica_hello {
    int member;       /* its place in the list of endpoints */
    uint64_t id;      /* of this process: a replica that was started again is another */
    uint64_t cluster; /* 0: it is new, and in none */
    tt__span list;    /* all replicas, as it was told: tt__replica_place_text(); lies where it was read */
} tt__replica_hello;

typedef enum tt__replica_tell {
    TT__REPLICA_BEGIN,   /* the ids of all replicas: a cluster of them begins */
    TT__REPLICA_WELCOME, /* come into this cluster */
    TT__REPLICA_RAFT     /* a message of libraft's */
} tt__replica_tell;

/* Bytes that are read in order; what is not there reads as 0, and is noted. */
typedef struct tt__replica_reader {
    tt__span rest;
    bool bad;
} tt__replica_reader;

uint64_t tt__replica_take(tt__replica_reader *reader, size_t size); /* a number of `size` <= 8 bytes */
tt__span tt__replica_take_span(tt__replica_reader *reader);         /* a u64 length, and that many bytes */

void tt__replica_put_hello(tt__bytes *out, const tt__replica_hello *hello);
bool tt__replica_take_hello(tt__span bytes, tt__replica_hello *hello);

#endif
