#include "store/wire.h"

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
