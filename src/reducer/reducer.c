/* A reducer's life, and the calls of a step: gradients become ready, and the step ends. */
#include "reducer/reducer.h"

#include "base/args.h"
#include "base/error.h"
#include "base/quarantine.h"
#include "comm/group.h"
#include "reducer/text_agreement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tt_status fail_no_memory(int64_t count) {
    return tt__fail(TT_ERR_MEMORY, "tt_reducer_new: no memory for %lld parameters", (long long)count);
}

static tt_status check_reducer_args(const tt_reducer_new_args *args) {
    if (!args->group)
        return tt__fail(TT_ERR_INVALID, "tt_reducer_new: `group` is NULL");
    if (args->count < 1 || !args->params)
        return tt__fail(TT_ERR_INVALID, "tt_reducer_new: expected at least one parameter, got %s of %lld",
                        args->params ? "a list" : "NULL", (long long)args->count);
    for (int64_t i = 0; i < args->count; i++) {
        const tt_reducer_param *p = &args->params[i];
        if (!p->name)
            return tt__fail(TT_ERR_INVALID, "tt_reducer_new: parameter %lld has no name, but NULL", (long long)i);
        if (p->dtype != TT_F32 && p->dtype != TT_F64 && p->dtype != TT_F16 && p->dtype != TT_BF16)
            return tt__fail(TT_ERR_INVALID, "tt_reducer_new: parameter \"%s\" is %s; only floats are averaged", p->name,
                            tt_dtype_name(p->dtype));
        if (p->count < 0)
            return tt__fail(TT_ERR_INVALID,
                            "tt_reducer_new: parameter \"%s\": expected a count of 0 or more elements, got %lld",
                            p->name, (long long)p->count);
        if (p->count > (INT64_MAX >> 7) / args->count)
            return tt__fail(TT_ERR_INVALID, "tt_reducer_new: parameter \"%s\" has %lld elements, which is too many",
                            p->name, (long long)p->count);
    }
    return TT_OK;
}

/* ---- making and freeing ---- */

static tt_status describe_parameter(const tt_reducer_new_args *args, char **texts) {
    if (asprintf(&texts[0], "bucket_cap_bytes %zu", args->bucket_cap_bytes) < 0)
        return texts[0] = NULL, fail_no_memory(args->count);
    for (int64_t i = 0; i < args->count; i++) {
        const tt_reducer_param *p = &args->params[i];
        if (asprintf(&texts[1 + i], "parameter %lld \"%s\" %s x %lld%s", (long long)i, p->name, tt_dtype_name(p->dtype),
                     (long long)p->count, args->delayed && args->delayed[i] ? ", delayed" : "") < 0)
            return texts[1 + i] = NULL, fail_no_memory(args->count);
    }
    return TT_OK;
}

static tt_status compare_parameters(const tt_reducer_new_args *args) {
    char **texts = calloc(1 + (size_t)args->count, sizeof *texts);
    if (!texts)
        return fail_no_memory(args->count);
    tt_status status = describe_parameter(args, texts);
    if (!status)
        status = tt__agree_on(args->group, "tt_reducer_new", (const char *const *)texts, 1 + (size_t)args->count);
    for (int64_t i = 0; i < 1 + args->count; i++)
        free(texts[i]);
    free(texts);
    return status;
}

static tt_status copy_params(tt_reducer *r, const tt_reducer_new_args *args) {
    const tt_reducer_param *params = args->params;
    const int64_t count = args->count;
    r->params = calloc((size_t)count, sizeof *r->params);
    if (!r->params)
        return fail_no_memory(count);
    r->param_count = (size_t)count;
    for (int64_t i = 0; i < count; i++) {
        tt__reducer_param *p = &r->params[i];
        p->count = (size_t)params[i].count;
        p->dtype = params[i].dtype;
        p->delayed = args->delayed && args->delayed[i];
        p->bytes = p->count * tt_dtype_size(p->dtype);
        if (!(p->name = strdup(params[i].name)))
            return fail_no_memory(count);
    }
    return TT_OK;
}

/* Expect gradients to become ready in reverse order of the parameters. */
static tt_status expect_order(tt_reducer *r) {
    if (!(r->order = calloc(2 * r->param_count, sizeof *r->order)))
        return fail_no_memory((int64_t)r->param_count);
    r->seen = r->order + r->param_count;
    for (size_t i = 0; i < r->param_count; i++)
        r->order[i] = (uint32_t)(r->param_count - 1 - i);
    tt__reducer_delay(r, r->order);
    return TT_OK;
}

/* Keep the caller's error, whatever freeing adds to it. */
static void end_reducer(tt_reducer *r, const char *who) {
    tt__saved_error saved;
    tt__error_save_reason(&saved);
    if (r->buckets) {
        tt__reducer_end_works(r);
        tt__reducer_end_hook(r);
    }
    tt__reducer_drop_old(r);
    tt__reducer_free_buckets(r, r->buckets, r->bucket_count, who);
    free(r->order);
    for (size_t i = 0; r->params && i < r->param_count; i++) {
        free(r->params[i].name);
        free(r->params[i].kept);
    }
    free(r->params);
    tt__reducer_end_trace(r);
    tt__group_let_go(r->group);
    tt__quarantine(r, sizeof *r, free);
    tt__error_restore_reason(&saved);
}

static tt_status build_reducer(const tt_reducer_new_args *args, const tt__reducer_place *place,
                               const tt__joint_call *call) {
    tt_reducer *r = calloc(1, sizeof *r);
    if (!r)
        return fail_no_memory(args->count);
    r->group = args->group;
    r->place = place;
    r->cap = args->bucket_cap_bytes;
    r->examples = -1;
    tt__group_hold(r->group);
    tt_status status = copy_params(r, args);
    if (!status)
        status = expect_order(r);
    if (!status)
        status = tt__reducer_make_buckets(r);
    if (status) {
        tt_ignore(tt__joint_call_end(call, status)); /* first, as freeing is collective */
        end_reducer(r, "tt_reducer_free");
        return status;
    }
    *args->out = r;
    return status;
}

tt_status tt__reducer_new_in(const tt_reducer_new_args *args, const tt__reducer_place *place) {
    if (!args->out)
        return tt__fail(TT_ERR_INVALID, "tt_reducer_new: `out` is NULL");
    *args->out = NULL;
    const tt__joint_call call = tt__joint_call_begin(args->group, "tt_reducer_new");
    tt_status status = check_reducer_args(args);
    if (!status)
        status = compare_parameters(args);
    return tt__joint_call_end(&call, status ? status : build_reducer(args, place, &call));
}

tt_status tt_reducer_new_with(const tt_reducer_new_args *given, size_t size) {
    tt_reducer_new_args args;
    TT__ARGS_COPY(args, given, size);
    return tt__reducer_new_in(&args, NULL);
}

void tt__reducer_release(tt_reducer *r, const char *who) {
    if (r && !tt__freed_before(who, r))
        end_reducer(r, who);
}

void tt_reducer_free(tt_reducer *r) { tt__reducer_release(r, "tt_reducer_free"); }

/* ---- a step ---- */

static tt_status check_usable(const tt_reducer *r, const char *function) {
    if (!r)
        return tt__fail(TT_ERR_INVALID, "%s: `reducer` is NULL", function);
    if (r->broken)
        return tt__fail(TT_ERR_STATE, "%s: an earlier step failed (%s); destroy the group", function,
                        tt_status_name(r->broken));
    return TT_OK;
}

static bool is_param(const tt_reducer *r, int64_t i) { return r && i >= 0 && (size_t)i < r->param_count; }

static tt_status mark(tt_reducer *r, int64_t i, bool unused, const char *function) {
    TT__TRY(check_usable(r, function));
    if (!is_param(r, i))
        return tt__fail(TT_ERR_INVALID, "%s: expected a parameter from 0 to %zu, got %lld", function,
                        r->param_count - 1, (long long)i);
    tt__reducer_param *p = &r->params[i];
    if (p->ready)
        return tt__fail(TT_ERR_STATE, "%s: parameter \"%s\" is already ready in this step", function, p->name);
    TT__TRY(tt__reducer_put_mark(r, p, unused));
    p->ready = true;
    if (r->seen_count == r->param_count)
        r->seen_count = 0;
    r->seen[r->seen_count++] = (uint32_t)i;
    tt__reducer_trace(r, TT_REDUCER_READY, (size_t)i);
    bool complete = --r->buckets[p->bucket].pending == 0;
    tt_status status = complete && r->mirror ? r->mirror->send(r->mirror_user, p->bucket) : TT_OK;
    if (!status)
        status = tt__reducer_advance(r);
    if (status)
        tt__reducer_abandon(r, status);
    return status;
}

tt_status tt_reducer_mark_ready(tt_reducer *r, int64_t i) { return mark(r, i, false, "tt_reducer_mark_ready"); }

tt_status tt_reducer_mark_unused(tt_reducer *r, int64_t i) { return mark(r, i, true, "tt_reducer_mark_unused"); }

static tt_status check_all_ready(const tt_reducer *r) {
    size_t missing = 0, first = 0;
    for (size_t i = r->param_count; i-- > 0;)
        if (!r->params[i].ready) {
            first = i;
            missing++;
        }
    if (missing == 0)
        return TT_OK;
    return tt__fail(TT_ERR_STATE,
                    "parameter \"%s\" got no gradient in this step, and was not said to be unused (%zu of %zu "
                    "parameters): tt_reducer_mark_ready() or tt_reducer_mark_unused() each",
                    r->params[first].name, missing, r->param_count);
}

static void next_step(tt_reducer *r) {
    r->begun = r->ended = 0;
    for (size_t i = 0; i < r->param_count; i++)
        r->params[i].ready = false;
    for (size_t b = 0; b < r->bucket_count; b++) {
        r->buckets[b].pending = r->buckets[b].params;
        r->buckets[b].filled = false;
    }
}

tt_status tt_reducer_finish(tt_reducer *r) {
    TT__TRY(check_usable(r, "tt_reducer_finish"));
    tt_status status = check_all_ready(r);
    if (!status)
        status = tt__reducer_end_buckets(r);
    if (status) {
        tt__reducer_abandon(r, status);
        return status;
    }
    next_step(r);
    tt__group_note_step(r->group);
    return TT_OK;
}

void *tt_reducer_gradient(tt_reducer *r, int64_t i) { return is_param(r, i) ? r->params[i].gradient : NULL; }

bool tt_reducer_was_used(const tt_reducer *r, int64_t i) { return is_param(r, i) && r->params[i].used; }

int64_t tt_reducer_bucket_count(const tt_reducer *r) { return r ? (int64_t)r->bucket_count : 0; }

int64_t tt_reducer_bucket_of(const tt_reducer *r, int64_t i) {
    return is_param(r, i) ? (int64_t)r->params[i].bucket : -1;
}

int64_t tt_reducer_bucket_bytes(const tt_reducer *r, int64_t b) {
    return r && b >= 0 && (size_t)b < r->bucket_count
               ? (int64_t)(r->buckets[b].gradients * tt_dtype_size(r->buckets[b].dtype))
               : 0;
}
