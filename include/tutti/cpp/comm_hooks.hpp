/* tutti/cpp/comm_hooks.hpp: communication hooks, which send fewer bytes than averaging gradients as they are. */
/* Made by tools/wrappers.py of tutti/comm_hooks.h and tools/wrappers/comm_hooks.hpp.in. */
#ifndef TUTTI_CPP_COMM_HOOKS_HPP
#define TUTTI_CPP_COMM_HOOKS_HPP

#include <tutti/comm_hooks.h>
#include <tutti/cpp/parallel.hpp>

namespace tutti {

inline void all_reduce_hook(module &ddp) { check(tt_all_reduce_hook(ddp.get())); }
inline void f16_hook(module &ddp) { check(tt_f16_hook(ddp.get())); }
inline void bf16_hook(module &ddp) { check(tt_bf16_hook(ddp.get())); }

struct int8_hook_options {
    std::int64_t block = 0;
    bool no_error_feedback = false;
};

inline void int8_hook(module &ddp, const int8_hook_options &o = {}) {
    tt_int8_hook_args a = TT_INT8_HOOK_ARGS_INIT;
    a.ddp = ddp.get(), a.block = o.block, a.no_error_feedback = o.no_error_feedback;
    check(detail::call(tt_int8_hook_with, a));
}

struct top_k_hook_options {
    double density = 0;
    bool no_error_feedback = false;
};

inline void top_k_hook(module &ddp, const top_k_hook_options &o = {}) {
    tt_top_k_hook_args a = TT_TOP_K_HOOK_ARGS_INIT;
    a.ddp = ddp.get(), a.density = o.density, a.no_error_feedback = o.no_error_feedback;
    check(detail::call(tt_top_k_hook_with, a));
}

struct powersgd_hook_options {
    int rank = 0;
    std::int64_t start = 0;
    double min_compression_rate = 0;
    bool no_error_feedback = false, no_warm_start = false;
    double orthogonalization_epsilon = 0;
    std::uint32_t seed = 0;
};
inline void powersgd_hook(module &ddp, const powersgd_hook_options &o = {}) {
    tt_powersgd_hook_args a = TT_POWERSGD_HOOK_ARGS_INIT;
    a.ddp = ddp.get(), a.rank = o.rank, a.start = o.start, a.min_compression_rate = o.min_compression_rate;
    a.no_error_feedback = o.no_error_feedback, a.no_warm_start = o.no_warm_start;
    a.orthogonalization_epsilon = o.orthogonalization_epsilon, a.seed = o.seed;
    check(detail::call(tt_powersgd_hook_with, a));
}

/* Good until the next call, or the hook's end. */
inline const tt_named_tensors *comm_hook_state_dict(module &ddp) { return check(tt_comm_hook_state_dict(ddp.get())); }
inline void comm_hook_load_state_dict(module &ddp, const tt_named_tensors *state) {
    check(tt_comm_hook_load_state_dict(ddp.get(), state));
}

} // namespace tutti

#endif
