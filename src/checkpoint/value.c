/* Values: their life, and how each kind is made. */
#include "checkpoint/value.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text/plain_text.h"
#include "checkpoint/safetensors.h"
#include "tensor/core/tensor.h"

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
