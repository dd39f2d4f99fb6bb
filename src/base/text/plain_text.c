#include "base/text/plain_text.h"

#include <string.h>

/* Return the bytes of a character whose first byte is `c`; 0: no character begins so. */
static size_t length_by_first(unsigned char c) {
    return c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;
}

/* Return the bytes of the character that `text` begins with; 0: there is no UTF-8. */
static size_t utf8_length(const char *text) {
    const unsigned char *c = (const unsigned char *)text;
    size_t length = length_by_first(c[0]);
    for (size_t i = 1; i < length; i++)
        if ((c[i] & 0xc0) != 0x80)
            return 0;
    bool overlong = (c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xf0 && c[1] < 0x90);
    bool surrogate = c[0] == 0xed && c[1] >= 0xa0, beyond = c[0] == 0xf4 && c[1] >= 0x90;
    return overlong || surrogate || beyond ? 0 : length;
}

/* Is `text` the beginning of one character, whose end was cut off? */
static bool utf8_is_cut_off(const char *text) {
    size_t n = 1, length = length_by_first((unsigned char)*text);
    while (n < length && ((unsigned char)text[n] & 0xc0) == 0x80)
        n++;
    return n < length && !text[n];
}

/* Does a terminal act upon this character, of `length` bytes? U+0080 to U+009F are control characters, too. */
static bool is_control(const char *c, size_t length) {
    const unsigned char *u = (const unsigned char *)c;
    return u[0] < 0x20 || u[0] == 0x7f || (length == 2 && u[0] == 0xc2 && u[1] < 0xa0);
}

bool tt__is_utf8(const char *text) {
    for (size_t length; *text; text += length)
        if ((length = utf8_length(text)) == 0)
            return false;
    return true;
}

char *tt__make_readable(char *text) {
    for (char *at = text; *at;) {
        size_t length = utf8_length(at);
        if (!length && utf8_is_cut_off(at)) {
            *at = '\0';
        } else if (!length || (is_control(at, length) && *at != '\n' && *at != '\t')) {
            memset(at, '?', length ? length : 1);
            at += length ? length : 1;
        } else {
            at += length;
        }
    }
    return text;
}

/* Return the bytes of the escape sequence at `text`: ESC and "[...letter", "]...BEL", "]...ESC \" or one character. */
static size_t sequence_length(const char *text) {
    size_t n = 2;
    if (text[1] == '[') {
        while (text[n] && ((unsigned char)text[n] < 0x40 || (unsigned char)text[n] > 0x7e))
            n++;
        return text[n] ? n + 1 : n;
    }
    if (text[1] && strchr("]PX^_", text[1])) {
        while (text[n] && text[n] != '\a' && text[n] != '\033' && text[n] != '\n')
            n++;
        return text[n] == '\a' ? n + 1 : text[n] == '\033' && text[n + 1] == '\\' ? n + 2 : n;
    }
    return text[1] && text[1] != '\n' ? n : 1;
}

char *tt__make_plain(char *text) {
    char *out = text;
    for (const char *at = text; *at;) {
        unsigned char c = (unsigned char)*at, next = (unsigned char)at[1];
        if (c == '\033')
            at += sequence_length(at);
        else if (c == 0xc2 && next >= 0x80 && next < 0xa0) /* U+0080 to U+009F in UTF-8 */
            at += 2;
        else if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f)
            at++;
        else
            *out++ = *at++;
    }
    *out = '\0';
    return tt__make_readable(text);
}

char *tt__make_plain_name(char *name) {
    tt__make_plain(name);
    for (char *at = name; *at; at++)
        if (*at == '\n' || *at == '\t')
            *at = ' ';
    return name;
}

tt__printable tt__make_printable(const char *text) {
    tt__printable p;
    size_t n = 0;
    for (size_t length; *text; text += length ? length : 1) {
        length = utf8_length(text);
        bool good = length && !is_control(text, length);
        size_t bytes = good ? length : 1;
        if (n + bytes > 100)
            break;
        memcpy(p.text + n, good ? text : "?", bytes);
        n += bytes;
    }
    memcpy(p.text + n, *text ? "..." : "", *text ? 4 : 1);
    return p;
}
