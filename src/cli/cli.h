/* A subcommand of `tutti`: a table with its name, flags and texts, from which help, completion and parsing are made. */
#ifndef TT_CLI_CLI_H
#define TT_CLI_CLI_H

#include <tutti/base.h>
#include <tutti/store.h>

#include <getopt.h>
#include <stdio.h>

/* Exit codes: 0 success, 1 the work failed, 2 wrong usage; `run` passes on its first failing worker's code. */
enum { TT__EXIT_OK = 0, TT__EXIT_FAILED = 1, TT__EXIT_USAGE = 2 };

enum { TT__FLAGS_MAX = 96, TT__PARTS_MAX = 32 };

typedef struct tt__flag {
    const char *name;  /* without "--"; NULL: `what` is a heading */
    int id;            /* what tt__cli_next_flag() returns: positive, not 'h' nor '?' */
    char letter;       /* the short form; 0: none */
    const char *value; /* what the help calls its value; NULL: a switch */
    const char *what;  /* for the help; NULL: not shown */
    const char *offer; /* completion of the value: words, or TT__OFFER_...; NULL: nothing */
} tt__flag;

/* Rows of a table of flags: a switch, and a flag with a value. The text may be followed by .letter and .offer. */
#define TT__SWITCH(name_, id_, ...) \
    { .name = name_, .id = id_, .what = __VA_ARGS__ }
#define TT__VALUE(name_, id_, value_, ...) \
    { .name = name_, .id = id_, .value = value_, .what = __VA_ARGS__ }

#define TT__OFFER_FILES "<files>"
#define TT__OFFER_FOLDERS "<folders>"

typedef struct tt__command {
    const char *name;      /* "run"; "bench step": as typed after "tutti"; "" for tutti itself */
    const char *what;      /* its line in a list of commands */
    const char *usage;     /* what stands after the name; several forms are separated by line ends */
    const char *text;      /* paragraphs before the flags. Those that begin with a space are not wrapped. */
    const tt__flag *flags; /* ends with {0}; NULL: none. --help need not be among them. */
    const char *notes;     /* paragraphs after the flags, or NULL */
    const char *offer;     /* completion of arguments, as a flag's */
    bool runs_program;     /* the first argument is a program, and what follows is its own */
    /* The subcommands it has, NULL after the last; NULL: none. Then `run` need not be. */
    const struct tt__command *const *(*parts)(void);
    int (*run)(int argc, char **argv); /* argv[0] is its name's last word. Returns the exit code */
} tt__command;

/* The program's name in help and errors: "tutti", unless the main() of another program sets its own. */
extern const char *tt__cli_program;

extern const tt__command tt__cmd_run, tt__cmd_launch, tt__cmd_top, tt__cmd_trace, tt__cmd_store, tt__cmd_tune,
    tt__cmd_bench, tt__cmd_data, tt__cmd_ckpt, tt__cmd_plot, tt__cmd_submit, tt__cmd_doctor;

/* Print the help on `out`, as wide as the terminal allows. Returns TT__EXIT_OK. */
int tt__cli_help(const tt__command *command, FILE *out);

/* Print "tutti NAME: text" and a hint at --help on stderr. Returns TT__EXIT_USAGE. */
int tt__cli_usage_error(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Print text that may hold bytes from outside (files, their names, other processes), without what a terminal would act
 * upon (base/text/plain_text.h). Commands print such text only by this function and the two below. */
void tt__cli_print(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Print "tutti NAME: text", an error or a note, on stderr, plain, and wrapped on a terminal. */
void tt__cli_error(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));
void tt__cli_note(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Print a line on `out`, wrapped as tt__wrap() does, and a line end. At most 8 KiB. */
void tt__cli_print_wrapped(FILE *out, const char *text, int columns, int used, int indent);

/* Write a word as a POSIX shell reads it back, in quotes if it needs them. */
void tt__write_shell_word(const char *word, FILE *out);

/* Run the part that argv[1] names, or print help. An unknown part is an error that guesses what was meant. `kind`:
 * "command", "benchmark". Returns the exit code. */
int tt__cli_dispatch(const tt__command *command, const char *kind, int argc, char **argv);

/* Long options may be written with "_" for "-", as torchrun's: rewrite one ("--node_rank=0") in place, but not its
 * value. tt__cli_dispatch() does so with all before a "--", unless the command runs a program. */
void tt__cli_normalise_flag(char *arg);

/* Check the name of a file of kind `ending` (".svg") that `flag` gives: it must not end as files of another kind do.
 * TT_ERR_INVALID: the text tells what is written. */
tt_status tt__cli_check_ending(const char *flag, const char *path, const char *ending);

/* Return the number of `text`, from 0, among `words`, which are separated by spaces; -1: it is none of them. */
int tt__cli_choice(const char *words, const char *text);

/* Write the words as an error names them: "local, required or none". Returns `text`. */
const char *tt__cli_choices_text(const char *words, char *text, size_t size);

/* The values of --store-auth, in the order of tt_store_auth. */
#define TT__STORE_AUTHS "local required none"

/* Take the next flag of a command that has nothing but flags. Returns its id, with its value in optarg, and in *flag
 * (may be NULL) how it was typed; -1 after the last one; 'h' after printing help: exit with TT__EXIT_OK; '?' after
 * printing an error: exit with TT__EXIT_USAGE. */
int tt__cli_next_flag(const tt__command *command, int argc, char **argv, const char **flag);

/* Take the first argument that is neither a flag of the command nor a flag's value out of argv. NULL: there is none. */
char *tt__cli_take_word(const tt__command *command, int *argc, char **argv);

/* Return the last word of a command's name: "step" of "bench step". */
const char *tt__cli_last_word(const char *name);

/* Find the flag that `arg` ("--name", "--name=value", "-x") names, or NULL. */
const tt__flag *tt__cli_find_flag(const tt__flag *flags, const char *arg);

/* Guess which of `flags` a user meant by `arg`, which begins with "--". Returns its name without "--"; NULL: none is
 * near. */
const char *tt__cli_guess_flag(const char *arg, const tt__flag *flags);

/* Print the completion of `root` and all its parts for `shell`: "bash", "zsh" or "fish". False: another one. */
bool tt__completion_print(const tt__command *root, const char *shell);

/* ---- clean_end.c */

/* From now on SIGINT, SIGTERM and SIGHUP first remove the temporaries of files that are being written (atomic_file.h),
 * and then end the process as before. Call it once, while the process has one thread. If no other thread can be
 * started, they end the process at once. */
void tt__cli_end_cleanly(void);

/* Make a folder unless it is there. From now on such an end removes it if it was made here and is empty. `folder` must
 * stay valid. Errors: as tt__make_folder(). */
tt_status tt__cli_make_folder(const char *folder);

/* Remove it now, if it was made here and is empty. While a signal ends the process this does not return: call it before
 * printing an error that such an end may have caused. */
void tt__cli_remove_folder(void);

#endif
