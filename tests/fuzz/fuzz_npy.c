/* NumPy's arrays: the bytes as a .npy file, and as a .npz file. */
#include "fuzz/folder.h"

#include <tutti/datasets.h>

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Read what lies at both ends of a tensor. */
static void touch(const tt_tensor *x) {
    const volatile unsigned char *first = tt_tensor_data((tt_tensor *)x);
    size_t bytes = (size_t)tt_tensor_numel(x) * tt_dtype_size(tt_tensor_dtype(x));
    if (bytes)
        (void)(first[0] + first[bytes - 1]);
}

static void read_npy(const char *path) {
    tt_tensor *x = NULL;
    if (!tt_npy_read(&x, path) != (x != NULL))
        abort();
    if (x)
        touch(x);
    tt_tensor_free(x);
}

static void read_npz(const char *path) {
    tt_npz *file = NULL;
    if (!tt_npz_read(&file, path) != (file != NULL))
        abort();
    for (int64_t i = 0; file && i < tt_npz_tensors(file)->count; i++)
        touch(tt_npz_tensors(file)->tensors[i]);
    tt_npz_free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *path = fuzz_file("arrays", data, size);
    read_npy(path);
    read_npz(path);
    return 0;
}
