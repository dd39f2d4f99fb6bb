/* NumPy's arrays from memory: the bytes as a .npy file, and as a .npz file. */
#include "data/files/npy.h"
#include "data/files/npz.h"
#include "data/files/source.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static tt_status from_source(void *from, void *out, size_t size, size_t *got) {
    return tt__source_read(from, out, size, got);
}

/* Read what lies at both ends of a tensor. */
static void touch(const tt_tensor *x) {
    const volatile unsigned char *first = tt_tensor_data((tt_tensor *)x);
    size_t bytes = (size_t)tt_tensor_numel(x) * tt_dtype_size(tt_tensor_dtype(x));
    if (bytes)
        (void)(first[0] + first[bytes - 1]);
}

static void decode_npy(const uint8_t *data, size_t size) {
    static tt__source source;
    tt_tensor *x = NULL;
    if (tt__source_memory(&source, "fuzz", data, size))
        return;
    const tt__npy_input input = {"fuzz", tt__source_limit(&source), from_source, &source};
    if (!tt__npy_decode(&x, &input) != (x != NULL))
        abort();
    tt__source_close(&source);
    if (x)
        touch(x);
    tt_tensor_free(x);
}

static void decode_npz(const uint8_t *data, size_t size) {
    tt_npz *file = NULL;
    if (!tt__npz_decode(&file, "fuzz", data, -1, size) != (file != NULL))
        abort();
    for (int64_t i = 0; file && i < tt_npz_tensors(file)->count; i++)
        touch(tt_npz_tensors(file)->tensors[i]);
    tt_npz_free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    decode_npy(data, size);
    if (size)
        decode_npz(data, size);
    return 0;
}
