/* The communication hook of a wrapper: the reducer has it for as long as the wrapper is bound to a group. */
#include "parallel/ddp/ddp_state.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "parallel/ddp/ddp_sparse.h"

void tt__ddp_end_hook(tt__ddp *d) {
    if (d->hook_destroy)
        d->hook_destroy(d->hook_state);
    free(d->hook_settings);
    d->hook = NULL;
    d->hook_state = NULL;
    d->hook_destroy = NULL;
    d->hook_settings = NULL;
}

tt_status tt__ddp_use_hook(tt__ddp *d) {
    return d->hook ? tt_reducer_set_comm_hook(d->reducer, d->hook, d->hook_state, .settings = d->hook_settings) : TT_OK;
}

tt_status tt__ddp_set_hook(tt__ddp *d, const tt_ddp_register_comm_hook_args *a) {
    if (d->virtual_ranks)
        return tt__fail(TT_ERR_UNSUPPORTED, "tt_ddp_register_comm_hook: expected a wrapper without .virtual_ranks, "
                                            "which sum in an order of their own");
    if (a->hook && a->hook->told_over)
        TT__TRY(tt__ddp_refuse_sparse(a->hook->name ? a->hook->name : "tt_ddp_register_comm_hook", d));
    char *settings = a->settings ? strdup(a->settings) : NULL;
    if (a->settings && !settings)
        return tt__fail(TT_ERR_MEMORY, "tt_ddp_register_comm_hook: no memory for the hook's settings");
    tt_status status =
        d->reducer ? tt_reducer_set_comm_hook(d->reducer, a->hook, a->state, .settings = a->settings) : TT_OK;
    if (status) {
        free(settings);
        if (d->reducer->hook != d->hook)
            tt__ddp_end_hook(d); /* the reducer let go of the old one before it failed to take the new one */
        return status;
    }
    tt__ddp_end_hook(d);
    d->hook = a->hook;
    d->hook_state = a->state;
    d->hook_destroy = a->destroy;
    d->hook_settings = settings;
    return TT_OK;
}

void tt__ddp_drop_hook(tt__ddp *d) {
    tt__reducer_end_hook(d->reducer);
    tt__ddp_end_hook(d);
}
