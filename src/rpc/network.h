/* How a worker's messages reach the others: over the links of a group (network_group.c), or over links of its own that
 * are made at the first call (network_store.c). Messages are the packets of comm/message; large parts of a value go as
 * messages of their own, straight into the memory that the receiver has made.
 *
 * Functions are called with `*lock` held, unless they say otherwise. */
#ifndef TT_RPC_NETWORK_H
#define TT_RPC_NETWORK_H

#include "comm/message/message.h"
#include "comm/record/recorder.h"

#include <tutti/rpc.h>

enum { TT__RPC_NAME_SIZE = 128 };

typedef struct tt__rpc_network tt__rpc_network;

/* What a network says of a worker. */
typedef enum tt__rpc_reach {
    TT__RPC_REACHED,    /* it has a link, or shares memory: packets can be sent */
    TT__RPC_CONNECTING, /* ask again after the next progress */
    TT__RPC_UNREACHABLE /* the error is recorded: it is lost, has left, or there is none */
} tt__rpc_reach;

typedef struct tt__rpc_network_ops {
    /* Give the lock back; callbacks of works may run then. */
    void (*unlock)(tt__rpc_network *network);

    /* Move what can be moved, without waiting. Returns whether anything happened. */
    bool (*progress)(tt__rpc_network *network);

    /* Sleep until something comes or wake() is called, `ms` at most. Gives the lock back meanwhile. */
    void (*sleep)(tt__rpc_network *network, int64_t ms);
    void (*wake)(tt__rpc_network *network);

    /* Is there a way to worker `id`? Begins to make one, where there is none. */
    tt__rpc_reach (*reach)(tt__rpc_network *network, int id);

    /* TT_OK while the worker lives, as far as can be told; else TT_ERR_PEER, recorded: how it died, froze or left.
     * Looks at its process and its link: called every now and then. A worker that was never reached is not judged. */
    tt_status (*check)(tt__rpc_network *network, int id);

    /* All workers of interest were checked: times that they are judged by count from now on. May be NULL. */
    void (*checked)(tt__rpc_network *network);

    /* Find a worker by name, and its name by id; TT_ERR_NOT_FOUND, not recorded. May give the lock back and ask a
     * store. */
    tt_status (*find)(tt__rpc_network *network, const char *name, int *id);
    tt_status (*name_of)(tt__rpc_network *network, int id, char name[TT__RPC_NAME_SIZE]);

    /* The next id above `after` (-1: the first) of a worker that is known here, this one included; -1: none. */
    int (*next)(tt__rpc_network *network, int after);

    /* Leave: nobody else calls anything here any more. The lock is not held. `quietly`: in a forked child. */
    void (*close)(tt__rpc_network *network, bool quietly);
} tt__rpc_network_ops;

struct tt__rpc_network {
    const tt__rpc_network_ops *ops;
    tt__messages *messages; /* its packets are the worker's from tt__messages_take_packets() on */
    pthread_mutex_t *lock;
    int self;               /* this worker's id */
    int workers;            /* ids are below this */
    bool comes_and_goes;    /* workers may join and leave at any time */
    tt__recorder *recorder; /* in which calls are recorded; NULL: none */
    int cpus_each;          /* CPUs for each of the workers on this machine, as far as known; 0: less than one */
};

/* Join over a group: all its ranks together. Checks names and functions. */
tt_status tt__rpc_network_of_group(tt__rpc_network **out, const tt_rpc_init_args *args);

/* Join through a store. */
tt_status tt__rpc_network_of_store(tt__rpc_network **out, const tt_rpc_init_args *args);

/* Be a worker over a network, which is its own from then on, also on failure (agent.c; tests give networks of their
 * own). */
tt_status tt__rpc_begin(tt_rpc **out, tt__rpc_network *network, const tt_rpc_init_args *args);

/* ---- functions.c, of use to both */

/* A hash of this process's functions and signatures; and a text of them, one "name signature" a line, sorted, the
 * caller's to free(). */
uint64_t tt__rpc_functions_hash(void);
char *tt__rpc_functions_text(void);

/* TT_OK where worker `other` has the functions of `text`, and this one the same; else TT_ERR_MISMATCH, recorded:
 * "worker NAME has no function F, which worker OTHER has". */
tt_status tt__rpc_functions_compare(const char *name, const char *other, const char *text);

/* Is this a name that a worker can have? TT_ERR_INVALID, recorded. */
tt_status tt__rpc_check_worker_name(const char *name);

#endif
