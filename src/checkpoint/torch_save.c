/* Writing .pt files: the pickle, then the elements of its tensors. */
#include <stdio.h>

#include "base/error.h"
#include "checkpoint/pickle_write.h"
#include "tensor/shape/host_copy.h"
#include "zip/zip_write.h"

#define FOLDER "archive/"

static tt_status add_record(tt__zip_writer *w, const char *record, const void *data, size_t size) {
    return tt__zip_add(w, record, &(tt__span){data, size}, 1);
}

static tt_status add_elements(tt__zip_writer *w, tt_tensor *x, size_t number) {
    char record[48];
    tt__host_copy elements;
    snprintf(record, sizeof record, FOLDER "data/%zu", number);
    if (tt__host_copy_make(&elements, x))
        return tt__fail_prefix("%s: tensor %zu", w->file.path, number);
    tt_status status = add_record(w, record, elements.data, elements.size);
    tt__host_copy_free(&elements);
    return status;
}

static tt_status add_records(tt__zip_writer *w, const tt__bytes *pickle, const tt__pickled_tensors *tensors) {
    TT__TRY(add_record(w, FOLDER "data.pkl", pickle->data, pickle->size));
    TT__TRY(add_record(w, FOLDER "byteorder", "little", 6));
    for (size_t i = 0; i < tensors->count; i++)
        TT__TRY(add_elements(w, tensors->tensor[i], i));
    return add_record(w, FOLDER "version", "3\n", 2);
}

static tt_status write_archive(const char *path, const tt__bytes *pickle, const tt__pickled_tensors *tensors) {
    tt__zip_writer w;
    TT__TRY(tt__zip_create(&w, path));
    tt_status status = add_records(&w, pickle, tensors);
    if (!status)
        return tt__zip_commit(&w);
    tt__zip_abort(&w);
    return status;
}

tt_status tt_torch_save(const char *path, const tt_value *value) {
    if (!path)
        return tt__fail(TT_ERR_INVALID, "tt_torch_save: `path` is NULL");
    if (!value)
        return tt__fail_argument("tt_torch_save: `value` is NULL");
    tt__bytes pickle = {0};
    tt__pickled_tensors tensors = {0};
    tt_status status = tt__pickle_write(&pickle, &tensors, value);
    if (status)
        tt__fail_prefix("%s", path);
    else
        status = write_archive(path, &pickle, &tensors);
    tt__bytes_free(&pickle);
    tt__pickled_tensors_free(&tensors);
    return status;
}
