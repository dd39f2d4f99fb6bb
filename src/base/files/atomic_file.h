/* A file that appears whole or not at all: written as "NAME.tmp-PID-N" beside the target, fsync, rename, fsync of the
 * directory.
 *
 * The writer holds a lock (flock) on its temporary, which the kernel releases when the process ends, however it ends.
 * So a temporary whose lock can be taken is stale, whoever has its process number now, and the next writer of the same
 * target removes it.
 *
 * If the target is a symbolic link, the file that it leads to is written; TT_ERR_IO if the link is another user's, in a
 * directory that others may write to. The new file gets the mode of the file that it replaces, and its owner if this
 * process may give files away. If the old file is another user's, in a directory that others may write to, the new file
 * gets the mode of any new file instead, with no permission that the old one lacked; in a sticky directory such a file
 * is refused. A character device (/dev/null, a terminal) is written to and stays. Anything else that is no regular file
 * is refused. */
#ifndef TT_BASE_ATOMIC_FILE_H
#define TT_BASE_ATOMIC_FILE_H

#include "base/export.h"

typedef struct tt__atomic_file {
    int fd;          /* -1 when nothing is open */
    uint64_t size;   /* written so far */
    char *path;      /* the target */
    char *temporary; /* NULL: a device is written to */
} tt__atomic_file;

/* Start writing `path`; stale temporaries of it are removed first. After success, commit or abort must follow; after a
 * failure, nothing. Errors, which name the file: TT_ERR_IO; TT_ERR_INVALID it can't be replaced: a directory, a FIFO, a
 * socket; TT_ERR_MEMORY. */
TT__EXPORT TT_NODISCARD tt_status tt__atomic_open(tt__atomic_file *file, const char *path);

/* Check that tt__atomic_open() would succeed now, and leave nothing behind. */
TT__EXPORT TT_NODISCARD tt_status tt__atomic_check(const char *path);

/* Append `size` bytes. */
TT__EXPORT TT_NODISCARD tt_status tt__atomic_write(tt__atomic_file *file, const void *data, size_t size);

/* Make the file durable and put it in place. On failure the target is as it was; the file is released either way. */
TT__EXPORT TT_NODISCARD tt_status tt__atomic_commit(tt__atomic_file *file);

/* Give up; the target is as it was. Does nothing after a commit, or if the file is zeroed or failed. */
TT__EXPORT void tt__atomic_abort(tt__atomic_file *file);

/* Remove the temporaries of all files that this process is writing, in any thread, because a signal is about to end it.
 * Their commits fail. */
void tt__atomic_remove_temporaries(void);

#endif
