/* Filling containers. A container is filled before it becomes part of another, so there are no cycles and the depth is
 * known. */
#include <stdlib.h>

#include "base/error.h"
#include "checkpoint/value.h"
#include "data/files/npy.h"
#include "tensor/core/named_tensors.h"

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
        tt__value_unref(item);
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
