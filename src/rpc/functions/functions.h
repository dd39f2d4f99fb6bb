/* The functions that this process has registered. */
#ifndef TT_RPC_FUNCTIONS_H
#define TT_RPC_FUNCTIONS_H

#include "rpc/values/rpc_signature.h"

enum { TT__RPC_FUNCTION_NAME = 64 };

typedef struct tt__rpc_function {
    const char *name;
    const char *text; /* the signature as it was written */
    tt_rpc_fn fn;
    tt__rpc_signature signature;
} tt__rpc_function;

/* Find the function whose name is the `bytes` bytes at `name`; NULL: there is none. */
const tt__rpc_function *tt__function_find(const char *name, size_t bytes);

/* Return how many functions there are, function `number` (in the order of names), and the number of one. They stay the
 * same after tt__functions_close(). */
int tt__function_count(void);
const tt__rpc_function *tt__function_at(int number);
int tt__function_number(const tt__rpc_function *function);

/* Record and return TT_ERR_NOT_FOUND: worker `worker` has no such function. The text lists those that it has, as many
 * as fit. */
tt_status tt__function_missing(const char *worker, const char *name, size_t bytes);

/* Refuse to register functions from now on. Returns and records the error of the first function that could not be
 * registered when the program was loaded. */
tt_status tt__functions_close(void);

#endif
