/* Finding slices, and the sharded optimizer behind an optimizer. */
#include "parallel/zero/zero.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

const char tt__zero_kind[] = "ZeRO";

tt__zero *tt__zero_of(const char *who, const tt_optimizer *optimizer) {
    if (!optimizer) {
        tt__fail_argument("%s: the optimizer is NULL", who);
        return NULL;
    }
    if (optimizer->shards && optimizer->shards->kind == tt__zero_kind)
        return optimizer->shards_user;
    return tt__fail_null(TT_ERR_INVALID, "%s: expected an optimizer that tt_zero_optimizer() made", who);
}

/* ---- whose state an entry is ---- */

/* Return the slice that has this number in the optimizer; NULL: none has. */
static const tt_tensor *slice_number(const tt_optimizer *o, long long number) {
    for (size_t g = 0; g < o->group_count; g++) {
        const tt__optim_group *group = &o->groups[g];
        if (number < group->first || number >= group->first + (long long)group->count)
            continue;
        const tt__optim_param *p = &group->params[number - group->first];
        return p->low ? p->low : p->tensor;
    }
    return NULL;
}

const tt__zero_param *tt__zero_param_of(const tt__zero *z, const tt_tensor *slice) {
    for (size_t i = 0; slice && i < z->count; i++)
        if (z->params[i].slice == slice)
            return &z->params[i];
    return NULL;
}

const tt__zero_param *tt__zero_state_of(const tt__zero *z, const char *name) {
    static const char prefix[] = "state.";
    char *end;
    if (strncmp(name, prefix, sizeof prefix - 1) != 0)
        return NULL;
    const long long number = strtoll(name + sizeof prefix - 1, &end, 10);
    if (end == name + sizeof prefix - 1 || *end != '.' || !strcmp(end, ".step"))
        return NULL;
    return tt__zero_param_of(z, slice_number(z->optimizer, number));
}

void tt__zero_forget_state(tt__zero *z) {
    tt__dict_free(&z->dict);
    for (size_t i = 0; i < z->whole_count; i++)
        tt__tensor_disown(z->whole[i]);
    free(z->whole);
    z->whole = NULL;
    z->whole_count = 0;
    z->gathered = false;
}
