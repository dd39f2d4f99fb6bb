/* The benchmarks of `tutti bench`. Each prints JSON objects, one a line, on stdout. */
#ifndef TT_CLI_BENCH_H
#define TT_CLI_BENCH_H

#include "cli/bench/bench_calls.h"
#include "cli/cli.h"

extern const tt__command tt__bench_store, tt__bench_startup, tt__bench_step, tt__bench_rpc;

/* Make the command that measures one call; its name is kept in `name`. */
enum { TT__BENCH_NAME_SIZE = 48 };
tt__command tt__bench_collective(const tt__bench_call *call, char name[TT__BENCH_NAME_SIZE]);

#endif
