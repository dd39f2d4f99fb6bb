/* The store's keys by which workers that come and go find each other.
 *
 *   key                      value
 *   PREFIX/next              the number of ids that were given out
 *   PREFIX/worker/ID         what is known of the worker with this id; first "joining NAME", then its card, at the end
 *                            nothing, or "left NAME" if the program had chosen the id (.has_id)
 *   PREFIX/name/NAME         the card of the worker that has this name; removed when the worker leaves
 *   PREFIX/functions         "HASH ID NAME": the functions that newcomers must have, and whose they are
 *   PREFIX/functions/HASH    those functions, as tt__rpc_functions_text() lists them
 *
 * A card is one line that says how to reach a worker: "ID NAME HOST HASH ADDRESSES". HASH is that of its functions.
 *
 *   a worker joins: take an id -> listen -> compare functions -> publish the card -> take the name
 *   a worker calls another one: find the card by name or id -> connect to an address on it
 *
 * These functions don't wait for a key, and need no lock. They may block as the store does. */
#ifndef TT_RPC_STORE_CARDS_H
#define TT_RPC_STORE_CARDS_H

#include "comm/message/joining/joining.h"
#include "rpc/workers/network.h"

enum { TT__RPC_CARD_SIZE = 1100, TT__RPC_PREFIX_SIZE = 512, TT__RPC_STORE_IDS = 1 << 20 };

typedef struct tt__rpc_card {
    int id;
    tt__intro intro;
    char addresses[TT__ADDRESSES_SIZE];
} tt__rpc_card;

/* The keys as one worker uses them. */
typedef struct tt__rpc_cards {
    tt_store *store;
    char prefix[TT__RPC_PREFIX_SIZE];
    tt__rpc_card own;
    bool has_id; /* the program has chosen the id */
    bool listed; /* PREFIX/worker/ID is this worker's, to be removed when it leaves */
    bool named;  /* PREFIX/name/NAME is, too */
} tt__rpc_cards;

/* Fill in the card of a worker with these arguments. Its addresses are added later. */
void tt__rpc_cards_begin(tt__rpc_cards *cards, const tt_rpc_init_args *args);

/* Take an id: own.id if .has_id, else the next free one, which own.id receives. Errors: TT_ERR_MISMATCH another worker
 * has the chosen id, or had it; TT_ERR_STATE there are no more ids; those of a store. */
tt_status tt__rpc_cards_take_id(tt__rpc_cards *cards);

/* Read a worker's card by its name, or by its id if `name` is NULL. Errors: TT_ERR_NOT_FOUND, not recorded, there is no
 * such card; those of a store. */
tt_status tt__rpc_cards_find(tt__rpc_cards *cards, int id, const char *name, tt__rpc_card *found);

/* Remove the keys of this worker. Errors are ignored. */
void tt__rpc_cards_remove_own(tt__rpc_cards *cards);

/* Join: compare functions (if `compares`), publish the card, and take the name. If another worker stands in the way,
 * this connects to it, to find out whether it is there or lost. Errors: TT_ERR_MISMATCH a function that one of the two
 * lacks, or the name of a worker that is there; TT_ERR_TIMEOUT by `deadline_ms` it was not clear whether the other one
 * is there; those of a store. Takes the network's lock. */
tt_status tt__rpc_cards_join(tt__rpc_cards *cards, tt__rpc_network *network, bool compares, int64_t deadline_ms);

#endif
