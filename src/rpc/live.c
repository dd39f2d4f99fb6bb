/* The list of this process's workers: rpc_state.h. */
#include "rpc/rpc_state.h"

#include "base/error.h"
#include "comm/group.h"

#include <stdatomic.h>
#include <unistd.h>

/* The addresses of all workers of this process. If there were ever more than LIVE_MAX, every pointer counts as live. */
enum { LIVE_MAX = 64 };
static _Atomic(tt_rpc *) live_rpcs[LIVE_MAX];
static _Atomic int live_beyond;

void tt__rpc_note_live(tt_rpc *rpc) {
    for (int i = 0; i < LIVE_MAX; i++) {
        tt_rpc *none = NULL;
        if (atomic_compare_exchange_strong(&live_rpcs[i], &none, rpc))
            return;
    }
    live_beyond = 1;
}

void tt__rpc_note_dead(tt_rpc *rpc) {
    for (int i = 0; i < LIVE_MAX; i++) {
        tt_rpc *same = rpc;
        if (atomic_compare_exchange_strong(&live_rpcs[i], &same, NULL))
            return;
    }
}

bool tt__rpc_is_live(const tt_rpc *rpc) {
    for (int i = 0; i < LIVE_MAX; i++)
        if (atomic_load_explicit(&live_rpcs[i], memory_order_relaxed) == rpc)
            return true;
    return live_beyond;
}

tt_status tt__rpc_usable(const tt_rpc *rpc, const char *what) {
    if (!rpc)
        return tt__fail_argument("%s: the worker (tt_rpc) is NULL", what);
    if (!tt__rpc_is_live(rpc))
        return tt__fail(TT_ERR_STATE, "%s: the worker (tt_rpc) was shut down", what);
    if (rpc->forks != tt__forks)
        return tt__fail(TT_ERR_STATE,
                        "%s: process %d was forked by worker %s and can't use the tt_rpc that it inherited: fork "
                        "before tt_rpc_init()",
                        what, (int)getpid(), rpc->name);
    return TT_OK;
}
