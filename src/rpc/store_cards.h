/* What workers that come and go leave in their store:
 *
 *   PREFIX/next              how many ids were given out
 *   PREFIX/worker/ID         the card of a worker; "joining NAME" before it listens, "left NAME" when an id that was
 *                            asked for is not to be used again. Removed when it leaves
 *   PREFIX/name/NAME         the same card, of the worker that has this name. Removed when it leaves
 *   PREFIX/functions         hash, id and name of the worker to whose functions those of newcomers are compared,
 *   PREFIX/functions/HASH    and their text
 *
 * A card is one line: "ID NAME HOST HASH ADDRESSES". No call here waits for a key, and none needs a lock. */
#ifndef TT_RPC_STORE_CARDS_H
#define TT_RPC_STORE_CARDS_H

#include "comm/message/joining/joining.h"
#include "rpc/network.h"

enum { TT__RPC_CARD_SIZE = 1100, TT__RPC_PREFIX_SIZE = 512, TT__RPC_STORE_IDS = 1 << 20 };

typedef struct tt__rpc_card {
    int id;
    tt__intro intro;
    char addresses[TT__ADDRESSES_SIZE];
} tt__rpc_card;

/* A worker's access to them. */
typedef struct tt__rpc_cards {
    tt_store *store;
    char prefix[TT__RPC_PREFIX_SIZE];
    tt__rpc_card own;
    bool has_id;        /* the id was asked for */
    bool listed, named; /* what there is to be removed */
} tt__rpc_cards;

/* Take an id: own.id if it was asked for, else the next. Errors: TT_ERR_MISMATCH another has it, or had it; those of a
 * store. */
tt_status tt__rpc_cards_take_id(tt__rpc_cards *cards);

/* Publish the worker's card; other workers can reach it from now on. */
tt_status tt__rpc_cards_publish(tt__rpc_cards *cards);

/* Take the worker's name. *taken: another has it, whose card is *other. It may be lost: `lost` is its card as it was
 * returned by the last call, to take the name from it; NULL: none. */
tt_status tt__rpc_cards_take_name(tt__rpc_cards *cards, const tt__rpc_card *lost, bool *taken, tt__rpc_card *other);

/* Find a worker's card by id (name NULL) or name. TT_ERR_NOT_FOUND, not recorded: there is none. */
tt_status tt__rpc_cards_find(tt__rpc_cards *cards, int id, const char *name, tt__rpc_card *found);

/* Whose functions are those that newcomers are compared to? *same: this worker's are like them, or are now those.
 * TT_ERR_MISMATCH, recorded: they differ, from those of *other. `lost`: that worker is not there any more, so put this
 * one's in their place. */
tt_status tt__rpc_cards_compare_functions(tt__rpc_cards *cards, bool lost, int *other);

/* Remove what there is of this worker; of a lost one. Errors are ignored. */
void tt__rpc_cards_remove_own(tt__rpc_cards *cards);
void tt__rpc_cards_remove_lost(tt__rpc_cards *cards, int id);

/* ---- store_joining.c */

/* Compare functions with those that workers before have, if `compares`; publish the card, and take the name. Errors:
 * TT_ERR_MISMATCH a function that one lacks, or a name that another has, which is there; TT_ERR_TIMEOUT it can't be
 * told by then whether it is there; those of a store. */
tt_status tt__rpc_cards_join(tt__rpc_cards *cards, tt__rpc_network *network, bool compares, int64_t deadline_ms);

#endif
