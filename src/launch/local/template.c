#include "launch/local/template.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_of_name(char c, bool first) {
    return c == '_' || isalpha((unsigned char)c) || (!first && isdigit((unsigned char)c));
}

/* Find the name after a dollar sign: where it begins and how long it is, 0 = none. Returns how much of `text` is read,
 * braces included. */
static size_t find_template_name(const char *text, const char **name, size_t *n) {
    bool braces = *text == '{';
    *name = text + braces;
    for (*n = 0; is_of_name((*name)[*n], *n == 0);)
        ++*n;
    if (braces && (*name)[*n] != '}')
        *n = 0;
    return *n ? *n + 2 * (size_t)braces : 0;
}

static const char *value_of(const char *name, size_t n, const tt__filling *fillings) {
    for (; fillings->name; fillings++)
        if (strlen(fillings->name) == n && !strncmp(name, fillings->name, n))
            return fillings->value;
    return NULL;
}

char *tt__template_fill(const char *text, const tt__filling *fillings) {
    char *out = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&out, &size);
    if (!stream)
        return NULL;
    while (*text) {
        const char *name = NULL, *value = NULL;
        size_t n = 0, used = *text == '$' ? find_template_name(text + 1, &name, &n) : 0;
        if (used)
            value = value_of(name, n, fillings);
        if (value) {
            fputs(value, stream);
            text += 1 + used;
        } else {
            fputc(*text, stream);
            text += *text == '$' && text[1] == '$' ? 2 : 1;
        }
    }
    bool failed = ferror(stream) != 0;
    if (fclose(stream) || failed) {
        free(out);
        return NULL;
    }
    return out;
}
