#include "elastic/torch_state.h"

#include "base/error.h"

#include <string.h>

static const char base64_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void tt__base64_encode(tt__bytes *text, const uint8_t *data, size_t size) {
    for (size_t at = 0; at < size; at += 3) {
        size_t n = size - at < 3 ? size - at : 3;
        uint32_t bits =
            (uint32_t)data[at] << 16 | (n > 1 ? (uint32_t)data[at + 1] << 8 : 0) | (n > 2 ? data[at + 2] : 0);
        char four[4];
        for (size_t i = 0; i < 4; i++)
            four[i] = i > n ? '=' : base64_digits[bits >> (18 - 6 * i) & 63];
        tt__bytes_put(text, four, sizeof four);
    }
}

/* The value of a digit; -1: it is none. */
static int base64_digit(char digit) {
    const char *at = digit ? strchr(base64_digits, digit) : NULL;
    return at ? (int)(at - base64_digits) : -1;
}

tt_status tt__base64_decode(tt__bytes *data, const char *text, size_t size) {
    if (size % 4)
        return tt__fail(TT_ERR_FORMAT, "expected base64, got %zu characters, not a multiple of 4", size);
    for (size_t at = 0; at < size; at += 4) {
        size_t padding =
            at + 4 < size ? 0 : (size_t)(text[at + 3] == '=') + (text[at + 3] == '=' && text[at + 2] == '=');
        uint32_t bits = 0;
        for (size_t i = 0; i < 4; i++) {
            int value = i < 4 - padding ? base64_digit(text[at + i]) : 0;
            if (value < 0)
                return tt__fail(TT_ERR_FORMAT, "expected base64, got byte %d at %zu", (unsigned char)text[at + i],
                                at + i);
            bits = bits << 6 | (uint32_t)value;
        }
        const uint8_t three[] = {(uint8_t)(bits >> 16), (uint8_t)(bits >> 8), (uint8_t)bits};
        tt__bytes_put(data, three, 3 - padding);
    }
    return data->failed ? tt__fail(TT_ERR_MEMORY, "no memory for %zu characters of base64", size) : TT_OK;
}
