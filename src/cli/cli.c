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

int tt__cli_store_auth(const char *command, const char *text, tt_store_auth *auth) {
    static const char *const names[] = {
        [TT_STORE_AUTH_LOCAL] = "local", [TT_STORE_AUTH_REQUIRED] = "required", [TT_STORE_AUTH_NONE] = "none"};
    for (int i = 0; i < 3; i++)
        if (!strcmp(text, names[i])) {
            *auth = (tt_store_auth)i;
            return 0;
        }
    return tt__cli_usage_error(command, "--store-auth: expected local, required or none, got \"%s\"", text);
}

int tt__cli_next_flag(const char *command, int argc, char **argv, const struct option *options, const char **flag) {
    const char *typed = optind < argc ? argv[optind] : "";
    opterr = 0;
    int letter = getopt_long(argc, argv, "+:h", options, NULL);
    if (flag)
        *flag = typed;
    if (letter == ':')
        tt__cli_usage_error(command, "%s needs a value", typed);
    else if (letter == '?')
        tt__cli_usage_error(command, "unknown flag %s", typed);
    else if (letter == -1 && optind < argc)
        tt__cli_usage_error(command, "unexpected argument \"%s\"", argv[optind]);
    else
        return letter;
    return '?';
}

/* Whether the value of flag `arg` is the next argument. */
static int wants_next(const char *arg, const struct option *options) {
    for (; options->name; options++)
        if (!strncmp(arg, "--", 2) && !strcmp(arg + 2, options->name))
            return options->has_arg == required_argument;
    return 0;
}

char *tt__cli_take_word(int *argc, char **argv, const struct option *options) {
    for (int i = 1; i < *argc; i++) {
        char *word = argv[i];
        if (word[0] == '-') {
            i += wants_next(word, options);
            continue;
        }
        memmove(argv + i, argv + i + 1, (size_t)(*argc - i) * sizeof *argv); /* the NULL at the end, too */
        --*argc;
        return word;
    }
    return NULL;
}
