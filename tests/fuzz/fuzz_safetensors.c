/* The safetensors reader on any bytes. What it accepts must be consistent: every tensor's memory is there and can be
 * read, names are sorted. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/checkpoint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Check what was read from `size` bytes; unsigned integers of 16 and 32 bits take twice their room. */
static void check_file(const tt_safetensors *file, size_t size) {
    const tt_named_tensors *t = tt_safetensors_tensors(file);
    size_t total = 0;
    for (int64_t i = 0; i < t->count; i++) {
        size_t bytes = (size_t)tt_tensor_numel(t->tensors[i]) * tt_dtype_size(tt_tensor_dtype(t->tensors[i]));
        total += bytes;
        if (bytes > 0 && !memchr(tt_tensor_data(t->tensors[i]), *(uint8_t *)tt_tensor_data(t->tensors[i]), bytes))
            abort();
        if (i > 0 && strcmp(t->names[i - 1], t->names[i]) >= 0)
            abort();
    }
    if (total > 2 * size)
        abort();
    tt_safetensors_metadata(file, "format");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tt_safetensors *file, *rest;
    int64_t skipped = -1;
    tt_status status = tt_safetensors_parse(&file, data, size, "fuzz");
    if (status ? file || !tt_last_status() || !*tt_last_error() : !file)
        abort();
    if (!status)
        check_file(file, size);
    /* What is unsupported can be left out; everything else stays as it was. */
    tt_status again = tt_safetensors_parse(&rest, data, size, "fuzz", .skip_unsupported = true);
    if (again != status && status != TT_ERR_UNSUPPORTED)
        abort();
    if (!again)
        check_file(rest, size);
    tt_safetensors_skipped(rest, &skipped);
    if (!again && (skipped > 0) != (status != TT_OK))
        abort();
    tt_safetensors_free(file);
    tt_safetensors_free(rest);
    return 0;
}
