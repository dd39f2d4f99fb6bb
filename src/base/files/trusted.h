/* Which files code may be loaded from. Whoever may write a plug-in, or exchange it, runs as the process that loads it.
 */
#ifndef TT_BASE_TRUSTED_H
#define TT_BASE_TRUSTED_H

#include "base/export.h"

#include <limits.h>
#include <sys/types.h>

/* Does nobody but `owner` belong to the group? So it is with the groups that systems make for each user; where the
 * umask is 002, such a group may write to all files of that user. Looks into the system's lists of users and groups. */
bool tt__is_group_of_one(gid_t group, uid_t owner);

/* Return the path, from the root on and without links, of the file that this code was loaded from, a library or a
 * program; "": /proc does not say. It is found once, by the kernel's word: neither argv[0] nor the working directory
 * counts. Thread-safe. */
const char *tt__own_file(void);

/* Check that nobody else can put code of his into `path`: the file and each folder above it belong to root, to this
 * process's user or to the owner of tt__own_file(), and others may write to none of them. A folder such as /tmp
 * (sticky) may stand above the file; a group of its owner alone, or one that may write to tt__own_file(), and folders
 * that tt__own_file() lies in, count as the owner's. `real` becomes the path without links: load that one. Errors,
 * which name what is not trusted: TT_ERR_AUTH; TT_ERR_IO the file can't be found. Thread-safe. */
TT__EXPORT TT_NODISCARD tt_status tt__trusted_file(const char *path, char real[PATH_MAX]);

/* The same, for objects that link nothing of Tutti's: records no error, `why` (`size`) becomes its text. */
TT_NODISCARD tt_status tt__trust(const char *path, char real[PATH_MAX], char *why, size_t size);

#endif
