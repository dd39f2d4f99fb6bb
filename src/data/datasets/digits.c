/* The built-in data set: drawn digits as a tensor of images. */
#include "data/datasets/digits.h"

#include <tutti/data.h>

#include "base/error.h"
#include "tensor/core/tensor.h"

#include <inttypes.h>

tt_dataset *tt_digits(int64_t n, uint64_t seed) {
    if (n < 1)
        return tt__fail_null(TT_ERR_INVALID, "tt_digits: expected at least 1 example, got %" PRId64, n);
    tt_tensor *images = tt_keep(tt__tensor_new("tt_digits", TT_SHAPE(n, 1, TT__DIGIT_SIDE, TT__DIGIT_SIDE), TT_U8));
    tt_tensor *labels = tt_keep(tt__tensor_new("tt_digits", TT_SHAPE(n), TT_I64));
    if (!images || !labels) {
        tt_tensor_free(images);
        tt_tensor_free(labels);
        return NULL;
    }
    uint8_t *pixels = images->data;
    int64_t *label = labels->data;
    for (int64_t i = 0; i < n; i++)
        label[i] = tt__digit_draw(pixels + i * TT__DIGIT_SIDE * TT__DIGIT_SIDE, seed, i);
    return tt_tensor_dataset(images, labels);
}
