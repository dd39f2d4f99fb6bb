/* A store is a table of operations. include/tutti/store.h documents them; store_calls.c has checked the arguments (no
 * NULL, a timeout that is a number of ms) before an operation is called. */
#ifndef TT_STORE_STORE_OPS_H
#define TT_STORE_STORE_OPS_H

#include <tutti/store.h>

typedef struct tt__store_ops {
    void (*free)(tt_store *);
    int (*port)(const tt_store *);
    int64_t (*timeout_ms)(const tt_store *);
    void (*set_timeout_ms)(tt_store *, int64_t);
    tt_status (*set)(tt_store *, const char *key, const void *value, size_t size);
    tt_status (*get)(tt_store *, const char *key, tt_store_value *value);
    tt_status (*add)(tt_store *, const char *key, int64_t delta, int64_t *result);
    tt_status (*compare_set)(tt_store *, const char *key, const void *expected, size_t expected_size,
                             const void *desired, size_t desired_size, tt_store_value *value);
    tt_status (*wait)(tt_store *, const char *const *keys, size_t n, int64_t timeout_ms);
    tt_status (*check)(tt_store *, const char *const *keys, size_t n, bool *all);
    tt_status (*delete_key)(tt_store *, const char *key, bool *deleted);
    tt_status (*num_keys)(tt_store *, int64_t *count);
    tt_status (*append)(tt_store *, const char *key, const void *value, size_t size);
    tt_status (*multi_get)(tt_store *, const char *const *keys, size_t n, tt_store_value *values);
    tt_status (*multi_set)(tt_store *, const char *const *keys, const void *const *values, const size_t *sizes,
                           size_t n);
    tt_status (*list_keys)(tt_store *, char ***keys, size_t *n);
    tt_status (*barrier)(tt_store *, const char *key, int64_t world_size, int64_t timeout_ms);
    const char *(*life)(const tt_store *, bool lasting); /* tt__store_life(); NULL: it has none */
} tt__store_ops;

/* First member of every kind of store. */
struct tt_store {
    const tt__store_ops *ops;
};

/* Make the list that tt_store_list_keys() returns, in one block, of the `n` NUL-terminated strings that lie end to end
 * in `text`; NULL when memory is out. */
char **tt__store_key_list(const char *text, size_t text_size, size_t n);

#endif
