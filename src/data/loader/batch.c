#include "data/loader/loader.h"

#include "base/error.h"
#include "tensor/core/tensor.h"
#include "tensor/device/pinned.h"

#include <stdlib.h>
#include <string.h>

static const char who[] = "tt_loader";

/* ---- buffers ---- */

/* Make room for a batch's examples, held; *out is NULL where the spec is not given. */
static tt_status rows_new(tt_tensor **out, const tt__batches *b, const tt_tensor_spec *spec) {
    tt_shape shape = {.ndim = spec->shape.ndim + 1, .dim = {b->rows}};
    *out = NULL;
    if (!spec->given)
        return TT_OK;
    memcpy(shape.dim + 1, spec->shape.dim, (size_t)spec->shape.ndim * sizeof *shape.dim);
    tt_tensor *x = tt__tensor_new_pinned(who, b->pin, shape, spec->dtype);
    if (!x)
        return tt_last_status();
    TT__TRY(tt__tensor_adopt(x, "a loader"));
    *out = x;
    return TT_OK;
}

static void buffer_free(tt__batch_buffer *buffer) {
    tt__tensor_disown(buffer->x);
    tt__tensor_disown(buffer->y);
    *buffer = (tt__batch_buffer){0};
}

static tt_status buffer_new(const tt__batches *b, tt__batch_buffer *buffer) {
    *buffer = (tt__batch_buffer){0};
    tt_status status = rows_new(&buffer->x, b, &b->x);
    if (!status)
        status = rows_new(&buffer->y, b, &b->y);
    if (status)
        buffer_free(buffer);
    return status;
}

/* Can x's memory be filled again, perhaps after waiting for a copy to a device? */
static bool rows_are_free(const tt_tensor *x) {
    const tt__pinned *pinned = x ? x->storage->pinned : NULL;
    return !x || (!tt__tensor_is_shared(x) && (!pinned || !tt__pinned_is_elsewhere(pinned)));
}

static bool buffer_is_free(const tt__batch_buffer *buffer) {
    return !buffer->taken && rows_are_free(buffer->x) && rows_are_free(buffer->y);
}

static bool rows_are_read(const tt_tensor *x) {
    return !x || !x->storage->pinned || tt__pinned_is_read(x->storage->pinned);
}

static tt_status await_rows(const tt_tensor *x) {
    return x && x->storage->pinned ? tt__pinned_wait(x->storage->pinned) : TT_OK;
}

/* Return a free buffer that no copy reads; NULL: there is none, and *oldest is the free one that was lent first, or
 * NULL. */
static tt__batch_buffer *find_buffer(const tt__batches *b, tt__batch_buffer **oldest) {
    *oldest = NULL;
    for (int64_t i = 0; i < b->count; i++) {
        tt__batch_buffer *buffer = &b->buffer[i];
        if (!buffer_is_free(buffer))
            continue;
        if (rows_are_read(buffer->x) && rows_are_read(buffer->y))
            return buffer;
        if (!*oldest || buffer->lent < (*oldest)->lent)
            *oldest = buffer;
    }
    return NULL;
}

/* Find a place for one more buffer. If all are taken, the oldest one gives its place up; its memory stays with its
 * users. */
static tt__batch_buffer *buffer_place(tt__batches *b) {
    if (b->count < b->most)
        return &b->buffer[b->count++];
    while (b->buffer[b->oldest].taken)
        b->oldest = (b->oldest + 1) % b->most;
    tt__batch_buffer *oldest = &b->buffer[b->oldest];
    b->oldest = (b->oldest + 1) % b->most;
    buffer_free(oldest);
    return oldest;
}

tt_status tt__batches_choose(tt__batches *batches, tt__batch_buffer **out) {
    tt__batch_buffer made, *oldest, *found = find_buffer(batches, &oldest);
    if (!found && oldest && batches->count == batches->most) {
        TT__TRY(await_rows(oldest->x));
        TT__TRY(await_rows(oldest->y));
        found = oldest;
    }
    if (found) {
        *out = found;
        found->taken = true;
        return TT_OK;
    }
    TT__TRY(buffer_new(batches, &made));
    made.taken = true;
    *out = buffer_place(batches);
    **out = made;
    return TT_OK;
}

tt_status tt__batches_init(tt__batches *batches, int64_t rows, int64_t ahead, const tt_tensor_spec *x,
                           const tt_tensor_spec *y) {
    batches->rows = rows;
    batches->x = *x;
    batches->y = *y;
    batches->most = ahead + TT__BATCH_BUFFERS;
    batches->buffer = calloc((size_t)batches->most, sizeof *batches->buffer);
    if (!batches->buffer)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for %lld batches ahead", who, (long long)ahead);
    while (batches->count < ahead + 1) {
        TT__TRY(buffer_new(batches, &batches->buffer[batches->count]));
        batches->count++;
    }
    return TT_OK;
}

static void drop_buffers(tt__batches *batches) {
    for (int64_t i = 0; i < batches->count; i++)
        buffer_free(&batches->buffer[i]);
    batches->count = batches->oldest = 0;
}

void tt__batches_free(tt__batches *batches) {
    tt__batches_take_back(batches);
    drop_buffers(batches);
    free(batches->buffer);
}

tt_status tt__batches_pin(tt__batches *batches, const tt_device *device) {
    batches->pin = device;
    for (int64_t i = 0; i < batches->count; i++) {
        tt__batch_buffer *buffer = &batches->buffer[i], made;
        if (!buffer_is_free(buffer))
            continue;
        TT__TRY(buffer_new(batches, &made));
        buffer_free(buffer);
        *buffer = made;
    }
    return TT_OK;
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
    *out = tt__tensor_alias(who, rows, shape, stride, 0);
    return *out ? tt__batch_lend_tensor(*out) : tt_last_status();
}

tt_status tt__batch_lend_tensor(tt_tensor *x) { return tt__tensor_lend(x, "a loader, until its next batch"); }

tt_status tt__batches_lend(tt__batches *batches, tt__batch_buffer *buffer, int64_t n) {
    tt_status status = rows_lend(&batches->lent_x, buffer->x, n);
    if (!status)
        status = rows_lend(&batches->lent_y, buffer->y, n);
    if (status)
        tt__batches_take_back(batches);
    buffer->taken = false;
    buffer->lent = ++batches->loans;
    return status;
}

void tt__batches_take_back(tt__batches *batches) {
    tt__tensor_take_back(batches->lent_x);
    tt__tensor_take_back(batches->lent_y);
    batches->lent_x = batches->lent_y = NULL;
}
