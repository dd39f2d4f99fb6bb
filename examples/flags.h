/* A program's command line from a table of its flags. A program sets `program_name`, and includes this once. */
#ifndef EXAMPLES_FLAGS_H
#define EXAMPLES_FLAGS_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "speaks.h"

static const char program_name[];

/* A flag with a value; exactly one of the pointers is set. */
typedef struct Flag {
    const char *name;
    const char **text;
    int64_t *integer;
    double *real;
    int64_t min; /* of a number */
} Flag;

static bool complain(const char *what, const char *text) {
    if (speaks())
        fprintf(stderr, "%s: %s%s (see --help)\n", program_name, what, text);
    return false;
}

static bool set_integer(const Flag *flag, const char *text) {
    char *end;
    long long number = strtoll(text, &end, 10);
    if (*text && !*end && number >= flag->min && number <= INT32_MAX) {
        *flag->integer = number;
        return true;
    }
    if (speaks())
        fprintf(stderr, "%s: --%s: expected a whole number from %" PRId64 " to %d, got \"%s\"\n", program_name,
                flag->name, flag->min, INT32_MAX, text);
    return false;
}

static bool set_real(const Flag *flag, const char *text) {
    char *end;
    double number = strtod(text, &end);
    if (*text && !*end && number >= (double)flag->min && number < 1e30) {
        *flag->real = number;
        return true;
    }
    if (speaks())
        fprintf(stderr, "%s: --%s: expected a number of at least %" PRId64 ", got \"%s\"\n", program_name, flag->name,
                flag->min, text);
    return false;
}

static bool set_flag(const Flag *flag, const char *value) {
    if (flag->integer)
        return set_integer(flag, value);
    if (flag->real)
        return set_real(flag, value);
    *flag->text = value;
    return true;
}

/* The flag of an argument "--NAME" or "--NAME=VALUE", whose value is then set; NULL: there is none. */
static const Flag *find_flag(const Flag *flags, size_t n, const char *argument, const char **value) {
    if (strncmp(argument, "--", 2) != 0)
        return NULL;
    size_t length = strcspn(argument + 2, "=");
    *value = argument[2 + length] ? argument + 3 + length : NULL;
    for (size_t i = 0; i < n; i++)
        if (strlen(flags[i].name) == length && !strncmp(flags[i].name, argument + 2, length))
            return &flags[i];
    return NULL;
}

/* False: wrong flags, which were told. --help prints `usage` and ends the process. */
static bool parse_flags(const Flag *flags, size_t n, const char *usage, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const char *value = NULL;
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            if (speaks())
                fputs(usage, stdout);
            exit(EXIT_SUCCESS);
        }
        const Flag *flag = find_flag(flags, n, argv[i], &value);
        if (!flag)
            return complain(*argv[i] == '-' ? "unknown flag " : "expected flags only, got ", argv[i]);
        if (!value && ++i == argc)
            return complain("a value is missing after ", argv[i - 1]);
        if (!set_flag(flag, value ? value : argv[i]))
            return false;
    }
    return true;
}

#endif
