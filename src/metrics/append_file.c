#include "metrics/append_file.h"

#include "base/error.h"
#include "base/files/fd.h"
#include "base/files/planted.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

tt_status tt__append_create(tt__append_file *file, const char *path, bool *taken) {
    *file = (tt__append_file){.path = strdup(path)};
    *taken = false;
    if (!file->path)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for the path", path);
    file->fd = tt__open_to_append(path, true);
    if (file->fd >= 0)
        return TT_OK;
    int errnum = errno;
    *taken = errnum == EEXIST;
    tt__append_close(file);
    return tt__fail_errno(TT_ERR_IO, errnum, "can't open %s for writing", path);
}

tt_status tt__append_open(tt__append_file *file, const char *path) {
    *file = (tt__append_file){0};
    TT__TRY(tt__follow_links(path, &file->path));
    file->fd = tt__open_to_append(file->path, false);
    tt_status status = file->fd < 0 ? tt__fail_errno(TT_ERR_IO, errno, "can't open %s for writing", path)
                                    : tt__check_writable(file->fd, file->path);
    if (!status && fcntl(file->fd, F_SETFL, O_APPEND)) /* from now on writes may block: a terminal is slow */
        status = tt__fail_errno(TT_ERR_IO, errno, "can't open %s for writing", path);
    if (status)
        tt__append_close(file);
    return status;
}

/* Find the end of the last whole line at or before `size`; -1: the file can't be read. */
static off_t end_of_lines(int fd, off_t size) {
    char block[4096];
    while (size > 0) {
        size_t n = size < (off_t)sizeof block ? (size_t)size : sizeof block;
        ssize_t got = pread(fd, block, n, size - (off_t)n);
        if (got != (ssize_t)n)
            return -1;
        const char *end = memrchr(block, '\n', n);
        if (end)
            return size - (off_t)n + (end - block) + 1;
        size -= (off_t)n;
    }
    return 0;
}

tt_status tt__append_cut_unfinished_line(tt__append_file *file, bool *empty) {
    off_t size = lseek(file->fd, 0, SEEK_END), end = size < 0 ? 0 : end_of_lines(file->fd, size);
    if (end < 0 || (end < size && ftruncate(file->fd, end) != 0))
        return tt__fail_errno(TT_ERR_IO, errno, "can't remove the unfinished last line of %s", file->path);
    *empty = end == 0;
    return TT_OK;
}

/* Find the end of the last line that does not begin with a number of at least `number`; -1: the lines can't be read. */
static off_t end_of_lines_before(FILE *lines, int64_t number) {
    char *line = NULL;
    size_t room = 0;
    off_t at = 0, end = 0;
    rewind(lines);
    for (ssize_t n; (n = getline(&line, &room, lines)) > 0; at += n) {
        char *after;
        long long first = strtoll(line, &after, 10);
        if (after == line || first < number)
            end = at + n;
    }
    free(line);
    return ferror(lines) || !feof(lines) ? -1 : end;
}

tt_status tt__append_cut_from(tt__append_file *file, int64_t number) {
    int fd = tt__fd(fcntl(file->fd, F_DUPFD_CLOEXEC, 0));
    FILE *lines = fd < 0 ? NULL : fdopen(fd, "r");
    if (!lines) {
        int errnum = errno;
        if (fd >= 0)
            close(fd);
        return tt__fail_errno(TT_ERR_IO, errnum, "can't read %s", file->path);
    }
    struct stat info;
    bool cuts = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
    off_t end = cuts ? end_of_lines_before(lines, number) : 0;
    tt_status status = TT_OK;
    if (end < 0 || (cuts && end < info.st_size && ftruncate(file->fd, end) != 0))
        status = tt__fail_errno(TT_ERR_IO, errno, "can't remove the last lines of %s", file->path);
    fclose(lines);
    return status;
}

/* Write all of a record; false with errno set. *written: how many bytes were written, also before a failure. */
static bool append_whole(int fd, const char *record, size_t size, size_t *written) {
    for (*written = 0; *written < size;) {
        ssize_t n = tt__quiet_write(fd, record + *written, size - *written);
        if (n < 0 && errno != EINTR)
            return false;
        *written += n > 0 ? (size_t)n : 0;
    }
    return true;
}

tt_status tt__append(tt__append_file *file, const void *record, size_t size) {
    size_t written;
    bool told = file->failing;
    file->failing = !append_whole(file->fd, record, size, &written);
    if (!file->failing)
        return TT_OK;
    int errnum = errno;
    off_t end = written ? lseek(file->fd, 0, SEEK_END) : -1;
    if (end >= (off_t)written) /* best effort: readers skip an unfinished record */
        (void)!ftruncate(file->fd, end - (off_t)written);
    return told ? TT_OK : tt__fail_errno(TT_ERR_IO, errnum, "can't write to %s", file->path);
}

tt_status tt__append_sync(const tt__append_file *file) {
    if (!file->path || fdatasync(file->fd) == 0 || errno == EINVAL || errno == EROFS) /* a device, a pipe */
        return TT_OK;
    return tt__fail_errno(TT_ERR_IO, errno, "can't write %s to the disk", file->path);
}

void tt__append_close(tt__append_file *file) {
    if (file->path && file->fd >= 0)
        close(file->fd);
    free(file->path);
    *file = (tt__append_file){0};
}
