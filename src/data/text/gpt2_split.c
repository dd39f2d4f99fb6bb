#include "data/text/gpt2_split.h"

#include "data/text/unicode_classes.h"

#include <string.h>

uint32_t tt__utf8_decode(const uint8_t *text, size_t size, size_t *length) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    uint8_t first = text[0];
    size_t n = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
    *length = 1;
    if (n < 2 || n > size)
        return n == 1 ? first : UINT32_MAX;
    uint32_t c = first & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return UINT32_MAX;
        c = c << 6 | (text[i] & 0x3f);
    }
    if (c < least[n] || (c >= 0xd800 && c < 0xe000) || c > 0x10ffff)
        return UINT32_MAX;
    *length = n;
    return c;
}

typedef enum char_class { LETTER, NUMBER, SPACE, OTHER } char_class;

static char_class class_at(const uint8_t *text, size_t size, size_t *length) {
    uint32_t c = tt__utf8_decode(text, size, length);
    if (c < 0x80 ? (c | 0x20) >= 'a' && (c | 0x20) <= 'z' : tt__is_letter(c))
        return LETTER;
    return tt__is_space(c) ? SPACE : tt__is_number(c) ? NUMBER : OTHER;
}

/* Return the length of "'s" and its like at the beginning; 0: there is none. */
static size_t contraction(const uint8_t *text, size_t size) {
    static const char *const endings[] = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t n = strlen(endings[i]);
        if (n <= size && !memcmp(text, endings[i], n))
            return n;
    }
    return 0;
}

/* Return where the run of characters of one class ends that begins at `at`; *last: where its last one begins. */
static size_t run_end(const uint8_t *text, size_t size, size_t at, char_class of, size_t *last) {
    size_t length;
    *last = at;
    while (at < size && class_at(text + at, size - at, &length) == of) {
        *last = at;
        at += length;
    }
    return at;
}

size_t tt__gpt2_word(const uint8_t *text, size_t size) {
    size_t length, last, begin = text[0] == ' ' && size > 1;
    size_t n = contraction(text, size);
    if (n)
        return n;
    char_class of = class_at(text + begin, size - begin, &length);
    if (of != SPACE) /* with the blank before it, if there is one */
        return run_end(text, size, begin, of, &last);
    size_t end = run_end(text, size, 0, SPACE, &last);
    return end < size && last > 0 ? last : end; /* the last space belongs to the word that follows */
}
