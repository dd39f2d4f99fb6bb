#include "store/etcd/etcd_text.h"

#include <inttypes.h>
#include <limits.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

void tt__etcd_put_text(tt__bytes *out, const char *text) { tt__bytes_put(out, text, strlen(text)); }

void tt__etcd_put_i64(tt__bytes *out, int64_t number) {
    char text[24];
    int size = snprintf(text, sizeof text, "%" PRId64, number);
    tt__bytes_put(out, text, (size_t)size);
}

void tt__etcd_put_base64(tt__bytes *out, const void *data, size_t size) {
    if (size > INT_MAX / 2 || !tt__bytes_reserve(out, size / 3 * 4 + 5)) { /* OpenSSL ends it with '\0' */
        out->failed = true;
        return;
    }
    out->size += (size_t)EVP_EncodeBlock(out->data + out->size, data, (int)size);
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

/* OpenSSL passes over white space at both ends, which makes its result shorter, and takes '=' for zeros anywhere. */
bool tt__etcd_take_base64(tt__bytes *out, tt__span text) {
    size_t pads = 0;
    while (pads < 2 && pads < text.size && text.data[text.size - 1 - pads] == '=')
        pads++;
    if (!text.size)
        return true;
    if (text.size % 4 || text.size > INT_MAX || memchr(text.data, '=', text.size - pads) ||
        !tt__bytes_reserve(out, text.size / 4 * 3))
        return false;
    if (EVP_DecodeBlock(out->data + out->size, text.data, (int)text.size) != (int)(text.size / 4 * 3))
        return false;
    out->size += text.size / 4 * 3 - pads;
    return true;
}
