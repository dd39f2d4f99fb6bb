/* What the small programs say to a command line: --help, and what they don't understand. */
#ifndef EXAMPLES_USAGE_H
#define EXAMPLES_USAGE_H

#include <stdio.h>

#include "speaks.h"

/* Read a whole number from 1 to `most`. */
static inline bool read_count(const char *text, int most, int *count) {
    char *end;
    const long number = strtol(text, &end, 10);
    if (!*text || *end || number < 1 || number > most)
        return false;
    *count = (int)number;
    return true;
}

/* Print `usage`, because of `argument`: for --help, or as it is not understood. Returns the exit code. */
static inline int tell_usage(const char *usage, const char *argument) {
    const bool asked = !strcmp(argument, "--help") || !strcmp(argument, "-h");
    if (!speaks())
        return asked ? EXIT_SUCCESS : 2;
    if (!asked)
        fprintf(stderr, "not understood: \"%s\"\n", argument);
    fputs(usage, asked ? stdout : stderr);
    return asked ? EXIT_SUCCESS : 2;
}

#endif
