#include "base/text/plain_text.h"
#include "base/text/printable.h"

#include <string.h>

char *tt__make_readable(char *text) {
    for (char *at = text; *at;) {
        size_t length = tt__utf8_length(at);
        if (!length && tt__utf8_is_cut_off(at)) {
            *at = '\0';
        } else if (!length || (tt__is_control(at, length) && *at != '\n' && *at != '\t')) {
            memset(at, '?', length ? length : 1);
            at += length ? length : 1;
        } else {
            at += length;
        }
    }
    return text;
}

/* Return how many bytes the escape sequence at `text` has, which begins with ESC: "[...letter", "]...BEL or ESC \", or
 * one character more. */
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
