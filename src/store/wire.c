#include "store/wire.h"

#include <inttypes.h>
#include <stdio.h>

const tt__store_op_info tt__store_op_table[TT__STORE_OP_COUNT] = {
#define OP_INFO(name, torch_1_13, torch_2, fields) \
    {#name, fields, {[TT_STORE_TORCH_2] = torch_2, [TT_STORE_TORCH_1_13] = torch_1_13}},
    TT__STORE_OPS(OP_INFO)};

tt__store_op tt__store_op_of(tt_store_dialect dialect, uint8_t opcode) {
    int op = 0;
    while (op < TT__STORE_OP_COUNT && tt__store_op_table[op].opcode[dialect] != opcode)
        op++;
    return (tt__store_op)op;
}

static void put_number(tt__bytes *out, uint64_t value, int size) {
    uint8_t bytes[8];
    for (int i = 0; i < size; i++)
        bytes[i] = (uint8_t)(value >> 8 * i);
    tt__bytes_put(out, bytes, (size_t)size);
}

void tt__store_put_u8(tt__bytes *out, uint8_t value) { put_number(out, value, 1); }

void tt__store_put_u32(tt__bytes *out, uint32_t value) { put_number(out, value, 4); }

void tt__store_put_u64(tt__bytes *out, uint64_t value) { put_number(out, value, 8); }

void tt__store_put_string(tt__bytes *out, tt__span string) {
    tt__store_put_u64(out, string.size);
    tt__bytes_put(out, string.data, string.size);
}

uint64_t tt__store_number(const uint8_t *data, size_t size) {
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++)
        value |= (uint64_t)data[i] << 8 * i;
    return value;
}

/* ---- reading requests */

tt__store_first tt__store_first_contact(const uint8_t *data, size_t size) {
    uint8_t hello[5] = {0};
    for (int i = 0; i < 4; i++)
        hello[1 + i] = (uint8_t)(TT__STORE_MAGIC >> 8 * i);
    for (size_t i = 0; i < sizeof hello; i++) {
        if (i == size)
            return TT__STORE_FIRST_MORE;
        if (data[i] != hello[i])
            return TT__STORE_FIRST_TORCH_1_13; /* in 1.13 these five bytes would be a key of more than a gigabyte */
    }
    return TT__STORE_FIRST_TORCH_2;
}

/* Read a u64 at parser->pos that may not exceed `max`. If only some of its bytes have come, *length is a lower
 * bound. */
static tt__store_parsed peek_length(const tt__store_parser *p, const uint8_t *data, size_t size, const char *what,
                                    uint64_t max, uint64_t *length, char *why) {
    size_t there = size - p->pos < 8 ? size - p->pos : 8;
    *length = tt__store_number(data + p->pos, there);
    if (*length > max) {
        snprintf(why, TT__STORE_WHY_SIZE, "%s with %s %" PRIu64 " (at most %" PRIu64 " is allowed)",
                 tt__store_op_table[p->op].name, what, *length, max);
        return TT__STORE_BAD;
    }
    return there < 8 ? TT__STORE_MORE : TT__STORE_WHOLE;
}

/* Read the opcode, and the count where there is one. */
static tt__store_parsed start_request(tt__store_parser *p, tt_store_dialect dialect, const uint8_t *data, size_t size,
                                      char *why) {
    if (p->pos == 0) {
        if (!size)
            return TT__STORE_MORE;
        p->op = tt__store_op_of(dialect, data[0]);
        if (p->op == TT__STORE_OP_COUNT) {
            snprintf(why, TT__STORE_WHY_SIZE, "unknown opcode %d", data[0]);
            return TT__STORE_BAD;
        }
        p->pos = 1;
        p->count = 1;
    }
    const char *fields = tt__store_op_table[p->op].fields;
    if (*fields == '*') {
        tt__store_parsed counted = peek_length(p, data, size, "count", TT__STORE_MAX_COUNT, &p->count, why);
        if (counted != TT__STORE_WHOLE)
            return counted;
        p->pos += 8;
        fields++;
    }
    p->left = *fields ? p->count : 0;
    p->field = fields;
    return TT__STORE_WHOLE;
}

/* Step over the field at parser->pos. */
static tt__store_parsed step_field(tt__store_parser *p, const uint8_t *data, size_t size, char *why) {
    uint64_t length = *p->field == 'u' ? 4 : 8;
    if (*p->field == 'k' || *p->field == 'v') {
        bool key = *p->field == 'k';
        tt__store_parsed measured = peek_length(p, data, size, key ? "key length" : "value length",
                                                key ? TT_STORE_MAX_KEY : TT_STORE_MAX_VALUE, &length, why);
        if (measured != TT__STORE_WHOLE)
            return measured;
        length += 8;
    }
    if (size - p->pos < length)
        return TT__STORE_MORE;
    p->pos += length;
    return TT__STORE_WHOLE;
}

tt__store_parsed tt__store_parse(tt__store_parser *p, tt_store_dialect dialect, const uint8_t *data, size_t size,
                                 char why[TT__STORE_WHY_SIZE]) {
    if (!p->field) {
        tt__store_parsed started = start_request(p, dialect, data, size, why);
        if (started != TT__STORE_WHOLE)
            return started;
    }
    const char *first = tt__store_op_table[p->op].fields;
    first += *first == '*';
    while (p->left) {
        tt__store_parsed stepped = step_field(p, data, size, why);
        if (stepped != TT__STORE_WHOLE)
            return stepped;
        if (!*++p->field) {
            p->field = first;
            p->left--;
        }
    }
    return TT__STORE_WHOLE;
}

tt__store_fields tt__store_fields_of(const tt__store_parser *parser, const uint8_t *data) {
    return (tt__store_fields){data + (*tt__store_op_table[parser->op].fields == '*' ? 9 : 1)};
}

tt__span tt__store_take_string(tt__store_fields *fields) {
    tt__span string = {fields->at + 8, tt__store_number(fields->at, 8)};
    fields->at += 8 + string.size;
    return string;
}

int64_t tt__store_take_i64(tt__store_fields *fields) {
    int64_t value = (int64_t)tt__store_number(fields->at, 8);
    fields->at += 8;
    return value;
}

uint32_t tt__store_take_u32(tt__store_fields *fields) {
    uint32_t value = (uint32_t)tt__store_number(fields->at, 4);
    fields->at += 4;
    return value;
}
