#include "optim/dict.h"

#include "base/error.h"
#include "base/text/format.h"
#include "tensor/core/tensor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

tt_tensor *tt__optim_hold(tt_tensor *x) {
    if (!x || !tt__tensor_adopt(x, "an optimizer"))
        return x;
    return NULL;
}

void tt__dict_free(tt__dict *dict) {
    for (size_t i = 0; i < dict->count; i++)
        free(dict->names[i]);
    for (size_t i = 0; i < dict->own_count; i++)
        tt__tensor_disown(dict->own[i]);
    free(dict->names);
    free(dict->tensors);
    free(dict->own);
    *dict = (tt__dict){.list = {.size = sizeof dict->list}};
}

tt_status tt__dict_init(tt__dict *dict, const char *who, size_t room) {
    tt__dict_free(dict);
    *dict = (tt__dict){.who = who,
                       .names = calloc(room + 1, sizeof *dict->names),
                       .tensors = calloc(room + 1, sizeof *dict->tensors),
                       .own = calloc(room + 1, sizeof *dict->own)};
    if (dict->names && dict->tensors && dict->own)
        return TT_OK;
    tt__dict_free(dict);
    return tt__fail(TT_ERR_MEMORY, "%s: no memory for a list of %zu", who, room);
}

static tt_status dict_add_named(tt__dict *dict, tt_tensor *x, const char *format, va_list args) {
    if (tt__vformat_new(&dict->names[dict->count], format, args) < 0)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for a name", dict->who);
    dict->tensors[dict->count++] = x;
    return TT_OK;
}

tt_status tt__dict_add(tt__dict *dict, tt_tensor *x, const char *format, ...) {
    va_list args;
    va_start(args, format);
    tt_status status = dict_add_named(dict, x, format, args);
    va_end(args);
    return status;
}

tt_status tt__dict_add_own(tt__dict *dict, tt_tensor *x, const char *format, ...) {
    tt_tensor *held = tt__optim_hold(x);
    if (!held)
        return tt_last_status();
    dict->own[dict->own_count++] = held;
    va_list args;
    va_start(args, format);
    tt_status status = dict_add_named(dict, held, format, args);
    va_end(args);
    return status;
}

const tt_named_tensors *tt__dict_finish(tt__dict *dict, tt_status status) {
    if (status) {
        tt__dict_free(dict);
        return NULL;
    }
    dict->list =
        (tt_named_tensors){sizeof dict->list, (int64_t)dict->count, (const char *const *)dict->names, dict->tensors};
    return &dict->list;
}
