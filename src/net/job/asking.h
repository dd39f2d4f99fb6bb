/* How a rank gets the credential of the job secret from the store that rank 0 serves; only the job's user can open it.
 *
 * Who asks connects to the store and sends four bytes, 0xF6 version 0 0; the answer is 0xF6 version, the credential's
 * size in two bytes (little-endian; 0: the store has none), and the credential. Then the store closes. */
#ifndef TT_NET_ASKING_H
#define TT_NET_ASKING_H

#include "net/secure/kept_secret.h"

enum {
    TT__ASKING_FIRST_BYTE = 0xF6, /* begins nothing else: handshake.h */
    TT__ASKING_VERSION = 1,
    TT__ASKING_HEADER = 4,
    TT__ASKING_ANSWER_MAX = TT__ASKING_HEADER + TT__MUNGE_CREDENTIAL_MAX
};

/* Write what a store answers. Returns its size. */
size_t tt__asking_answer(uint8_t answer[TT__ASKING_ANSWER_MAX]);

/* Ask the store at host:port, trying to connect until the deadline. TT_ERR_TIMEOUT nobody is there; TT_ERR_NET,
 * TT_ERR_PROTOCOL who is there does not answer; TT_ERR_AUTH it is a store without a credential. */
tt_status tt__asking_ask(char credential[TT__MUNGE_CREDENTIAL_MAX], const char *host, int port, int64_t deadline_ms);

#endif
