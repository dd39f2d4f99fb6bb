/* Values: describing them, looking into them, making each kind, and filling containers. */
#include "checkpoint/value.h"

#include "base/error.h"
#include "base/text/format.h"
#include "base/text/utf8.h"
#include "checkpoint/safetensors.h"
#include "data/files/npy.h"
#include "tensor/core/named_tensors.h"
#include "tensor/core/tensor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    tt__value_names_free(v->names);
    free(v->keys);
    free(v->items);
    free(v);
}

/* Drop a reference; the last one ends the value and what it alone holds. NULL is allowed. */
static void value_unref(tt_value *v) {
    if (!v || --v->refs)
        return;
    for (size_t i = 0; i < v->count; i++) {
        if (v->keys)
            value_unref(v->keys[i]);
        value_unref(v->items[i]);
    }
    tt__value_release(v);
}

void tt_value_free(tt_value *value) {
    if (value && value->has_parent)
        tt__fail(TT_ERR_STATE, "tt_value_free: %s is part of another value, which ends it", TT__VALUE_TEXT(value));
    else
        value_unref(value);
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
    value_unref(v);
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

/* ---- filling ----
 * A container is filled before it becomes part of another, so there are no cycles, and the depth is known. */

tt_status tt__value_push(tt_value *container, tt_value *key, tt_value *item) {
    if (container->count == container->room) {
        size_t room = container->room ? 2 * container->room : 4;
        tt_value **items = realloc(container->items, room * sizeof *items);
        container->items = items ? items : container->items;
        tt_value **keys = key && items ? realloc(container->keys, room * sizeof *keys) : NULL;
        container->keys = keys ? keys : container->keys;
        if (!items || (key && !keys))
            return tt__fail(TT_ERR_MEMORY, "no memory for a value of %zu items", room);
        container->room = room;
    }
    size_t at = container->count++;
    container->items[at] = item;
    if (key)
        container->keys[at] = key;
    return TT_OK;
}

/* Check that `item` can become part of `container`. */
static tt_status check_part(const char *who, const tt_value *container, const tt_value *item) {
    if (!item)
        return tt__fail_argument("%s: the value is NULL", who);
    if (container->has_parent)
        return tt__fail(TT_ERR_STATE, "%s: %s is part of another value; fill a container before it becomes part of one",
                        who, TT__VALUE_TEXT(container));
    if (item->has_parent || item == container)
        return tt__fail(TT_ERR_STATE, "%s: %s is part of another value already", who, TT__VALUE_TEXT(item));
    if (item->depth >= TT__VALUE_MAX_DEPTH - 1)
        return tt__fail(TT_ERR_INVALID, "%s: expected values nested at most %d deep, got more", who,
                        TT__VALUE_MAX_DEPTH);
    return TT_OK;
}

static void join_part(tt_value *container, tt_value *item) {
    item->has_parent = true;
    if (container->depth <= item->depth)
        container->depth = (unsigned char)(item->depth + 1);
}

/* Free what a failed call has taken over, unless it is part of something. */
static void drop_item(const tt_value *container, tt_value *item) {
    if (item && !item->has_parent && item != container)
        value_unref(item);
}

tt_status tt_value_append(tt_value *list, tt_value *item) {
    static const char who[] = "tt_value_append";
    tt_status status;
    if (!list)
        status = tt__fail_argument("%s: the list is NULL", who);
    else if (list->type != TT_VALUE_LIST && list->type != TT_VALUE_TUPLE)
        status = tt__fail(TT_ERR_INVALID, "%s: expected a list or a tuple, got %s", who, TT__VALUE_TEXT(list));
    else
        status = check_part(who, list, item);
    if (!status)
        status = tt__value_push(list, NULL, item);
    if (!status)
        join_part(list, item);
    else
        drop_item(list, item);
    return status;
}

static const tt_value *find_key(const tt_value *dict, const tt_value *key) {
    for (size_t i = 0; i < dict->count; i++)
        if (!tt__value_compare_keys(dict->keys[i], key))
            return dict->items[i];
    return NULL;
}

static tt_status check_pair(const char *who, const tt_value *dict, const tt_value *key, const tt_value *item) {
    if (!dict || !key)
        return tt__fail_argument("%s: the %s is NULL", who, dict ? "key" : "dict");
    if (dict->type != TT_VALUE_DICT)
        return tt__fail(TT_ERR_INVALID, "%s: expected a dict, got %s", who, TT__VALUE_TEXT(dict));
    return check_part(who, dict, item);
}

/* Set a pair; takes over key and item, also on failure. `is_new`: the caller knows that the dict lacks the key. */
static tt_status set_pair(const char *who, tt_value *dict, tt_value *key, tt_value *item, bool is_new) {
    tt_status status = check_pair(who, dict, key, item);
    if (!status && !is_new && find_key(dict, key))
        status = tt__fail(TT_ERR_INVALID, "%s: the dict has %s as a key already", who, TT__VALUE_TEXT(key));
    if (!status)
        status = tt__value_push(dict, key, item);
    if (status) {
        drop_item(dict, key);
        drop_item(dict, item);
        return status;
    }
    key->has_parent = true;
    join_part(dict, item);
    return TT_OK;
}

tt_status tt_value_set(tt_value *dict, const char *key, tt_value *item) {
    tt_value *text = tt_value_of_string(key);
    return set_pair("tt_value_set", dict, text, item, false);
}

tt_status tt_value_set_at(tt_value *dict, int64_t key, tt_value *item) {
    tt_value *number = tt_value_of_int(key);
    return set_pair("tt_value_set_at", dict, number, item, false);
}

tt_value *tt_value_of_tensors(const tt_named_tensors *tensors) {
    static const char who[] = "tt_value_of_tensors";
    if (tt__named_tensors_check(who, tensors, true) ||
        tt__npz_check_names(who, TT_ERR_INVALID, tensors->names, tensors->count))
        return NULL;
    tt_value *dict = tt_value_dict();
    for (int64_t i = 0; dict && i < tensors->count; i++)
        if (set_pair(who, dict, tt_value_of_string(tensors->names[i]), tt_value_of_tensor(tensors->tensors[i]), true)) {
            tt_value_free(dict);
            dict = NULL;
        }
    return dict;
}
