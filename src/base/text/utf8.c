#include "base/text/utf8.h"

/* The bytes of a character that begins with this one. 0: none does. */
static size_t length_by_first(unsigned char c) {
    return c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;
}

size_t tt__utf8_length(const char *text) {
    const unsigned char *c = (const unsigned char *)text;
    size_t length = length_by_first(c[0]);
    for (size_t i = 1; i < length; i++)
        if ((c[i] & 0xc0) != 0x80)
            return 0;
    bool overlong = (c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xf0 && c[1] < 0x90);
    bool surrogate = c[0] == 0xed && c[1] >= 0xa0, beyond = c[0] == 0xf4 && c[1] >= 0x90;
    return overlong || surrogate || beyond ? 0 : length;
}

bool tt__utf8_is_cut_off(const char *text) {
    size_t n = 1, length = length_by_first((unsigned char)*text);
    while (n < length && ((unsigned char)text[n] & 0xc0) == 0x80)
        n++;
    return n < length && !text[n];
}

bool tt__is_utf8(const char *text) {
    for (; *text; text += tt__utf8_length(text))
        if (tt__utf8_length(text) == 0)
            return false;
    return true;
}
