/* Averaging as without a hook. */
#include "base/args.h"
#include "base/error.h"
#include "parallel/hooks/comm_hook.h"
#include "reducer/reducer.h"

#include <stdlib.h>

static bool takes_all(tt_dtype dtype) { return (void)dtype, true; }

static tt_status all_reduce_next(void *state, const tt_bucket *b, int stage, tt_work **work) {
    (void)state;
    return stage ? TT_OK
                 : tt_all_reduce_with(TT_ARGS(tt_all_reduce_args, b->group, b->data, b->count, b->dtype, TT_AVG,
                                              .work = work, .file = tt__hook_site, TT__BUCKET_ON(b)));
}

static void all_reduce_free(tt__comm_hook *h) { free(h); }

tt_status tt_all_reduce_hook(tt_module *ddp) {
    static const tt__hook_class cls = {.hook = {.size = sizeof cls.hook,
                                                .name = "all_reduce",
                                                .next = all_reduce_next,
                                                .attach = tt__hook_attach,
                                                .detach = tt__hook_detach,
                                                .takes_devices = true},
                                       .takes = takes_all,
                                       .free = all_reduce_free};
    TT__TRY(tt__hook_check("tt_all_reduce_hook", ddp));
    return tt__hook_register(ddp, calloc(1, sizeof(tt__comm_hook)), &cls, NULL);
}
