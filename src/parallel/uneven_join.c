/* Training with different numbers of batches on the ranks. A rank that has no more data takes part in the steps of the
 * others (ddp_pass.c), which costs them nothing. */
#include <stdio.h>
#include <stdlib.h>

#include "base/args.h"
#include "base/error.h"
#include "parallel/ddp/ddp_state.h"
#include "reducer/text_agreement.h"

#include <tutti/join.h>

struct tt_join {
    tt__ddp_presence presence;
    tt_module *wrapper;
    tt_join_step_fn before_step, after_step;
    void *user;
};

static tt_status check_join(const tt_join_new_args *a, tt__ddp *d) {
    if (!d)
        return tt__fail(TT_ERR_INVALID, "tt_join_new: expected a wrapper that tt_ddp() made, got %s",
                        a->ddp ? "another module" : "NULL");
    if (!d->group)
        return tt__fail(TT_ERR_STATE, "tt_join_new: the wrapper has no group yet");
    if (d->virtual_ranks)
        return tt__fail(TT_ERR_UNSUPPORTED, "tt_join_new: expected a wrapper without .virtual_ranks, which all have as "
                                            "many batches");
    if (d->presence)
        return tt__fail(TT_ERR_STATE, "tt_join_new: the wrapper has a tt_join already; tt_join_free() it first");
    if (d->watcher && d->hook.table && (a->examples || a->divide_by_present))
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "tt_join_new: a tt_zero_optimizer() of stage 2 has taken the gradients before "
                        "they could be divided again: .examples and .divide_by_present need stage 1");
    const tt__ddp_presence asked = {
        .nominal = a->examples, .divide_by_present = a->divide_by_present, .ends_early = a->end_early};
    if (d->stepper)
        TT__TRY(tt__ddp_check_stepper("tt_join_new", &asked, d->stepper->zero_grad));
    if (a->examples < 0 || a->examples > TT__REDUCER_EXAMPLES)
        return tt__fail(TT_ERR_INVALID, "tt_join_new: expected .examples from 0 to %lld, got %lld",
                        (long long)TT__REDUCER_EXAMPLES, (long long)a->examples);
    if (a->examples && a->divide_by_present)
        return tt__fail(TT_ERR_INVALID, "tt_join_new: .examples and .divide_by_present are different averages: give "
                                        "one of them");
    return TT_OK;
}

static tt_status agree_on_join(const tt_join_new_args *a, const tt__ddp *d) {
    char *text;
    if (asprintf(&text, ".examples = %lld, .divide_by_present = %d, .end_early = %d, %s .before_step, %s .after_step",
                 (long long)a->examples, a->divide_by_present, a->end_early, a->before_step ? "a" : "no",
                 a->after_step ? "a" : "no") < 0)
        return tt__fail(TT_ERR_MEMORY, "tt_join_new: no memory for the text of its options");
    tt_status status = tt__agree_on(d->group, "tt_join_new", (const char *const *)&text, 1);
    free(text);
    return status;
}

static tt_status begin_join(const tt_join_new_args *a, tt__ddp *d, tt_join **join) {
    TT__TRY(check_join(a, d));
    if (!(*join = calloc(1, sizeof **join)))
        return tt__fail(TT_ERR_MEMORY, "tt_join_new: no memory");
    return agree_on_join(a, d);
}

tt_join *tt_join_new_with(const tt_join_new_args *given, size_t size) {
    tt_join_new_args a;
    TT__ARGS_COPY(a, given, size);
    tt__ddp *d = tt__ddp_of(a.ddp);
    tt_join *join = NULL;
    const tt__joint_call call = tt__joint_call_begin(d ? d->group : NULL, "tt_join_new");
    if (tt__joint_call_end(&call, begin_join(&a, d, &join))) {
        free(join);
        return NULL;
    }
    *join = (tt_join){.presence = {.ddp = d,
                                   .divide_by_present = a.divide_by_present,
                                   .nominal = a.examples,
                                   .examples = a.examples,
                                   .ends_early = a.end_early},
                      .wrapper = a.ddp,
                      .before_step = a.before_step,
                      .after_step = a.after_step,
                      .user = a.user};
    d->presence = &join->presence;
    return join;
}

tt_status tt_join_set_examples(tt_join *join, int64_t examples) {
    if (!join)
        return tt__fail(TT_ERR_INVALID, "tt_join_set_examples: `join` is NULL");
    if (!join->presence.nominal)
        return tt__fail(TT_ERR_STATE, "tt_join_set_examples: the join weights no examples: tt_join_new(.examples = "
                                      "those of a full batch)");
    if (examples < 1 || examples > TT__REDUCER_EXAMPLES)
        return tt__fail(TT_ERR_INVALID, "tt_join_set_examples: expected 1 to %lld, got %lld",
                        (long long)TT__REDUCER_EXAMPLES, (long long)examples);
    join->presence.examples = examples;
    return TT_OK;
}

static tt_status call_step(const tt_join *join, tt_join_step_fn step, const char *which) {
    const uint64_t errors = tt__error_count();
    tt_status status = step ? step(join->user) : TT_OK;
    return status ? tt__fail_callback(errors, status, "tt_join_wait: %s", which) : TT_OK;
}

static tt_status shadow_one_step(tt_join *join) {
    tt__ddp *d = join->presence.ddp;
    bool before = tt_enable_grad_begin(), sync = d->sync;
    d->sync = true; /* the others average, even if this rank's data ended between two averages */
    tt_status status = tt__ddp_before_forward(join->wrapper, d);
    tt_no_grad_end(before);
    if (!status)
        status = tt__ddp_shadow_step(d);
    d->sync = sync;
    return status ? tt__fail_prefix("tt_join_wait") : TT_OK;
}

/* Take parameters and buffers of a rank that took part to the end: its buffers are the newest. */
static tt_status take_newest(const tt__ddp *d, int root) {
    const tt_named_tensors *lists[] = {tt_module_parameters(d->module), tt_module_buffers(d->module)};
    for (int i = 0; i < 2; i++)
        TT__TRY(lists[i] ? tt__ddp_take_shared(d, lists[i], root) : tt_last_status());
    return TT_OK;
}

tt_status tt_join_wait(tt_join *join) {
    if (!join || !join->presence.ddp || !join->presence.ddp->group)
        return tt__fail(join ? TT_ERR_STATE : TT_ERR_INVALID, "tt_join_wait: %s",
                        !join ? "`join` is NULL" : "the wrapper was freed, or has no group");
    for (;;) {
        TT__TRY(call_step(join, join->before_step, ".before_step"));
        TT__TRY(shadow_one_step(join));
        if (join->presence.present == 0)
            break;
        TT__TRY(call_step(join, join->after_step, ".after_step"));
    }
    int root = join->presence.root;
    join->presence.steps = 0;
    join->presence.root = 0;
    return take_newest(join->presence.ddp, root);
}

int64_t tt_join_steps(const tt_join *join) { return join ? join->presence.steps : 0; }

void tt_join_free(tt_join *join) {
    if (join && join->presence.ddp) {
        tt__ddp *d = join->presence.ddp;
        d->presence = NULL;
        if (d->reducer)
            tt__reducer_set_examples(d->reducer, -1);
    }
    free(join);
}
