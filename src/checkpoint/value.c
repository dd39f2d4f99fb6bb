/* Values: describing them, looking into them, their tensors by name, and making each kind. */
#include "checkpoint/value.h"

#include "base/error.h"
#include "base/text/format.h"
#include "base/text/plain_text.h"
#include "checkpoint/safetensors.h"
#include "tensor/core/tensor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- tensors under dotted names: {"model": {"conv": {"weight": x}}} has "model.conv.weight" ---- */

/* The most bytes of one name, and of all names together. */
enum { NAME_MAX_BYTES = 1024, NAMES_MAX_BYTES = 256 << 20 };

struct tt__value_names {
    size_t count, room, bytes;
    char **names;
    tt_tensor **tensors;
    tt_named_tensors list;
};

typedef struct tt__value_names names_list;

/* Free what tt_value_tensors() made; NULL is allowed. */
static void value_names_free(names_list *l) {
    if (!l)
        return;
    for (size_t i = 0; i < l->count; i++)
        free(l->names[i]);
    free(l->names);
    free(l->tensors);
    free(l);
}

static tt_status names_reserve(names_list *l) {
    if (l->count < l->room)
        return TT_OK;
    size_t room = l->room ? 2 * l->room : 16;
    char **names = realloc(l->names, room * sizeof *names);
    l->names = names ? names : l->names;
    tt_tensor **tensors = names ? realloc(l->tensors, room * sizeof *tensors) : NULL;
    l->tensors = tensors ? tensors : l->tensors;
    l->room = tensors ? room : l->room;
    return tensors ? TT_OK : tt__fail(TT_ERR_MEMORY, "tt_value_tensors: no memory to list %zu tensors", room);
}

static tt_status names_add(names_list *l, const char *name, tt_tensor *x) {
    TT__TRY(names_reserve(l));
    l->bytes += strlen(name);
    if (l->bytes > NAMES_MAX_BYTES)
        return tt__fail(TT_ERR_INVALID, "tt_value_tensors: expected names of at most %d bytes together, got more",
                        NAMES_MAX_BYTES);
    l->names[l->count] = strdup(name);
    if (!l->names[l->count])
        return tt__fail(TT_ERR_MEMORY, "tt_value_tensors: no memory for a name");
    l->tensors[l->count++] = x;
    return TT_OK;
}

/* Write an item's name after the `used` bytes of its container's. Returns the length, or -1 with an error. */
static int name_item(const tt_value *container, size_t i, char *name, size_t used) {
    const tt_value *key = container->keys ? container->keys[i] : NULL;
    size_t room = NAME_MAX_BYTES - used;
    const char *dot = used ? "." : "";
    int n;
    if (key && key->type == TT_VALUE_STRING)
        n = snprintf(name + used, room, "%s%s", dot, key->string);
    else
        n = snprintf(name + used, room, "%s%" PRId64, dot, key ? key->integer : (int64_t)i);
    if (n >= 0 && (size_t)n < room)
        return (int)used + n;
    tt__fail(TT_ERR_INVALID, "tt_value_tensors: expected names below %d bytes, got a longer one: %s", NAME_MAX_BYTES,
             tt__make_printable(name).text);
    return -1;
}

/* Add all tensors of v, whose name is the first `used` bytes of `name`. */
static tt_status names_collect(names_list *l, const tt_value *v, char *name, size_t used) {
    name[used] = 0;
    if (v->type == TT_VALUE_TENSOR)
        return names_add(l, name, v->tensor);
    for (size_t i = 0; i < v->count; i++) {
        if (v->items[i]->type != TT_VALUE_TENSOR && !v->items[i]->count)
            continue;
        int length = name_item(v, i, name, used);
        if (length < 0)
            return tt_last_status();
        TT__TRY(names_collect(l, v->items[i], name, (size_t)length));
    }
    return TT_OK;
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Check that no name comes twice, as {"a.b": x, "a": {"b": y}} would make. */
static tt_status names_check(const names_list *l) {
    char **sorted = malloc((l->count + 1) * sizeof *sorted);
    if (!sorted)
        return tt__fail(TT_ERR_MEMORY, "tt_value_tensors: no memory to list %zu tensors", l->count);
    tt_status status = TT_OK;
    if (l->count)
        memcpy(sorted, l->names, l->count * sizeof *sorted);
    qsort(sorted, l->count, sizeof *sorted, by_text);
    for (size_t i = 1; i < l->count && !status; i++)
        if (!strcmp(sorted[i - 1], sorted[i]))
            status = tt__fail(TT_ERR_INVALID, "tt_value_tensors: two tensors have the dotted name \"%s\"",
                              tt__make_printable(sorted[i]).text);
    free(sorted);
    return status;
}

const tt_named_tensors *tt_value_tensors(const tt_value *value) {
    if (!value || value->names)
        return value ? &value->names->list : NULL;
    char name[NAME_MAX_BYTES];
    names_list *l = calloc(1, sizeof *l);
    if (!l)
        return tt__fail_null(TT_ERR_MEMORY, "tt_value_tensors: no memory for a list");
    if (names_collect(l, value, name, 0) || names_check(l)) {
        value_names_free(l);
        return NULL;
    }
    l->list = (tt_named_tensors){sizeof l->list, (int64_t)l->count, (const char *const *)l->names, l->tensors};
    ((tt_value *)value)->names = l; /* every value is allocated: none is a constant */
    return &l->list;
}

/* ---- describing and comparing ---- */

const char *tt__value_describe(const tt_value *v, char *text, size_t size) {
    static const char *const containers[] = {
        [TT_VALUE_LIST] = "a list", [TT_VALUE_TUPLE] = "a tuple", [TT_VALUE_DICT] = "a dict"};
    char number[32];
    switch (v->type) {
    case TT_VALUE_NONE:
        return "None";
    case TT_VALUE_BOOL:
        return v->boolean ? "True" : "False";
    case TT_VALUE_INT:
        snprintf(text, size, "the int %" PRId64, v->integer);
        return text;
    case TT_VALUE_FLOAT:
        tt__format_shortest(number, sizeof number, 15, v->real);
        snprintf(text, size, "the float %s", number);
        return text;
    case TT_VALUE_STRING:
        snprintf(text, size, "\"%s\"", tt__make_printable(v->string).text);
        return text;
    case TT_VALUE_TENSOR:
        snprintf(text, size, "the tensor %s", TT__DESCRIBE(v->tensor));
        return text;
    case TT_VALUE_DTYPE:
        snprintf(text, size, "the dtype %s", tt_dtype_name(v->dtype));
        return text;
    case TT__VALUE_GLOBAL:
        return "a function or a type";
    case TT__VALUE_STORAGE:
        return "a storage";
    default:
        snprintf(text, size, "%s of %zu", containers[v->type], v->count);
        return text;
    }
}

int tt__value_compare_keys(const tt_value *a, const tt_value *b) {
    if (a->type != b->type)
        return a->type < b->type ? -1 : 1;
    if (a->type == TT_VALUE_INT)
        return (a->integer > b->integer) - (a->integer < b->integer);
    return strcmp(a->string, b->string);
}

/* ---- looking ---- */

tt_value_type tt_value_typeof(const tt_value *value) { return value ? (tt_value_type)value->type : TT_VALUE_NONE; }

int64_t tt_value_count(const tt_value *value) { return value ? (int64_t)value->count : 0; }

static tt_status check_index(const char *who, const tt_value *value, int64_t i) {
    if (!value)
        return tt__fail_argument("%s: the value is NULL", who);
    if (i < 0 || i >= (int64_t)value->count)
        return tt__fail(TT_ERR_NOT_FOUND, "%s: expected an item of %s, got number %" PRId64, who, TT__VALUE_TEXT(value),
                        i);
    return TT_OK;
}

const tt_value *tt_value_at(const tt_value *value, int64_t i) {
    return check_index("tt_value_at", value, i) ? NULL : value->items[i];
}

const tt_value *tt_value_key(const tt_value *dict, int64_t i) {
    if (check_index("tt_value_key", dict, i))
        return NULL;
    return dict->keys ? dict->keys[i]
                      : tt__fail_null(TT_ERR_INVALID, "tt_value_key: expected a dict, got %s", TT__VALUE_TEXT(dict));
}

const tt_value *tt_value_find(const tt_value *dict, const char *key) {
    for (size_t i = 0; dict && key && dict->keys && i < dict->count; i++)
        if (dict->keys[i]->type == TT_VALUE_STRING && !strcmp(dict->keys[i]->string, key))
            return dict->items[i];
    return NULL;
}

const tt_value *tt_value_find_at(const tt_value *dict, int64_t key) {
    for (size_t i = 0; dict && dict->keys && i < dict->count; i++)
        if (dict->keys[i]->type == TT_VALUE_INT && dict->keys[i]->integer == key)
            return dict->items[i];
    return NULL;
}

static tt_status expect(const char *who, const void *out, const char *what, const tt_value *value, bool is_it) {
    if (!value || !out)
        return tt__fail_argument("%s: `%s` is NULL", who, value ? "out" : "value");
    if (!is_it)
        return tt__fail(TT_ERR_INVALID, "%s: expected %s, got %s", who, what, TT__VALUE_TEXT(value));
    return TT_OK;
}

static bool value_is(const tt_value *value, tt_value_type type) { return value && value->type == type; }

tt_status tt_value_get_bool(bool *out, const tt_value *value) {
    TT__TRY(expect("tt_value_get_bool", out, "a bool", value, value_is(value, TT_VALUE_BOOL)));
    *out = value->boolean;
    return TT_OK;
}

tt_status tt_value_get_int(int64_t *out, const tt_value *value) {
    TT__TRY(expect("tt_value_get_int", out, "an int", value, value_is(value, TT_VALUE_INT)));
    *out = value->integer;
    return TT_OK;
}

tt_status tt_value_get_float(double *out, const tt_value *value) {
    bool whole = value_is(value, TT_VALUE_INT);
    TT__TRY(expect("tt_value_get_float", out, "a number", value, whole || value_is(value, TT_VALUE_FLOAT)));
    *out = whole ? (double)value->integer : value->real;
    return TT_OK;
}

tt_status tt_value_get_dtype(tt_dtype *out, const tt_value *value) {
    TT__TRY(expect("tt_value_get_dtype", out, "a dtype", value, value_is(value, TT_VALUE_DTYPE)));
    *out = value->dtype;
    return TT_OK;
}

const char *tt_value_string(const tt_value *value) {
    bool is_it = value_is(value, TT_VALUE_STRING);
    return expect("tt_value_string", value, "a string", value, is_it) ? NULL : value->string;
}

tt_tensor *tt_value_tensor(const tt_value *value) {
    bool is_it = value_is(value, TT_VALUE_TENSOR);
    return expect("tt_value_tensor", value, "a tensor", value, is_it) ? NULL : value->tensor;
}

/* ---- life ---- */

tt_value *tt__value_new(int type) {
    tt_value *v = calloc(1, sizeof *v);
    if (!v)
        return tt__fail_null(TT_ERR_MEMORY, "no memory for a value");
    v->type = (unsigned char)type;
    v->refs = 1;
    return v;
}

void tt__value_release(tt_value *v) {
    if (v->type == TT_VALUE_STRING)
        free(v->string);
    else if (v->type == TT_VALUE_TENSOR)
        tt__tensor_unref(v->tensor);
    value_names_free(v->names);
    free(v->keys);
    free(v->items);
    free(v);
}

void tt__value_unref(tt_value *v) {
    if (!v || --v->refs)
        return;
    for (size_t i = 0; i < v->count; i++) {
        if (v->keys)
            tt__value_unref(v->keys[i]);
        tt__value_unref(v->items[i]);
    }
    tt__value_release(v);
}

void tt_value_free(tt_value *value) {
    if (value && value->has_parent)
        tt__fail(TT_ERR_STATE, "tt_value_free: %s is part of another value, which ends it", TT__VALUE_TEXT(value));
    else
        tt__value_unref(value);
}

/* ---- making ---- */

tt_value *tt_value_of_none(void) { return tt__value_new(TT_VALUE_NONE); }

tt_value *tt_value_of_bool(bool x) {
    tt_value *v = tt__value_new(TT_VALUE_BOOL);
    if (v)
        v->boolean = x;
    return v;
}

tt_value *tt_value_of_int(int64_t x) {
    tt_value *v = tt__value_new(TT_VALUE_INT);
    if (v)
        v->integer = x;
    return v;
}

tt_value *tt_value_of_float(double x) {
    tt_value *v = tt__value_new(TT_VALUE_FLOAT);
    if (v)
        v->real = x;
    return v;
}

tt_value *tt_value_of_string(const char *text) {
    if (!text || !tt__is_utf8(text))
        return tt__fail_null(TT_ERR_INVALID, "tt_value_of_string: expected UTF-8, got %s",
                             text ? tt__make_printable(text).text : "NULL");
    tt_value *v = tt__value_new(TT_VALUE_STRING);
    if (!v || (v->string = strdup(text)))
        return v;
    tt__value_unref(v);
    return tt__fail_null(TT_ERR_MEMORY, "no memory for a text of %zu bytes", strlen(text));
}

tt_value *tt_value_of_dtype(tt_dtype dtype) {
    if (tt_dtype_size(dtype) == 0)
        return tt__fail_null(TT_ERR_INVALID, "tt_value_of_dtype: %d is no element type", (int)dtype);
    tt_value *v = tt__value_new(TT_VALUE_DTYPE);
    if (v)
        v->dtype = dtype;
    return v;
}

tt_value *tt_value_of_tensor(tt_tensor *x) {
    if (!x) {
        tt_ignore(tt__fail_argument("tt_value_of_tensor: the tensor is NULL"));
        return NULL;
    }
    tt_value *v = tt__tensor_check("tt_value_of_tensor", x) ? tt__value_new(TT_VALUE_TENSOR) : NULL;
    if (v)
        v->tensor = tt__tensor_ref(x);
    return v;
}

tt_value *tt_value_list(void) { return tt__value_new(TT_VALUE_LIST); }

tt_value *tt_value_tuple(void) { return tt__value_new(TT_VALUE_TUPLE); }

tt_value *tt_value_dict(void) { return tt__value_new(TT_VALUE_DICT); }
