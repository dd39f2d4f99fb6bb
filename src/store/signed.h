/* Values with a proof. In a store that strangers may write to, the proof shows ranks and launchers that a holder of the
 * job secret wrote the value, for this key and this job.
 *
 * A signed value is its bytes, a NUL (so that a text can still be read as one) and an HMAC-SHA-256 over the name of its
 * key, a context and the bytes. The HMAC's own key is derived from the secret. The context differs between lives of a
 * store or of a writer, so a value that was recorded in an earlier job proves nothing.
 *
 * Without a secret values are the bytes alone, and nothing is checked. A process with a secret never accepts a value
 * without a proof. */
#ifndef TT_STORE_SIGNED_H
#define TT_STORE_SIGNED_H

#include "base/bytes.h"
#include "net/secure/secret.h"

#include <tutti/store.h>

/* Return the life of the store's server: a text that all its clients have, and that no earlier job had. Clients that
 * connect after a renewal (renewal.h) get another one. The lasting life is a text that renewals leave as it is. "":
 * this kind of store has none, or the server has not proved the job secret. Borrowed from the store. */
const char *tt__store_life(const tt_store *store);
const char *tt__store_lasting_life(const tt_store *store);

/* Append the signed value of these `size` bytes to `out`, whose `failed` tells whether memory is out. Without a secret:
 * the bytes alone. */
void tt__sign(tt__bytes *out, const tt__secret *secret, const char *key, const char *context, const void *data,
              size_t size);

/* Check a value that was read under `key`, and remove the proof; a NUL follows the bytes. TT_ERR_AUTH: the proof is
 * missing or wrong, and the value is unchanged. */
tt_status tt__signed_open(tt_store_value *value, const tt__secret *secret, const char *key, const char *context);

/* Sign and set. */
tt_status tt__signed_set(tt_store *store, const tt__secret *secret, const char *key, const char *context,
                         const void *data, size_t size);

/* Wait for a key and open its value. A value without a valid proof is refused and logged (`who` reads it, `whose` it
 * should be). It is read again for at most `patience_ms`, because a stranger may have been faster than the writer; then
 * TT_ERR_AUTH. */
tt_status tt__signed_get(tt_store *store, const tt__secret *secret, const char *key, const char *context,
                         const char *who, const char *whose, int64_t patience_ms, tt_store_value *value);

/* Log that `who` refuses the value under `key`, which should be of `whose`. */
void tt__signed_refuse(const char *who, const char *whose, const char *key);

/* How long ranks try again after a refused value. */
enum { TT__SIGNED_PATIENCE_MS = 10000 };

#endif
