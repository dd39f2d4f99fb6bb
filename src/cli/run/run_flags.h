/* The flags of `tutti run` and `tutti launch`: torchrun's, in both spellings, and defaults from PET_* variables. The
 * table is run_flags.def. */
#ifndef TT_CLI_RUN_FLAGS_H
#define TT_CLI_RUN_FLAGS_H

#include "cli/cli.h"

#include <stdint.h>

enum { TT__RUN_NODES_MAX = 4096 };

/* Where a flag's value comes from. */
typedef enum tt__flag_source { TT__FLAG_DEFAULT, TT__FLAG_TYPED, TT__FLAG_VARIABLE } tt__flag_source;

/* The values, checked by their kinds. A flag that is not given has the table's default, or NULL, false or 0. */
typedef struct tt__run_flags {
#define HEADING(text)
#define FLAG(field, name, letter, kind, help, fallback, torchrun) kind field;
#define SWITCH bool
#define TEXT(value, offer) const char *
#define CHOICE(value, words) const char *
#define NUMBER(value, least, most) int64_t
#define SECONDS(least) int64_t
#define OR_NONE(kind) kind
#include "cli/run/run_flags.def"

    /* Which flags the user gave, on the command line or by a variable; TT__FLAG_DEFAULT, 0: not given. */
    struct {
#define HEADING(text)
#define FLAG(field, name, letter, kind, help, fallback, torchrun) tt__flag_source field;
#include "cli/run/run_flags.def"
    } given;
    bool help; /* help is wanted; the values are not set */
} tt__run_flags;

extern const tt__flag tt__run_flags_table[];

/* Read PET_* variables, then argv[1..] up to the program; *program := the index of the program in argv (argc if there
 * is none). Returns 0, or prints the error as that of `command` and returns the exit code. Underscores in the names of
 * flags are rewritten in place. */
int tt__run_flags_parse(const char *command, tt__run_flags *flags, int argc, char **argv, int *program);

/* Print the last error as a usage error of `command`. If it begins with a flag that a PET_* variable has given, it
 * names the variable. Returns the exit code. */
int tt__run_flags_error(const char *command, const tt__run_flags *flags);

/* The flag that `arg`, "--name", "--name=value" or the beginning of a name, stands for; NULL: none, or "-x3". */
const tt__flag *tt__run_flag_named(const char *arg);

#endif
