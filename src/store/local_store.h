/* Stores whose keys lie in a table of this process: HashStore, and FileStore, whose table is a copy of its file. The
 * operations are the same. A medium guards the table, publishes changes to other users, and waits for theirs. */
#ifndef TT_STORE_LOCAL_STORE_H
#define TT_STORE_LOCAL_STORE_H

#include "store/server/key_table.h"
#include "store/store_ops.h"

typedef struct tt__local_store tt__local_store;

typedef struct tt__medium {
    /* Lock the table for the caller until end(), and bring it up to date. Errors: TT_ERR_TIMEOUT and the medium's
     * own. */
    tt_status (*begin)(tt__local_store *store, bool write, int64_t deadline_ms);
    void (*end)(tt__local_store *store);
    /* Publish a change before the table changes: key := value, or key is deleted (value NULL). */
    tt_status (*publish)(tt__local_store *store, tt__span key, const tt__span *value);
    /* Between begin() and end(): release the table until something may have changed, or the deadline has passed. After
     * a failure end() is not called. */
    tt_status (*wait)(tt__local_store *store, int64_t deadline_ms);
    void (*free)(tt__local_store *store);
} tt__medium;

struct tt__local_store {
    tt_store base;
    const tt__medium *medium;
    tt__store_table table;
    _Atomic int64_t timeout_ms;
    char name[320]; /* for errors: "hash store", "file store PATH" */
};

/* Fill in a zeroed store, except its name; timeout_ms 0 = the default. */
void tt__local_store_init(tt__local_store *store, const tt__medium *medium, int64_t timeout_ms);
/* Release a store's table. The medium's free() calls this, then frees the store. */
void tt__local_store_fini(tt__local_store *store);

#endif
