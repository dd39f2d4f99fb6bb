/* Many workers that call one. */
#ifndef TT_CLI_BENCH_RPC_WORKERS_H
#define TT_CLI_BENCH_RPC_WORKERS_H

#include <stdint.h>

/* Start so many processes that call another one, so many times each (0: for some seconds), and print what that takes
 * it. Returns the exit code. */
int tt__bench_rpc_workers(int workers, int64_t iterations);

#endif
