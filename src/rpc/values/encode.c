/* Write values into packets. */
#include "base/error.h"
#include "rpc/values/rpc_wire.h"

#include <stdlib.h>
#include <string.h>

static void encoder_fail(tt__rpc_encoder *e, tt_status status) {
    if (!e->status)
        e->status = status;
}

/* Make room for `more` bytes; NULL, with ->status: no memory. */
static uint8_t *encoder_room(tt__rpc_encoder *e, size_t more) {
    if (e->status)
        return NULL;
    if (e->room - e->size < more) {
        size_t room = 2 * e->room > e->size + more ? 2 * e->room : e->size + more;
        uint8_t *data = e->data == e->small ? malloc(room) : realloc(e->data, room);
        if (!data) {
            encoder_fail(e, tt__fail(TT_ERR_MEMORY, "no memory for a value of %zu bytes", room));
            return NULL;
        }
        if (e->data == e->small)
            memcpy(data, e->small, e->size);
        e->data = data;
        e->room = room;
    }
    uint8_t *at = e->data + e->size;
    e->size += more;
    return at;
}

static void put_bytes(tt__rpc_encoder *e, const void *data, size_t bytes) {
    uint8_t *at = bytes ? encoder_room(e, bytes) : NULL;
    if (at)
        memcpy(at, data, bytes);
}

static void put_tag(tt__rpc_encoder *e, uint8_t tag) { put_bytes(e, &tag, 1); }

static void put_u32(tt__rpc_encoder *e, uint64_t number) {
    uint32_t narrow = (uint32_t)number;
    if (number > UINT32_MAX)
        encoder_fail(e, tt__fail(TT_ERR_INVALID, "a value of %llu elements: expected less than 2^32",
                                 (unsigned long long)number));
    put_bytes(e, &narrow, sizeof narrow);
}

/* Make room for one more element in a list of the encoder's. */
static bool list_room(tt__rpc_encoder *e, void **list, uint32_t count, uint32_t *room, size_t size) {
    if (count < *room)
        return true;
    uint32_t wanted = *room ? 2 * *room : 8;
    void *grown = realloc(*list, wanted * size);
    if (!grown) {
        encoder_fail(e, tt__fail(TT_ERR_MEMORY, "no memory for the parts of a value"));
        return false;
    }
    *list = grown;
    *room = wanted;
    return true;
}

static void encode_part(tt__rpc_encoder *e, const void *data, size_t bytes, void *keep) {
    void *list = e->parts;
    if (e->part_count >= TT__RPC_PARTS_MAX - 1) /* one is left for the value */
        encoder_fail(e, tt__fail(TT_ERR_INVALID, "a value has more than %d large tensors or runs of bytes",
                                 TT__RPC_PARTS_MAX - 1));
    else if (!e->status && list_room(e, &list, e->part_count, &e->part_room, sizeof *e->parts))
        e->parts = list;
    if (e->status) {
        if (keep)
            tt__rpc_tensor_hooks_of()->release(keep);
        return;
    }
    e->parts[e->part_count++] = (tt__rpc_part){.data = data, .bytes = bytes, .keep = keep};
}

static void encode_copy(tt__rpc_encoder *e, const void *data, size_t bytes) {
    void *copy = e->status ? NULL : malloc(bytes);
    if (!copy) {
        encoder_fail(e, tt__fail(TT_ERR_MEMORY, "no memory for a copy of %zu bytes", bytes));
        return;
    }
    memcpy(copy, data, bytes);
    encode_part(e, copy, bytes, NULL);
    if (e->status)
        free(copy);
    else
        e->parts[e->part_count - 1].copy = copy;
}

/* ---- each kind */

static void put_text_bytes(tt__rpc_encoder *e, const void *data, size_t bytes) {
    put_tag(e, TT__TAG_TEXT);
    put_u32(e, bytes);
    put_bytes(e, data, bytes);
    put_bytes(e, "", 1); /* readers use the text in the packet, as a C string */
}

static void put_run(tt__rpc_encoder *e, const void *data, size_t bytes) {
    bool apart = bytes > TT__RPC_INLINE;
    put_tag(e, apart ? TT__TAG_BYTES_APART : TT__TAG_BYTES);
    put_u32(e, apart ? e->part_count : bytes);
    if (!apart)
        put_bytes(e, data, bytes);
    else if (e->copies_bytes)
        encode_copy(e, data, bytes);
    else
        encode_part(e, data, bytes, NULL);
}

static void put_form(tt__rpc_encoder *e, const tt__rpc_form *form) {
    put_bytes(e, form, offsetof(tt__rpc_form, shape));
    put_bytes(e, form->shape, form->ndim * sizeof *form->shape);
}

static void note_tensor(tt__rpc_encoder *e, struct tt_tensor *tensor) {
    void *list = e->tensors;
    if (!e->status && list_room(e, &list, e->tensor_count, &e->tensor_room, sizeof(struct tt_tensor *))) {
        e->tensors = list;
        e->tensors[e->tensor_count++] = tensor;
    }
}

static void encode_tensor(tt__rpc_encoder *e, struct tt_tensor *tensor) {
    const tt__rpc_tensor_hooks *hooks = tt__rpc_tensor_hooks_of();
    tt__rpc_form form = {0};
    size_t bytes = 0;
    void *keep = NULL;
    const void *data = hooks ? hooks->describe(tensor, &form, &bytes, &keep)
                             : tt__fail_null(TT_ERR_UNSUPPORTED, "a tensor is libtutti's, which is not loaded");
    if (!data) {
        encoder_fail(e, tt_last_status());
        return;
    }
    bool apart = bytes > TT__RPC_INLINE;
    e->requires_grad |= form.requires_grad;
    note_tensor(e, tensor);
    put_tag(e, apart ? TT__TAG_TENSOR_APART : TT__TAG_TENSOR);
    put_form(e, &form);
    put_u32(e, apart ? e->part_count : bytes);
    if (apart) {
        encode_part(e, data, bytes, keep);
    } else {
        put_bytes(e, data, bytes);
        if (keep)
            hooks->release(keep);
    }
}

static void put_rref(tt__rpc_encoder *e, tt_rref *rref) {
    void *list = e->refs;
    if (e->ref_count == TT__RPC_REFS_MAX)
        encoder_fail(e, tt__fail(TT_ERR_INVALID, "a value has more than %d references", TT__RPC_REFS_MAX));
    if (!rref)
        encoder_fail(e, tt__fail(TT_ERR_INVALID, "a value is a reference that is NULL"));
    if (e->status || !list_room(e, &list, e->ref_count, &e->ref_room, sizeof(tt_rref *)))
        return;
    e->refs = list;
    put_tag(e, TT__TAG_RREF);
    put_u32(e, e->ref_count);
    e->refs[e->ref_count++] = rref;
}

static void encode_one(tt__rpc_encoder *e, const tt_rpc_value *value, int depth);

static void encode_items(tt__rpc_encoder *e, const tt_rpc_value *value, int depth) {
    int64_t count = value->list.count;
    if (depth == TT_RPC_DEPTH)
        encoder_fail(e, tt__fail(TT_ERR_INVALID, "a value has lists nested deeper than %d", TT_RPC_DEPTH));
    if (count < 0 || (count && !value->list.items) || (value->kind == TT_RPC_MAP && count % 2))
        encoder_fail(e,
                     tt__fail(TT_ERR_INVALID, "expected a %s of values, in pairs if it is a map, got %lld at %s",
                              tt_rpc_kind_name(value->kind), (long long)count, value->list.items ? "a list" : "NULL"));
    put_tag(e, value->kind == TT_RPC_LIST ? TT__TAG_LIST : TT__TAG_MAP);
    put_u32(e, (uint64_t)count);
    for (int64_t i = 0; i < count && !e->status; i++)
        encode_one(e, &value->list.items[i], depth + 1);
}

static void encode_one(tt__rpc_encoder *e, const tt_rpc_value *value, int depth) {
    switch (value->kind) {
    case TT_RPC_NONE:
        put_tag(e, TT__TAG_NONE);
        break;
    case TT_RPC_BOOL:
        put_tag(e, value->boolean ? TT__TAG_TRUE : TT__TAG_FALSE);
        break;
    case TT_RPC_INT:
        put_tag(e, TT__TAG_INT);
        put_bytes(e, &value->integer, sizeof value->integer);
        break;
    case TT_RPC_FLOAT:
        put_tag(e, TT__TAG_FLOAT);
        put_bytes(e, &value->number, sizeof value->number);
        break;
    case TT_RPC_TEXT:
        put_text_bytes(e, value->bytes.data, value->bytes.size);
        break;
    case TT_RPC_BYTES:
        put_run(e, value->bytes.data, value->bytes.size);
        break;
    case TT_RPC_TENSOR:
        encode_tensor(e, value->tensor);
        break;
    case TT_RPC_RREF:
        put_rref(e, value->rref);
        break;
    case TT_RPC_LIST:
    case TT_RPC_MAP:
        encode_items(e, value, depth);
        break;
    case TT_RPC_OBJECT:
        encoder_fail(e, tt__fail(TT_ERR_INVALID,
                                 "an object (%s) stays in its process: give a reference to it (tt_rref_new())",
                                 value->object.type ? value->object.type : "?"));
        break;
    default:
        encoder_fail(e, tt__fail(TT_ERR_INVALID, "a value of kind %d: expected a tt_rpc_kind", (int)value->kind));
    }
}

/* ---- packets */

void tt__encoder_begin(tt__rpc_encoder *e, const char *name) {
    memset(e, 0, offsetof(tt__rpc_encoder, small));
    e->data = e->small;
    e->room = sizeof e->small;
    e->size = sizeof(tt__rpc_header);
    memset(e->data, 0, e->size);
    tt__encoder_header(e)->name_bytes = (uint16_t)strlen(name);
    put_bytes(e, name, strlen(name));
}

void tt__encoder_value(tt__rpc_encoder *e, const tt_rpc_value *value) { encode_one(e, value, 0); }

void tt__encoder_values(tt__rpc_encoder *e, const tt_rpc_value *first, const tt_rpc_value *values, int64_t count) {
    put_tag(e, TT__TAG_LIST);
    put_u32(e, (uint64_t)(count + (first != NULL)));
    if (first)
        encode_one(e, first, 1);
    for (int64_t i = 0; i < count && !e->status; i++)
        encode_one(e, &values[i], 1);
}

void tt__encoder_text(tt__rpc_encoder *e, const char *text) {
    size_t bytes = strlen(text);
    put_text_bytes(e, text, bytes < 4096 ? bytes : 4096);
}

/* Make the value, from `at` on, the last part, since it does not fit in a packet. */
static void set_apart(tt__rpc_encoder *e, size_t at) {
    size_t bytes = e->size - at;
    void *list = e->parts;
    if (!(e->apart = malloc(bytes)) || !list_room(e, &list, e->part_count, &e->part_room, sizeof *e->parts)) {
        encoder_fail(e, tt__fail(TT_ERR_MEMORY, "no memory for a value of %zu bytes", bytes));
        return;
    }
    e->parts = list;
    memcpy(e->apart, e->data + at, bytes);
    e->parts[e->part_count++] = (tt__rpc_part){.data = e->apart, .bytes = bytes};
    e->size = at;
    tt__encoder_header(e)->flags |= TT__RPC_VALUE_APART;
}

tt_status tt__encoder_finish(tt__rpc_encoder *e, const tt__rpc_ref *refs) {
    if (e->status)
        return e->status;
    size_t at = sizeof(tt__rpc_header) + tt__encoder_header(e)->name_bytes;
    size_t tail = e->part_count * sizeof(uint64_t) + e->ref_count * sizeof(tt__rpc_ref);
    if (e->size + tail > TT__PACKET_MAX)
        set_apart(e, at);
    if (!e->status)
        tt__encoder_header(e)->value_bytes = (uint32_t)(e->size - at);
    for (uint32_t i = 0; i < e->part_count; i++)
        put_bytes(e, &e->parts[i].bytes, sizeof e->parts[i].bytes);
    put_bytes(e, refs, e->ref_count * sizeof *refs);
    if (!e->status && e->size > TT__PACKET_MAX)
        encoder_fail(e, tt__fail(TT_ERR_INVALID, "a value has too many parts and references for one call"));
    if (!e->status) {
        tt__encoder_header(e)->parts = (uint16_t)e->part_count;
        tt__encoder_header(e)->refs = (uint16_t)e->ref_count;
    }
    return e->status;
}

void tt__encoder_free(tt__rpc_encoder *e, bool parts) {
    for (uint32_t i = 0; i < e->part_count && parts; i++) {
        if (e->parts[i].keep)
            tt__rpc_tensor_hooks_of()->release(e->parts[i].keep);
        free(e->parts[i].copy);
    }
    if (parts) {
        free(e->parts);
        free(e->apart);
    }
    if (e->data != e->small)
        free(e->data);
    free(e->refs);
    free(e->tensors);
}
