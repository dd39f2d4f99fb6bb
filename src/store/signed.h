/* Values in a store that others may write, too: what ranks and launchers tell each other there carries a proof that a
 * holder of the job secret wrote it, for this key and for this job.
 *
 * A signed value is its bytes, a NUL (so that a text can still be read as one) and HMAC-SHA-256, by a key derived from
 * the secret, over the key's name, a context and the bytes. The context tells lives of a store or of a writer apart, so
 * that what was recorded in an earlier job proves nothing.
 *
 * Without a secret values are the bytes alone, and nothing is checked. A process with a secret never accepts a value
 * without a proof. */
#ifndef TT_STORE_SIGNED_H
#define TT_STORE_SIGNED_H

#include "base/bytes.h"
#include "net/secure/secret.h"

#include <tutti/store.h>

/* Return a text that this store's clients share, and that they had in no earlier job: the life of its server, which has
 * proved to have the job secret. With a renewal (renewal.h) another one begins for those that come after it, unless
 * `lasting`. "": the store is of a kind that has none, or the server has proved nothing. Borrowed from the store. */
const char *tt__store_life(const tt_store *store, bool lasting);

/* Append the value of these `size` bytes to `out` (whose `failed` says whether memory is out). secret: none set = the
 * bytes alone. */
void tt__sign(tt__bytes *out, const tt__secret *secret, const char *key, const char *context, const void *data,
              size_t size);

/* Check a value that was read under `key`, and take the proof off; a NUL follows what is left. TT_ERR_AUTH: it has no
 * proof, or a wrong one; the value is as it was. */
tt_status tt__signed_open(tt_store_value *value, const tt__secret *secret, const char *key, const char *context);

/* Sign and set. */
tt_status tt__signed_set(tt_store *store, const tt__secret *secret, const char *key, const char *context,
                         const void *data, size_t size);

/* Wait for a key and open its value. One that lacks its proof is refused, which is logged (`who` wants it, `whose` it
 * should be), and read again for at most `patience_ms`: a stranger may have been faster than the writer. Then:
 * TT_ERR_AUTH. */
tt_status tt__signed_get(tt_store *store, const tt__secret *secret, const char *key, const char *context,
                         const char *who, const char *whose, int64_t patience_ms, tt_store_value *value);

/* Log that what the store holds under `key` as the words of `whose` is refused. */
void tt__signed_refuse(const char *who, const char *whose, const char *key);

/* How long ranks read again what was refused. */
enum { TT__SIGNED_PATIENCE_MS = 10000 };

#endif
