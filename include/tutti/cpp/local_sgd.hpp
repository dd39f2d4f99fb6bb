/* tutti/cpp/local_sgd.hpp: ranks that step on their own, and average parameters instead of gradients. */
/* Made by tools/wrappers.py of tutti/local_sgd.h and tools/wrappers/local_sgd.hpp.in. */
#ifndef TUTTI_CPP_LOCAL_SGD_HPP
#define TUTTI_CPP_LOCAL_SGD_HPP

#include <tutti/cpp/parallel.hpp>
#include <tutti/local_sgd.h>

namespace tutti {

/* Must be freed on all ranks alike, as tt_model_averager_free(). */
class model_averager {
  public:
    explicit model_averager(tt_model_averager *owned) : averager_(owned) {}
    tt_model_averager *get() const noexcept { return averager_.get(); }
    void step() { check(tt_model_averager_step(get())); }
    void average() { check(tt_model_averager_average(get())); }
    bool is_due() const { return tt_model_averager_is_due(get()); }
    std::int64_t steps() const { return tt_model_averager_steps(get()); }
    const tt_named_tensors *state_dict() { return check(tt_model_averager_state_dict(get())); }
    void load_state_dict(const tt_named_tensors *state) { check(tt_model_averager_load_state_dict(get(), state)); }

  private:
    detail::handle<tt_model_averager, tt_model_averager_free> averager_;
};

inline model_averager periodic_model_averager(const group &g, const tt_named_tensors *params, std::int64_t period,
                                              std::int64_t warmup_steps = 0) {
    tt_model_averager *made = nullptr;
    tt_periodic_model_averager_args a = TT_PERIODIC_MODEL_AVERAGER_ARGS_INIT;
    a.out = &made, a.group = g.get(), a.params = params, a.period = period, a.warmup_steps = warmup_steps;
    check(detail::call(tt_periodic_model_averager_with, a));
    return model_averager(made);
}

/* hierarchical_model_averager(world, model.parameters(), {{4, 8}, {16, 32}}) */
inline model_averager hierarchical_model_averager(const group &g, const tt_named_tensors *params,
                                                  const std::vector<tt_averaging_level> &levels,
                                                  std::int64_t warmup_steps = 0) {
    tt_model_averager *made = nullptr;
    tt_hierarchical_model_averager_args a = TT_HIERARCHICAL_MODEL_AVERAGER_ARGS_INIT;
    a.out = &made, a.group = g.get(), a.params = params, a.levels = levels.data();
    a.count = std::int64_t(levels.size()), a.warmup_steps = warmup_steps;
    check(detail::call(tt_hierarchical_model_averager_with, a));
    return model_averager(made);
}

struct post_local_sgd_options {
    const group *subgroup = nullptr;
    bool no_local_averaging = false;
};

inline model_averager post_local_sgd(module &ddp, std::int64_t start, std::int64_t period,
                                     const post_local_sgd_options &o = {}) {
    tt_model_averager *made = nullptr;
    tt_post_local_sgd_args a = TT_POST_LOCAL_SGD_ARGS_INIT;
    a.out = &made, a.ddp = ddp.get(), a.start = start, a.period = period;
    a.subgroup = o.subgroup ? o.subgroup->get() : nullptr, a.no_local_averaging = o.no_local_averaging;
    check(detail::call(tt_post_local_sgd_with, a));
    return model_averager(made);
}

inline model_averager diloco(const group &g, const tt_named_tensors *params, std::int64_t period, double outer_lr,
                             double outer_momentum, tt_dtype send_as = TT_F32) {
    tt_model_averager *made = nullptr;
    tt_diloco_args a = TT_DILOCO_ARGS_INIT;
    a.out = &made, a.group = g.get(), a.params = params, a.period = period, a.outer_lr = outer_lr;
    a.outer_momentum = outer_momentum, a.send_as = send_as;
    check(detail::call(tt_diloco_with, a));
    return model_averager(made);
}

} // namespace tutti

#endif
