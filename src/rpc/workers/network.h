/* The links from a worker to the others: those of a group (network_group.c), or its own, each made at the first call
 * (network_store.c). They carry packets and messages (comm/message).
 *
 * Functions are called with `*lock` held, unless they say otherwise. */
#ifndef TT_RPC_NETWORK_H
#define TT_RPC_NETWORK_H

#include "comm/message/message.h"
#include "comm/record/recorder.h"

#include <tutti/rpc.h>

enum { TT__RPC_NAME_SIZE = 128 };

typedef struct tt__rpc_network tt__rpc_network;

/* Can packets be sent to a worker? */
typedef enum tt__rpc_reach {
    TT__RPC_REACHED,    /* yes, by a link or by shared memory */
    TT__RPC_CONNECTING, /* not yet: ask again after the next progress() */
    TT__RPC_UNREACHABLE /* no: it is lost, has left, or never was; the error is recorded */
} tt__rpc_reach;

typedef struct tt__rpc_network_ops {
    /* Release the lock, and run the callbacks of works that have ended. */
    void (*unlock)(tt__rpc_network *network);

    /* Send and receive what can be without waiting. Returns whether anything happened. */
    bool (*progress)(tt__rpc_network *network);

    /* Sleep until something comes or wake() is called, `ms` at most. Releases the lock meanwhile. */
    void (*sleep)(tt__rpc_network *network, int64_t ms);
    void (*wake)(tt__rpc_network *network);

    /* Return whether packets can be sent to worker `id`; begins to connect if there is no link. */
    tt__rpc_reach (*reach)(tt__rpc_network *network, int id);

    /* Check the worker's process and link. Returns TT_OK unless it is known to be gone; else TT_ERR_PEER, recorded: how
     * it died, froze or left. A worker that was never connected to counts as alive. */
    tt_status (*check)(tt__rpc_network *network, int id);

    /* Note that all workers were checked just now; a worker's silence is counted from here on. May be NULL. */
    void (*checked)(tt__rpc_network *network);

    /* Find a worker's id by its name, or its name by its id. Errors: TT_ERR_NOT_FOUND, not recorded; those of a store.
     * May release the lock, and ask a store. */
    tt_status (*find)(tt__rpc_network *network, const char *name, int *id);
    tt_status (*name_of)(tt__rpc_network *network, int id, char name[TT__RPC_NAME_SIZE]);

    /* Return the next id above `after` (-1: the first) of the workers that are known here, this one included; -1:
     * none. */
    int (*next)(tt__rpc_network *network, int after);

    /* Leave, and free the network, which no other thread uses any more. The lock is not held. `quietly`: in a forked
     * child, whose links are the parent's. */
    void (*close)(tt__rpc_network *network, bool quietly);
} tt__rpc_network_ops;

struct tt__rpc_network {
    const tt__rpc_network_ops *ops;
    tt__messages *messages;
    pthread_mutex_t *lock;
    int self;               /* this worker's id */
    int workers;            /* ids are below this */
    bool comes_and_goes;    /* workers may join and leave at any time */
    tt__recorder *recorder; /* in which calls are recorded; NULL: none */
    int cpus_each;          /* CPUs of this machine for each worker on it that is known; 0: less than one */
};

/* Join the ranks of a group, which all call this together. Checks names and functions. */
tt_status tt__rpc_network_of_group(tt__rpc_network **out, const tt_rpc_init_args *args);

/* Join the workers that meet through a store. */
tt_status tt__rpc_network_of_store(tt__rpc_network **out, const tt_rpc_init_args *args);

/* Make a worker of a network, which it owns from then on, also on failure (agent.c; tests have networks of their
 * own). */
tt_status tt__rpc_begin(tt_rpc **out, tt__rpc_network *network, const tt_rpc_init_args *args);

/* ---- functions.c */

/* Return a hash of this process's functions and their signatures, or a text that has a line "name signature" for each,
 * sorted, the caller's to free(). NULL, recorded: no memory. */
uint64_t tt__rpc_functions_hash(void);
char *tt__rpc_functions_text(void);

/* Compare this process's functions with those of worker `other`, which `text` lists. Errors: TT_ERR_MISMATCH "worker
 * NAME has no function F, which worker OTHER has". */
tt_status tt__rpc_functions_compare(const char *name, const char *other, const char *text);

/* Check the name of a worker. The second function records the error, TT_ERR_INVALID. */
bool tt__rpc_is_worker_name(const char *name);
tt_status tt__rpc_check_worker_name(const char *name);

#endif
