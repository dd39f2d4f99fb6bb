/* jansson in the C locale, because by itself it uses the program's decimal point. Only for layers that link jansson. */
#ifndef TT_BASE_JSON_H
#define TT_BASE_JSON_H

#include "base/text/format.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* As json_loads(), json_loadb(), json_loadfd(), json_dumps(), json_dumpb() and json_dumpf(). */
static inline json_t *tt__json_loads(const char *text, size_t flags, json_error_t *error) {
    locale_t before = tt__c_locale_begin();
    json_t *json = json_loads(text, flags, error);
    tt__c_locale_end(before);
    return json;
}

static inline json_t *tt__json_loadb(const char *text, size_t size, size_t flags, json_error_t *error) {
    locale_t before = tt__c_locale_begin();
    json_t *json = json_loadb(text, size, flags, error);
    tt__c_locale_end(before);
    return json;
}

static inline json_t *tt__json_loadfd(int fd, size_t flags, json_error_t *error) {
    locale_t before = tt__c_locale_begin();
    json_t *json = json_loadfd(fd, flags, error);
    tt__c_locale_end(before);
    return json;
}

static inline char *tt__json_dumps(const json_t *json, size_t flags) {
    locale_t before = tt__c_locale_begin();
    char *text = json_dumps(json, flags);
    tt__c_locale_end(before);
    return text;
}

static inline size_t tt__json_dumpb(const json_t *json, char *text, size_t size, size_t flags) {
    locale_t before = tt__c_locale_begin();
    size_t n = json_dumpb(json, text, size, flags);
    tt__c_locale_end(before);
    return n;
}

/* Also escapes DEL and U+0080 to U+009F: a terminal would act upon them, and texts come from files and other
 * processes. */
static inline int tt__json_dumpf(const json_t *json, FILE *file, size_t flags) {
    char *text = json ? tt__json_dumps(json, flags) : NULL;
    for (const unsigned char *c = (const unsigned char *)text; c && *c; c++) {
        bool is_high = c[0] == 0xc2 && c[1] < 0xa0;
        if (is_high || *c == 0x7f)
            fprintf(file, "\\u%04x", is_high ? c[1] : *c);
        else
            fputc(*c, file);
        c += is_high;
    }
    free(text);
    return text && !ferror(file) ? 0 : -1;
}

/* As json_string(), of bytes that need not be UTF-8, as JSON must be: of flags, names of files and what programs say.
 * If they are not, each byte that is not ASCII becomes '?'. NULL is "". */
static inline json_t *tt__json_text(const char *text) {
    json_t *string = json_string(text ? text : "");
    char *clean = string ? NULL : strdup(text);
    for (char *c = clean; c && *c; c++)
        if (*c & 0x80)
            *c = '?';
    if (clean)
        string = json_string(clean);
    free(clean);
    return string;
}

#endif
