/* Signatures of functions: "(int count, tensor? mask, float... rates) -> list". */
#ifndef TT_RPC_SIGNATURE_H
#define TT_RPC_SIGNATURE_H

#include <tutti/rpc.h>

enum { TT__RPC_PARAMETERS = 32, TT__RPC_ANY = TT_RPC_OBJECT + 1 };

/* A type: a kind of value, or TT__RPC_ANY. */
typedef struct tt__rpc_type {
    uint8_t kind;
    bool optional; /* it may be none */
} tt__rpc_type;

typedef struct tt__rpc_signature {
    tt__rpc_type parameters[TT__RPC_PARAMETERS], result;
    uint8_t count;
    bool many; /* the last parameter stands for as many as there are */
} tt__rpc_signature;

/* Read a signature. TT_ERR_INVALID, recorded: what is wrong with it, and where. */
tt_status tt__signature_read(tt__rpc_signature *out, const char *text);

/* Do values fit it? TT_ERR_INVALID, recorded, otherwise: "add(): argument 2 (int) is a text". `text` is the signature
 * as it was written. */
tt_status tt__signature_check_args(const tt__rpc_signature *signature, const char *function, const char *text,
                                   const tt_rpc_value *values, int64_t count);
tt_status tt__signature_check_result(const tt__rpc_signature *signature, const char *function, const char *text,
                                     const tt_rpc_value *value);

#endif
