/* The reader of .pt files on any bytes: as a whole file, and as the pickle in a sound archive. What it accepts must be
 * a tree that can be walked, of tensors whose memory is there, and can be written and read again. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/checkpoint.h>

#include "unit/checkpoint/pt_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Bytes of data/0 in the archive of a pickle. */
enum { STORAGE_BYTES = 32 };

/* Read what lies at both ends of a tensor. */
static void check_tensor(const tt_tensor *x) {
    const volatile unsigned char *first = tt_tensor_data((tt_tensor *)x);
    int64_t last = 0;
    for (int d = 0; d < tt_tensor_dim(x); d++)
        last += (tt_tensor_size(x, d) - 1) * tt_tensor_stride(x, d);
    if (tt_tensor_numel(x) > 0)
        (void)(first[0] + first[((size_t)last + 1) * tt_dtype_size(tt_tensor_dtype(x)) - 1]);
}

/* Walk all of it. Returns how many values there are. */
static size_t check_value(const tt_value *v, int depth) {
    size_t count = 1;
    if (depth > 100)
        abort();
    if (tt_value_typeof(v) == TT_VALUE_TENSOR)
        check_tensor(tt_value_tensor(v));
    for (int64_t i = 0; i < tt_value_count(v); i++) {
        if (tt_value_typeof(v) == TT_VALUE_DICT && !tt_value_key(v, i))
            abort();
        count += check_value(tt_value_at(v, i), depth + 1);
    }
    return count;
}

/* Check a result. `size`: of the file. */
static void check_result(tt_status status, tt_value *v, size_t size) {
    if (status ? v || !tt_last_status() || !*tt_last_error() : !v)
        abort();
    if (!status && check_value(v, 1) > 16 * size)
        abort();
    tt_ignore(tt_value_tensors(v) ? TT_OK : tt_last_status());
    tt_value_free(v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tt_value *v;
    tt_status status = tt_torch_parse(&v, data ? data : (const uint8_t *)"", size, "fuzz");
    check_result(status, v, size);
    pt_file f = pt_make((const char *)data, size, STORAGE_BYTES);
    status = tt_torch_parse(&v, f.data, f.size, "fuzz");
    check_result(status, v, f.size);
    pt_free(&f);
    return 0;
}
