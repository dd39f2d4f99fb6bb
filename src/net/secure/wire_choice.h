/* How bytes travel between the hosts of a job: TT_WIRE (`tutti run --wire`).
 *
 *   sealed   every record carries a tag by a key from the job secret (seal.h): nobody can change anything, anybody on
 *            the way can read it. The default between hosts where the job has a secret.
 *   plain    as it is. The default inside one machine, and without a secret.
 *   tls      encrypted (stream.h), the store's connections, too. TT_TLS=1 says the same. */
#ifndef TT_NET_WIRE_CHOICE_H
#define TT_NET_WIRE_CHOICE_H

#include "net/secure/secret.h"

typedef enum tt__wire { TT__WIRE_DEFAULT, TT__WIRE_PLAIN, TT__WIRE_SEALED, TT__WIRE_TLS } tt__wire;

/* Is it such a name? */
bool tt__wire_named(const char *name, tt__wire *wire);

/* Read what the environment asks for. TT_ERR_INVALID: no such name, or TT_TLS says something else. */
tt_status tt__wire_asked(tt__wire *wire);

/* The same, and check that what it asks for can be had: TT_ERR_INVALID too for sealed without a secret. */
tt_status tt__wire_check(tt__wire *wire, const tt__secret *secret);

/* Choose how ranks' connections travel: what is asked for, else the default. A wire that is plain between hosts is
 * logged if `says_so`. Fails as tt__wire_check(). */
tt_status tt__wire_choose(tt__wire *wire, const tt__secret *secret, bool one_host, bool says_so);

#endif
