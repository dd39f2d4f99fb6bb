/* What a program attaches to a reducer: a communication hook, and a function that is told of events. */
#include "base/args.h"
#include "base/error.h"
#include "base/machine/clock.h"
#include "reducer/reducer.h"
#include "reducer/text_agreement.h"

#include <stdio.h>
#include <stdlib.h>

/* Room for the text about a failed attach. */
enum { HOOK_TEXT = 512 };

static const char set_name[] = "tt_reducer_set_comm_hook";

static tt_status check_hook(const tt_reducer *r, const tt_comm_hook *hook) {
    if (!r)
        return tt__fail(TT_ERR_INVALID, "%s: `reducer` is NULL", set_name);
    if (r->broken)
        return tt__fail(TT_ERR_STATE, "%s: an earlier step failed (%s); destroy the group", set_name,
                        tt_status_name(r->broken));
    for (size_t i = 0; i < r->param_count; i++)
        if (r->params[i].ready)
            return tt__fail(TT_ERR_STATE,
                            "%s: a step is under way, in which \"%s\" is ready: tt_reducer_finish() first", set_name,
                            r->params[i].name);
    if (!hook)
        return TT_OK;
    if (hook->size != sizeof *hook)
        return tt__fail(TT_ERR_INVALID, "%s: the hook has a size of %zu bytes, expected %zu: TT_COMM_HOOK() sets it",
                        set_name, hook->size, sizeof *hook);
    if (!hook->name || !hook->next)
        return tt__fail(TT_ERR_INVALID, "%s: the hook has no %s", set_name, hook->name ? "`next`" : "name");
    if (r->place && !hook->takes_devices)
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "%s: the back end %s averages gradients in memory of a device, and hook \"%s\" works on the "
                        "host's: do without, or use the native engine",
                        set_name, tt_get_backend(r->group), hook->name);
    if (hook->stages < 0)
        return tt__fail(TT_ERR_INVALID, "%s: hook \"%s\": expected 0 or more stages, got %d", set_name, hook->name,
                        hook->stages);
    return TT_OK;
}

static tt_status agree_on_hook(const tt_reducer_set_comm_hook_args *a) {
    const tt_comm_hook *hook = a->hook;
    char *text;
    if (asprintf(&text, "communication hook %s%s%s%s", hook ? hook->name : "none", a->settings ? " (" : "",
                 a->settings ? a->settings : "", a->settings ? ")" : "") < 0)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for its name", set_name);
    tt_status status = tt__agree_on(a->reducer->group, set_name, (const char *const *)&text, 1);
    free(text);
    return status;
}

static tt_status attach_hook(tt_reducer *r, const tt_comm_hook *hook, void *state) {
    if (!hook->attach)
        return TT_OK;
    tt_bucket *views = calloc(r->bucket_count, sizeof *views);
    if (!views)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for a list of %zu buckets", set_name, r->bucket_count);
    for (size_t b = 0; b < r->bucket_count; b++)
        views[b] = r->buckets[b].view;
    tt_status status = hook->attach(state, views, (int64_t)r->bucket_count);
    free(views);
    return status ? tt__fail_prefix("communication hook \"%s\"", hook->name) : TT_OK;
}

/* Attach the hook on all ranks or on none. */
static tt_status attach_everywhere(tt_reducer *r, const tt_comm_hook *hook, void *state) {
    if (!hook->attach)
        return TT_OK;
    char text[HOOK_TEXT] = "attached a communication hook";
    tt__saved_error own;
    tt_status status = attach_hook(r, hook, state);
    if (status) {
        snprintf(text, sizeof text, "not attached its hook: %s", tt_last_error());
        tt__error_save(&own);
    }
    const char *const texts[] = {text};
    tt_status same = tt__agree_on(r->group, set_name, texts, 1);
    if (status && !same) {
        tt__error_restore(&own);
        return status;
    }
    if (same && !status && hook->detach) {
        tt__error_save(&own);
        hook->detach(state);
        tt__error_restore(&own);
    }
    return same;
}

void tt__reducer_end_hook(tt_reducer *r) {
    if (r->hook && r->hook->detach)
        r->hook->detach(r->hook_state);
    if (r->hook_destroy)
        r->hook_destroy(r->hook_state);
    r->hook = NULL;
    r->hook_destroy = NULL;
}

static tt_status set_hook(const tt_reducer_set_comm_hook_args *a) {
    tt_reducer *r = a->reducer;
    TT__TRY(check_hook(r, a->hook));
    TT__TRY(agree_on_hook(a));
    tt__reducer_end_hook(r);
    if (!a->hook)
        return TT_OK;
    TT__TRY(attach_everywhere(r, a->hook, a->state));
    r->hook = a->hook;
    r->hook_state = a->state;
    r->hook_destroy = a->destroy;
    return TT_OK;
}

tt_status tt_reducer_set_comm_hook_with(const tt_reducer_set_comm_hook_args *given, size_t size) {
    tt_reducer_set_comm_hook_args a;
    TT__ARGS_COPY(a, given, size);
    const tt__joint_call call = tt__joint_call_begin(a.reducer ? a.reducer->group : NULL, set_name);
    tt_status status = tt__joint_call_end(&call, set_hook(&a));
    if (a.destroy && (status || !a.hook)) {
        tt__saved_error saved;
        tt__error_save(&saved);
        a.destroy(a.state);
        tt__error_restore(&saved);
    }
    return status;
}

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
