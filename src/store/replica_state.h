/* What the replicas of a store agree on: its keys and, for each client that writes, the answer to its last write, so
 * that one that is sent again (its answer was lost with the replica that had it) happens once. A pure machine: the same
 * entries in the same order leave the same state everywhere.
 *
 * Answers are as REPLICA_DO's: a byte, and a string. Not for more than one thread. */
#ifndef TT_STORE_REPLICA_STATE_H
#define TT_STORE_REPLICA_STATE_H

#include "store/service.h"

/* The keys are the service's. Answers: of this many clients at least, those that wrote last, or of so many bytes; a
 * client of before them that sends its last write again writes twice. */
enum { TT__REPLICA_CLIENTS = 4096, TT__REPLICA_ANSWERS = 4 << 20 };

/* One request: the log holds many. */
#define TT__REPLICA_MAX_REQUEST ((size_t)1 << 20)

typedef struct tt__replica_state {
    tt__store_service *service;
    tt__store_table recent, before; /* client -> number and answer of its last write; `before`: of the last
                                       TT__REPLICA_CLIENTS clients before those in `recent` */
    size_t answers;                 /* bytes of those in `recent` */
} tt__replica_state;

void tt__replica_state_init(tt__replica_state *state, tt__store_service *service);
void tt__replica_state_free(tt__replica_state *state);

/* Forget all, the service's keys too. Sessions that wait for some wait for none any more: they are to be broken. */
void tt__replica_empty(tt__replica_state *state);

/* Is this one whole request that the replicas carry out, and does it write? If it is none, `why` says so. */
bool tt__replica_request_good(tt__span request, bool *writes, char why[TT__STORE_WHY_SIZE]);

/* Write an entry of the log: the `number`th write of a client, which counts them from 1. */
void tt__replica_put_entry(tt__bytes *out, uint64_t client, uint64_t number, tt__span request);

/* Is this an entry that one who leads would have written? */
bool tt__replica_entry_good(tt__span entry);

/* Carry out an entry, or find that it was. False: memory is out, and the state no longer that of the others. */
bool tt__replica_apply(tt__replica_state *state, tt__span entry, tt__bytes *answer);

/* Carry out a request that writes nothing. */
void tt__replica_read(tt__replica_state *state, tt__span request, tt__bytes *answer);

void tt__replica_put_answer(tt__bytes *answer, uint8_t status, tt__span words);

/* Write all of it down, and take it over in place of what there was; false: no memory, or bytes that are no state. */
bool tt__replica_save(const tt__replica_state *state, tt__bytes *out);
bool tt__replica_saved_good(tt__span saved); /* is it a state? */
bool tt__replica_restore(tt__replica_state *state, tt__span saved);

#endif
