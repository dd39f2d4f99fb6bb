/* Measure many workers that call one. */
#ifndef TT_CLI_BENCH_RPC_WORKERS_H
#define TT_CLI_BENCH_RPC_WORKERS_H

#include <stdint.h>

/* Start `workers` processes that call another one, `iterations` times each (0: for three seconds), and print what that
 * takes the one. Returns the exit code. */
int tt__bench_rpc_workers(int workers, int64_t iterations);

#endif
