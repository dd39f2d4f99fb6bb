/* The benchmarks of `tutti bench`. Each prints JSON objects, one a line, on stdout. */
#ifndef TT_CLI_BENCH_H
#define TT_CLI_BENCH_H

#include <stdbool.h>

/* One benchmark: argv[0] is its name ("startup"), flags already written with "-". Returns the exit code. The first is that of every name
 * in bench_calls.h. */
int tt__bench_collective(int argc, char **argv);
int tt__bench_agreement(int argc, char **argv);
int tt__bench_step(int argc, char **argv);
int tt__bench_store(int argc, char **argv);
int tt__bench_startup(int argc, char **argv);

/* A benchmark of several ranks runs twice: as typed, where it calls tt__bench_spawn(), and once in every rank that this starts,
 * with the same argv. Whether this process is such a rank: */
bool tt__bench_is_rank(void);

/* Become `tutti run --standalone --nproc-per-node=WORLD tutti bench ARGV...`. Returns only on failure: the exit code, the error
 * printed. */
int tt__bench_spawn(int world, int argc, char **argv);

/* The same for `tutti COMMAND ARGV...`; without a command argv[0] is it. */
int tt__spawn_ranks(int world, char *command, int argc, char **argv);

/* The absolute path of this executable, in `path`; false (and errno) if the system doesn't say. */
bool tt__bench_self(char *path, unsigned size);

#endif
