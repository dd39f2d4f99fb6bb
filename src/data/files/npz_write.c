/* Writing .npz files: what numpy.savez() writes, nothing compressed. */
#include "base/error.h"
#include "data/files/npy.h"
#include "data/files/npz.h"
#include "tensor/core/named_tensors.h"
#include "tensor/shape/host_copy.h"
#include "zip/zip_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tt_status add_array(tt__zip_writer *w, const char *record, const tt_tensor *x) {
    tt__host_copy elements;
    tt__bytes header = {0};
    if (tt__host_copy_make(&elements, x))
        return tt__fail_prefix("%s: %s", w->file.path, record);
    tt__npy_put_header(&header, x);
    const tt__span parts[] = {{header.data, header.size}, {elements.data, elements.size}};
    tt_status status =
        header.failed ? tt__fail(TT_ERR_MEMORY, "%s: out of memory", record) : tt__zip_add(w, record, parts, 2);
    tt__bytes_free(&header);
    tt__host_copy_free(&elements);
    return status;
}

static tt_status add_named(tt__zip_writer *w, const char *name, const tt_tensor *x) {
    size_t size = strlen(name) + sizeof TT__NPZ_ENDING;
    char *record = malloc(size);
    if (!record)
        return tt__fail(TT_ERR_MEMORY, "%s: out of memory", w->file.path);
    snprintf(record, size, "%s" TT__NPZ_ENDING, name);
    tt_status status = add_array(w, record, x);
    free(record);
    return status;
}

static tt_status npz_check_list(const char *path, const tt_named_tensors *tensors) {
    TT__TRY(tt__named_tensors_check(path, tensors, true));
    for (int64_t i = 0; i < tensors->count; i++)
        if (!*tensors->names[i])
            return tt__fail(TT_ERR_INVALID, "%s: expected names, got an empty one", path);
    return tt__npz_check_names(path, TT_ERR_INVALID, tensors->names, tensors->count);
}

tt_status tt_npz_write(const char *path, const tt_named_tensors *tensors) {
    tt__zip_writer w;
    if (!path)
        return tt__fail(TT_ERR_INVALID, "tt_npz_write: expected a path, got NULL");
    TT__TRY(npz_check_list(path, tensors));
    TT__TRY(tt__zip_create(&w, path));
    tt_status status = TT_OK;
    for (int64_t i = 0; i < tensors->count && !status; i++)
        status = add_named(&w, tensors->names[i], tensors->tensors[i]);
    if (!status)
        return tt__zip_commit(&w);
    tt__zip_abort(&w);
    return status;
}
