/* Values: trees of numbers, texts, tensors and containers. A container is filled before it becomes part of another, so
 * there are no cycles and the depth is known. */
#include "checkpoint/value.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/utf8.h"
#include "nn/module_lists.h"
#include "tensor/tensor.h"

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

/* Drop a reference; the last one ends the value and what it alone holds. */
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
                             text ? tt__safetensors_printable(text).text : "NULL");
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

tt_value *tt_value_of_tensors(const tt_named_tensors *tensors) {
    if (tt__named_tensors_check("tt_value_of_tensors", tensors, true))
        return NULL;
    tt_value *dict = tt_value_dict();
    for (int64_t i = 0; dict && i < tensors->count; i++)
        if (tt_value_set(dict, tensors->names[i], tt_value_of_tensor(tensors->tensors[i]))) {
            tt_value_free(dict);
            dict = NULL;
        }
    return dict;
}

/* ---- filling containers ---- */

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
    if (key)
        container->keys[container->count] = key;
    container->items[container->count++] = item;
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
    else if (item && !item->has_parent && item != list)
        value_unref(item);
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
    TT__TRY(check_part(who, dict, item));
    if (find_key(dict, key))
        return tt__fail(TT_ERR_INVALID, "%s: the dict has %s as a key already", who, TT__VALUE_TEXT(key));
    return TT_OK;
}

/* Set a pair; takes over key and item, also on failure. */
static tt_status set_pair(const char *who, tt_value *dict, tt_value *key, tt_value *item) {
    tt_status status = check_pair(who, dict, key, item);
    if (!status)
        status = tt__value_push(dict, key, item);
    if (!status) {
        key->has_parent = true;
        join_part(dict, item);
        return TT_OK;
    }
    value_unref(key);
    if (item && !item->has_parent && item != dict)
        value_unref(item);
    return status;
}

tt_status tt_value_set(tt_value *dict, const char *key, tt_value *item) {
    return set_pair("tt_value_set", dict, tt_value_of_string(key), item);
}

tt_status tt_value_set_at(tt_value *dict, int64_t key, tt_value *item) {
    return set_pair("tt_value_set_at", dict, tt_value_of_int(key), item);
}
