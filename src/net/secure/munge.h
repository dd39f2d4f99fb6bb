/* MUNGE: credentials that the munged daemons of a cluster seal with a key that only they have. libmunge is loaded by
 * the first call. Whatever fails here is TT_ERR_AUTH, with MUNGE's own words. */
#ifndef TT_NET_MUNGE_H
#define TT_NET_MUNGE_H

#include <tutti/base.h>

enum { TT__MUNGE_CREDENTIAL_MAX = 2048, TT__MUNGE_PAYLOAD_MAX = 256 };

/* Seal a text so that only processes of this user can read it, on any host of the cluster, for as long as its munged
 * allows (an hour, usually). Waits for munged, some seconds where it does not answer. */
tt_status tt__munge_seal(char credential[TT__MUNGE_CREDENTIAL_MAX], const char *text);

/* Open a credential that a process of this user has sealed: another user's is refused. One that was opened before on
 * this host is as good: each rank opens the same. */
tt_status tt__munge_open(const char *credential, char text[TT__MUNGE_PAYLOAD_MAX]);

#endif
