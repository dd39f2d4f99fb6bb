/* A step of one rank: runs its list of actions, one after the other. Each micro-batch has a scope of its own. */
#include "base/error.h"
#include "base/machine/clock.h"
#include "parallel/pipeline/pipeline_own.h"
#include "tensor/core/tensor.h"

#include <inttypes.h>
#include <stdlib.h>

/* A step under way. */
typedef struct run {
    tt_pipeline *pipe;
    tt__batch *batch;
    int64_t begin_ns;
    tt__ran *at; /* of the current action; NULL in an evaluation */
} run;

int64_t tt__micro_begin(int64_t examples, int64_t micros, int64_t m) {
    int64_t each = examples / micros, more = examples % micros;
    return m * each + (m < more ? m : more);
}

static int64_t micro_size(const run *r, int64_t m) {
    return tt__micro_begin(r->batch->examples, r->pipe->micros, m + 1) -
           tt__micro_begin(r->batch->examples, r->pipe->micros, m);
}

static tt_tensor *micro_of_batch(const run *r, tt_tensor *whole, int64_t m) {
    return tt_narrow(whole, 0, tt__micro_begin(r->batch->examples, r->pipe->micros, m), micro_size(r, m));
}

static bool is_first_stage(const tt__stage *stage) { return stage->index == 0; }
static bool is_last_stage(const tt__stage *stage) { return stage->index == stage->pipe->stages - 1; }

static void act_begins(const run *r) {
    if (r->at)
        r->at->begin_ns = tt__now_ns() - r->begin_ns;
}

static void act_ends(const run *r) {
    if (r->at)
        r->at->end_ns = tt__now_ns() - r->begin_ns;
}

/* Average over the data group with the last micro-batch only, and take buffers once. */
static tt_status set_stage_sync(const tt__stage *stage, int64_t m) {
    return stage->ddp ? tt_ddp_set_sync(stage->ddp, m == stage->pipe->micros - 1) : TT_OK;
}

/* ---- forward ---- */

/* The loss of a micro-batch, scaled by its share of the batch. */
static tt_tensor *micro_loss(run *r, int64_t m, tt_tensor *y) {
    tt_pipeline *p = r->pipe;
    double value, share = p->loss_is_sum ? 1 : (double)micro_size(r, m) / (double)r->batch->examples;
    uint64_t before = tt__error_count();
    tt_tensor *loss = p->loss(y, micro_of_batch(r, r->batch->target, m), p->user);
    if (!loss && tt__error_count() == before)
        return tt__fail_null(TT_ERR_INVALID, "the loss function gave NULL");
    if (!loss || tt_item(loss, &value))
        return NULL;
    r->batch->loss += share * value;
    return share == 1 ? loss : tt_scale(loss, share);
}

static tt_status keep_draws(tt__held *held) {
    if (!held->draws && !(held->draws = malloc(sizeof *held->draws)))
        return tt__fail(TT_ERR_MEMORY, "no memory for a generator");
    *held->draws = *tt_default_generator();
    return TT_OK;
}

/* The stage's input; a leaf, if it needs a gradient. */
static tt_tensor *stage_input(run *r, const tt__stage *stage, int64_t m) {
    if (is_first_stage(stage))
        return micro_of_batch(r, r->batch->x, m);
    int64_t chunk = stage->index / r->pipe->ranks;
    tt_tensor *x = tt__channel_recv(&r->pipe->channels, chunk, TT__ONWARD, m);
    return x && r->batch->train ? tt_requires_grad_(x, true) : x;
}

static tt_tensor *forward_recorded(run *r, tt__stage *stage, tt__held *held, int64_t m) {
    if (!r->pipe->recompute || is_last_stage(stage)) /* backward of the last stage follows at once */
        return tt__stage_forward(stage, m, held->x, false);
    TT_NO_GRAD;
    if (keep_draws(held))
        return NULL;
    return tt__stage_forward(stage, m, held->x, false);
}

/* With recomputing, only the input stays in the micro-batch's scope: the forward has a scope of its own. */
static tt_status train_forward(run *r, tt__stage *stage, tt__held *held, int64_t m) {
    bool forgets = r->pipe->recompute && !is_last_stage(stage);
    held->x = stage_input(r, stage, m);
    if (!held->x)
        return tt_last_status();
    act_begins(r);
    TT__TRY(set_stage_sync(stage, m));
    int scope = forgets ? tt_scope_begin() : 0;
    tt_tensor *y = forward_recorded(r, stage, held, m);
    if (y && is_last_stage(stage))
        y = micro_loss(r, m, y);
    act_ends(r);
    tt_status status = y ? TT_OK : tt_last_status();
    if (!status && !is_last_stage(stage))
        status = tt__channel_send(&r->pipe->channels, stage->index / r->pipe->ranks, TT__ONWARD, m, y);
    held->y = forgets ? NULL : y;
    if (forgets)
        tt_scope_end(scope);
    return status;
}

/* The forward of an evaluation; keeps the results that the caller wants. */
static tt_status forward_only(run *r, tt__stage *stage, tt__held *held, int64_t m) {
    TT_NO_GRAD;
    held->x = stage_input(r, stage, m);
    tt_tensor *y = held->x ? tt__stage_forward(stage, m, held->x, false) : NULL;
    if (!y)
        return tt_last_status();
    if (!is_last_stage(stage))
        return tt__channel_send(&r->pipe->channels, stage->index / r->pipe->ranks, TT__ONWARD, m, y);
    if (r->batch->wants_loss && !micro_loss(r, m, y))
        return tt_last_status();
    if (!r->batch->wants_y)
        return TT_OK;
    r->batch->ys[m] = tt_keep(tt_clone(y));
    return r->batch->ys[m] ? TT_OK : tt_last_status();
}

/* ---- backward ---- */

/* Run the pass from the stage's output; `halved`: leave the weights for later. */
static tt_status run_backward(const tt__stage *stage, tt__held *held, tt_tensor *gradient, bool halved) {
    if (!tt_requires_grad(held->y))
        return TT_OK; /* neither this stage nor an earlier one is trained */
    if (!halved)
        return tt_backward(held->y, .gradient = gradient);
    return tt_backward(held->y, .gradient = gradient, .inputs = &held->x, .input_count = !is_first_stage(stage),
                       .deferred = &held->deferred);
}

/* Send the gradient of the stage's input. */
static tt_status send_back(run *r, const tt__stage *stage, const tt__held *held, int64_t m) {
    if (is_first_stage(stage))
        return TT_OK;
    tt_tensor *g = tt_grad(held->x);
    if (!g && !(g = tt_zeros_like(held->x)))
        return tt_last_status();
    return tt__channel_send(&r->pipe->channels, stage->index / r->pipe->ranks, TT__BACK, m, g);
}

static tt_status act_backward(run *r, tt__stage *stage, tt__held *held, int64_t m, bool halved) {
    tt_tensor *gradient = NULL;
    if (!is_last_stage(stage)) {
        gradient = tt__channel_recv(&r->pipe->channels, stage->index / r->pipe->ranks, TT__BACK, m);
        if (!gradient)
            return tt_last_status();
    }
    act_begins(r);
    TT__TRY(set_stage_sync(stage, m));
    if (!held->y)
        held->y = tt__stage_forward(stage, m, held->x, true);
    tt_status status = held->y ? run_backward(stage, held, gradient, halved) : tt_last_status();
    act_ends(r);
    return status ? status : send_back(r, stage, held, m);
}

static tt_status act_weight_grads(run *r, const tt__stage *stage, tt__held *held, int64_t m) {
    act_begins(r);
    TT__TRY(set_stage_sync(stage, m));
    tt_status status = held->deferred ? tt_backward_deferred(held->deferred) : TT_OK;
    act_ends(r);
    return status;
}

/* ---- the list ---- */

/* Run an action inside the micro-batch's scope. */
static tt_status do_act(run *r, const tt__act *act, tt__stage *stage, tt__held *held) {
    switch (act->kind) {
    case TT__FORWARD:
        return r->batch->train ? train_forward(r, stage, held, act->micro) : forward_only(r, stage, held, act->micro);
    case TT__BACKWARD:
    case TT__INPUT_GRADS:
        return act_backward(r, stage, held, act->micro, act->kind == TT__INPUT_GRADS);
    case TT__WEIGHT_GRADS:
    case TT__ACT_KINDS:
        break;
    }
    return act_weight_grads(r, stage, held, act->micro);
}

static tt_status run_act(run *r, const tt__act *act) {
    tt__stage *stage = &r->pipe->stage[act->chunk];
    tt__held *held = &stage->held[act->micro];
    if (!held->scope && !(held->scope = tt_scope_new()))
        return tt_last_status();
    TT__TRY(tt_scope_enter(held->scope));
    tt_status status = do_act(r, act, stage, held);
    tt_ignore(tt_scope_leave(held->scope));
    bool through = act->kind == TT__BACKWARD || act->kind == TT__WEIGHT_GRADS || !r->batch->train;
    if (through)
        tt__held_drop(held);
    return status ? tt__fail_prefix("stage %" PRId64 ", %c of micro-batch %" PRId64, stage->index,
                                    tt__act_letter(act->kind), act->micro)
                  : TT_OK;
}

/* Drop all micro-batches that a failed step has left. */
static void drop_all_held(tt_pipeline *pipe) {
    for (int64_t c = 0; c < pipe->chunks; c++)
        for (int64_t m = 0; m < pipe->micros; m++)
            tt__held_drop(&pipe->stage[c].held[m]);
}

tt_status tt__pipeline_run(tt_pipeline *pipe, tt__batch *batch) {
    run r = {.pipe = pipe, .batch = batch, .begin_ns = tt__now_ns()};
    const tt__act_list *list = &(batch->train ? &pipe->train : &pipe->forward)->lists[pipe->rank];
    tt_status status = TT_OK;
    for (int64_t i = 0; i < list->count && !status; i++) {
        bool empty = !batch->train && micro_size(&r, list->acts[i].micro) == 0;
        r.at = batch->train ? &pipe->ran[i] : NULL;
        status = empty ? TT_OK : run_act(&r, &list->acts[i]);
    }
    if (status)
        tt__channels_fail(&pipe->channels);
    /* a rank with nothing more to send may have failed */
    tt_status settled = tt__channels_settle(&pipe->channels, "the step");
    if (!status && !settled)
        settled = tt__channels_flush(&pipe->channels); /* returns at once, as all have received their tensors */
    if (!status && !settled)
        return TT_OK;
    if (!status)
        tt__channels_mark_failed(&pipe->channels);
    drop_all_held(pipe);
    return status ? status : settled;
}
