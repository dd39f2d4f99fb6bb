/* The subcommands of `tutti`. One file each; main.c has the table. */
#ifndef TT_CLI_CLI_H
#define TT_CLI_CLI_H

#include <tutti/store.h>

#include <getopt.h>

/* Exit codes: 0 success, 1 the work failed, 2 wrong usage; `run` passes on its first failing worker's code. */
enum { TT__EXIT_OK = 0, TT__EXIT_FAILED = 1, TT__EXIT_USAGE = 2 };

/* argv[0] is the subcommand's name. Each returns the exit code; --help prints to stdout and returns 0. */
int tt__cmd_run(int argc, char **argv);
int tt__cmd_store(int argc, char **argv);
int tt__cmd_bench(int argc, char **argv);
int tt__cmd_tune(int argc, char **argv);
int tt__cmd_data(int argc, char **argv);
int tt__cmd_top(int argc, char **argv);
int tt__cmd_trace(int argc, char **argv);

/* Long options may be written with "_" for "-", as torchrun's: rewrite one ("--node_rank=0"), or all before a "--", in place. Values stay
 * as they are. */
void tt__cli_normalise_flag(char *arg);
void tt__cli_normalise_flags(int argc, char **argv);

/* "tutti NAME: text" and a hint at --help on stderr; returns TT__EXIT_USAGE. */
int tt__cli_usage_error(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The value of --store-auth: "local", "required" or "none". 0, or TT__EXIT_USAGE when that has been said. */
int tt__cli_store_auth(const char *command, const char *text, tt_store_auth *auth);

/* The next flag of a command that takes nothing but flags: its letter in `options`, its value in optarg, and in *flag (may be NULL) how it
 * was typed. "-h" is known beside them. -1 after the last; '?' if something is wrong, which is said then: exit with TT__EXIT_USAGE. */
int tt__cli_next_flag(const char *command, int argc, char **argv, const struct option *options, const char **flag);

/* Take the first argument that is neither a flag of `options` nor the value of one out of argv: NULL if there is none. */
char *tt__cli_take_word(int *argc, char **argv, const struct option *options);

#endif
