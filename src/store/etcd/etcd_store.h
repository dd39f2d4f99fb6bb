/* What the parts of an etcd store share.
 *
 * The store's keys are below its prefix in etcd. Each store that has written also has a marker, whose name after the
 * prefix begins with a zero byte, so it is no key of the store: etcd_write.c.
 *
 * etcd_store.c has the table of operations; etcd_turn.c, etcd_write.c and etcd_wait.c make etcd's requests of them;
 * etcd_client.c sends these to a server that works. */
#ifndef TT_STORE_ETCD_STORE_H
#define TT_STORE_ETCD_STORE_H

#include "store/etcd/etcd_client.h"
#include "store/store_ops.h"

/* The most bytes of a value. With its key, and in base64, a request then stays below etcd's limit of 1.5 MiB. */
#define TT__ETCD_MAX_VALUE ((size_t)1 << 20)

typedef struct tt__etcd_store {
    tt_store base;
    _Atomic int64_t timeout_ms;
    tt__call_lock lock; /* guards the rest */
    tt__etcd_client client;
    char *prefix; /* with its slash */
    size_t prefix_size;
    struct {
        char name[40]; /* what follows the prefix and the zero byte */
        int64_t lease; /* 0: the marker was not written yet */
        int64_t revision;
        int64_t writes; /* the number of the last write that was begun */
    } marker;
} tt__etcd_store;

/* ---- a call's turn on the store (etcd_turn.c) ---- */

typedef struct tt__etcd_turn {
    tt__etcd_store *store;
    int64_t timeout_ms, deadline_ms;
    bool locked;
    tt_status status; /* of the first failure */
} tt__etcd_turn;

/* Begin a turn, and check that the keys are short enough; timeout_ms 0 = the store's. */
tt__etcd_turn tt__etcd_begin(tt_store *store, const char *const *keys, size_t n, int64_t timeout_ms);
/* End the turn, and return its status; a failure's text gets the call's name and key. */
tt_status tt__etcd_end(tt__etcd_turn *turn, const char *what, const char *key);

/* POST `body`, which the caller frees, unless the turn has failed. False: the turn has failed, now or before. */
bool tt__etcd_post(tt__etcd_turn *turn, const char *path, const tt__bytes *body, size_t max_answer, tt__span *answer);

/* Make the turn fail because memory is out, or because the answer is not one of etcd's. */
void tt__etcd_no_memory(tt__etcd_turn *turn);
void tt__etcd_bad_answer(tt__etcd_turn *turn, const char *expected);

/* Append "key":"..." for a key; for all keys in [from, to]; for the marker. tt__etcd_put_end() appends
 * ,"range_end":"...", after which a key stands for all of the store's keys from that one on. */
void tt__etcd_put_key(tt__bytes *out, const tt__etcd_store *store, const char *key);
void tt__etcd_put_keys(tt__bytes *out, const tt__etcd_store *store, const char *from, const char *to);
void tt__etcd_put_marker(tt__bytes *out, const tt__etcd_store *store);
void tt__etcd_put_end(tt__bytes *out, const tt__etcd_store *store);

/* ---- what answers hold (etcd_turn.c); spans are parts of the answer ---- */

typedef struct tt__etcd_kv {
    bool there;
    tt__span key, value; /* in base64 */
    int64_t revision;    /* of its last change */
} tt__etcd_kv;

/* Return the store's revision in the answer; 0: there is none. */
int64_t tt__etcd_revision(tt__span answer);
/* Take the next item of a range's answer. *kvs is the member "kvs" at first. */
bool tt__etcd_next_kv(tt__span *kvs, tt__etcd_kv *kv);
/* Copy the item's key without the prefix, NUL-terminated; false: it is none of the store's keys, or memory is out. */
bool tt__etcd_key_of(const tt__etcd_store *store, const tt__etcd_kv *kv, tt__bytes *key);
/* Decode the item's value, which is the caller's; a failure is the turn's. */
void tt__etcd_value_of(tt__etcd_turn *turn, const tt__etcd_kv *kv, tt_store_value *value);

/* ---- reading (etcd_turn.c) ---- */

/* Look for keys, with or without their values, and call `found` for each, in order. *revision: that of the first
 * answer; further answers may be of later ones. */
void tt__etcd_look(tt__etcd_turn *turn, const char *const *keys, size_t n, bool values, int64_t *revision,
                   void (*found)(tt__etcd_turn *turn, void *user, size_t i, const tt__etcd_kv *kv), void *user);

/* Count the keys of all users. */
void tt__etcd_count(tt__etcd_turn *turn, int64_t *count);

/* Call `found` for each key of the store, without values; all are of one revision. */
void tt__etcd_scan(tt__etcd_turn *turn, void (*found)(tt__etcd_turn *turn, void *user, const tt__etcd_kv *kv),
                   void *user);

/* ---- leases: keys under one vanish when nobody keeps it alive (etcd_write.c) ---- */

/* Make a lease of `seconds`; *granted (may be NULL): how many etcd granted. Errors: those of tt__etcd_call(). */
tt_status tt__etcd_grant(tt__etcd_client *client, int64_t seconds, int64_t deadline_ms, int64_t *id, int64_t *granted);

/* Begin a lease's time anew. TT_ERR_STATE: the lease has ended. */
tt_status tt__etcd_renew_lease(tt__etcd_client *client, int64_t id, int64_t deadline_ms);

/* End a lease, and delete its keys. TT_OK also if the lease has ended already. */
tt_status tt__etcd_revoke(tt__etcd_client *client, int64_t id, int64_t deadline_ms);

/* ---- writing, exactly once (etcd_write.c) ---- */

/* When a write may happen. */
enum { TT__ETCD_ALWAYS = -1, TT__ETCD_IF_THERE = -2 };

typedef struct tt__etcd_write {
    const tt__bytes *ops; /* requests of a transaction, separated by commas */
    const char *key;  /* the write depends on its state, which is read if the write does not happen; NULL: on no key */
    int64_t revision; /* expected of the key; 0: the key must be missing; or TT__ETCD_ALWAYS, TT__ETCD_IF_THERE */
} tt__etcd_write;

/* Write. *done: the write happened; else `now` (if it is not NULL) is the key's state, in an answer that lives until
 * the next request. *revision (may be NULL): that of the write. */
void tt__etcd_commit(tt__etcd_turn *turn, const tt__etcd_write *write, bool *done, tt__etcd_kv *now, int64_t *revision);

/* Append the request that sets a value; lease 0: the key stays. If the value is too long, the turn fails. */
void tt__etcd_put_set(tt__etcd_turn *turn, tt__bytes *ops, const char *key, tt__span value, int64_t lease);

/* Change one key, depending on its value: `decide` gets the value (NULL: the key is missing) and returns the next one,
 * or false to leave the key; it may make the turn fail. It is called again if another user was faster. */
typedef bool (*tt__etcd_decide)(tt__etcd_turn *turn, void *user, const tt__bytes *now, tt__bytes *next);
void tt__etcd_modify(tt__etcd_turn *turn, const char *key, int64_t lease, tt__etcd_decide decide, void *user,
                     int64_t *revision);

/* End the marker's lease when the store ends, if that is possible at once. */
void tt__etcd_drop_marker(tt__etcd_store *store);

/* compare_set with the new value under a lease; lease 0: none. */
void tt__etcd_compare_set_in(tt__etcd_turn *turn, const char *key, tt__span expected, tt__span desired, int64_t lease,
                             tt_store_value *value);

/* ---- waiting, by watches (etcd_wait.c) ---- */

/* Wait until all keys exist; then read them, unless `values` is NULL. */
void tt__etcd_await(tt__etcd_turn *turn, const char *const *keys, size_t n, tt_store_value *values);

/* Wait until the number under `key`, which was *number at `revision`, is at least `least`. */
void tt__etcd_await_number(tt__etcd_turn *turn, const char *key, int64_t least, int64_t revision, int64_t *number);

#endif
