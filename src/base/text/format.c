#include "base/text/format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

locale_t tt__c_locale_begin(void) { return uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0)); }

void tt__c_locale_end(locale_t before) { uselocale(before); }

int tt__vformat(char *text, size_t size, const char *format, va_list args) {
    locale_t before = tt__c_locale_begin();
    int n = vsnprintf(text, size, format, args);
    tt__c_locale_end(before);
    return n;
}

int tt__format(char *text, size_t size, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = tt__vformat(text, size, format, args);
    va_end(args);
    return n;
}

int tt__print(FILE *file, const char *format, ...) {
    va_list args;
    va_start(args, format);
    locale_t before = tt__c_locale_begin();
    int n = vfprintf(file, format, args);
    tt__c_locale_end(before);
    va_end(args);
    return n;
}

int tt__vformat_new(char **text, const char *format, va_list args) {
    locale_t before = tt__c_locale_begin();
    int n = vasprintf(text, format, args);
    tt__c_locale_end(before);
    return n;
}

int tt__format_shortest(char *text, size_t size, int digits, double x) {
    enum { ENOUGH = 17 }; /* digits give any double back */
    int n;
    locale_t before = tt__c_locale_begin();
    do
        n = snprintf(text, size, "%.*g", digits, x);
    while (digits++ < ENOUGH && strtod(text, NULL) != x);
    tt__c_locale_end(before);
    return n;
}

enum { FIRST_WORDS = 200 };

static bool is_inside_character(char c) { return ((unsigned char)c & 0xc0) == 0x80; }

/* Put the beginning, a mark and the end of `whole` (n bytes, more than fit) into `text`. */
static void shorten(char *text, size_t size, const char *whole, size_t n) {
    bool quoted = whole[0] == ' ';
    const char *mark = quoted ? "[beginning left out] " : " [... left out ...] ";
    size_t head = quoted ? strspn(whole, " |") : FIRST_WORDS;
    head = head < FIRST_WORDS ? head : FIRST_WORDS;
    while (head && is_inside_character(whole[head]))
        head--;
    size_t rest = n - (size - 1 - head - strlen(mark));
    while (is_inside_character(whole[rest]))
        rest++;
    snprintf(text, size, "%.*s%s%s", (int)head, whole, mark, whole + rest);
}

void tt__format_short(char *text, size_t size, const char *format, va_list args) {
    va_list again;
    va_copy(again, args);
    int n = tt__vformat(text, size, format, args);
    char *whole = n >= 0 && (size_t)n >= size ? malloc((size_t)n + 1) : NULL;
    if (whole) {
        tt__vformat(whole, (size_t)n + 1, format, again);
        shorten(text, size, whole, (size_t)n);
        free(whole);
    }
    va_end(again);
}
