/* The job secret, which only the processes of one job know. From it derive the keys by which they prove that they
 * belong together (handshake.h), those that sign what they leave in a store (store/signed.h) and seal what they send
 * (seal.h), and, where asked for, those of encryption (stream.h).
 *
 * TT_SECRET is the secret itself; else TT_SECRET_FILE is a file that holds it (only its owner may be allowed to read
 * it; a line break at its end does not count). Both are set by hand. `tutti run` makes a secret for each job, 64
 * hexadecimal digits, and hands it, or the one that it was given, to its ranks in TT_SECRET_FD (secret_memory.h). Ranks
 * that srun starts on several hosts make one themselves (asking.h). */
#ifndef TT_NET_SECRET_H
#define TT_NET_SECRET_H

#include "base/export.h"

#include "net/secure/mac.h"
#include "net/secure/secret_text.h"

#include <tutti/base.h>

/* Zeroed = there is none. Only keys are kept. */
typedef struct tt__secret {
    bool set;
    uint8_t handshake_key[TT__MAC_SIZE];
    uint8_t tls_key[TT__MAC_SIZE];
    uint8_t store_key[TT__MAC_SIZE];
    uint8_t wire_key[TT__MAC_SIZE];
} tt__secret;

/* Load it from the environment; TT_OK with set = false where there is none. Errors: TT_ERR_INVALID too short or too
 * long; TT_ERR_IO the file can't be read, or others may read it, or what `tutti run` handed over is gone. */
tt_status tt__secret_load(tt__secret *secret);

/* Does the environment name a secret, be it good or not? */
bool tt__secret_is_named(void);

/* Use the one given by the program: NULL = that of the environment, "" = none, else text. */
tt_status tt__secret_choose(tt__secret *secret, const char *given);

/* Use these bytes, as they are. */
void tt__secret_from(tt__secret *secret, const void *bytes, size_t size);

/* Overwrite it. */
void tt__secret_wipe(tt__secret *secret);

/* For launchers: read the text of the environment's secret ("" = none), or of a secret file, checked as above; make a
 * new secret as text. All are NUL-terminated, without a line break. */
tt_status tt__secret_read(char text[TT__SECRET_MAX + 1]);
tt_status tt__secret_read_file(const char *path, char text[TT__SECRET_MAX + 1]);
tt_status tt__secret_make(char text[TT__SECRET_MADE_SIZE]);

#endif
