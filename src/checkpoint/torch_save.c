/* Writing .pt files: values as a pickle of protocol 2, with only opcodes that torch.load(weights_only=True) takes, then
 * the elements of their tensors. */
#include "base/bytes.h"
#include "base/error.h"
#include "base/hash.h"
#include "checkpoint/torch_types.h"
#include "checkpoint/value.h"
#include "tensor/core/tensor.h"
#include "tensor/shape/copy.h"
#include "zip/zip.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tensors whose elements become records, each once: number i is data/i. */
typedef struct pickled_tensors {
    size_t count, room;
    tt_tensor **tensor; /* borrowed */
    uint32_t *slot;     /* a hash table by address: a number plus one, 0 where it is free */
    size_t slots;       /* a power of two, at least 2 * room */
} pickled_tensors;

static void put_op(tt__bytes *to, unsigned char code) { tt__bytes_put(to, &code, 1); }

/* Put an opcode and the `width` low bytes of a number. */
static void put_argument(tt__bytes *to, unsigned char code, uint64_t number, size_t width) {
    put_op(to, code);
    tt__bytes_put(to, &number, width);
}

static void put_int(tt__bytes *to, int64_t x) {
    if (x >= 0 && x <= UINT8_MAX)
        put_argument(to, 'K', (uint64_t)x, 1);
    else if (x >= 0 && x <= UINT16_MAX)
        put_argument(to, 'M', (uint64_t)x, 2);
    else if (x >= INT32_MIN && x <= INT32_MAX)
        put_argument(to, 'J', (uint64_t)x, 4);
    else {
        put_argument(to, 0x8a, 8, 1);
        tt__bytes_put(to, &x, sizeof x);
    }
}

/* The only number that is big-endian. */
static void put_float(tt__bytes *to, double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    put_argument(to, 'G', __builtin_bswap64(bits), sizeof bits);
}

static void put_string(tt__bytes *to, const char *text) {
    size_t length = strlen(text);
    put_argument(to, 'X', length, 4);
    tt__bytes_put(to, text, length);
}

static void put_global(tt__bytes *to, const char *module, const char *name) {
    put_op(to, 'c');
    tt__bytes_put(to, module, strlen(module));
    put_op(to, '\n');
    tt__bytes_put(to, name, strlen(name));
    put_op(to, '\n');
}

/* ---- tensors ---- */

/* Can another tensor have the same elements in memory, as tied weights do? */
static bool can_be_tied(const tt_tensor *x) { return x->contiguous && x->numel > 0; }

static bool is_same_memory(const tt_tensor *a, const tt_tensor *b) {
    return a->data == b->data && a->dtype == b->dtype && a->numel == b->numel && a->storage == b->storage;
}

/* Return the slot of the record that has x's elements, or the free one for it. Only for what can be tied. */
static uint32_t *record_slot(const pickled_tensors *tensors, const tt_tensor *x) {
    const uint64_t key[] = {(uintptr_t)x->data, (uint64_t)x->numel, (uint64_t)x->dtype};
    for (size_t at = tt__siphash_own(key, sizeof key) & (tensors->slots - 1);; at = (at + 1) & (tensors->slots - 1)) {
        uint32_t *slot = &tensors->slot[at];
        if (!*slot || is_same_memory(tensors->tensor[*slot - 1], x))
            return slot;
    }
}

/* Make room for twice as many tensors. */
static tt_status make_room(pickled_tensors *tensors) {
    size_t room = tensors->room ? 2 * tensors->room : 64;
    tt_tensor **tensor = realloc(tensors->tensor, room * sizeof *tensor);
    if (tensor)
        tensors->tensor = tensor;
    uint32_t *slot = tensor ? calloc(2 * room, sizeof *slot) : NULL;
    if (!slot)
        return tt__fail(TT_ERR_MEMORY, "no memory to list %zu tensors", room);
    free(tensors->slot);
    tensors->slot = slot;
    tensors->slots = 2 * room;
    tensors->room = room;
    for (size_t i = 0; i < tensors->count; i++)
        if (can_be_tied(tensors->tensor[i]))
            *record_slot(tensors, tensors->tensor[i]) = (uint32_t)i + 1;
    return TT_OK;
}

/* Find the record of x, or make a new one. */
static tt_status number_tensor(pickled_tensors *tensors, tt_tensor *x, size_t *number) {
    if (tensors->count == tensors->room)
        TT__TRY(make_room(tensors));
    uint32_t *slot = can_be_tied(x) ? record_slot(tensors, x) : NULL;
    *number = slot && *slot ? *slot - 1 : tensors->count;
    if (*number < tensors->count)
        return TT_OK;
    tensors->tensor[tensors->count++] = x;
    if (slot)
        *slot = (uint32_t)tensors->count;
    return TT_OK;
}

static void free_pickled_tensors(pickled_tensors *tensors) {
    free(tensors->tensor);
    free(tensors->slot);
    *tensors = (pickled_tensors){0};
}

/* Put a tuple of numbers; its opcode depends on how many there are. */
static void put_tuple(tt__bytes *to, const int64_t *numbers, int n) {
    if (n > 3)
        put_op(to, '(');
    for (int i = 0; i < n; i++)
        put_int(to, numbers[i]);
    put_op(to, n == 0 ? ')' : n <= 3 ? (unsigned char)(0x84 + n) : 't');
}

/* Put a tensor: a call of torch's function on a storage that has x's elements alone, one after the other. */
static tt_status put_tensor(tt__bytes *to, pickled_tensors *tensors, tt_tensor *x) {
    size_t number;
    char key[24];
    int64_t stride[TT_MAX_DIMS];
    TT__TRY(number_tensor(tensors, x, &number));
    snprintf(key, sizeof key, "%zu", number);
    tt__shape_strides(&x->shape, stride);
    put_global(to, "torch._utils", "_rebuild_tensor_v2");
    put_op(to, '(');
    put_op(to, '(');
    put_string(to, "storage");
    put_global(to, "torch", tt__torch_type_find(x->dtype)->storage);
    put_string(to, key);
    put_string(to, "cpu");
    put_int(to, x->numel);
    put_op(to, 't');
    put_op(to, 'Q');
    put_int(to, 0);
    put_tuple(to, x->shape.dim, x->shape.ndim);
    put_tuple(to, stride, x->shape.ndim);
    put_op(to, 0x89); /* requires no gradient */
    put_global(to, "collections", "OrderedDict");
    put_op(to, ')');
    put_op(to, 'R'); /* no hooks */
    put_op(to, 't');
    put_op(to, 'R');
    return TT_OK;
}

/* ---- values ---- */

static tt_status pickle_value(tt__bytes *to, pickled_tensors *tensors, const tt_value *v);

/* Put a container's items, and a dict's keys before them. */
static tt_status put_items(tt__bytes *to, pickled_tensors *tensors, const tt_value *v) {
    for (size_t i = 0; i < v->count; i++) {
        if (v->keys)
            TT__TRY(pickle_value(to, tensors, v->keys[i]));
        TT__TRY(pickle_value(to, tensors, v->items[i]));
    }
    return TT_OK;
}

static tt_status put_container(tt__bytes *to, pickled_tensors *tensors, const tt_value *v) {
    static const unsigned char empty[] = {[TT_VALUE_LIST] = ']', [TT_VALUE_TUPLE] = ')', [TT_VALUE_DICT] = '}'};
    static const unsigned char fill[] = {[TT_VALUE_LIST] = 'e', [TT_VALUE_TUPLE] = 't', [TT_VALUE_DICT] = 'u'};
    if (v->type != TT_VALUE_TUPLE || v->count == 0)
        put_op(to, empty[v->type]);
    if (v->count == 0)
        return TT_OK;
    put_op(to, '(');
    TT__TRY(put_items(to, tensors, v));
    put_op(to, fill[v->type]);
    return TT_OK;
}

static tt_status pickle_value(tt__bytes *to, pickled_tensors *tensors, const tt_value *v) {
    switch ((tt_value_type)v->type) {
    case TT_VALUE_NONE:
        put_op(to, 'N');
        return TT_OK;
    case TT_VALUE_BOOL:
        put_op(to, v->boolean ? 0x88 : 0x89);
        return TT_OK;
    case TT_VALUE_INT:
        put_int(to, v->integer);
        return TT_OK;
    case TT_VALUE_FLOAT:
        put_float(to, v->real);
        return TT_OK;
    case TT_VALUE_STRING:
        put_string(to, v->string);
        return TT_OK;
    case TT_VALUE_DTYPE:
        put_global(to, "torch", tt__torch_type_find(v->dtype)->dtype);
        return TT_OK;
    case TT_VALUE_TENSOR:
        return put_tensor(to, tensors, v->tensor);
    default:
        return put_container(to, tensors, v);
    }
}

/* Append the pickle of `value` to `to`. The caller frees `to` and `tensors`, also after a failure. */
static tt_status pickle_write(tt__bytes *to, pickled_tensors *tensors, const tt_value *value) {
    static const unsigned char protocol_2[] = {0x80, 2};
    tt__bytes_put(to, protocol_2, sizeof protocol_2);
    TT__TRY(pickle_value(to, tensors, value));
    put_op(to, '.');
    return to->failed ? tt__fail(TT_ERR_MEMORY, "no memory for a pickle") : TT_OK;
}

/* ---- the file ---- */

#define FOLDER "archive/"

static tt_status add_record(tt__zip_writer *w, const char *record, const void *data, size_t size) {
    return tt__zip_add(w, record, &(tt__span){data, size}, 1);
}

static tt_status add_elements(tt__zip_writer *w, tt_tensor *x, size_t number) {
    char record[48];
    tt__host_copy elements;
    snprintf(record, sizeof record, FOLDER "data/%zu", number);
    if (tt__host_copy_make(&elements, x))
        return tt__fail_prefix("%s: tensor %zu", w->file.path, number);
    tt_status status = add_record(w, record, elements.data, elements.size);
    tt__host_copy_free(&elements);
    return status;
}

static tt_status add_records(tt__zip_writer *w, const tt__bytes *pickle, const pickled_tensors *tensors) {
    TT__TRY(add_record(w, FOLDER "data.pkl", pickle->data, pickle->size));
    TT__TRY(add_record(w, FOLDER "byteorder", "little", 6));
    for (size_t i = 0; i < tensors->count; i++)
        TT__TRY(add_elements(w, tensors->tensor[i], i));
    return add_record(w, FOLDER "version", "3\n", 2);
}

static tt_status write_archive(const char *path, const tt__bytes *pickle, const pickled_tensors *tensors) {
    tt__zip_writer w;
    TT__TRY(tt__zip_create(&w, path));
    tt_status status = add_records(&w, pickle, tensors);
    if (!status)
        return tt__zip_commit(&w);
    tt__zip_abort(&w);
    return status;
}

tt_status tt_torch_save(const char *path, const tt_value *value) {
    if (!path)
        return tt__fail(TT_ERR_INVALID, "tt_torch_save: `path` is NULL");
    if (!value)
        return tt__fail_argument("tt_torch_save: `value` is NULL");
    tt__bytes pickle = {0};
    pickled_tensors tensors = {0};
    tt_status status = pickle_write(&pickle, &tensors, value);
    if (status)
        tt__fail_prefix("%s", path);
    else
        status = write_archive(path, &pickle, &tensors);
    tt__bytes_free(&pickle);
    free_pickled_tensors(&tensors);
    return status;
}
