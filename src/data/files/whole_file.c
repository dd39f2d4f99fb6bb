#include "data/files/whole_file.h"

#include "base/error.h"
#include "base/files/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static tt_status regular_size(int fd, uint64_t *size, const char *path) {
    struct stat info;
    if (fstat(fd, &info) != 0)
        return tt__fail_errno(TT_ERR_IO, errno, "%s: can't tell its size", path);
    if (!S_ISREG(info.st_mode))
        return tt__fail(TT_ERR_IO, "%s: expected a regular file, got a %s", path,
                        S_ISDIR(info.st_mode) ? "directory" : "pipe, socket or device");
    *size = (uint64_t)info.st_size;
    return TT_OK;
}

tt_status tt__file_open(int *fd, uint64_t *size, const char *path) {
    *fd = tt__fd(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (*fd < 0)
        return tt__fail_errno(TT_ERR_IO, errno, "%s: can't open it", path);
    tt_status status = regular_size(*fd, size, path);
    if (status) {
        close(*fd);
        *fd = -1;
    }
    return status;
}

tt_status tt__file_read_at(int fd, const char *path, void *to, size_t size, uint64_t offset, size_t *got) {
    for (*got = 0; *got < size;) {
        ssize_t n = pread(fd, (char *)to + *got, size - *got, (off_t)(offset + *got));
        if (n < 0 && errno != EINTR)
            return tt__fail_errno(TT_ERR_IO, errno, "%s: reading failed", path);
        if (n == 0)
            return TT_OK;
        *got += n > 0 ? (size_t)n : 0;
    }
    return TT_OK;
}

tt_status tt__whole_file_read(tt__whole_file *file, const char *path, uint64_t most) {
    int fd = -1;
    uint64_t size = 0;
    *file = (tt__whole_file){0};
    TT__TRY(tt__file_open(&fd, &size, path));
    tt_status status = TT_OK;
    if (size > most || size >= SIZE_MAX)
        status = tt__fail(TT_ERR_FORMAT, "%s: expected at most %" PRIu64 " bytes, got %" PRIu64, path, most, size);
    else if (!(file->data = malloc((size_t)size + 1)))
        status = tt__fail(TT_ERR_MEMORY, "%s: no memory for its %" PRIu64 " bytes", path, size);
    else
        status = tt__file_read_at(fd, path, file->data, (size_t)size, 0, &file->size);
    close(fd);
    if (status)
        tt__whole_file_free(file);
    else
        file->data[file->size] = 0;
    return status;
}

void tt__whole_file_free(tt__whole_file *file) {
    free(file->data);
    *file = (tt__whole_file){0};
}
