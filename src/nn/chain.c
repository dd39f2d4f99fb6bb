#include "nn/chain.h"

#include "nn/module.h"

static bool module_is_chain(const tt_module *module) {
    const tt_module_class *cls = &module->cls;
    return cls->part_count && cls->forward_part && cls->part_module && !module->hook_count && !module->amp.on;
}

int64_t tt__chain_length(tt_module *module) { return module_is_chain(module) ? module->cls.part_count(module) : 1; }

tt_tensor *tt__chain_forward(tt_module *module, int64_t i, tt_tensor *x) {
    return module_is_chain(module) ? module->cls.forward_part(module, i, x) : tt_module_forward(module, x);
}

tt_module *tt__chain_module(tt_module *module, int64_t i, int64_t k) {
    if (module_is_chain(module))
        return module->cls.part_module(module, i, k);
    return k == 0 ? module : NULL;
}
