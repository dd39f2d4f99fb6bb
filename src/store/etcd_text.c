#include "store/etcd_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void tt__etcd_put_text(tt__bytes *out, const char *text) { tt__bytes_put(out, text, strlen(text)); }

void tt__etcd_put_i64(tt__bytes *out, int64_t number) {
    char text[24];
    int size = snprintf(text, sizeof text, "%" PRId64, number);
    tt__bytes_put(out, text, (size_t)size);
}

void tt__etcd_put_base64(tt__bytes *out, const void *data, size_t size) {
    const uint8_t *from = data;
    if (size > SIZE_MAX / 4 || !tt__bytes_reserve(out, size / 3 * 4 + 4)) {
        out->failed = true;
        return;
    }
    for (size_t i = 0; i < size; i += 3) {
        size_t n = size - i < 3 ? size - i : 3;
        uint32_t bits = (uint32_t)from[i] << 16;
        bits |= n > 1 ? (uint32_t)from[i + 1] << 8 : 0;
        bits |= n > 2 ? from[i + 2] : 0;
        char four[4] = {digits[bits >> 18], digits[bits >> 12 & 63], digits[bits >> 6 & 63], digits[bits & 63]};
        if (n < 3)
            four[3] = '=';
        if (n < 2)
            four[2] = '=';
        tt__bytes_put(out, four, sizeof four);
    }
}

void tt__etcd_put_json_string(tt__bytes *out, const char *text) {
    tt__bytes_put(out, "\"", 1);
    for (; *text; text++) {
        char escape[8];
        unsigned char c = (unsigned char)*text;
        if (c < 0x20 || c == '"' || c == '\\') {
            snprintf(escape, sizeof escape, "\\u%04x", c);
            tt__etcd_put_text(out, escape);
        } else {
            tt__bytes_put(out, text, 1);
        }
    }
    tt__bytes_put(out, "\"", 1);
}

/* What a digit stands for; 64: it is none. */
static uint32_t digit_value(uint8_t c) {
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (uint32_t)(at - digits) : 64;
}

bool tt__etcd_take_base64(tt__bytes *out, tt__span text) {
    if (text.size % 4 || !tt__bytes_reserve(out, text.size / 4 * 3 + 1))
        return false;
    size_t end = text.size, pads = 0;
    while (pads < 2 && end && text.data[end - 1] == '=')
        pads++, end--;
    uint32_t bits = 0;
    for (size_t i = 0; i < end; i++) {
        uint32_t value = digit_value(text.data[i]);
        if (value > 63)
            return false;
        bits = bits << 6 | value;
        if (i % 4 == 3) {
            uint8_t three[3] = {(uint8_t)(bits >> 16), (uint8_t)(bits >> 8), (uint8_t)bits};
            tt__bytes_put(out, three, 3);
        }
    }
    if (pads == 1) {
        uint8_t two[2] = {(uint8_t)(bits >> 10), (uint8_t)(bits >> 2)};
        tt__bytes_put(out, two, 2);
    } else if (pads == 2) {
        uint8_t one = (uint8_t)(bits >> 4);
        tt__bytes_put(out, &one, 1);
    }
    return true;
}
