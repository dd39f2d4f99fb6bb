#include "store/siphash.h"

#include "store/wire.h"

static uint64_t rotate_left(uint64_t x, int by) { return x << by | x >> (64 - by); }

static void sip_round(uint64_t v[4]) {
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotate_left(v[1], 13) ^ v[0];
    v[3] = rotate_left(v[3], 16) ^ v[2];
    v[0] = rotate_left(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = rotate_left(v[1], 17) ^ v[2];
    v[3] = rotate_left(v[3], 21) ^ v[0];
    v[2] = rotate_left(v[2], 32);
}

static void siphash_absorb(uint64_t v[4], uint64_t word) {
    v[3] ^= word;
    sip_round(v);
    v[0] ^= word;
}

uint64_t tt__siphash13(const uint64_t key[2], const void *data, size_t size) {
    const uint8_t *p = data;
    uint64_t v[4] = {key[0] ^ UINT64_C(0x736f6d6570736575), key[1] ^ UINT64_C(0x646f72616e646f6d),
                     key[0] ^ UINT64_C(0x6c7967656e657261), key[1] ^ UINT64_C(0x7465646279746573)};
    size_t left = size;
    for (; left >= 8; left -= 8, p += 8)
        siphash_absorb(v, tt__store_number(p, 8));
    siphash_absorb(v, (uint64_t)size << 56 | tt__store_number(p, left));
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}
