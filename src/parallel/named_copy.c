/* The form: the number of tensors, then of each its name with the NUL at its end, a head, and its elements. */
#include "parallel/named_copy.h"

#include "base/error.h"
#include "tensor/core/tensor.h"
#include "tensor/shape/host_copy.h"

#include <stdlib.h>
#include <string.h>

typedef struct tensor_head {
    int64_t dtype, dims, size[TT_MAX_DIMS];
    uint64_t bytes;
} tensor_head;

static tt_status named_write_one(tt_elastic_writer *writer, const char *name, const tt_tensor *x) {
    tensor_head head = {.dtype = tt_tensor_dtype(x), .dims = tt_tensor_dim(x)};
    tt__host_copy elements;
    for (int d = 0; d < head.dims; d++)
        head.size[d] = tt_tensor_size(x, d);
    if (tt__host_copy_make(&elements, x))
        return tt__fail_prefix("\"%s\"", name);
    head.bytes = elements.size;
    tt_elastic_write(writer, name, strlen(name) + 1);
    tt_elastic_write(writer, &head, sizeof head);
    tt_elastic_write(writer, elements.data, elements.size);
    tt__host_copy_free(&elements);
    return TT_OK;
}

tt_status tt__named_write(tt_elastic_writer *writer, const tt_named_tensors *list) {
    if (!list)
        return tt_last_status();
    tt_elastic_write(writer, &list->count, sizeof list->count);
    for (int64_t i = 0; i < list->count; i++)
        TT__TRY(named_write_one(writer, list->names[i], list->tensors[i]));
    return TT_OK;
}

/* ---- reading ---- */

typedef struct bytes_left {
    const char *at;
    size_t size;
} bytes_left;

static bool take_named(bytes_left *left, void *to, size_t size) {
    if (left->size < size)
        return false;
    if (to)
        memcpy(to, left->at, size);
    left->at += size;
    left->size -= size;
    return true;
}

static tt_status fail_named(void) {
    return tt__fail(TT_ERR_FORMAT, "the copy of another rank's tensors makes no sense");
}

/* How many bytes has a tensor of this head? UINT64_MAX: none can have it. */
static uint64_t bytes_of_head(const tensor_head *head) {
    size_t each = head->dtype >= 0 && head->dtype <= TT_BOOL ? tt_dtype_size((tt_dtype)head->dtype) : 0;
    uint64_t n = each;
    if (!each || head->dims < 0 || head->dims > TT_MAX_DIMS)
        return UINT64_MAX;
    for (int d = 0; d < head->dims; d++)
        if (head->size[d] < 0 || __builtin_mul_overflow(n, (uint64_t)head->size[d], &n))
            return UINT64_MAX;
    return n;
}

static tt_status named_read_one(tt__named_copy *copy, bytes_left *left) {
    tensor_head head;
    const char *name = left->at;
    const char *end = left->size ? memchr(name, 0, left->size) : NULL;
    if (!end || !take_named(left, NULL, (size_t)(end - name) + 1) || !take_named(left, &head, sizeof head) ||
        head.bytes != bytes_of_head(&head) || head.bytes > left->size)
        return fail_named();
    tt_shape shape = {.ndim = (int)head.dims};
    memcpy(shape.dim, head.size, sizeof shape.dim);
    tt_tensor *x = (tt_from_data)(left->at, shape, (tt_dtype)head.dtype);
    if (!x)
        return tt_last_status();
    take_named(left, NULL, (size_t)head.bytes);
    copy->names[copy->list.count] = name;
    copy->tensors[copy->list.count++] = x;
    return TT_OK;
}

tt_status tt__named_read(tt__named_copy *copy, const void **data, size_t *size) {
    bytes_left left = {*data, *size};
    int64_t count;
    *copy = (tt__named_copy){.list.size = sizeof copy->list};
    if (!take_named(&left, &count, sizeof count) || count < 0 || (uint64_t)count > left.size)
        return fail_named();
    copy->names = calloc((size_t)count + 1, sizeof *copy->names);
    copy->tensors = calloc((size_t)count + 1, sizeof *copy->tensors);
    if (!copy->names || !copy->tensors)
        return tt__fail(TT_ERR_MEMORY, "no memory for a list of %lld tensors", (long long)count);
    copy->list.names = copy->names;
    copy->list.tensors = copy->tensors;
    while (copy->list.count < count)
        TT__TRY(named_read_one(copy, &left));
    *data = left.at;
    *size = left.size;
    return TT_OK;
}

void tt__named_copy_free(tt__named_copy *copy) {
    free(copy->names);
    free(copy->tensors);
    *copy = (tt__named_copy){0};
}
