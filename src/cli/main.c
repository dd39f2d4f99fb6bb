/* tutti: one command, its subcommands in a table. */
#include "cli/cli.h"

#include <tutti/base.h>

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *what;
} commands[] = {
    {"run", tt__cmd_run, "start a program once per rank"},
    {"store", tt__cmd_store, "serve the key-value store that ranks meet through"},
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

int main(int argc, char **argv) {
    if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help"))) {
        help(stdout);
        return TT__EXIT_OK;
    }
    if (argc > 1 && !strcmp(argv[1], "--version")) {
        printf("tutti %s\n", tt_version());
        return TT__EXIT_OK;
    }
    for (int i = 0; argc > 1 && commands[i].name; i++)
        if (!strcmp(argv[1], commands[i].name))
            return commands[i].run(argc - 1, argv + 1);
    if (argc > 1)
        fprintf(stderr, "tutti: unknown command \"%s\"\n\n", argv[1]);
    help(stderr);
    return TT__EXIT_USAGE;
}
