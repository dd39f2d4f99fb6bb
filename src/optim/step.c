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

/* The tensors that a step of one parameter reads and writes, all contiguous. */
typedef struct flat_step {
    tt_tensor *param, *grad; /* copies where they are not contiguous */
    tt_tensor *slot[TT__OPTIM_SLOTS];
    bool fresh[TT__OPTIM_SLOTS];
} flat_step;

/* Gather the state that the group's options need for parameter i. */
static tt_status gather_state(const tt_optimizer *o, tt__optim_group *group, size_t i, flat_step *f) {
    for (int s = 0; s < o->cls->slots; s++) {
        f->fresh[s] = !group->state.slot[i * (size_t)o->cls->slots + (size_t)s];
        if (!o->cls->uses(group->option, s))
            continue;
        f->slot[s] = tt__optim_state_slot(o->cls, group, &group->state, i, s);
        if (!f->slot[s])
            return tt_last_status();
    }
    return TT_OK;
}

/* Update memory that plain pointers reach, by the processor's kernels. */
static tt_status update_on_host(const tt__optimizer_class *cls, int type, const flat_step *f, tt__update *u) {
    void *state[TT__OPTIM_SLOTS] = {NULL};
    for (int s = 0; s < cls->slots; s++)
        state[s] = tt_tensor_data(f->slot[s]);
    u->p = tt_tensor_data(f->param);
    u->g = tt_tensor_data(f->grad);
    u->state = state;
    rule_for(cls, type)(u);
    return TT_OK;
}

static tt_status update_on_device(const tt__optimizer_class *cls, const flat_step *f, const tt__update *u) {
    if (!cls->on_device)
        return tt__fail(TT_ERR_UNSUPPORTED, "%s: %s has no rule for the device \"%s\"", who, cls->name,
                        tt_device_name(tt_tensor_device(f->param)));
    return cls->on_device(f->param, f->grad, f->slot, u);
}

static tt_status update_flat(const tt_optimizer *o, tt__optim_group *group, size_t i, flat_step *f) {
    const tt__optim_param *p = &group->params[i];
    TT__TRY(gather_state(o, group, i, f));
    int64_t step = o->cls->counts_steps ? group->state.steps[i] + 1 : 0;
    tt__update u = {.n = p->numel, .fresh = f->fresh, .option = group->option, .step = step};
    TT__TRY(tt__device_is_host(group->device) ? update_on_host(o->cls, p->type, f, &u)
                                              : update_on_device(o->cls, f, &u));
    group->state.steps[i] = step;
    if (f->param != p->tensor)
        return tt_copy(p->tensor, f->param);
    tt__storage_touch(p->tensor->storage);
    return TT_OK;
}

static tt_status update_param(const tt_optimizer *o, tt__optim_group *group, size_t i, tt_tensor *grad) {
    const tt__optim_param *p = &group->params[i];
    if (tt_tensor_dtype(p->tensor) != p->dtype || tt_tensor_numel(p->tensor) != p->numel ||
        tt_tensor_device(p->tensor) != group->device)
        return tt__fail(
            TT_ERR_STATE,
            "%s: parameter %lld was %s of %lld elements on \"%s\" when it was added, and is %s on \"%s\" now; "
            "make the optimizer after converting the module",
            who, (long long)group->first + (long long)i, tt_dtype_name(p->dtype), (long long)p->numel,
            tt_device_name(group->device), TT__DESCRIBE(p->tensor), tt_device_name(tt_tensor_device(p->tensor)));
    flat_step f = {.param = tt_contiguous(p->tensor), .grad = tt_contiguous(grad)};
    return f.param && f.grad ? update_flat(o, group, i, &f) : tt_last_status();
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
