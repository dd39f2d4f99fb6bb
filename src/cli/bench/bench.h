/* The benchmarks of `tutti bench`, and what they share. Each prints JSON objects, one a line, on stdout. */
#ifndef TT_CLI_BENCH_H
#define TT_CLI_BENCH_H

#include "cli/cli.h"

#include <tutti/tutti.h>

extern const tt__command tt__bench_store, tt__bench_startup, tt__bench_step, tt__bench_rpc;

/* `tutti bench rpc --workers`: start `workers` processes that call another one, `iterations` times each (0: for three
 * seconds), and print what that costs the one that is called. Returns the exit code. */
int tt__bench_rpc_workers(int workers, int64_t iterations);

/* ---- bench_calls.c: one row an operation, and the buffers it works on */

/* One rank's buffers, for calls of up to `bytes`. */
typedef struct tt__bench_buffers {
    tt_group *group;
    tt_dtype dtype;
    tt_reduce_op op;
    unsigned char *send, *recv;    /* an operation that works in place has `send` alone */
    int64_t *counts, *send_counts; /* (world): of uneven operations, for the present size */
    bool plain;                    /* not symmetric memory */
    unsigned calls; /* so far: roots take turns, so no call can begin before the one before it came to its root */
} tt__bench_buffers;

typedef struct tt__bench_call {
    const char *name; /* "all_reduce" */
    const char *what;
    bool reduces, uneven;
    /* Blocks of the size that is measured in each buffer: 0, 1, or TT__BENCH_WORLD: as many as ranks. */
    int send_blocks, recv_blocks;
    tt_status (*call)(tt__bench_buffers *b, int64_t count, tt_work **work);
} tt__bench_call;

enum { TT__BENCH_WORLD = -1 };

/* Return call number `i` of all; NULL after the last. */
const tt__bench_call *tt__bench_call_at(int i);

/* Make buffers, which must be released also after a failure. b: group, dtype, op and plain are the caller's. */
tt_status tt__bench_buffers_make(tt__bench_buffers *b, const tt__bench_call *call, size_t bytes);
void tt__bench_buffers_release(tt__bench_buffers *b);

/* ---- time */

enum { TT__BENCH_REPETITIONS = 5, TT__BENCH_WINDOW = 4 };

typedef struct tt__bench_times {
    bool async;         /* TT__BENCH_WINDOW calls under way at a time */
    int64_t iterations; /* calls in a repetition; 0: as many as take about repetition_ns */
    int64_t repetition_ns;
} tt__bench_times;

/* Measure a call. usec (TT__BENCH_REPETITIONS): the mean time of a call in each repetition, the fastest first.
 * Collective; each rank gets its own times. */
tt_status tt__bench_time(const tt__bench_call *call, tt__bench_buffers *b, int64_t count, const tt__bench_times *times,
                         double *usec);

/* Sort values (n), the smallest first. */
void tt__bench_sort(double *values, size_t n);

/* ---- bench_ranks.c: ranks of this program itself: who starts them, where each runs, their flags */

/* A benchmark of several ranks runs as typed, where it calls tt__spawn_ranks(), and again in every rank that this
 * starts, with the same argv. Is this process such a rank? */
bool tt__bench_is_rank(void);

/* Become `tutti run --standalone --nproc-per-node=WORLD tutti COMMAND ARGV...`; if `command` is NULL, argv[0] is it.
 * Returns only on failure, which is printed: the exit code. */
int tt__spawn_ranks(int world, char *command, int argc, char **argv);

/* Tie this process, rank `rank` of `ranks`, to the CPU of that number among those it may use, if there are enough. */
void tt__bench_pin_to(int rank, int ranks);

/* Is this process a rank that `tutti run`, `tutti bench` or mpirun started? */
bool tt__bench_is_member(void);

/* Write the absolute path of this executable into `path`; false (and errno) if the system doesn't know it. */
bool tt__bench_self(char *path, unsigned size);

/* Flags that several benchmarks have. */
enum { TT__BENCH_SIZES = 64 };

typedef struct tt__bench_flags {
    int64_t world, iterations; /* iterations: calls in a repetition; 0: by time */
    size_t sizes[TT__BENCH_SIZES];
    int size_count;
    char transport[16]; /* "": the library's default */
    bool no_pin;
} tt__bench_flags;

/* Their rows in a command's table; the text of --sizes is the command's own. */
#define TT__BENCH_FLAG_WORLD TT__VALUE("world", 'w', "N", "ranks to start (default 2)")
#define TT__BENCH_FLAG_SIZES(what_) TT__VALUE("sizes", 's', "LIST", what_)
#define TT__BENCH_FLAG_TRANSPORT \
    TT__VALUE("transport", 't', "NAME", "auto (default), shm or tcp", .offer = "auto shm tcp")
#define TT__BENCH_FLAG_WIRE                                                                                \
    TT__VALUE("wire", 'W', "HOW", "of TCP: sealed, plain or tls (TT_WIRE; default on one machine: plain)", \
              .offer = "sealed plain tls")
#define TT__BENCH_FLAG_ITERATIONS TT__VALUE("iterations", 'i', "N", "calls in a repetition (default by time)")
#define TT__BENCH_FLAG_NO_PIN TT__SWITCH("no-pin", 'n', "don't tie each rank to a CPU of its own")

/* Take flag `c`, one of these. Changes `value`. Errors: TT_ERR_INVALID. */
tt_status tt__bench_flag_take(int c, char *value, int least_world, tt__bench_flags *flags);

/* Read the command line: `take` gets each flag, with a copy of its value. Returns -1, or the code to exit with: --help
 * was asked for, or a flag was not understood, which is printed. */
int tt__bench_flags_read(const tt__command *command, int argc, char **argv,
                         tt_status (*take)(int c, char *value, void *settings), void *settings);

/* Run this rank: join the job's group, by `backend` ("": the default one) and with `algorithms` (NULL: the usual ones),
 * and call run(group, user). Returns the exit code; an error is printed. */
int tt__bench_run_rank(const tt__bench_flags *flags, const char *backend, const char *algorithms,
                       tt_status (*run)(tt_group *group, const void *user), const void *user);

/* Return how bytes travel over the group's TCP links: "sealed", "plain" or "tls"; "none": Tutti has no such links. */
const char *tt__bench_wire(const tt_group *group);

/* ---- bench_models.c */

/* A model that `tutti bench step` trains, as a PyTorch program of the same name does (bench/peers). */
typedef struct tt__bench_model {
    const char *name, *what;
    int64_t steps;              /* in a block, unless told otherwise */
    tt_module *(*make)(void);   /* weights drawn from the thread's generator */
    tt_tensor *(*inputs)(void); /* a batch */
    tt_tensor *(*targets)(void);
    tt_tensor *(*loss)(tt_tensor *outputs, tt_tensor *targets);
    tt_optimizer *(*optimizer)(tt_module *model);
    /* What a step must hold at once beside the parameters, in floats. per_parameter: for each parameter (its gradient,
     * the optimizer's states). activations: what backward reads, and the gradients that it holds at its peak. */
    int64_t per_parameter, activations;
} tt__bench_model;

/* Return the bytes that a step of this model must hold at once in f32, however it is computed. */
int64_t tt__bench_model_needs(const tt__bench_model *kind, tt_module *model);

/* Find the model called `name`; NULL: there is none. */
const tt__bench_model *tt__bench_model_find(const char *name);

#endif
