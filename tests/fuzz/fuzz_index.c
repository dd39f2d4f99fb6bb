/* The reader of tensors in several safetensors files: up to the first 0 the input is the index, what follows is the
 * file "c.safetensors"; "a.safetensors" and "b.safetensors" are sound. What is accepted names each tensor once, sorted,
 * and has its memory. */
#include <string.h>
#include <tutti/checkpoint.h>

#include "fuzz/folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define INDEX fuzz_path("x.safetensors.index.json")

static void save(const char *path, const char *first, const char *second) {
    TT_AUTO_SCOPE;
    const char *names[] = {first, second};
    tt_tensor *tensors[] = {tt_ones(TT_SHAPE(2, 3), TT_F32), tt_arange(3)};
    if (tt_safetensors_save(path, TT_NAMED_TENSORS(2, names, tensors), NULL, 0))
        abort();
}

static void begin(void) {
    static bool begun;
    if (begun)
        return;
    begun = true;
    fuzz_folder_make();
    save(fuzz_path("a.safetensors"), "v", "w");
    save(fuzz_path("b.safetensors"), "x", "y");
}

static void check(const tt_safetensors *file) {
    const tt_named_tensors *t = tt_safetensors_tensors(file);
    for (int64_t i = 0; i < t->count; i++) {
        size_t bytes = (size_t)tt_tensor_numel(t->tensors[i]) * tt_dtype_size(tt_tensor_dtype(t->tensors[i]));
        if (bytes > 0 && !memchr(tt_tensor_data(t->tensors[i]), *(uint8_t *)tt_tensor_data(t->tensors[i]), bytes))
            abort();
        if (i > 0 && strcmp(t->names[i - 1], t->names[i]) >= 0)
            abort();
    }
    int64_t skipped;
    tt_safetensors_skipped(file, &skipped);
    tt_safetensors_metadata(file, "format");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    begin();
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    size_t length = zero ? (size_t)(zero - data) : size;
    fuzz_write(INDEX, data, length);
    fuzz_write(fuzz_path("c.safetensors"), zero ? zero + 1 : data, zero ? size - length - 1 : 0);
    for (int skip = 0; skip < 2; skip++) {
        tt_safetensors *file = NULL;
        tt_clear_error();
        tt_status status = tt_safetensors_load(&file, INDEX, .skip_unsupported = skip);
        if (status ? tt_last_status() != status || !*tt_last_error() : !file)
            abort();
        if (!status)
            check(file);
        tt_safetensors_free(status ? NULL : file);
    }
    return 0;
}
