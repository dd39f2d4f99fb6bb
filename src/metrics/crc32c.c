#include "metrics/crc32c.h"

/* Four bits at a time, from a table of 16 remainders of the reflected polynomial 82F63B78: records are small. */
static const uint32_t remainders[16] = {
    0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
    0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9, 0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
};

uint32_t tt__crc32c(const void *data, size_t size) {
    const uint8_t *byte = data;
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < size; i++) {
        crc ^= byte[i];
        crc = crc >> 4 ^ remainders[crc & 15];
        crc = crc >> 4 ^ remainders[crc & 15];
    }
    return ~crc;
}

uint32_t tt__crc32c_masked(const void *data, size_t size) {
    uint32_t crc = tt__crc32c(data, size);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}
