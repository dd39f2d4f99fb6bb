/* Signatures of functions: "(int count, tensor? mask, float... rates) -> list". */
#ifndef TT_RPC_SIGNATURE_H
#define TT_RPC_SIGNATURE_H

#include <tutti/rpc.h>

enum { TT__RPC_PARAMETERS = 32, TT__RPC_ANY = TT_RPC_OBJECT + 1 };

typedef struct tt__rpc_type {
    uint8_t kind;  /* a tt_rpc_kind, or TT__RPC_ANY */
    bool optional; /* none fits, too */
} tt__rpc_type;

typedef struct tt__rpc_signature {
    tt__rpc_type parameters[TT__RPC_PARAMETERS], result;
    uint8_t count;
    bool many; /* any number of arguments, also none, may stand for the last parameter */
} tt__rpc_signature;

/* Parse a signature. Errors: TT_ERR_INVALID, whose text says what was expected, and where. */
tt_status tt__signature_read(tt__rpc_signature *out, const char *text);

/* Is the value that of a NULL, where a tensor, a reference or a text is expected? Then this thread's last error, if it
 * has one, tells why it is NULL. */
bool tt__signature_is_null(const tt__rpc_type *type, const tt_rpc_value *value);

/* Check that the arguments, or the result, fit a signature; `text` is the signature as it was written. Errors:
 * TT_ERR_INVALID "add(int a, int b) -> int: expected argument 1 to be int, got text"; for an argument that is NULL, the
 * error that made it so. */
tt_status tt__signature_check_args(const tt__rpc_signature *signature, const char *function, const char *text,
                                   const tt_rpc_value *values, int64_t count);
tt_status tt__signature_check_result(const tt__rpc_signature *signature, const char *function, const char *text,
                                     const tt_rpc_value *value);

#endif
