/* Files out of a .tar.gz archive. Its layout: for each member a block of 512 bytes (from 0 the name, from 124 the size
 * in octal digits, at 156 the kind), then its bytes, filled up to a multiple of 512. */
#include "cli/data/data.h"

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/files/fd.h"
#include "base/files/planted.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { BLOCK = 512, NAME_ROOM = 100, SIZE_AT = 124, SIZE_DIGITS = 12, KIND_AT = 156, MOST_MEMBERS = 32 };

typedef struct untar_work {
    gzFile file;
    const char *archive, *dir, *folder;
    const char *const *names;
    bool seen[MOST_MEMBERS];
} untar_work;

static tt_status read_block(const untar_work *w, void *to) {
    if (gzread(w->file, to, BLOCK) == BLOCK)
        return TT_OK;
    return tt__fail(TT_ERR_FORMAT, "%s: the archive is damaged or cut short", w->archive);
}

static tt_status member_size(const untar_work *w, const char *header, int64_t *size) {
    *size = 0;
    for (int i = 0; i < SIZE_DIGITS && header[SIZE_AT + i] >= '0' && header[SIZE_AT + i] <= '7'; i++)
        *size = *size * 8 + (header[SIZE_AT + i] - '0');
    return (header[SIZE_AT] & 0x80) == 0 ? TT_OK : tt__fail(TT_ERR_FORMAT, "%s: a member of 8 GiB or more", w->archive);
}

/* Return the number of the wanted file that a member is; -1: none. */
static int wanted_member(const untar_work *w, const char *header) {
    size_t n = strlen(w->folder);
    if ((header[KIND_AT] != '0' && header[KIND_AT] != 0) || strncmp(header, w->folder, n) || header[n] != '/')
        return -1;
    for (int i = 0; w->names[i]; i++)
        if (!strncmp(header + n + 1, w->names[i], NAME_ROOM - n - 1))
            return i;
    return -1;
}

/* Copy a member to `to`; NULL: skip it. */
static tt_status copy_member(const untar_work *w, int64_t size, tt__atomic_file *to) {
    char block[BLOCK];
    for (; size > 0; size -= BLOCK) {
        TT__TRY(read_block(w, block));
        if (to)
            TT__TRY(tt__atomic_write(to, block, size < BLOCK ? (size_t)size : BLOCK));
    }
    return TT_OK;
}

static tt_status write_member(untar_work *w, int64_t size, int which) {
    char path[4096];
    tt__atomic_file to;
    if (snprintf(path, sizeof path, "%s/%s/%s", w->dir, w->folder, w->names[which]) >= (int)sizeof path)
        return tt__fail(TT_ERR_INVALID, "%s: its path is too long", w->names[which]);
    TT__TRY(tt__atomic_open(&to, path));
    tt_status status = copy_member(w, size, &to);
    if (status) {
        tt__atomic_abort(&to);
        return status;
    }
    w->seen[which] = true;
    return tt__atomic_commit(&to);
}

static tt_status read_members(untar_work *w) {
    for (;;) {
        char header[BLOCK];
        int64_t size;
        TT__TRY(read_block(w, header));
        if (!*header) /* a block of zeros ends the archive */
            break;
        TT__TRY(member_size(w, header, &size));
        int which = wanted_member(w, header);
        TT__TRY(which < 0 ? copy_member(w, size, NULL) : write_member(w, size, which));
    }
    for (int i = 0; w->names[i]; i++)
        if (!w->seen[i])
            return tt__fail(TT_ERR_FORMAT, "%s: expected a member %s/%s", w->archive, w->folder, w->names[i]);
    return TT_OK;
}

/* Make the folder. Another user's is refused: he could put links into it, and change what we write there. */
static tt_status make_own_folder(const char *path, const char *dir) {
    struct stat found, around;
    TT__TRY(tt__make_folder(path, NULL));
    if (lstat(path, &found) || stat(dir, &around))
        return tt__fail_errno(TT_ERR_IO, errno, "%s: can't look at it", path);
    return tt__is_planted(&found, &around)
               ? tt__fail(TT_ERR_IO, "%s: another user's folder, in one that all may write to", path)
               : TT_OK;
}

tt_status tt__untar(int fd, const char *archive, const char *dir, const char *folder, const char *const *names) {
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", dir, folder) >= (int)sizeof path)
        return tt__fail(TT_ERR_INVALID, "%s: its path is too long", folder);
    TT__TRY(make_own_folder(path, dir));
    untar_work w = {.archive = archive, .dir = dir, .folder = folder, .names = names};
    int copy = lseek(fd, 0, SEEK_SET) ? -1 : tt__fd(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    w.file = copy >= 0 ? gzdopen(copy, "rb") : NULL;
    if (!w.file) {
        int errnum = errno;
        if (copy >= 0)
            close(copy);
        return tt__fail_errno(TT_ERR_IO, errnum, "%s: can't read it", archive);
    }
    tt_status status = read_members(&w);
    gzclose(w.file);
    return status;
}
