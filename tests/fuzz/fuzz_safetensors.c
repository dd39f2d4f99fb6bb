/* The safetensors reader on any bytes. What it accepts must be consistent: every tensor's memory is there and can be
 * read, names are sorted. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/checkpoint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tt_safetensors *file;
    if (tt_safetensors_parse(&file, data, size, "fuzz")) {
        if (file || !tt_last_status() || !*tt_last_error())
            abort();
        return 0;
    }
    tt_named_tensors t = tt_safetensors_tensors(file);
    size_t total = 0;
    for (size_t i = 0; i < t.count; i++) {
        size_t bytes = (size_t)tt_tensor_numel(t.tensors[i]) * tt_dtype_size(tt_tensor_dtype(t.tensors[i]));
        total += bytes;
        if (bytes > 0 && !memchr(tt_tensor_data(t.tensors[i]), *(uint8_t *)tt_tensor_data(t.tensors[i]), bytes))
            abort();
        if (i > 0 && strcmp(t.names[i - 1], t.names[i]) >= 0)
            abort();
    }
    if (total > size)
        abort();
    tt_safetensors_metadata(file, "format");
    tt_safetensors_free(file);
    return 0;
}
