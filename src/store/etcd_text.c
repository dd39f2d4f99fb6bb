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
    uint8_t *at = out->data + out->size;
    for (size_t i = 0; i < size; i += 3, at += 4) {
        size_t n = size - i < 3 ? size - i : 3;
        uint32_t bits = (uint32_t)from[i] << 16;
        bits |= n > 1 ? (uint32_t)from[i + 1] << 8 : 0;
        bits |= n > 2 ? from[i + 2] : 0;
        at[0] = (uint8_t)digits[bits >> 18];
        at[1] = (uint8_t)digits[bits >> 12 & 63];
        at[2] = n > 1 ? (uint8_t)digits[bits >> 6 & 63] : '=';
        at[3] = n > 2 ? (uint8_t)digits[bits & 63] : '=';
    }
    out->size += (size + 2) / 3 * 4;
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
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26u;
    if (c >= '0' && c <= '9')
        return c - '0' + 52u;
    return c == '+' ? 62 : c == '/' ? 63 : 64;
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
            uint8_t *at = out->data + out->size; /* reserved above */
            at[0] = (uint8_t)(bits >> 16);
            at[1] = (uint8_t)(bits >> 8);
            at[2] = (uint8_t)bits;
            out->size += 3;
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
