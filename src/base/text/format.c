#include "base/text/format.h"

#include <stdlib.h>

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
