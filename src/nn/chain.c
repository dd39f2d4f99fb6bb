#include "nn/chain.h"

#include "nn/module.h"

static bool may_be_cut(const tt_module *module) {
    const tt_module_class *cls = &module->cls;
    return cls->part_count && !module->hook_count && !module->amp.on; /* the other two are there, too */
}

int64_t tt__chain_length(tt_module *module) {
    int64_t count = may_be_cut(module) ? module->cls.part_count(module) : 0;
    return count < 1 ? 1 : count;
}

/* A class that says less than 1 has one part: its whole forward. */
static bool module_is_chain(tt_module *module) { return may_be_cut(module) && module->cls.part_count(module) >= 1; }

tt_tensor *tt__chain_forward(tt_module *module, int64_t i, tt_tensor *x) {
    return module_is_chain(module) ? module->cls.forward_part(module, i, x) : tt_module_forward(module, x);
}

tt_module *tt__chain_module(tt_module *module, int64_t i, int64_t k) {
    if (module_is_chain(module))
        return module->cls.part_module(module, i, k);
    return k == 0 ? module : NULL;
}
