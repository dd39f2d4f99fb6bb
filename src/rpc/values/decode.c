/* Read values from packets. Every byte may be wrong, since another process has sent it. */
#include "base/error.h"
#include "rpc/values/landing_memory.h"
#include "rpc/values/rpc_value.h"
#include "rpc/values/rpc_wire.h"

#include <stdlib.h>
#include <string.h>

static tt_status malformed(const char *what) {
    return tt__fail(TT_ERR_PROTOCOL, "another worker sent a malformed packet: %s", what);
}

/* ---- packets */

static bool counts_fit_kind(const tt__rpc_header *header) {
    switch ((tt__rpc_packet_kind)header->kind) {
    case TT__RPC_CALL:
    case TT__RPC_KEEP:
    case TT__RPC_REPLY:
        return true;
    case TT__RPC_FETCH:
    case TT__RPC_HOLD:
    case TT__RPC_RELEASE:
        return !header->parts && header->refs == 1;
    default:
        return !header->parts && !header->refs;
    }
}

tt_status tt__packet_view(tt__rpc_packet_view *out, const void *data, size_t bytes) {
    tt__rpc_header *header = &out->header;
    if (bytes < sizeof *header)
        return malformed("it is shorter than a header");
    memcpy(header, data, sizeof *header);
    size_t sizes = header->parts * sizeof(uint64_t), refs = header->refs * sizeof(tt__rpc_ref);
    uint64_t counted = sizeof *header + (uint64_t)header->name_bytes + header->value_bytes + sizes + refs;
    if (counted != bytes || header->parts > TT__RPC_PARTS_MAX || header->refs > TT__RPC_REFS_MAX || !header->kind ||
        header->kind >= TT__RPC_PACKET_KINDS)
        return malformed("its size is not that of what its header counts");
    if (!counts_fit_kind(header))
        return malformed("it has parts or references, and packets of its kind have none");
    if (header->kind != TT__RPC_ERROR && header->flags & TT__RPC_VALUE_APART && (!header->parts || header->value_bytes))
        return malformed("its value is a part, and it has no parts");
    out->name = (const char *)data + sizeof *header;
    out->value = (const uint8_t *)out->name + header->name_bytes;
    out->part_sizes = out->value + header->value_bytes;
    out->refs = out->part_sizes + sizes;
    return TT_OK;
}

uint64_t tt__packet_part_bytes(const tt__rpc_packet_view *view, uint32_t i) {
    uint64_t bytes;
    memcpy(&bytes, view->part_sizes + i * sizeof bytes, sizeof bytes);
    return bytes;
}

tt__rpc_ref tt__packet_ref(const tt__rpc_packet_view *view, uint32_t i) {
    tt__rpc_ref ref;
    memcpy(&ref, view->refs + i * sizeof ref, sizeof ref);
    return ref;
}

/* ---- values */

static size_t decoder_left(const tt__rpc_decoder *d) { return (size_t)(d->end - d->at); }

/* Take bytes, and leave at least one for each element that is still to be read in the enclosing lists. So the memory of
 * lists is bounded by the bytes of the value, however they are nested. */
static tt_status decode_bytes(tt__rpc_decoder *d, void *out, size_t bytes) {
    if (decoder_left(d) < bytes || decoder_left(d) - bytes < d->owed)
        return malformed("a value ends too early");
    memcpy(out, d->at, bytes);
    d->at += bytes;
    return TT_OK;
}

static tt_status decode_run(tt__rpc_decoder *d, tt_rpc_value *out, tt_rpc_kind kind) {
    uint32_t bytes = 0;
    size_t zero = kind == TT_RPC_TEXT;
    TT__TRY(decode_bytes(d, &bytes, sizeof bytes));
    if (decoder_left(d) < bytes + zero || decoder_left(d) - bytes - zero < d->owed || (zero && d->at[bytes]))
        return malformed("a text or bytes end too early");
    const void *data = d->at;
    d->at += bytes + zero;
    *out = (tt_rpc_value){.kind = kind, .bytes = {data, bytes}};
    if (!d->own)
        return TT_OK;
    tt_rpc_value lying = *out;
    *out = tt_rpc_none();
    return tt_rpc_value_copy(out, &lying);
}

/* Take part `i`, which nothing in the value has taken yet. */
static tt_status claim_part(const tt__rpc_decoder *d, uint32_t i, tt__rpc_landing **out) {
    uint32_t parts = d->view->header.parts - (d->view->header.flags & TT__RPC_VALUE_APART ? 1u : 0u);
    if (i >= parts || d->landings[i].data)
        return malformed("a part that is not there, or that is twice in a value");
    *out = &d->landings[i];
    (*out)->bytes = tt__packet_part_bytes(d->view, i);
    return TT_OK;
}

static tt_status read_run_apart(tt__rpc_decoder *d, tt_rpc_value *out) {
    uint32_t part = 0;
    tt__rpc_landing *landing;
    TT__TRY(decode_bytes(d, &part, sizeof part));
    TT__TRY(claim_part(d, part, &landing));
    if (landing->bytes > SIZE_MAX / 2 || !(landing->data = tt__landing_take((size_t)landing->bytes)))
        return tt__fail(TT_ERR_MEMORY, "no memory for the %llu bytes that another worker sends",
                        (unsigned long long)landing->bytes);
    *out = (tt_rpc_value){
        .kind = TT_RPC_BYTES, .owned = true, .landed = true, .bytes = {landing->data, (size_t)landing->bytes}};
    return TT_OK;
}

static tt_status note_place(tt__rpc_decoder *d, struct tt_tensor **place) {
    if (d->tensor_count == d->tensor_room) {
        uint32_t room = d->tensor_room ? 2 * d->tensor_room : 8;
        struct tt_tensor ***grown = realloc(d->tensors, room * sizeof *grown);
        if (!grown)
            return tt__fail(TT_ERR_MEMORY, "no memory for the tensors of a value");
        d->tensors = grown;
        d->tensor_room = room;
    }
    d->tensors[d->tensor_count++] = place;
    return TT_OK;
}

static tt_status make_tensor(tt_rpc_value *out, const tt__rpc_form *form, size_t bytes, void **data) {
    const tt__rpc_tensor_hooks *hooks = tt__rpc_tensor_hooks_of();
    struct tt_tensor *tensor = hooks ? hooks->make(form, bytes, data)
                                     : tt__fail_null(TT_ERR_UNSUPPORTED, "another worker sends a tensor, and this one "
                                                                         "has no libtutti, whose tensors are");
    if (!tensor)
        return tt_last_status();
    *out = (tt_rpc_value){.kind = TT_RPC_TENSOR, .owned = true, .tensor = tensor};
    return TT_OK;
}

static tt_status decode_tensor(tt__rpc_decoder *d, tt_rpc_value *out, bool apart) {
    tt__rpc_form form = {0};
    tt__rpc_landing *landing;
    uint32_t number = 0;
    void *data = NULL;
    TT__TRY(decode_bytes(d, &form, offsetof(tt__rpc_form, shape)));
    if (form.ndim > TT__RPC_DIMS)
        return malformed("a tensor has too many dimensions");
    TT__TRY(decode_bytes(d, form.shape, form.ndim * sizeof *form.shape));
    TT__TRY(decode_bytes(d, &number, sizeof number));
    if (apart) {
        TT__TRY(claim_part(d, number, &landing));
        TT__TRY(make_tensor(out, &form, (size_t)landing->bytes, &landing->data));
        landing->tensor = out->tensor;
        landing->form = form;
    } else {
        if (decoder_left(d) < number || decoder_left(d) - number < d->owed)
            return malformed("a tensor ends too early");
        TT__TRY(make_tensor(out, &form, number, &data));
        if (number)
            memcpy(data, d->at, number);
        d->at += number;
        TT__TRY(tt__rpc_tensor_hooks_of()->made(out->tensor, &form));
    }
    return note_place(d, &out->tensor);
}

static tt_status read_rref(tt__rpc_decoder *d, tt_rpc_value *out) {
    uint32_t i = 0;
    TT__TRY(decode_bytes(d, &i, sizeof i));
    if (i >= d->view->header.refs || !d->refs[i])
        return malformed("a value uses a reference that the packet does not have");
    *out = tt__value_of_rref(d->refs[i]);
    return TT_OK;
}

static tt_status decode_one(tt__rpc_decoder *d, tt_rpc_value *out, int depth);

static tt_status read_items(tt__rpc_decoder *d, tt_rpc_value *out, tt_rpc_kind kind, int depth) {
    uint32_t count = 0;
    TT__TRY(decode_bytes(d, &count, sizeof count));
    if (depth == TT_RPC_DEPTH || count > decoder_left(d) - d->owed || (kind == TT_RPC_MAP && count % 2))
        return malformed("a list is nested too deep, or longer than its bytes");
    tt_rpc_value *items = calloc(count ? count : 1, sizeof *items);
    if (!items)
        return tt__fail(TT_ERR_MEMORY, "no memory for a list of %u values", count);
    *out = (tt_rpc_value){.kind = kind, .owned = true, .list = {items, count}};
    d->owed += count;
    for (uint32_t i = 0; i < count; i++) {
        d->owed--;
        TT__TRY(decode_one(d, &items[i], depth + 1));
    }
    return TT_OK;
}

static tt_status decode_one(tt__rpc_decoder *d, tt_rpc_value *out, int depth) {
    uint8_t tag = 0;
    *out = tt_rpc_none();
    TT__TRY(decode_bytes(d, &tag, 1));
    switch (tag) {
    case TT__TAG_NONE:
        return TT_OK;
    case TT__TAG_FALSE:
    case TT__TAG_TRUE:
        *out = tt_rpc_bool(tag == TT__TAG_TRUE);
        return TT_OK;
    case TT__TAG_INT:
        out->kind = TT_RPC_INT;
        return decode_bytes(d, &out->integer, sizeof out->integer);
    case TT__TAG_FLOAT:
        out->kind = TT_RPC_FLOAT;
        return decode_bytes(d, &out->number, sizeof out->number);
    case TT__TAG_TEXT:
        return decode_run(d, out, TT_RPC_TEXT);
    case TT__TAG_BYTES:
        return decode_run(d, out, TT_RPC_BYTES);
    case TT__TAG_BYTES_APART:
        return read_run_apart(d, out);
    case TT__TAG_TENSOR:
    case TT__TAG_TENSOR_APART:
        return decode_tensor(d, out, tag == TT__TAG_TENSOR_APART);
    case TT__TAG_RREF:
        return read_rref(d, out);
    case TT__TAG_LIST:
        return read_items(d, out, TT_RPC_LIST, depth);
    case TT__TAG_MAP:
        return read_items(d, out, TT_RPC_MAP, depth);
    default:
        return malformed("a value has an unknown tag");
    }
}

tt_status tt__decode_value(tt__rpc_decoder *d, tt_rpc_value *out) {
    TT__TRY(decode_one(d, out, 0));
    return d->at == d->end ? TT_OK : malformed("bytes follow the value");
}

/* Tell the hooks that tensors have been received, which may replace them. */
static tt_status note_received(tt_rpc *rpc, int from, const tt__rpc_header *header, struct tt_tensor ***tensors,
                               uint32_t count, const char *what) {
    struct tt_tensor **all = calloc(count, sizeof *all);
    if (!all)
        return tt__fail(TT_ERR_MEMORY, "no memory for the tensors of a %s", what);
    for (uint32_t i = 0; i < count; i++)
        all[i] = *tensors[i];
    tt_status status = tt__rpc_tensor_hooks_of()->received(
        rpc, from, &(tt__rpc_context){header->context, header->message}, all, count);
    for (uint32_t i = 0; i < count; i++)
        *tensors[i] = all[i];
    free(all);
    return status;
}

tt_status tt__decoded_finish(tt_rpc *rpc, int from, const tt__rpc_header *header, const tt__rpc_landing *landings,
                             struct tt_tensor ***tensors, uint32_t count, const char *what) {
    for (uint32_t i = 0; landings && i < header->parts; i++)
        if (landings[i].tensor)
            TT__TRY(tt__rpc_tensor_hooks_of()->made(landings[i].tensor, &landings[i].form));
    return header->message && count ? note_received(rpc, from, header, tensors, count, what) : TT_OK;
}
