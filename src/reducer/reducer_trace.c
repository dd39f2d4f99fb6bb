/* Who wants to see what happens in a step. */
#include "reducer/reducer.h"

#include "base/args.h"
#include "base/machine/clock.h"

void tt__reducer_trace(const tt_reducer *r, tt_reducer_event_kind kind, size_t index) {
    if (!r->trace)
        return;
    tt_reducer_event event = {.kind = kind, .index = (int64_t)index, .time_ns = tt__now_ns()};
    r->trace(&event, r->trace_user);
}

void tt__reducer_end_trace(tt_reducer *r) {
    if (r->trace_destroy)
        r->trace_destroy(r->trace_user);
    r->trace = NULL;
    r->trace_destroy = NULL;
}

void tt_reducer_set_trace_with(const tt_reducer_set_trace_args *args, size_t size) {
    tt_reducer_set_trace_args a;
    TT__ARGS_COPY(a, args, size);
    if (a.reducer) {
        tt__reducer_end_trace(a.reducer);
        a.reducer->trace = a.trace;
        a.reducer->trace_user = a.user;
        a.reducer->trace_destroy = a.destroy;
    } else if (a.destroy)
        a.destroy(a.user);
}
