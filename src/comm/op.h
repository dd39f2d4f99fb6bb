/* The table of operations: name and kinds of each. */
#ifndef TT_COMM_OP_H
#define TT_COMM_OP_H

#include <tutti/backend.h>

enum {
    TT__OP_P2P = 1,         /* sends and receives: they wait for no collective, and none waits for them */
    TT__OP_BY_MESSAGES = 2, /* goes by messages whatever the group shares */
    TT__OP_REDUCES = 4,
    TT__OP_ROOT = 8,
    TT__OP_UNEVEN = 16,   /* its ranks may pass different counts, in lists */
    TT__OP_ELEMENTS = 32, /* `count` is of elements of `dtype` */
    TT__OP_CHOICE = 64,   /* a table may name its algorithm */
    TT__OP_EXCHANGE = 128 /* makes or ends groups or memory: each rank sends all others a few bytes */
};

/* The number of reduce ops. */
enum { TT__REDUCE_OPS = TT_PREMUL_SUM + 1 };

typedef struct tt__op_info {
    const char *name;
    unsigned kind; /* TT__OP_... */
} tt__op_info;

extern const tt__op_info tt__ops[TT_OPS];

/* Is `op` of one of these kinds? A number that is no operation is of none. */
static inline bool tt__op_is(tt_op op, unsigned kind) { return (unsigned)op < TT_OPS && tt__ops[op].kind & kind; }

/* Find the operation of this name; false if there is none. */
bool tt__op_named(const char *name, tt_op *op);

#endif
