/* The memory of state: slots, flat by group and element type, and steps. */
#include "base/error.h"
#include "optim/optimizer.h"

#include <stdlib.h>

static const char who[] = "tt_optimizer";

tt_status tt__optim_state_init(const tt__optimizer_class *cls, const tt__optim_group *group, tt__optim_state *state) {
    *state = (tt__optim_state){0};
    state->slot = calloc(group->count * (size_t)cls->slots + 1, sizeof(tt_tensor *));
    state->steps = calloc(group->count + 1, sizeof *state->steps);
    if (state->slot && state->steps)
        return TT_OK;
    tt__optim_state_free(cls, group, state);
    return tt__fail(TT_ERR_MEMORY, "%s: no memory for the state of %zu parameters", who, group->count);
}

void tt__optim_state_free(const tt__optimizer_class *cls, const tt__optim_group *group, tt__optim_state *state) {
    for (size_t i = 0; state->slot && i < group->count * (size_t)cls->slots; i++)
        tt__tensor_disown(state->slot[i]);
    for (int type = 0; type < TT__OPTIM_TYPES; type++)
        for (int s = 0; s < TT__OPTIM_SLOTS; s++)
            tt__tensor_disown(state->flat[type][s]);
    free(state->slot);
    free(state->steps);
    *state = (tt__optim_state){0};
}

/* Return the memory of a slot for all parameters of one type, made at first need. */
static tt_tensor *slot_memory(const tt__optim_group *group, tt__optim_state *state, const tt__optim_param *param,
                              int slot) {
    tt_tensor **flat = &state->flat[param->type][slot];
    if (!*flat)
        *flat = tt__optim_hold(
            tt_to_device(tt_zeros(TT_SHAPE(group->flat_size[param->type]), param->dtype), group->device));
    return *flat;
}

tt_tensor *tt__optim_state_slot(const tt__optimizer_class *cls, const tt__optim_group *group, tt__optim_state *state,
                                size_t param, int slot) {
    const tt__optim_param *p = &group->params[param];
    tt_tensor **view = &state->slot[param * (size_t)cls->slots + (size_t)slot];
    const tt_tensor *flat = *view ? NULL : slot_memory(group, state, p, slot);
    if (flat) {
        tt_shape shape = tt_tensor_shape(p->tensor);
        int64_t stride[TT_MAX_DIMS];
        tt__shape_strides(&shape, stride);
        *view = tt__optim_hold(tt__tensor_alias(who, flat, shape, stride, p->offset));
    }
    return *view;
}
