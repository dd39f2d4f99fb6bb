/* Regular files as the bytes that they are: opened, read, written, and as tensors of u8. */
#include "data/files/whole_file.h"

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/files/fd.h"
#include "tensor/core/tensor.h"
#include "tensor/shape/copy.h"

#include <tutti/datasets.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
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

tt_status tt__file_write(const char *path, const tt__span *parts, int n) {
    tt__atomic_file file;
    TT__TRY(tt__atomic_open(&file, path));
    tt_status status = TT_OK;
    for (int i = 0; i < n && !status; i++)
        status = tt__atomic_write(&file, parts[i].data, parts[i].size);
    if (!status)
        return tt__atomic_commit(&file);
    tt__atomic_abort(&file);
    return status;
}

/* ---- as tensors ---- */

tt_status tt_bytes_read(tt_tensor **out, const char *path) {
    if (out)
        *out = NULL;
    if (!out || !path)
        return tt__fail(TT_ERR_INVALID, "tt_bytes_read: expected a path and where to put the tensor, got NULL");
    tt__whole_file file;
    TT__TRY(tt__whole_file_read(&file, path, INT64_MAX / 16));
    tt_tensor *x = tt_keep(tt__tensor_new("tt_bytes_read", TT_SHAPE((int64_t)file.size), TT_U8));
    if (x)
        memcpy(x->data, file.data, file.size);
    tt__whole_file_free(&file);
    *out = x;
    return x ? TT_OK : tt__fail_prefix("%s", path);
}

tt_status tt_bytes_write(const tt_tensor *x, const char *path) {
    if (!path)
        return tt__fail(TT_ERR_INVALID, "tt_bytes_write: expected a path, got NULL");
    if (!x)
        return tt__tensor_first_error("tt_bytes_write");
    if (x->dtype != TT_U8)
        return tt__fail(TT_ERR_DTYPE, "tt_bytes_write: %s: expected u8, got %s", path, TT__DESCRIBE(x));
    tt__host_copy bytes;
    if (tt__host_copy_make(&bytes, x))
        return tt__fail_prefix("tt_bytes_write: %s", path);
    tt_status status = tt__file_write(path, &(tt__span){bytes.data, bytes.size}, 1);
    tt__host_copy_free(&bytes);
    return status;
}
