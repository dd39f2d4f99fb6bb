#include "tensor/core/named_tensors.h"

#include "base/error.h"

#include <stddef.h>
#include <string.h>

static bool list_is_whole(const tt_named_tensors *list, bool names) {
    return list->size >= offsetof(tt_named_tensors, tensors) + sizeof list->tensors && list->count >= 0 &&
           (!list->count || (list->tensors && (!names || list->names)));
}

tt_status tt__named_tensors_check(const char *who, const tt_named_tensors *list, bool names) {
    if (!list)
        return tt_last_status() ? tt_last_status() : tt__fail(TT_ERR_INVALID, "%s: the list is NULL", who);
    if (!list_is_whole(list, names))
        return tt__fail(TT_ERR_INVALID,
                        "%s: expected a list made by TT_NAMED_TENSORS, got one of size %zu, with %lld tensors and %s "
                        "arrays",
                        who, list->size, (long long)list->count, list->names && list->tensors ? "both" : "not both");
    for (int64_t i = 0; names && i < list->count; i++)
        if (!list->names[i] || !list->tensors[i])
            return tt__fail(TT_ERR_INVALID, "%s: entry %lld of the list has no %s, but NULL", who, (long long)i,
                            list->tensors[i] ? "name" : "tensor");
    return TT_OK;
}

tt_tensor *tt_named_tensors_find(const tt_named_tensors *list, const char *name) {
    if (!list || !name || !list_is_whole(list, true))
        return NULL;
    for (int64_t i = 0; i < list->count; i++)
        if (list->names[i] && !strcmp(list->names[i], name))
            return list->tensors[i];
    return NULL;
}
