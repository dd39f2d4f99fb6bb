/* Flags that `tutti bench rpc` and the benchmarks of collectives have in common. */
#ifndef TT_CLI_BENCH_FLAGS_H
#define TT_CLI_BENCH_FLAGS_H

#include "cli/cli.h"

#include <tutti/comm.h>

enum { TT__BENCH_SIZES = 64 };

typedef struct tt__bench_flags {
    int64_t world, iterations; /* iterations: calls in a repetition; 0: by time */
    size_t sizes[TT__BENCH_SIZES];
    int size_count;
    char transport[16]; /* "": the library's default */
    bool no_pin;
} tt__bench_flags;

/* Their rows in a command's table; the text of --sizes is the command's own. */
#define TT__BENCH_FLAG_WORLD \
    { .name = "world", .id = 'w', .value = "N", .what = "ranks to start (default 2)" }
#define TT__BENCH_FLAG_SIZES(what_) \
    { .name = "sizes", .id = 's', .value = "LIST", .what = what_ }
#define TT__BENCH_FLAG_TRANSPORT \
    { .name = "transport", .id = 't', .value = "NAME", .what = "auto (default), shm or tcp", .offer = "auto shm tcp" }
#define TT__BENCH_FLAG_WIRE                                                                                          \
    {                                                                                                                \
        .name = "wire", .id = 'W', .value = "HOW",                                                                   \
        .what = "of TCP: sealed, plain or tls (TT_WIRE; default on one machine: plain)", .offer = "sealed plain tls" \
    }
#define TT__BENCH_FLAG_ITERATIONS \
    { .name = "iterations", .id = 'i', .value = "N", .what = "calls in a repetition (default by time)" }
#define TT__BENCH_FLAG_NO_PIN \
    { .name = "no-pin", .id = 'n', .what = "don't tie each rank to a CPU of its own" }

/* "64K" as bytes, named --sizes in errors. Changes `text`. */
tt_status tt__bench_parse_size(char *text, size_t *bytes);

/* Take flag `c`, one of these. `value` is changed. Errors: TT_ERR_INVALID. */
tt_status tt__bench_flag_take(int c, char *value, int least_world, tt__bench_flags *flags);

/* Read the command line: `take` gets each flag, with a copy of its value. Returns -1, or the code to exit with: --help
 * was asked for, or a flag was not understood, which is printed. */
int tt__bench_flags_read(const tt__command *command, int argc, char **argv,
                         tt_status (*take)(int c, char *value, void *settings), void *settings);

/* Return how bytes travel over the group's TCP links: "sealed", "plain" or "tls"; "none": Tutti has no such links. */
const char *tt__bench_wire(const tt_group *group);

#endif
