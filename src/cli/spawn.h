/* Ranks of this command itself. */
#ifndef TT_CLI_SPAWN_H
#define TT_CLI_SPAWN_H

#include <stdbool.h>

/* A benchmark of several ranks runs twice: as typed, where it calls tt__bench_spawn(), and once in every rank that this
 * starts, with the same argv. Whether this process is such a rank: */
bool tt__bench_is_rank(void);

/* Become `tutti run --standalone --nproc-per-node=WORLD tutti bench ARGV...`. Returns only on failure: the exit code,
 * the error printed. */
int tt__bench_spawn(int world, int argc, char **argv);

/* The same for `tutti COMMAND ARGV...`; without a command argv[0] is it. */
int tt__spawn_ranks(int world, char *command, int argc, char **argv);

/* The absolute path of this executable, in `path`; false (and errno) if the system doesn't say. */
bool tt__bench_self(char *path, unsigned size);

#endif
