/* tutti/cpp/zero.hpp: optimizers whose state, and gradients, are spread over the ranks of a wrapper. */
#ifndef TUTTI_CPP_ZERO_HPP
#define TUTTI_CPP_ZERO_HPP

#include <functional>
#include <tutti/cpp/optim.hpp>
#include <tutti/cpp/parallel.hpp>
#include <tutti/zero.h>

namespace tutti {

/* Makes an optimizer over this rank's slices, and its groups. What it throws is thrown by zero_optimizer(). */
using zero_make = std::function<optimizer(const tt_named_tensors *params)>;

/* Collective, as its step and its end are. */
inline optimizer zero_optimizer(module &ddp, zero_make make, int stage = 0) {
    tt_zero_optimizer_args a = TT_ZERO_OPTIMIZER_ARGS_INIT;
    a.ddp = ddp.get(), a.user = &make, a.stage = stage;
    a.make = [](const tt_named_tensors *params, void *user) {
        tt_optimizer *made = nullptr;
        tt_ignore(detail::guarded([&] { made = (*static_cast<zero_make *>(user))(params).release(); }));
        return made;
    };
    tt_optimizer *made = nullptr;
    detail::then_rethrow([&] { made = check(detail::call(tt_zero_optimizer_with, a)); });
    return optimizer(made);
}

/* The norm before clipping. Collective. */
inline double zero_clip_grad_norm_(optimizer &o, double max_norm, double norm_type = 2,
                                   bool error_if_nonfinite = false) {
    double total = 0;
    tt_zero_clip_grad_norm_args a = TT_ZERO_CLIP_GRAD_NORM_ARGS_INIT;
    a.optimizer = o.get(), a.max_norm = max_norm, a.norm_type = norm_type, a.error_if_nonfinite = error_if_nonfinite;
    a.total_norm = &total;
    check(detail::call(tt_zero_clip_grad_norm_with, a));
    return total;
}

/* After it the state dict is that of whole parameters on `root`, or on all ranks. Collective. */
inline void zero_consolidate(optimizer &o, int root = TT_ALL_RANKS) { check(tt_zero_consolidate(o.get(), root)); }

/* Each rank its slices / back, in a world of any size. Collective. */
inline void zero_save_sharded(optimizer &o, const std::string &path) {
    check(tt_zero_save_sharded(o.get(), path.c_str()));
}
inline void zero_load_sharded(optimizer &o, const std::string &path) {
    check(tt_zero_load_sharded(o.get(), path.c_str()));
}

} // namespace tutti

#endif
