/* The functions that this process has registered, and their signatures: "(int count, tensor? mask, float... rates) ->
 * list". */
#ifndef TT_RPC_FUNCTIONS_H
#define TT_RPC_FUNCTIONS_H

#include <tutti/rpc.h>

enum { TT__RPC_PARAMETERS = 32, TT__RPC_ANY = TT_RPC_OBJECT + 1 };

typedef struct tt__rpc_type {
    uint8_t kind;  /* a tt_rpc_kind, or TT__RPC_ANY */
    bool optional; /* a value of kind none fits, too */
} tt__rpc_type;

typedef struct tt__rpc_signature {
    tt__rpc_type parameters[TT__RPC_PARAMETERS], result;
    uint8_t count;
    bool many; /* any number of arguments, also 0, may be given for the last parameter */
} tt__rpc_signature;

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

/* ---- signatures */

/* Was the value made of NULL, where a tensor, a reference or a text is expected? Then this thread's last error, if
 * there is one, tells why. */
bool tt__signature_is_null(const tt__rpc_type *type, const tt_rpc_value *value);

/* Check that the arguments, or the result, fit a signature; `text` is the signature as it was written. Errors:
 * TT_ERR_INVALID "add(int a, int b) -> int: expected argument 1 to be int, got text"; for an argument that is NULL, the
 * error that made it so. */
tt_status tt__signature_check_args(const tt__rpc_signature *signature, const char *function, const char *text,
                                   const tt_rpc_value *values, int64_t count);
tt_status tt__signature_check_result(const tt__rpc_signature *signature, const char *function, const char *text,
                                     const tt_rpc_value *value);

#endif
