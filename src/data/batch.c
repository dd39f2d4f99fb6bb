#include "data/batch.h"

#include "base/error.h"
#include "tensor/tensor.h"

#include <string.h>

static const char who[] = "tt_loader";

/* ---- buffers ---- */

/* Make room for n examples, held; *out is NULL where the spec is not given. */
static tt_status rows_new(tt_tensor **out, const tt_tensor_spec *spec, int64_t n) {
    tt_shape shape = {.ndim = spec->shape.ndim + 1, .dim = {n}};
    *out = NULL;
    if (!spec->given)
        return TT_OK;
    memcpy(shape.dim + 1, spec->shape.dim, (size_t)spec->shape.ndim * sizeof *shape.dim);
    tt_tensor *x = tt__tensor_new(who, shape, spec->dtype);
    if (!x)
        return tt_last_status();
    TT__TRY(tt__tensor_adopt(x, "a loader"));
    *out = x;
    return TT_OK;
}

static void buffer_free(tt__batch_buffer *buffer) {
    tt__tensor_disown(buffer->x);
    tt__tensor_disown(buffer->y);
    *buffer = (tt__batch_buffer){NULL, NULL};
}

static tt_status buffer_new(const tt__batches *b, tt__batch_buffer *buffer) {
    *buffer = (tt__batch_buffer){NULL, NULL};
    tt_status status = rows_new(&buffer->x, &b->x, b->rows);
    if (!status)
        status = rows_new(&buffer->y, &b->y, b->rows);
    if (status)
        buffer_free(buffer);
    return status;
}

static bool buffer_is_free(const tt__batch_buffer *buffer) {
    return !tt__tensor_is_shared(buffer->x) && (!buffer->y || !tt__tensor_is_shared(buffer->y));
}

/* Choose a buffer that the caller does not use: an old one, one more, or a new one in the place of the oldest, whose
 * memory stays with its users. */
static tt_status choose_buffer(tt__batches *b, tt__batch_buffer **out) {
    for (int i = 0; i < b->count; i++)
        if (buffer_is_free(&b->buffer[i])) {
            *out = &b->buffer[i];
            return TT_OK;
        }
    tt__batch_buffer made;
    TT__TRY(buffer_new(b, &made));
    if (b->count < TT__BATCH_BUFFERS) {
        *out = &b->buffer[b->count++];
    } else {
        *out = &b->buffer[b->oldest];
        b->oldest = (b->oldest + 1) % TT__BATCH_BUFFERS;
        buffer_free(*out);
    }
    **out = made;
    return TT_OK;
}

tt_status tt__batches_init(tt__batches *batches, int64_t rows, const tt_tensor_spec *x, const tt_tensor_spec *y) {
    *batches = (tt__batches){.rows = rows, .x = *x, .y = *y};
    tt__batch_buffer *first;
    return choose_buffer(batches, &first);
}

void tt__batches_free(tt__batches *batches) {
    tt__batches_take_back(batches);
    for (int i = 0; i < batches->count; i++)
        buffer_free(&batches->buffer[i]);
    batches->count = 0;
}

/* ---- loans ---- */

/* Lend the first n rows of a buffer's tensor. */
static tt_status rows_lend(tt_tensor **out, const tt_tensor *rows, int64_t n) {
    if (!rows)
        return TT_OK;
    int64_t stride[TT_MAX_DIMS];
    tt_shape shape = rows->shape;
    shape.dim[0] = n;
    tt__shape_strides(&shape, stride);
    tt_tensor *view = tt__tensor_alias(who, rows, shape, stride, 0);
    if (!view)
        return tt_last_status();
    TT__TRY(tt__tensor_lend(view, "a loader, until its next batch"));
    *out = view;
    return TT_OK;
}

tt_status tt__batches_lend(tt__batches *batches, int64_t n) {
    tt__batch_buffer *buffer;
    TT__TRY(choose_buffer(batches, &buffer));
    tt_status status = rows_lend(&batches->lent_x, buffer->x, n);
    if (!status)
        status = rows_lend(&batches->lent_y, buffer->y, n);
    if (status)
        tt__batches_take_back(batches);
    return status;
}

void tt__batches_take_back(tt__batches *batches) {
    tt__tensor_take_back(batches->lent_x);
    tt__tensor_take_back(batches->lent_y);
    batches->lent_x = batches->lent_y = NULL;
}
