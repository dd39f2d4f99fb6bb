#include "data/files/npy.h"

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "tensor/core/tensor.h"
#include "tensor/shape/host_copy.h"

#include <tutti/datasets.h>

static tt_status npy_write_parts(const char *path, const tt__bytes *header, const tt__host_copy *elements) {
    tt__atomic_file file;
    TT__TRY(tt__atomic_open(&file, path));
    tt_status status = tt__atomic_write(&file, header->data, header->size);
    if (!status)
        status = tt__atomic_write(&file, elements->data, elements->size);
    if (!status)
        return tt__atomic_commit(&file);
    tt__atomic_abort(&file);
    return status;
}

tt_status tt_npy_write(const tt_tensor *x, const char *path) {
    if (!path)
        return tt__fail(TT_ERR_INVALID, "tt_npy_write: expected a path, got NULL");
    if (!x)
        return tt__tensor_first_error("tt_npy_write");
    tt__host_copy elements;
    tt__bytes header = {0};
    if (tt__host_copy_make(&elements, x))
        return tt__fail_prefix("tt_npy_write: %s", path);
    tt__npy_put_header(&header, x);
    tt_status status = header.failed ? tt__fail(TT_ERR_MEMORY, "tt_npy_write: %s: out of memory", path)
                                     : npy_write_parts(path, &header, &elements);
    tt__bytes_free(&header);
    tt__host_copy_free(&elements);
    return status;
}
