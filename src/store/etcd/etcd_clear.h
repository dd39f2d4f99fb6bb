/* Removing what a job left. */
#ifndef TT_STORE_ETCD_CLEAR_H
#define TT_STORE_ETCD_CLEAR_H

#include <tutti/store.h>

/* Is it tt_etcd_store()'s, not behind a prefix store? */
bool tt__is_etcd_store(const tt_store *store);

/* Delete all keys of an etcd store: those under its prefix, whoever set them. */
tt_status tt__etcd_clear(tt_store *store);

#endif
