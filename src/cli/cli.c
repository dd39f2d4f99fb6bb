/* What the subcommands share: spelling of flags, usage errors. */
#include "cli/cli.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void tt__cli_normalise_flag(char *arg) {
    if (strncmp(arg, "--", 2) != 0)
        return;
    for (char *c = arg + 2; *c && *c != '='; c++)
        if (*c == '_')
            *c = '-';
}

void tt__cli_normalise_flags(int argc, char **argv) {
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        tt__cli_normalise_flag(argv[i]);
}

int tt__cli_usage_error(const char *command, const char *format, ...) {
    va_list args;
    fprintf(stderr, "tutti %s: ", command);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\nTry 'tutti %s --help'.\n", command);
    return TT__EXIT_USAGE;
}
