/* The job secret, which only the processes of one job know, and how it protects their connections. Keys are derived
 * from it: to prove that processes belong together (handshake.h), to sign what they leave in a store (store/signed.h),
 * to seal what they send (seal.h), and, if asked for, to encrypt it (stream.h).
 *
 * TT_SECRET is the secret itself; else TT_SECRET_FILE is a file that holds it (only its owner may be allowed to read
 * it; a line break at its end does not count). Both are set by hand. `tutti run` makes a secret for each job, 64
 * hexadecimal digits, and hands it, or the one that it was given, to its ranks in TT_SECRET_FD. Ranks
 * that srun starts on several hosts make one themselves (munge.h). */
#ifndef TT_NET_SECRET_H
#define TT_NET_SECRET_H

#include "base/export.h"
#include "net/secure/mac.h"

#include <tutti/base.h>

enum {
    TT__SECRET_MIN = 16, /* bytes of a secret's text */
    TT__SECRET_MAX = 1024,
    TT__SECRET_MADE_SIZE = 65, /* with the NUL */
    TT__MUNGE_CREDENTIAL_MAX = 2048
};

/* Only the keys are kept. Zeroed = no secret. */
typedef struct tt__secret {
    bool set;
    uint8_t handshake_key[TT__MAC_SIZE];
    uint8_t tls_key[TT__MAC_SIZE];
    uint8_t store_key[TT__MAC_SIZE];
    uint8_t wire_key[TT__MAC_SIZE];
} tt__secret;

/* Load the secret from the environment; set = false: there is none. Errors: TT_ERR_INVALID it is too short or too long;
 * TT_ERR_IO its file can't be read, or others may read it, or the descriptor from `tutti run` is gone. */
tt_status tt__secret_load(tt__secret *secret);

/* Does the environment name a secret, valid or not? */
bool tt__secret_is_named(void);

/* Choose the secret. `given` NULL: that of the environment; "": none; else the text itself. */
tt_status tt__secret_choose(tt__secret *secret, const char *given);

/* Derive the keys from these bytes. */
void tt__secret_from(tt__secret *secret, const void *bytes, size_t size);

/* Overwrite the keys. */
void tt__secret_wipe(tt__secret *secret);

/* For launchers: read the text of the environment's secret ("": there is none); of a secret file, checked as above;
 * make a new secret. Texts are NUL-terminated, without a line break. */
tt_status tt__secret_read(char text[TT__SECRET_MAX + 1]);
tt_status tt__secret_read_file(const char *path, char text[TT__SECRET_MAX + 1]);
tt_status tt__secret_make(char text[TT__SECRET_MADE_SIZE]);

/* ---- a secret that this process has found out: the last place at which tt__secret_load() looks ---- */

/* Keep this text and its credential, instead of those kept before. Only rank 0 has a credential, else NULL: a store of
 * this process hands it to ranks that ask (munge.h). */
void tt__secret_keep(const char text[TT__SECRET_MADE_SIZE], const char *credential);

/* Return what is kept; "": nothing. */
void tt__secret_kept(char text[TT__SECRET_MADE_SIZE]);
void tt__credential_kept(char credential[TT__MUNGE_CREDENTIAL_MAX]);

/* ---- how `tutti run` hands the secret to its ranks: as text in a sealed memfd, which they inherit at the descriptor
 * that TT_SECRET_FD names. So the secret is in nobody's environment, and can be read repeatedly, also by children that
 * join by themselves. ---- */

/* Make the memfd with the secret's text, close-on-exec, at a number that shells' redirections don't use.
 * TT_ERR_SYSTEM. */
tt_status tt__secret_memory_make(int *fd, const char *text);

/* ---- how bytes travel between the hosts of a job: TT_WIRE (`tutti run --wire`)
 *
 *   sealed   every record carries a tag made with a key of the job secret (seal.h): nobody can change anything, anybody
 *            on the way can read it. The default between hosts if the job has a secret.
 *   plain    unprotected. The default inside one machine, and without a secret.
 *   tls      encrypted (stream.h), also the store's connections. TT_TLS=1 means the same. ---- */

typedef enum tt__wire { TT__WIRE_DEFAULT, TT__WIRE_PLAIN, TT__WIRE_SEALED, TT__WIRE_TLS } tt__wire;

/* Find the wire called `name`; false: there is none. */
bool tt__wire_named(const char *name, tt__wire *wire);

/* Read what the environment asks for. TT_ERR_INVALID: an unknown name, or TT_TLS contradicts it. */
tt_status tt__wire_asked(tt__wire *wire);

/* The same, and check that it is possible. TT_ERR_INVALID: also for sealed without a secret. */
tt_status tt__wire_check(tt__wire *wire, const tt__secret *secret);

/* Choose the wire of ranks' connections: what is asked for, else the default. If `says_so`, log that it is plain
 * between hosts. Fails as tt__wire_check(). */
tt_status tt__wire_choose(tt__wire *wire, const tt__secret *secret, bool one_host, bool says_so);

#endif
