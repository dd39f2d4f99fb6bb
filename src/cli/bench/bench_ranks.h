/* Ranks of this program itself: who starts them, and where each runs. */
#ifndef TT_CLI_BENCH_RANKS_H
#define TT_CLI_BENCH_RANKS_H

#include <stdbool.h>

/* A benchmark of several ranks runs twice: as typed, where it calls tt__bench_spawn(), and once in every rank that this
 * starts, with the same argv. Is this process such a rank? */
bool tt__bench_is_rank(void);

/* Become `tutti run --standalone --nproc-per-node=WORLD tutti bench ARGV...`. Returns only on failure: the exit code,
 * the error printed. */
int tt__bench_spawn(int world, int argc, char **argv);

/* Become the same for `tutti COMMAND ARGV...`; without a command argv[0] is it. */
int tt__spawn_ranks(int world, char *command, int argc, char **argv);

/* Tie this rank to a CPU of its own, if there are enough on its host: before the group is made, which reads the ranks'
 * CPUs. */
void tt__bench_pin(void);

/* Tie rank `rank` of `ranks` to the CPU with its number among those this process may use, if there are enough. */
void tt__bench_pin_to(int rank, int ranks);

/* Is this process a rank that `tutti run`, `tutti bench` or mpirun started? */
bool tt__bench_is_member(void);

/* Write the absolute path of this executable into `path`; false (and errno) if the system doesn't know it. */
bool tt__bench_self(char *path, unsigned size);

#endif
