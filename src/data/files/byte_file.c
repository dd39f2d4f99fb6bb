/* Files as the bytes that they are. */
#include "base/error.h"
#include "base/files/atomic_file.h"
#include "data/files/whole_file.h"
#include "tensor/core/tensor.h"
#include "tensor/shape/host_copy.h"

#include <string.h>
#include <tutti/datasets.h>

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

static tt_status write_whole(const char *path, const void *data, size_t size) {
    tt__atomic_file file;
    TT__TRY(tt__atomic_open(&file, path));
    tt_status status = tt__atomic_write(&file, data, size);
    if (!status)
        return tt__atomic_commit(&file);
    tt__atomic_abort(&file);
    return status;
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
    tt_status status = write_whole(path, bytes.data, bytes.size);
    tt__host_copy_free(&bytes);
    return status;
}
