/* What a pickle may name: functions, each of which makes a value of its arguments, types, and storages. Nothing else
 * can be called. */
#include "base/error.h"
#include "checkpoint/pickle.h"
#include "checkpoint/safetensors.h"
#include "tensor/core/tensor.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The most bytes of a view with more elements than its storage: a stride of 0 makes any number of elements of one. */
static const uint64_t most_shown = UINT64_C(1) << 30;

/* Name what is being read: the last text on the stack is the key that a tensor stands behind. */
static const char *last_key(const tt__pickle *p) {
    for (size_t i = p->stack.count; i-- > 0;)
        if (p->stack.item[i]->type == TT_VALUE_STRING)
            return p->stack.item[i]->string;
    return "?";
}

#define KEY(p) tt__make_printable(last_key(p)).text

/* ---- storages ---- */

/* Read a storage's elements, which the machine holds. */
static tt_status read_storage(tt__pickle *p, const tt__archive_record *record, tt__pickle_storage *storage) {
    tt_dtype dtype = storage->type->ours;
    int64_t count = (int64_t)(record->size / tt_dtype_size(dtype));
    tt_tensor *x = tt__tensor_new("tt_torch_load", TT_SHAPE(count), dtype);
    if (!x || tt__tensor_adopt(x, "a .pt file"))
        return tt__fail_prefix("%s: \"%s\"", p->name, KEY(p));
    storage->elements = x;
    TT__TRY(tt__archive_read(p->archive, record, tt_tensor_data(x)));
    const unsigned char *bytes = tt_tensor_data(x);
    for (uint64_t i = 0; dtype == TT_BOOL && i < record->size; i++)
        if (bytes[i] > 1)
            return tt__pickle_fail(p, TT_ERR_FORMAT,
                                   "\"%s\": expected bools, bytes of 0 or 1, but byte %" PRIu64 " is %d", KEY(p), i,
                                   bytes[i]);
    return TT_OK;
}

/* Find the record of a storage. */
static tt_status find_record(const tt__pickle *p, const char *key, const tt__archive_record **record) {
    char name[128];
    int n = snprintf(name, sizeof name, "data/%s", key);
    *record = n < (int)sizeof name ? tt__archive_find(p->archive, name) : NULL;
    if (*record)
        return TT_OK;
    return tt__pickle_fail(p, TT_ERR_FORMAT, "\"%s\": there is no record data/%s in the archive", KEY(p),
                           tt__make_printable(key).text);
}

/* Check a persistent id. *type, *key, *count are what it says. */
static tt_status read_id(const tt__pickle *p, const tt_value *id, const tt__torch_type **type, const char **key,
                         int64_t *count) {
    tt_value **item = id->items;
    bool right = id->type == TT_VALUE_TUPLE && id->count == 5 && item[0]->type == TT_VALUE_STRING &&
                 !strcmp(item[0]->string, "storage") && item[1]->type == TT__VALUE_GLOBAL &&
                 item[2]->type == TT_VALUE_STRING && item[3]->type == TT_VALUE_STRING &&
                 item[4]->type == TT_VALUE_INT && item[4]->integer >= 0;
    if (!right)
        return tt__pickle_fail(p, TT_ERR_FORMAT,
                               "\"%s\": expected (\"storage\", a type, a key, a device, a number of elements), got %s",
                               KEY(p), TT__VALUE_TEXT(id));
    *type = item[1]->global;
    *key = item[2]->string;
    *count = item[4]->integer;
    return TT_OK;
}

/* Check that a storage is what the id says, and read it the first time. */
static tt_status check_storage(tt__pickle *p, const tt__archive_record *record, const tt__torch_type *type,
                               int64_t count) {
    tt__pickle_storage *storage = &p->storages[record - p->archive->records];
    uint64_t bytes;
    if (__builtin_mul_overflow((uint64_t)count, (uint64_t)tt_dtype_size(type->ours), &bytes) || bytes != record->size)
        return tt__pickle_fail(p, TT_ERR_FORMAT,
                               "\"%s\": a storage of %" PRId64 " elements of %s does not fit the %" PRIu64
                               " bytes of the record %s",
                               KEY(p), count, type->dtype, record->size, record->name);
    if (storage->type && storage->type != type)
        return tt__pickle_fail(p, TT_ERR_FORMAT, "\"%s\": the record %s is of %s here and of %s before", KEY(p),
                               record->name, type->dtype, storage->type->dtype);
    if (storage->elements)
        return TT_OK;
    storage->type = type;
    return read_storage(p, record, storage);
}

/* A storage whose type is in PyTorch's table is read now. Untyped ones are never read: only tensors of types that Tutti
 * lacks use them. */
tt_status tt__pickle_storage_push(tt__pickle *p, const tt_value *id) {
    const tt__torch_type *type = NULL;
    const tt__archive_record *record = NULL;
    const char *key = NULL;
    int64_t count = 0;
    TT__TRY(read_id(p, id, &type, &key, &count));
    TT__TRY(find_record(p, key, &record));
    if (tt__torch_type_is(type)) {
        if (!type->supported)
            return tt__pickle_fail(p, TT_ERR_UNSUPPORTED, "\"%s\": tensors of torch.%s are not supported", KEY(p),
                                   type->dtype);
        TT__TRY(check_storage(p, record, type, count));
    }
    tt_value *v = tt__pickle_new(p, TT__VALUE_STORAGE);
    if (v)
        v->storage = (size_t)(record - p->archive->records);
    return tt__pickle_push(p, v);
}

/* ---- tensors ---- */

/* Read a tuple of TT_MAX_DIMS numbers of 0 or more; *n: how many. */
static tt_status read_numbers(const tt__pickle *p, const char *what, const tt_value *tuple, int64_t *numbers,
                              size_t *n) {
    if (tuple->type != TT_VALUE_TUPLE)
        return tt__pickle_fail(p, TT_ERR_FORMAT, "\"%s\": expected a tuple of %s, got %s", KEY(p), what,
                               TT__VALUE_TEXT(tuple));
    if (tuple->count > TT_MAX_DIMS)
        return tt__pickle_fail(p, TT_ERR_UNSUPPORTED, "\"%s\": %zu dimensions, at most %d are supported", KEY(p),
                               tuple->count, TT_MAX_DIMS);
    *n = tuple->count;
    for (size_t i = 0; i < *n; i++) {
        if (tuple->items[i]->type != TT_VALUE_INT || tuple->items[i]->integer < 0)
            return tt__pickle_fail(p, TT_ERR_FORMAT, "\"%s\": expected %s of 0 or more, got %s", KEY(p), what,
                                   TT__VALUE_TEXT(tuple->items[i]));
        numbers[i] = tuple->items[i]->integer;
    }
    return TT_OK;
}

/* Find a tensor's number of elements and its last one, counted from its first. False: beyond 63 bits. */
static bool measure(const tt_shape *shape, const int64_t *stride, int64_t *numel, int64_t *last) {
    *numel = 1;
    *last = 0;
    for (int d = 0; d < shape->ndim; d++)
        if (shape->dim[d] == 0)
            *numel = 0;
    for (int d = 0; d < shape->ndim && *numel; d++) {
        int64_t way;
        if (__builtin_mul_overflow(*numel, shape->dim[d], numel) ||
            __builtin_mul_overflow(shape->dim[d] - 1, stride[d], &way) || __builtin_add_overflow(*last, way, last))
            return false;
    }
    return true;
}

/* Check that the tensor lies inside its storage of `count` elements. */
static tt_status check_inside(const tt__pickle *p, const tt_shape *shape, const int64_t *stride, int64_t offset,
                              int64_t count, size_t size) {
    int64_t numel = 0, last = 0;
    bool fits = measure(shape, stride, &numel, &last) && (numel == 0 || (offset < count && last < count - offset));
    if (!fits)
        return tt__pickle_fail(p, TT_ERR_FORMAT,
                               "\"%s\": a tensor %s from element %" PRId64 " on, with its strides, lies beyond its "
                               "storage of %" PRId64 " elements",
                               KEY(p), TT__SHAPE_TEXT(shape), offset, count);
    if (numel > count && (uint64_t)numel > most_shown / size)
        return tt__pickle_fail(p, TT_ERR_UNSUPPORTED,
                               "\"%s\": an expanded tensor %s of %" PRId64 " stored elements is over 1 GiB; save its "
                               ".contiguous() or what it was expanded from",
                               KEY(p), TT__SHAPE_TEXT(shape), count);
    return TT_OK;
}

/* Make a value of a view of `elements`. */
static tt_status make_view(tt__pickle *p, const tt_tensor *elements, tt_shape shape, const int64_t *stride,
                           int64_t offset, tt_value **out) {
    int64_t numel = 0, last = 0;
    if (measure(&shape, stride, &numel, &last) && numel == 0)
        offset = 0;
    tt_tensor *x = tt__tensor_alias("tt_torch_load", elements, shape, stride, offset);
    if (!x || tt__tensor_adopt(x, "a .pt file"))
        return tt__fail_prefix("%s: \"%s\"", p->name, KEY(p));
    *out = tt__pickle_new(p, TT_VALUE_TENSOR);
    if (*out)
        (*out)->tensor = tt__tensor_ref(x);
    tt__tensor_disown(x);
    return *out ? TT_OK : tt_last_status();
}

/* (storage, offset, sizes, strides, requires_grad, hooks): a tensor over the storage. */
static tt_status pickle_rebuild_tensor(tt__pickle *p, const tt_value *args, tt_value **out) {
    if (args->count < 4 || args->items[0]->type != TT__VALUE_STORAGE || args->items[1]->type != TT_VALUE_INT ||
        args->items[1]->integer < 0)
        return tt__pickle_fail(p, TT_ERR_FORMAT, "\"%s\": expected (storage, offset, sizes, strides), got %s", KEY(p),
                               TT__VALUE_TEXT(args));
    const tt_tensor *elements = p->storages[args->items[0]->storage].elements;
    if (!elements)
        return tt__pickle_fail(p, TT_ERR_FORMAT, "\"%s\": expected a storage with an element type", KEY(p));
    tt_shape shape = {0};
    int64_t stride[TT_MAX_DIMS];
    size_t ndim = 0, strides = 0;
    TT__TRY(read_numbers(p, "sizes", args->items[2], shape.dim, &ndim));
    TT__TRY(read_numbers(p, "strides", args->items[3], stride, &strides));
    if (ndim != strides)
        return tt__pickle_fail(p, TT_ERR_FORMAT, "\"%s\": %zu sizes, but %zu strides", KEY(p), ndim, strides);
    shape.ndim = (int)ndim;
    int64_t offset = args->items[1]->integer;
    TT__TRY(
        check_inside(p, &shape, stride, offset, tt_tensor_numel(elements), tt_dtype_size(tt_tensor_dtype(elements))));
    return make_view(p, elements, shape, stride, offset, out);
}

/* PyTorch uses this function for types that have no storages of their own. None is supported: the dtype among the
 * arguments was refused by name before the call. */
static tt_status pickle_rebuild_tensor_typed(tt__pickle *p, const tt_value *args, tt_value **out) {
    (void)out;
    return tt__pickle_fail(p, TT_ERR_UNSUPPORTED, "\"%s\": expected a storage with an element type, got %s", KEY(p),
                           TT__VALUE_TEXT(args));
}

/* (tensor, requires_grad, hooks): the tensor. */
static tt_status pickle_rebuild_parameter(tt__pickle *p, const tt_value *args, tt_value **out) {
    if (args->count < 1 || args->items[0]->type != TT_VALUE_TENSOR)
        return tt__pickle_fail(p, TT_ERR_FORMAT, "a parameter: expected a tensor, got %s",
                               args->count ? TT__VALUE_TEXT(args->items[0]) : "nothing");
    *out = args->items[0];
    return TT_OK;
}

/* ---- dicts and the like ---- */

/* OrderedDict() or Counter({...}): a dict of the same pairs. */
static tt_status make_dict(tt__pickle *p, const tt_value *args, tt_value **out) {
    bool filled = args->count == 1 && args->items[0]->type == TT_VALUE_DICT;
    if (args->count > 0 && !filled)
        return tt__pickle_fail(p, TT_ERR_UNSUPPORTED, "expected a dict made of nothing or of a dict, got %s",
                               TT__VALUE_TEXT(args->items[0]));
    *out = filled ? args->items[0] : tt__pickle_new(p, TT_VALUE_DICT);
    return *out ? TT_OK : tt_last_status();
}

/* torch.Size((2, 3)): the tuple. */
static tt_status make_size(tt__pickle *p, const tt_value *args, tt_value **out) {
    if (args->count != 1 || args->items[0]->type != TT_VALUE_TUPLE)
        return tt__pickle_fail(p, TT_ERR_FORMAT, "torch.Size: expected a tuple, got %s",
                               args->count ? TT__VALUE_TEXT(args->items[0]) : "nothing");
    *out = args->items[0];
    return TT_OK;
}

/* torch.device("cuda", 1): its type, a string. */
static tt_status make_device(tt__pickle *p, const tt_value *args, tt_value **out) {
    if (args->count < 1 || args->items[0]->type != TT_VALUE_STRING)
        return tt__pickle_fail(p, TT_ERR_FORMAT, "torch.device: expected a string, got %s",
                               args->count ? TT__VALUE_TEXT(args->items[0]) : "nothing");
    *out = args->items[0];
    return TT_OK;
}

/* ---- the list ---- */

static const tt__pickle_global globals[] = {
    {"collections", "OrderedDict", make_dict},
    {"collections", "Counter", make_dict},
    {"torch", "Size", make_size},
    {"torch", "device", make_device},
    {"torch._utils", "_rebuild_tensor", pickle_rebuild_tensor},
    {"torch._utils", "_rebuild_tensor_v2", pickle_rebuild_tensor},
    {"torch._utils", "_rebuild_tensor_v3", pickle_rebuild_tensor_typed},
    {"torch._utils", "_rebuild_parameter", pickle_rebuild_parameter},
    {"torch.storage", "UntypedStorage", NULL},
};

static tt_status push_global(tt__pickle *p, const tt__pickle_global *global) {
    tt_value *v = tt__pickle_new(p, TT__VALUE_GLOBAL);
    if (v)
        v->global = global;
    return tt__pickle_push(p, v);
}

static tt_status push_dtype(tt__pickle *p, const tt__torch_type *type) {
    if (!type->supported)
        return tt__pickle_fail(p, TT_ERR_UNSUPPORTED, "the element type torch.%s is not supported", type->dtype);
    tt_value *v = tt__pickle_new(p, TT_VALUE_DTYPE);
    if (v)
        v->dtype = type->ours;
    return tt__pickle_push(p, v);
}

/* Push a name of module torch: a type of elements or of storages. False: it is neither. */
static bool push_torch(tt__pickle *p, const char *name, tt_status *status) {
    const tt__torch_type *storage = tt__torch_type_of_storage(name), *dtype = tt__torch_type_of_dtype(name);
    tt_value *v = storage ? tt__pickle_new(p, TT__VALUE_GLOBAL) : NULL;
    if (v)
        v->global = storage;
    if (storage)
        *status = tt__pickle_push(p, v);
    else if (dtype)
        *status = push_dtype(p, dtype);
    return storage || dtype;
}

tt_status tt__pickle_global_push(tt__pickle *p, const char *module, const char *name) {
    tt_status status = TT_OK;
    for (size_t i = 0; i < sizeof globals / sizeof *globals; i++)
        if (!strcmp(globals[i].module, module) && !strcmp(globals[i].name, name))
            return push_global(p, &globals[i]);
    if (!strcmp(module, "torch") && push_torch(p, name, &status))
        return status;
    return tt__pickle_fail(p, TT_ERR_UNSUPPORTED,
                           "the file holds a %s.%s; tensors, numbers, texts, lists and dicts of them can be read, and "
                           "no code is run (in Python, save model.state_dict() rather than the model)",
                           tt__make_printable(module).text, tt__make_printable(name).text);
}

tt_status tt__pickle_call(tt__pickle *p, const tt_value *function, const tt_value *args, tt_value **out) {
    const tt__pickle_global *known = NULL;
    for (size_t i = 0; function->type == TT__VALUE_GLOBAL && i < sizeof globals / sizeof *globals; i++)
        if (function->global == &globals[i])
            known = &globals[i];
    if (!known || !known->call || args->type != TT_VALUE_TUPLE)
        return tt__pickle_fail(p, TT_ERR_FORMAT, "expected a function and a tuple of arguments, got %s and %s",
                               TT__VALUE_TEXT(function), TT__VALUE_TEXT(args));
    return known->call(p, args, out);
}
