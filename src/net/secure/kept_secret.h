/* A job secret that this process has found out, where its environment names none: the last that tt__secret_load() looks
 * at. Rank 0's comes with a credential (munge.h), which a store of this process hands to whoever asks (asking.h). */
#ifndef TT_NET_KEPT_SECRET_H
#define TT_NET_KEPT_SECRET_H

#include "net/secure/munge.h"
#include "net/secure/secret_text.h"

/* Keep this text, instead of one kept before, and the credential to hand out (NULL: none). */
void tt__secret_keep(const char text[TT__SECRET_MADE_SIZE], const char *credential);

/* Read what is kept, "" = nothing. */
void tt__secret_kept(char text[TT__SECRET_MADE_SIZE]);
void tt__credential_kept(char credential[TT__MUNGE_CREDENTIAL_MAX]);

#endif
