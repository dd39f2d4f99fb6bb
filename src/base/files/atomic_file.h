/* A file that appears whole or not at all: written as "NAME.tmp-PID-N" beside the target, fsync, rename, fsync of the
 * directory.
 *
 * The writer holds a lock (flock) on its temporary, which ends with the process, however it ends. So a temporary whose
 * lock can be taken was left behind, whatever became of the process number, and the next writer of the same target
 * removes it.
 *
 * The target may be a symbolic link: what it leads to is written, unless the link is another user's in a directory that
 * others may write to (TT_ERR_IO). A file that is replaced hands its mode down, and its owner where this process may
 * give files away; another user's in a directory that others may write to hands down nothing, and what replaces it is
 * no more open; in a sticky one it is refused. A character device (/dev/null, a terminal) is written to and stays;
 * whatever else is no regular file is refused. */
#ifndef TT_BASE_ATOMIC_FILE_H
#define TT_BASE_ATOMIC_FILE_H

#include "base/export.h"

typedef struct tt__atomic_file {
    int fd;          /* -1 when nothing is open */
    uint64_t size;   /* written so far */
    char *path;      /* the target */
    char *temporary; /* NULL when there is none to remove: a device is written to */
} tt__atomic_file;

/* Start writing `path`; stale temporaries of it are removed first. After success commit or abort must follow; after
 * failure there is nothing to release. Errors, which name the file: TT_ERR_IO; TT_ERR_INVALID it can't be
 * replaced: a directory, a FIFO, a socket; TT_ERR_MEMORY. */
TT__EXPORT TT_NODISCARD tt_status tt__atomic_open(tt__atomic_file *file, const char *path);

/* Check that tt__atomic_open() would succeed now; leaves nothing. */
TT__EXPORT TT_NODISCARD tt_status tt__atomic_check(const char *path);

/* Append `size` bytes. */
TT__EXPORT TT_NODISCARD tt_status tt__atomic_write(tt__atomic_file *file, const void *data, size_t size);

/* Make it durable and put it in place. On failure the target is as it was; the file is released either way. */
TT__EXPORT TT_NODISCARD tt_status tt__atomic_commit(tt__atomic_file *file);

/* Give up: the target is as it was. Harmless after commit, and on a zeroed or failed file. */
TT__EXPORT void tt__atomic_abort(tt__atomic_file *file);

/* Remove the temporaries of the files that this process is writing, in whatever thread, because a signal is about to
 * end it: their commits fail. */
void tt__atomic_remove_temporaries(void);

#endif
