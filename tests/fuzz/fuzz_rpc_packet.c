/* Packets that workers send each other, and the values in them. A value that is read is written again, and what was
 * written is read and written once more: both times the same bytes come out. */
#include "rpc/references/references.h"
#include "rpc/values/rpc_wire.h"

#include <stdlib.h>
#include <string.h>

enum { PART_MAX = 1 << 20, REFS = 16 };

/* A value that was read, with what it lies in. */
typedef struct reading {
    tt__rpc_packet_view view;
    tt__rpc_landing *landings;
    tt_rpc_value value;
    tt_status status;
} reading;

static tt_rref some_refs[REFS]; /* of no worker */
static tt_rref *held[TT__RPC_REFS_MAX];

static void end_reading(reading *r) {
    tt_rpc_value_free(&r->value);
    free(r->landings);
}

/* Read the value at `at`, or that of the packet; its parts' bytes are `fill`'s, or those of `parts`. */
static void read_one(reading *r, const uint8_t *at, size_t bytes, const tt__rpc_part *parts) {
    const tt__rpc_header *header = &r->view.header;
    tt__rpc_decoder decoder = {.view = &r->view, .at = at, .end = at + bytes, .own = true, .refs = held};
    r->landings = calloc(header->parts ? header->parts : 1, sizeof *r->landings);
    decoder.landings = r->landings;
    r->status = tt__decode_value(&decoder, &r->value);
    free(decoder.tensors);
    for (uint32_t i = 0; i < header->parts && !r->status; i++)
        if (r->landings[i].data && parts)
            memcpy(r->landings[i].data, parts[i].data, r->landings[i].bytes);
        else if (r->landings[i].data)
            memset(r->landings[i].data, (int)i, r->landings[i].bytes);
}

static tt_status write_one(tt__rpc_encoder *e, const tt_rpc_value *value) {
    tt__rpc_ref refs[TT__RPC_REFS_MAX] = {{0}};
    tt__encoder_begin(e, "name");
    tt__encoder_value(e, value);
    for (uint32_t i = 0; i < e->ref_count; i++)
        refs[i] = e->refs[i]->ref;
    tt_status status = tt__encoder_finish(e, refs);
    tt__encoder_header(e)->kind = TT__RPC_CALL;
    return status;
}

static void compare_writings(const tt__rpc_encoder *a, const tt__rpc_encoder *b) {
    if (a->size != b->size || memcmp(a->data, b->data, a->size) || a->part_count != b->part_count)
        abort();
    for (uint32_t i = 0; i < a->part_count; i++)
        if (a->parts[i].bytes != b->parts[i].bytes || memcmp(a->parts[i].data, b->parts[i].data, a->parts[i].bytes))
            abort();
}

/* What was written must be readable, and be the same again. */
static void write_twice(const tt_rpc_value *value) {
    tt__rpc_encoder first, second;
    reading again = {0};
    if (write_one(&first, value)) /* nothing that can be read is too large to be written, but for its references */
        abort();
    if (tt__packet_view(&again.view, first.data, first.size))
        abort();
    bool apart = again.view.header.flags & TT__RPC_VALUE_APART;
    const tt__rpc_part *last = first.part_count ? &first.parts[first.part_count - 1] : NULL;
    if (apart)
        read_one(&again, last->data, (size_t)last->bytes, first.parts);
    else
        read_one(&again, again.view.value, again.view.header.value_bytes, first.parts);
    if (again.status || write_one(&second, &again.value))
        abort();
    compare_writings(&first, &second);
    tt__encoder_free(&second, true);
    end_reading(&again);
    tt__encoder_free(&first, true);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    reading first = {0};
    tt__rrefs_begin();
    for (int i = 0; i < TT__RPC_REFS_MAX; i++) {
        some_refs[i % REFS].shares = 1 << 20;
        held[i] = &some_refs[i % REFS];
    }
    if (tt__packet_view(&first.view, data, size))
        return 0;
    for (uint32_t i = 0; i < first.view.header.parts; i++)
        if (tt__packet_part_bytes(&first.view, i) > PART_MAX)
            return 0;
    read_one(&first, first.view.value, first.view.header.value_bytes, NULL);
    if (!first.status)
        write_twice(&first.value);
    end_reading(&first);
    return 0;
}
