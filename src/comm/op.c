#include "comm/op.h"

#include <string.h>

enum {
    P2P = TT__OP_P2P | TT__OP_BY_MESSAGES,
    DATA = TT__OP_ELEMENTS | TT__OP_CHOICE,
    REDUCTION = DATA | TT__OP_REDUCES
};

const tt__op_info tt__ops[TT_OPS] = {
    [TT_OP_BARRIER] = {"barrier", TT__OP_CHOICE},
    [TT_OP_ALL_REDUCE] = {"all_reduce", REDUCTION},
    [TT_OP_REDUCE] = {"reduce", REDUCTION | TT__OP_ROOT},
    [TT_OP_REDUCE_SCATTER] = {"reduce_scatter", REDUCTION},
    [TT_OP_BROADCAST] = {"broadcast", DATA | TT__OP_ROOT},
    [TT_OP_ALL_GATHER] = {"all_gather", DATA},
    [TT_OP_ALL_GATHER_V] = {"all_gather_v", DATA | TT__OP_UNEVEN},
    [TT_OP_GATHER] = {"gather", DATA | TT__OP_ROOT},
    [TT_OP_SCATTER] = {"scatter", DATA | TT__OP_ROOT},
    [TT_OP_ALL_TO_ALL] = {"all_to_all", DATA},
    [TT_OP_ALL_TO_ALL_V] = {"all_to_all_v", DATA | TT__OP_UNEVEN},
    [TT_OP_SEND] = {"send", P2P | TT__OP_ELEMENTS},
    [TT_OP_RECV] = {"recv", P2P | TT__OP_ELEMENTS},
    [TT_OP_ALL_REDUCE_COALESCED] = {"all_reduce_coalesced", REDUCTION | TT__OP_UNEVEN},
    [TT_OP_BATCH_ISEND_IRECV] = {"batch_isend_irecv", P2P},
    [TT_OP_MONITORED_BARRIER] = {"monitored_barrier", TT__OP_BY_MESSAGES},
    [TT_OP_NEW_GROUP] = {"new_group", TT__OP_EXCHANGE},
    [TT_OP_SPLIT] = {"split", TT__OP_EXCHANGE},
    [TT_OP_ALLOC] = {"alloc", TT__OP_EXCHANGE},
    [TT_OP_FREE] = {"free", TT__OP_EXCHANGE},
};

const char *tt_op_name(tt_op op) { return (unsigned)op < TT_OPS ? tt__ops[op].name : "?"; }

bool tt__op_named(const char *name, tt_op *op) {
    for (int i = 0; i < TT_OPS; i++)
        if (!strcmp(tt__ops[i].name, name)) {
            *op = (tt_op)i;
            return true;
        }
    return false;
}

const char *tt_reduce_op_name(tt_reduce_op op) {
    static const char *const names[] = {[TT_SUM] = "sum", [TT_AVG] = "avg",   [TT_PRODUCT] = "product",
                                        [TT_MIN] = "min", [TT_MAX] = "max",   [TT_BAND] = "band",
                                        [TT_BOR] = "bor", [TT_BXOR] = "bxor", [TT_PREMUL_SUM] = "premul_sum"};
    return (unsigned)op < sizeof names / sizeof *names ? names[op] : "?";
}
