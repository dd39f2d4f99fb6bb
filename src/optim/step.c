/* A step: the rule, over one contiguous run after the other. A run is a parameter; where parameters, gradients and
 * state of several lie side by side, they could be one. */
#include "base/error.h"
#include "optim/optimizer.h"

static const char who[] = "tt_optimizer_step";

int tt__optim_type(const tt__optimizer_class *cls, tt_dtype dtype) {
    if (dtype == TT_F32 && cls->kernels()->f32)
        return TT__OPTIM_F32;
    return dtype == TT_F64 && cls->kernels()->f64 ? TT__OPTIM_F64 : -1;
}

static tt__update_fn rule_for(const tt__optimizer_class *cls, int type) {
    return type == TT__OPTIM_F32 ? cls->kernels()->f32 : cls->kernels()->f64;
}

/* Parameter and gradient of one step, both contiguous: copies where they are not. */
typedef struct flat_pair {
    tt_tensor *param, *grad;
} flat_pair;

/* What the group's options need of state for parameter i. */
static tt_status gather_state(const tt_optimizer *o, tt__optim_group *group, size_t i, void **state, bool *fresh) {
    for (int s = 0; s < o->cls->slots; s++) {
        state[s] = NULL;
        fresh[s] = !group->state.slot[i * (size_t)o->cls->slots + (size_t)s];
        if (!o->cls->uses(group->option, s))
            continue;
        tt_tensor *slot = tt__optim_state_slot(o->cls, group, &group->state, i, s);
        if (!slot)
            return tt_last_status();
        state[s] = tt_tensor_data(slot);
    }
    return TT_OK;
}

static tt_status update_flat(const tt_optimizer *o, tt__optim_group *group, size_t i, const flat_pair *flat) {
    void *state[TT__OPTIM_SLOTS];
    bool fresh[TT__OPTIM_SLOTS];
    TT__TRY(gather_state(o, group, i, state, fresh));
    const tt__update u = {.n = group->params[i].numel,
                          .p = tt_tensor_data(flat->param),
                          .g = tt_tensor_data(flat->grad),
                          .state = state,
                          .fresh = fresh,
                          .option = group->option,
                          .step = o->cls->counts_steps ? ++group->state.steps[i] : 0};
    rule_for(o->cls, group->params[i].type)(&u);
    return flat->param == group->params[i].tensor ? TT_OK : tt_copy(group->params[i].tensor, flat->param);
}

static tt_status update_param(const tt_optimizer *o, tt__optim_group *group, size_t i, tt_tensor *grad) {
    const tt__optim_param *p = &group->params[i];
    if (tt_tensor_dtype(p->tensor) != p->dtype || tt_tensor_numel(p->tensor) != p->numel)
        return tt__fail(TT_ERR_STATE,
                        "%s: parameter %lld was %s of %lld elements when it was added, and is %s now; "
                        "make the optimizer after converting the module",
                        who, (long long)group->first + (long long)i, tt_dtype_name(p->dtype), (long long)p->numel,
                        TT__DESCRIBE(p->tensor));
    flat_pair flat = {tt_contiguous(p->tensor), tt_contiguous(grad)};
    return flat.param && flat.grad ? update_flat(o, group, i, &flat) : tt_last_status();
}

static tt_status update_group(const tt_optimizer *o, tt__optim_group *group) {
    for (size_t i = 0; i < group->count; i++) {
        tt_tensor *grad = tt_grad(group->params[i].tensor);
        if (grad)
            TT__TRY(update_param(o, group, i, grad));
    }
    return TT_OK;
}

tt_status tt_optimizer_step(tt_optimizer *optimizer) {
    if (!optimizer)
        return tt__fail(TT_ERR_INVALID, "%s: the optimizer is NULL", who);
    int scope = tt_scope_begin(); /* ends copies of parameters in other layouts */
    if (!scope)
        return tt_last_status();
    bool before = tt_no_grad_begin();
    tt_status status = TT_OK;
    for (size_t g = 0; g < optimizer->group_count && !status; g++)
        status = update_group(optimizer, &optimizer->groups[g]);
    tt_no_grad_end(before);
    tt_scope_end(scope);
    return status;
}
