/* tutti/cpp/pipeline.hpp: pipelines: a model's stages on several ranks. */
#ifndef TUTTI_CPP_PIPELINE_HPP
#define TUTTI_CPP_PIPELINE_HPP

#include <tutti/cpp/parallel.hpp>
#include <tutti/pipeline.h>

namespace tutti {

struct pipeline_options {
    tt_pipeline_schedule schedule = TT_PIPELINE_1F1B;
    std::int64_t chunks = 0;         /* stages a rank */
    std::vector<std::int64_t> split; /* how many parts each stage has; none: by cost, or alike */
    const tensor *sample = nullptr;  /* on rank 0: a micro-batch to measure the parts with */
    tt_pipeline_loss loss = nullptr;
    void *user = nullptr;
    bool loss_is_sum = false, recompute = false;
    std::uint64_t seed = 0;
    const group *data_group = nullptr;
    std::size_t bucket_cap_bytes = 0;
    bool own_weights = false; /* each rank has loaded its own stages' parameters alone */
};

inline const char *schedule_name(tt_pipeline_schedule schedule) { return tt_pipeline_schedule_name(schedule); }
inline std::int64_t pipeline_part_count(module &model) { return tt_pipeline_part_count(model.get()); }

/* Must be freed on all ranks alike, before its model and group. */
class pipeline {
  public:
    pipeline(const group &g, module &model, std::int64_t micro_batches, const pipeline_options &o = {}) {
        tt_pipeline *made = nullptr;
        tt_pipeline_new_args a = TT_PIPELINE_NEW_ARGS_INIT;
        a.out = &made, a.group = g.get(), a.model = model.get(), a.micro_batches = micro_batches;
        a.schedule = o.schedule, a.chunks = o.chunks;
        a.split = o.split.empty() ? nullptr : o.split.data(), a.split_count = std::int64_t(o.split.size());
        a.sample = o.sample ? o.sample->get() : nullptr;
        a.loss = o.loss, a.user = o.user, a.loss_is_sum = o.loss_is_sum, a.recompute = o.recompute, a.seed = o.seed;
        a.data_group = o.data_group ? o.data_group->get() : nullptr, a.bucket_cap_bytes = o.bucket_cap_bytes;
        a.own_weights = o.own_weights;
        check(detail::call(tt_pipeline_new_with, a));
        owned_.reset(made);
    }

    tt_pipeline *get() const noexcept { return owned_.get(); }

    /* What this rank trains, lent. */
    tt_module *stages() const { return tt_pipeline_module(get()); }

    /* x and target: NULL on ranks that need none. Returns the loss, on the last rank; elsewhere 0. */
    double step(const tensor *x, const tensor *target) {
        double loss = 0;
        tt_pipeline_step_args a = TT_PIPELINE_STEP_ARGS_INIT;
        a.pipeline = get(), a.x = x ? x->get() : nullptr, a.target = target ? target->get() : nullptr;
        a.loss = &loss;
        detail::then_rethrow([&] { check(detail::call(tt_pipeline_step_with, a)); });
        return loss;
    }
    double evaluate(const tensor *x, const tensor *target) {
        double loss = 0;
        tt_pipeline_evaluate_args a = TT_PIPELINE_EVALUATE_ARGS_INIT;
        a.pipeline = get(), a.x = x ? x->get() : nullptr, a.target = target ? target->get() : nullptr;
        a.loss = &loss;
        detail::then_rethrow([&] { check(detail::call(tt_pipeline_evaluate_with, a)); });
        return loss;
    }

    void gather() { check(tt_pipeline_gather(get())); }
    tt_pipeline_times times() {
        tt_pipeline_times t;
        check(tt_pipeline_get_times(get(), &t));
        return t;
    }
    void write_trace(const std::string &path) { check(tt_pipeline_write_trace(get(), path.c_str())); }
    std::int64_t stage_count() const { return tt_pipeline_stage_count(get()); }
    std::int64_t stage_parts(std::int64_t stage) const { return tt_pipeline_stage_parts(get(), stage); }

  private:
    detail::handle<tt_pipeline, tt_pipeline_free> owned_;
};

} // namespace tutti

#endif
