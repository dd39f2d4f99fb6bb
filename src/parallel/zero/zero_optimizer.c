/* Making and ending sharded optimizers, and what they are beside their state. */
#include <stdlib.h>

#include "base/args.h"
#include "base/saved_error.h"
#include "optim/clipping/clip.h"
#include "optim/optimizer.h"
#include "parallel/ddp/ddp_sparse.h"
#include "parallel/zero/zero.h"
#include "reducer/text_agreement.h"

static const char who[] = "tt_zero_optimizer";

/* Is there a group, with whose ranks all else can be agreed on? */
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
    if (a->stage == 2 && d->hook)
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "%s: the wrapper has the communication hook \"%s\", and stage 2 reduces buckets itself; use "
                        "stage 1, or register no hook",
                        who, d->hook->name);
    return TT_OK;
}

/* The same for a module whose parameters are spread already. */
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
    TT__TRY(tt__zero_agree(z));
    TT__TRY(made);
    return z->stage < 3 ? tt__zero_watch(z, a->ddp) : tt__zero_watch_sharded(z);
}

/* What this rank can do alone. Of `d` and `fs` one is NULL. */
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

/* `optimizer`, which was made and has no shards yet, first: it watches the slices. */
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
    status = tt__zero_agree_on_ready(group, status);
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
