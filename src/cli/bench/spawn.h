/* Ranks of this command itself. */
#ifndef TT_CLI_SPAWN_H
#define TT_CLI_SPAWN_H

#include <stdbool.h>

/* A benchmark of several ranks runs twice: as typed, where it calls tt__bench_spawn(), and once in every rank that this
 * starts, with the same argv. Is this process such a rank? */
bool tt__bench_is_rank(void);

/* Become `tutti run --standalone --nproc-per-node=WORLD tutti bench ARGV...`. Returns only on failure: the exit code,
 * the error printed. */
int tt__bench_spawn(int world, int argc, char **argv);

/* Become the same for `tutti COMMAND ARGV...`; without a command argv[0] is it. */
int tt__spawn_ranks(int world, char *command, int argc, char **argv);

/* Write the absolute path of this executable into `path`; false (and errno) if the system doesn't know it. */
bool tt__bench_self(char *path, unsigned size);

#endif
