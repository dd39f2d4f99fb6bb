/* MUNGE: how ranks that srun starts on several hosts share a job secret that nobody gave them. Rank 0 seals it into a
 * credential, and its store hands the credential to the other ranks. The munged daemons of the cluster make and open
 * credentials with a key that only they have. libmunge is loaded by the first call. */
#ifndef TT_NET_MUNGE_H
#define TT_NET_MUNGE_H

#include "net/secure/secret.h"

enum { TT__MUNGE_PAYLOAD_MAX = 256 };

/* Seal a text so that only processes of this user can read it, on any host of the cluster, for as long as its munged
 * allows (usually an hour). If munged does not answer, waits for some seconds. TT_ERR_AUTH, with MUNGE's own words. */
tt_status tt__munge_seal(char credential[TT__MUNGE_CREDENTIAL_MAX], const char *text);

/* Open a credential that a process of this user has sealed; another user's is refused. All ranks of a host may open the
 * same one. TT_ERR_AUTH. */
tt_status tt__munge_open(const char *credential, char text[TT__MUNGE_PAYLOAD_MAX]);

/* ---- asking the store of rank 0 for its credential. A rank connects and sends four bytes: 0xF6 version 0 0. The
 * answer is 0xF6 version, the credential's size in two bytes (little-endian; 0: the store has none), and the
 * credential. Then the store closes. ---- */

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
