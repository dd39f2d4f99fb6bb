/* A store whose calls are functions of somebody else: of one that another library has made (bindings/torch). */
#ifndef TT_STORE_OWN_STORE_H
#define TT_STORE_OWN_STORE_H

#include "base/export.h"

#include <tutti/store.h>

TT_BEGIN_DECLS

/* Each does what the call of its name in tutti/store.h says, waits at most as long as it is told (without a timeout, as
 * long as its store is used to), and fails by tt_fail(). Arguments have been checked. They may be called from any
 * thread, several at once. Those up to `check` are required; tt_store_multi_get(), tt_store_multi_set() and
 * tt_store_barrier() are made of those; without another one its call is TT_ERR_UNSUPPORTED. */
typedef struct tt__store_class {
    const char *name; /* for errors, "PyTorch's store"; borrowed for the store's life */
    tt_status (*set)(void *user, const char *key, const void *value, size_t size);
    tt_status (*get)(void *user, const char *key, int64_t timeout_ms, tt_store_value *value);
    tt_status (*add)(void *user, const char *key, int64_t delta, int64_t *result);
    tt_status (*wait)(void *user, const char *const *keys, int64_t n, int64_t timeout_ms);
    tt_status (*check)(void *user, const char *const *keys, int64_t n, bool *all);
    tt_status (*compare_set)(void *user, const char *key, const void *expected, size_t expected_size,
                             const void *desired, size_t desired_size, tt_store_value *value);
    tt_status (*delete_key)(void *user, const char *key, bool *deleted);
    tt_status (*num_keys)(void *user, int64_t *count);
    tt_status (*append)(void *user, const char *key, const void *value, size_t size);
    void (*destroy)(void *user); /* when the store is freed; NULL = nothing */
} tt__store_class;

/* Make a store of this class, which is copied; timeout_ms (above 0): of each call. `user` is handed to the functions;
 * on failure (TT_ERR_MEMORY) it stays the caller's. */
TT__EXPORT TT_NODISCARD tt_status tt__store_new(tt_store **out, const tt__store_class *cls, void *user,
                                                int64_t timeout_ms);

TT_END_DECLS

#endif
