/* How a rank gets the credential of the job secret, which only the job's user can open, from the store of rank 0.
 *
 * The rank connects to the store and sends four bytes: 0xF6 version 0 0. The answer is 0xF6 version, the credential's
 * size in two bytes (little-endian; 0: the store has none), and the credential. Then the store closes. */
#ifndef TT_NET_ASKING_H
#define TT_NET_ASKING_H

#include "net/secure/munge.h"

enum {
    TT__ASKING_FIRST_BYTE = 0xF6, /* no other protocol of the store begins so: handshake.h */
    TT__ASKING_VERSION = 1,
    TT__ASKING_HEADER = 4,
    TT__ASKING_ANSWER_MAX = TT__ASKING_HEADER + TT__MUNGE_CREDENTIAL_MAX
};

/* Write a store's answer. Returns its size. */
size_t tt__asking_answer(uint8_t answer[TT__ASKING_ANSWER_MAX]);

/* Ask the store at host:port, trying to connect until the deadline. TT_ERR_TIMEOUT nobody listens; TT_ERR_NET,
 * TT_ERR_PROTOCOL there is no such answer; TT_ERR_AUTH the store has no credential. */
tt_status tt__asking_ask(char credential[TT__MUNGE_CREDENTIAL_MAX], const char *host, int port, int64_t deadline_ms);

#endif
