/* A job secret that this process has found out, where its environment names none: the last that tt__secret_load() looks
 * at. Rank 0's comes with a credential (munge.h), which a store of this process hands to whoever asks: only the job's
 * user can open it.
 *
 * Who asks connects to the store and sends four bytes, 0xF6 version 0 0; the answer is 0xF6 version, the credential's
 * size in two bytes (little-endian; 0: the store has none), and the credential. Then the store closes. */
#ifndef TT_NET_KEPT_SECRET_H
#define TT_NET_KEPT_SECRET_H

#include "net/munge.h"
#include "net/secret.h"

enum {
    TT__ASKING_FIRST_BYTE = 0xF6, /* begins nothing else: handshake.h */
    TT__ASKING_VERSION = 1,
    TT__ASKING_HEADER = 4,
    TT__ASKING_ANSWER_MAX = TT__ASKING_HEADER + TT__MUNGE_CREDENTIAL_MAX
};

/* Keep this text, instead of one kept before, and the credential to hand out (NULL: none). */
void tt__secret_keep(const char text[TT__SECRET_MADE_SIZE], const char *credential);

/* Read what is kept, "" = nothing. */
void tt__secret_kept(char text[TT__SECRET_MADE_SIZE]);

/* Write what a store answers. Returns its size. */
size_t tt__asking_answer(uint8_t answer[TT__ASKING_ANSWER_MAX]);

/* Ask the store at host:port, trying to connect until the deadline. TT_ERR_TIMEOUT nobody is there; TT_ERR_NET,
 * TT_ERR_PROTOCOL who is there does not answer; TT_ERR_AUTH it is a store without a credential. */
tt_status tt__asking_ask(char credential[TT__MUNGE_CREDENTIAL_MAX], const char *host, int port, int64_t deadline_ms);

#endif
