/* Make, copy and free values. */
#include "rpc/values/rpc_value.h"
#include "base/error.h"
#include "rpc/values/landing_memory.h"

#include <stdlib.h>
#include <string.h>

static const tt__rpc_tensor_hooks *tensor_hooks;
static const tt__rpc_rref_hooks *rref_hooks;

void tt__rpc_set_rref_hooks(const tt__rpc_rref_hooks *hooks) { rref_hooks = hooks; }

tt_rpc_value tt__value_of_rref(tt_rref *rref) {
    return (tt_rpc_value){.kind = TT_RPC_RREF, .owned = true, .rref = rref_hooks->share(rref)};
}

void tt__rpc_set_tensor_hooks(const tt__rpc_tensor_hooks *hooks) { tensor_hooks = hooks; }

const tt__rpc_tensor_hooks *tt__rpc_tensor_hooks_of(void) { return tensor_hooks; }

const char *tt_rpc_kind_name(tt_rpc_kind kind) {
    static const char *const names[] = {"none",   "bool", "int",  "float", "text",  "bytes",
                                        "tensor", "rref", "list", "map",   "object"};
    return kind >= TT_RPC_NONE && kind <= TT_RPC_OBJECT ? names[kind] : "?";
}

tt_rpc_value tt_rpc_text(const char *text) {
    tt_rpc_value value = text ? tt_rpc_bytes(text, strlen(text)) : tt_rpc_none();
    if (text)
        value.kind = TT_RPC_TEXT;
    return value;
}

tt_rpc_value tt_rpc_rref(tt_rref *rref) {
    return rref ? (tt_rpc_value){.kind = TT_RPC_RREF, .rref = rref} : tt_rpc_none();
}

static tt_rpc_value items_value(tt_rpc_kind kind, const tt_rpc_value *items, int64_t count) {
    return (tt_rpc_value){.kind = kind, .list = {(tt_rpc_value *)(uintptr_t)items, count}};
}

tt_rpc_value tt_rpc_list(const tt_rpc_value *items, int64_t count) { return items_value(TT_RPC_LIST, items, count); }

tt_rpc_value tt_rpc_map(const tt_rpc_value *items, int64_t count) { return items_value(TT_RPC_MAP, items, count); }

tt_rpc_value tt_rpc_object(void *at, void (*end)(void *at), const char *type) {
    return (tt_rpc_value){.kind = TT_RPC_OBJECT, .owned = true, .object = {at, end, type}};
}

/* ---- the end */

void tt_rpc_value_free(tt_rpc_value *value) {
    if (!value || value->lent)
        return;
    tt_rpc_value old = *value;
    *value = tt_rpc_none();
    if (!old.owned)
        return;
    switch (old.kind) {
    case TT_RPC_TEXT:
    case TT_RPC_BYTES:
        if (old.landed)
            tt__landing_give((void *)(uintptr_t)old.bytes.data);
        else
            free((void *)(uintptr_t)old.bytes.data);
        break;
    case TT_RPC_TENSOR:
        tensor_hooks->free(old.tensor);
        break;
    case TT_RPC_RREF:
        rref_hooks->free(old.rref);
        break;
    case TT_RPC_LIST:
    case TT_RPC_MAP:
        for (int64_t i = 0; i < old.list.count; i++)
            tt_rpc_value_free(&old.list.items[i]);
        free(old.list.items);
        break;
    case TT_RPC_OBJECT:
        if (old.object.free)
            old.object.free(old.object.at);
        break;
    default:
        break;
    }
}

static bool has_items(const tt_rpc_value *value) { return value->kind == TT_RPC_LIST || value->kind == TT_RPC_MAP; }

void tt__value_lend(tt_rpc_value *value) {
    if (!value->owned)
        return;
    value->owned = false;
    value->lent = true;
    for (int64_t i = 0; has_items(value) && i < value->list.count; i++)
        tt__value_lend(&value->list.items[i]);
}

void tt__value_take_back(tt_rpc_value *value) {
    if (!value->lent)
        return;
    value->owned = true;
    value->lent = false;
    for (int64_t i = 0; has_items(value) && i < value->list.count; i++)
        tt__value_take_back(&value->list.items[i]);
}

void tt__value_free_lent(tt_rpc_value *value) {
    tt__value_take_back(value);
    tt_rpc_value_free(value);
}

/* ---- copies */

static tt_status copy_one_value(tt_rpc_value *out, const tt_rpc_value *value, int depth);

static tt_status copy_bytes(tt_rpc_value *out, const tt_rpc_value *value) {
    char *data = malloc(value->bytes.size + 1);
    if (!data)
        return tt__fail(TT_ERR_MEMORY, "no memory for a value of %zu bytes", value->bytes.size);
    if (value->bytes.size)
        memcpy(data, value->bytes.data, value->bytes.size);
    data[value->bytes.size] = '\0';
    *out = (tt_rpc_value){.kind = value->kind, .owned = true, .bytes = {data, value->bytes.size}};
    return TT_OK;
}

static tt_status copy_items(tt_rpc_value *out, const tt_rpc_value *value, int depth) {
    int64_t count = value->list.count;
    if (depth == TT_RPC_DEPTH || count < 0)
        return tt__fail(TT_ERR_INVALID,
                        depth == TT_RPC_DEPTH ? "a value has lists nested deeper than %d"
                                              : "a list has a negative count (at depth %d)",
                        depth);
    tt_rpc_value *items = calloc(count ? (size_t)count : 1, sizeof *items);
    if (!items)
        return tt__fail(TT_ERR_MEMORY, "no memory for a list of %lld values", (long long)count);
    *out = (tt_rpc_value){.kind = value->kind, .owned = true, .list = {items, count}};
    for (int64_t i = 0; i < count; i++)
        TT__TRY(copy_one_value(&items[i], &value->list.items[i], depth + 1));
    return TT_OK;
}

static tt_status copy_one_value(tt_rpc_value *out, const tt_rpc_value *value, int depth) {
    *out = *value;
    out->owned = out->lent = false;
    switch (value->kind) {
    case TT_RPC_TEXT:
    case TT_RPC_BYTES:
        return copy_bytes(out, value);
    case TT_RPC_LIST:
    case TT_RPC_MAP:
        *out = tt_rpc_none();
        return copy_items(out, value, depth);
    case TT_RPC_TENSOR:
        if (!tensor_hooks || !(out->tensor = tensor_hooks->share(value->tensor)))
            return tensor_hooks ? tt_last_status() : tt__fail(TT_ERR_UNSUPPORTED, "a tensor is libtutti's");
        out->owned = true;
        return TT_OK;
    case TT_RPC_RREF:
        *out = tt__value_of_rref(value->rref);
        return TT_OK;
    case TT_RPC_OBJECT:
        *out = tt_rpc_none();
        return tt__fail(TT_ERR_INVALID, "an object (%s) stays where it is: it can't be copied",
                        value->object.type ? value->object.type : "?");
    default:
        return TT_OK;
    }
}

tt_status tt_rpc_value_copy(tt_rpc_value *out, const tt_rpc_value *value) {
    if (!out || !value)
        return tt__fail_argument("tt_rpc_value_copy: expected two values, got NULL");
    tt_status status = copy_one_value(out, value, 0);
    if (status)
        tt_rpc_value_free(out);
    return status;
}

const tt_rpc_value *tt_rpc_map_get(const tt_rpc_value *map, const char *key) {
    size_t size = key ? strlen(key) : 0;
    if (!map || map->kind != TT_RPC_MAP || !key)
        return NULL;
    for (int64_t i = 0; i + 1 < map->list.count; i += 2) {
        const tt_rpc_value *name = &map->list.items[i];
        if (name->kind == TT_RPC_TEXT && name->bytes.size == size && !memcmp(name->bytes.data, key, size))
            return name + 1;
    }
    return NULL;
}
