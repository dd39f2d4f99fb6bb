/* tutti: one command, its subcommands in a table. */
#include "cli/cli.h"

#include <tutti/base.h>

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *what;
} commands[] = {
    {"run", tt__cmd_run, "start a program once per rank"},
    {"top", tt__cmd_top, "show what the ranks of a running job do"},
    {"trace", tt__cmd_trace, "write what they called lately as a trace for Perfetto"},
    {"store", tt__cmd_store, "serve the key-value store that ranks meet through"},
    {"tune", tt__cmd_tune, "measure the algorithms between hosts, write the table that chooses"},
    {"bench", tt__cmd_bench, "measure collectives, training steps, the store, start-up"},
    {"data", tt__cmd_data, "make a set of digits to train on, look at IDX files"},
    {NULL, NULL, NULL},
};

static void help(FILE *out) {
    fprintf(out, "usage: tutti COMMAND [ARGUMENTS]\n\nDistributed data-parallel training in C.\n\n");
    for (int i = 0; commands[i].name; i++)
        fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].what);
    fprintf(out, "\n'tutti COMMAND --help' explains each. 'tutti --version' prints the version.\n");
}

static int run_command(int argc, char **argv) {
    for (int i = 0; commands[i].name; i++)
        if (!strcmp(argv[0], commands[i].name))
            return commands[i].run(argc, argv);
    fprintf(stderr, "tutti: unknown command \"%s\"\n\n", argv[0]);
    help(stderr);
    return TT__EXIT_USAGE;
}

static int dispatch(int argc, char **argv) {
    const char *first = argc > 1 ? argv[1] : "";
    char flag[] = "--help", *ask[] = {NULL, flag, NULL};
    if (!*first) {
        help(stderr);
        return TT__EXIT_USAGE;
    }
    if (!strcmp(first, "help") && argc > 2) { /* "tutti help run" is "tutti run --help" */
        ask[0] = argv[2];
        return run_command(2, ask);
    }
    if (!strcmp(first, "--help") || !strcmp(first, "-h") || !strcmp(first, "help")) {
        help(stdout);
        return TT__EXIT_OK;
    }
    if (!strcmp(first, "--version")) {
        printf("tutti %s\n", tt_version());
        return TT__EXIT_OK;
    }
    return run_command(argc - 1, argv + 1);
}

/* What was printed may have gone nowhere, as on a full disk. Only the last flush knows. */
int main(int argc, char **argv) {
    int code = dispatch(argc, argv);
    errno = 0;
    bool lost = fflush(stdout) != 0 || ferror(stdout);
    if (!lost)
        return code;
    fprintf(stderr, "tutti: writing the output failed%s%s\n", errno ? ": " : "", errno ? strerror(errno) : "");
    return code ? code : TT__EXIT_FAILED;
}
