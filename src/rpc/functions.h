/* The functions that this process has registered. */
#ifndef TT_RPC_FUNCTIONS_H
#define TT_RPC_FUNCTIONS_H

#include "rpc/rpc_signature.h"

enum { TT__RPC_FUNCTION_NAME = 64 };

typedef struct tt__rpc_function {
    const char *name, *text; /* text: the signature as written */
    tt_rpc_fn fn;
    tt__rpc_signature signature;
} tt__rpc_function;

/* Find one by its name, of `bytes` bytes; NULL: there is none. */
const tt__rpc_function *tt__function_find(const char *name, size_t bytes);

/* How many there are, once registering is over; their numbers, by name. */
int tt__function_count(void);
const tt__rpc_function *tt__function_at(int number);
int tt__function_number(const tt__rpc_function *function);

/* Record TT_ERR_NOT_FOUND: worker `worker` has no such function, and which it has, as far as room is. */
tt_status tt__function_missing(const char *worker, const char *name, size_t bytes);

/* A tt_rpc is made: from now on none can be registered. What was wrong with one that registered when the program was
 * loaded, recorded. */
tt_status tt__functions_close(void);

#endif
