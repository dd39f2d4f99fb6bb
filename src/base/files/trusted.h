/* Which files code may be loaded from: whoever can write or exchange such a file runs code as the process that loads
 * it. */
#ifndef TT_BASE_TRUSTED_H
#define TT_BASE_TRUSTED_H

#include "base/export.h"

#include <limits.h>
#include <sys/types.h>

/* Is `owner` the only member of the group? Many systems make such a group for each user, and with the umask 002 it may
 * write to all files of that user. Looks into the system's lists of users and groups. */
bool tt__is_group_of_one(gid_t group, uid_t owner);

/* Return the absolute path, without links, of the library or program that this code was loaded from; "": /proc does not
 * tell. The kernel is asked, once: argv[0] and the working directory don't count. Thread-safe. */
const char *tt__own_file(void);

/* Check that nobody else can put code into `path`: the file and each folder above it belong to root, to this process's
 * user or to the owner of tt__own_file(), and others may write to none of them. Exceptions: a sticky folder, such as
 * /tmp, may be open to all; a group may write if it has one member, the owner, or if it may write to tt__own_file();
 * folders above tt__own_file() may be open to anybody.
 * real: becomes the path without links; load that one. why: becomes the text of an error, which names what is not
 *   trusted; nothing is recorded, because objects that link nothing else of Tutti's use this file, too.
 * Errors: TT_ERR_AUTH; TT_ERR_IO the file can't be found. Thread-safe. */
TT_NODISCARD tt_status tt__trust(const char *path, char real[PATH_MAX], char *why, size_t size);

#endif
