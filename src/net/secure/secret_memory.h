/* How `tutti run` hands the job secret to its ranks: as the text in a sealed memfd, which they inherit at the
 * descriptor that TT_SECRET_FD names. So it stands in nobody's environment, and can be read again and again, also by
 * children that join by themselves. */
#ifndef TT_NET_SECRET_MEMORY_H
#define TT_NET_SECRET_MEMORY_H

#include "net/secure/secret_text.h"

/* Make the memfd, close-on-exec, at a number that shells' own redirections leave alone. The text is that of a secret
 * (secret.h). Errors: TT_ERR_SYSTEM. */
tt_status tt__secret_memory_make(int *fd, const char *text);

/* Read the text from descriptor `number`, the value of TT_SECRET_FD; its offset stays as it is. Errors: TT_ERR_INVALID
 * no number; TT_ERR_IO no such descriptor is open, or it is something else. */
tt_status tt__secret_memory_read(const char *number, char text[TT__SECRET_MAX + 1]);

#endif
