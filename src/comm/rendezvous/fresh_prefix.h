/* A prefix of keys that no earlier attempt of a job has used, in a store that outlives attempts. */
#ifndef TT_COMM_RENDEZVOUS_FRESH_PREFIX_H
#define TT_COMM_RENDEZVOUS_FRESH_PREFIX_H

#include "comm/rendezvous/rendezvous.h"

/* May the store hold what ranks of an earlier attempt left, without this rank's environment saying which attempt this
 * is? So it is under torchrun, whose agents keep their store and count restarts each for itself. */
bool tt__needs_fresh_prefix(void);

/* Agree with the other ranks on a prefix, which rank 0 draws. Blocks until all ranks are here. member->prefix is set.
 * Errors: as tt__texts_exchange(). */
tt_status tt__fresh_prefix(tt__member *member);

#endif
