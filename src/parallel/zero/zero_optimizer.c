/* Makes and frees sharded optimizers: checks the wrapper and the options, compares them over the ranks, and has the
 * program make its optimizer over the slices. */
#include "base/args.h"
#include "base/error.h"
#include "base/text/format.h"
#include "optim/clipping/clip.h"
#include "optim/optimizer.h"
#include "parallel/ddp/ddp_state.h"
#include "parallel/zero/zero.h"
#include "reducer/text_agreement.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static const char who[] = "tt_zero_optimizer";

/* ---- what must be alike on the ranks: stage, class, groups, their options and parameters ---- */

typedef struct text_list {
    char **texts;
    size_t count;
    bool failed;
} text_list;

TT_PRINTF(2, 3) static void add_text(text_list *list, const char *format, ...) {
    va_list args;
    va_start(args, format);
    if (!list->failed)
        list->failed = tt__vformat_new(&list->texts[list->count], format, args) < 0;
    va_end(args);
    list->count += !list->failed;
}

static void describe_group(const tt__zero *z, size_t g, text_list *list) {
    const tt__optimizer_class *cls = z->optimizer->cls;
    const tt__optim_group *group = &z->optimizer->groups[g];
    for (int i = 0; i < cls->options; i++)
        add_text(list, "\"%s\" %.17g in group %zu", cls->option_names[i], group->option[i], g);
    for (size_t i = 0; i < group->count; i++) {
        const tt__optim_param *p = &group->params[i];
        add_text(list, "parameter %lld \"%s\" in group %zu", (long long)group->first + (long long)i,
                 tt__zero_param_of(z, p->low ? p->low : p->tensor)->name, g);
    }
}

static size_t text_room(const tt__zero *z) {
    size_t room = 2;
    for (size_t g = 0; z->optimizer && g < z->optimizer->group_count; g++)
        room += (size_t)z->optimizer->cls->options + z->optimizer->groups[g].count;
    return room;
}

static void describe_optimizer(const tt__zero *z, const char *failure, text_list *list) {
    add_text(list, "stage %d", z->stage);
    if (!z->optimizer) {
        add_text(list, "no optimizer (%s)", failure);
        return;
    }
    add_text(list, "%s with %zu groups", z->optimizer->cls->name, z->optimizer->group_count);
    for (size_t g = 0; g < z->optimizer->group_count; g++)
        describe_group(z, g, list);
}

/* Is every rank ready to make an optimizer? `own`: the error of this rank, its last error; the others are told. */
static tt_status zero_agree_on_ready(tt_group *group, tt_status own) {
    static const char failed[] = "failed: ";
    char text[sizeof failed + TT__ERROR_TEXT_SIZE] = "ready";
    tt__saved_error saved;
    tt__error_save(&saved);
    if (own)
        snprintf(text, sizeof text, "%s%s", failed, saved.text);
    TT__TRY(tt__agree_on(group, who, (const char *const[]){text}, 1));
    if (own)
        tt__error_restore(&saved);
    return own;
}

/* Compare the optimizer with the other ranks'. z->optimizer NULL: this rank failed to make one. */
static tt_status zero_agree(const tt__zero *z) {
    static const char no_memory[] = "no memory to compare with the other ranks";
    tt__saved_error saved;
    tt__error_save(&saved);
    text_list list = {.texts = calloc(text_room(z), sizeof(char *))};
    list.failed = !list.texts;
    describe_optimizer(z, saved.text, &list);
    tt_status status = list.failed ? tt__agree_on(z->group, who, (const char *const[]){no_memory}, 1)
                                   : tt__agree_on(z->group, who, (const char *const *)list.texts, list.count);
    if (!status && list.failed)
        status = tt__fail(TT_ERR_MEMORY, "%s: %s", who, no_memory);
    for (size_t i = 0; i < list.count; i++)
        free(list.texts[i]);
    free(list.texts);
    if (!status && !z->optimizer)
        tt__error_restore(&saved);
    return status;
}

/* Check that the wrapper has a group, in which errors can be agreed on. */
static tt_status check_wrapper(const tt__ddp *d) {
    if (!d)
        return tt__fail(TT_ERR_INVALID, "%s: expected a wrapper that tt_ddp() or tt_fully_shard() made", who);
    if (d->known_as || !d->group)
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "%s: the wrapper belongs to an elastic job, whose ranks come and go: slices of lost ranks "
                        "would be lost",
                        who);
    return TT_OK;
}

static tt_status check_zero_args(const tt_zero_optimizer_args *a, const tt__ddp *d) {
    if (d->watcher)
        return tt__fail(TT_ERR_STATE, "%s: the wrapper has such an optimizer already; free that first", who);
    if (d->stepper)
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "%s: another optimizer steps in the wrapper's backward pass; end that first: "
                        "tt_ddp_step_in_backward(ddp, NULL)",
                        who);
    if (!a->make)
        return tt__fail(TT_ERR_INVALID, "%s: `make` is NULL", who);
    if (a->stage < 0 || a->stage > 2)
        return tt__fail(TT_ERR_INVALID, "%s: expected stage 1 or 2, got %d", who, a->stage);
    if (a->stage == 2 && d->presence && (d->presence->nominal || d->presence->divide_by_present))
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "%s: the wrapper's tt_join divides averages again, by .examples or .divide_by_present, which "
                        "stage 2 would not see: use stage 1",
                        who);
    TT__TRY(tt__ddp_refuse_sparse(who, d));
    if (a->stage == 2 && d->hook.table)
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "%s: the wrapper has the communication hook \"%s\", and stage 2 reduces buckets itself; use "
                        "stage 1, or register no hook",
                        who, d->hook.table->name);
    return TT_OK;
}

/* check_zero_args() for a module of tt_fully_shard(). */
static tt_status check_sharded_args(const tt_zero_optimizer_args *a, const tt__fs *fs) {
    if (fs->watcher)
        return tt__fail(TT_ERR_STATE, "%s: the wrapper has such an optimizer already; free that first", who);
    if (!a->make)
        return tt__fail(TT_ERR_INVALID, "%s: `make` is NULL", who);
    if (a->stage && a->stage != 3)
        return tt__fail(TT_ERR_INVALID, "%s: expected stage 3, as the wrapper is one of tt_fully_shard(), got %d", who,
                        a->stage);
    return TT_OK;
}

/* ---- the program's optimizer ---- */

static tt_status check_made(const tt__zero *z, const tt_optimizer *o) {
    if (o->shards)
        return tt__fail(TT_ERR_INVALID, "%s: `make` returned an optimizer of slices already", who);
    for (size_t g = 0; g < o->group_count; g++)
        for (size_t i = 0; i < o->groups[g].count; i++) {
            const tt__optim_param *p = &o->groups[g].params[i];
            if (!tt__zero_param_of(z, p->low ? p->low : p->tensor))
                return tt__fail(
                    TT_ERR_INVALID,
                    "%s: `make` returned an optimizer over other tensors than those it was given (parameter "
                    "%zu of group %zu)",
                    who, i, g);
        }
    return TT_OK;
}

/* Have the program make its optimizer: z->optimizer, NULL on failure. */
static tt_status make_optimizer(tt__zero *z, const tt_zero_optimizer_args *a) {
    const char **names = calloc(z->count + 1, sizeof *names);
    tt_tensor **slices = calloc(z->count + 1, sizeof(tt_tensor *));
    tt_optimizer *made = NULL;
    for (size_t i = 0; names && slices && i < z->count; i++) {
        names[i] = z->params[i].name;
        slices[i] = z->params[i].slice;
    }
    if (names && slices)
        made = a->make(TT_NAMED_TENSORS((int64_t)z->count, names, slices), a->user);
    else
        tt__fail(TT_ERR_MEMORY, "%s: no memory for a list of slices", who);
    free(names);
    free(slices);
    if (!made)
        return tt__fail_argument("%s: `make` returned NULL", who);
    tt_status status = check_made(z, made);
    if (status)
        tt_optimizer_free(made);
    else
        z->optimizer = made;
    return status;
}

/* ---- as part of an optimizer ---- */

static void zero_zero_grad(void *user) {
    const tt__zero *z = user;
    for (size_t i = 0; i < z->count; i++)
        tt_zero_grad(z->params[i].whole);
}

static void zero_end(tt__zero *z) {
    tt__saved_error saved;
    tt__error_save_reason(&saved);
    tt__zero_unwatch(z);
    tt__zero_unwatch_sharded(z);
    tt__zero_release(z);
    tt__error_restore_reason(&saved);
}

static void zero_destroy(void *user) { zero_end(user); }

static const tt__optim_shards shards = {.kind = tt__zero_kind,
                                        .begin = tt__zero_begin,
                                        .end = tt__zero_end,
                                        .join = tt__zero_join,
                                        .abandon = tt__zero_abandon,
                                        .zero_grad = zero_zero_grad,
                                        .state_dict = tt__zero_state_dict,
                                        .load_state_dict = tt__zero_load_state_dict,
                                        .destroy = zero_destroy};

/* ---- making ---- */

static tt_status build_zero(tt__zero *z, const tt_zero_optimizer_args *a) {
    if (z->stage < 3)
        TT__TRY(tt__zero_allocate(z));
    tt_status made = z->stage < 3 ? tt__zero_make_slices(z) : TT_OK;
    if (!made)
        made = make_optimizer(z, a);
    TT__TRY(zero_agree(z));
    TT__TRY(made);
    return z->stage < 3 ? tt__zero_watch(z, a->ddp) : tt__zero_watch_sharded(z);
}

/* The part that this rank does alone. One of `d` and `fs` is NULL. */
static tt_status prepare_zero(tt__zero **made, const tt_zero_optimizer_args *a, tt__ddp *d, tt__fs *fs) {
    TT__TRY(d ? check_zero_args(a, d) : check_sharded_args(a, fs));
    tt_group *group = d ? d->group : fs->group;
    tt__zero *z = *made = calloc(1, sizeof *z);
    if (!z)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for an optimizer", who);
    *z = (tt__zero){.ddp = d,
                    .fs = fs,
                    .stage = fs         ? 3
                             : a->stage ? a->stage
                                        : 1,
                    .device = d ? tt_tensor_device(d->slots[0].parameter) : fs->device,
                    .rank = tt_get_rank(group),
                    .world = tt_get_world_size(group)};
    return d ? tt__zero_lay_out(z) : tt__zero_lay_out_sharded(z);
}

/* Free everything. The program's optimizer, which has no shards yet, goes first, as it watches the slices. */
static tt_optimizer *give_zero_up(tt__zero *z) {
    if (!z)
        return NULL;
    tt__saved_error saved;
    tt__error_save(&saved);
    tt_optimizer_free(z->optimizer);
    zero_end(z);
    tt__error_restore(&saved);
    return NULL;
}

tt_optimizer *tt_zero_optimizer_with(const tt_zero_optimizer_args *args, size_t size) {
    tt_zero_optimizer_args a;
    TT__ARGS_COPY(a, args, size);
    if (!a.ddp) {
        tt__fail_argument("%s: the wrapper is NULL", who);
        return NULL;
    }
    tt__ddp *d = tt__ddp_of(a.ddp);
    tt__fs *fs = tt__fs_of(a.ddp);
    if (!fs && check_wrapper(d))
        return NULL;
    tt__zero *z = NULL;
    tt_group *group = d ? d->group : fs->group;
    const tt__joint_call call = tt__joint_call_begin(group, who);
    tt_status status = prepare_zero(&z, &a, d, fs);
    status = zero_agree_on_ready(group, status);
    if (tt__joint_call_end(&call, status ? status : build_zero(z, &a)))
        return give_zero_up(z);
    z->optimizer->shards_user = z;
    z->optimizer->shards = &shards;
    return z->optimizer;
}

tt_status tt_zero_clip_grad_norm_with(const tt_zero_clip_grad_norm_args *args, size_t size) {
    static const char clip[] = "tt_zero_clip_grad_norm_";
    tt_zero_clip_grad_norm_args a;
    TT__ARGS_COPY(a, args, size);
    TT__TRY(tt__zero_of(clip, a.optimizer) ? TT_OK : tt_last_status());
    tt_status begun = a.optimizer->masters_begun ? TT_OK : tt__masters_begin(clip, a.optimizer);
    const tt_clip_grad_norm_args whole = {.params = begun ? NULL : tt_optimizer_master_params(a.optimizer),
                                          .max_norm = a.max_norm,
                                          .norm_type = a.norm_type,
                                          .error_if_nonfinite = a.error_if_nonfinite,
                                          .total_norm = a.total_norm};
    return tt__clip_grad_norm(clip, &whole, a.optimizer, begun);
}
