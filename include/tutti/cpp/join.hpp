/* tutti/cpp/join.hpp: data-parallel training on ranks that have different numbers of batches. */
#ifndef TUTTI_CPP_JOIN_HPP
#define TUTTI_CPP_JOIN_HPP

#include <tutti/cpp/parallel.hpp>
#include <tutti/join.h>

#include <functional>
#include <memory>

namespace tutti {

struct join_options {
    bool divide_by_present = false;
    std::int64_t examples = 0;
    bool end_early = false;
    std::function<void()> before_step, after_step; /* of the steps of others, in join::wait() */
};

/* Made, and destroyed, on all ranks alike between steps; before or after the wrapper's end. */
class join {
  public:
    explicit join(module &ddp, join_options o = {}) : options_(std::make_unique<join_options>(std::move(o))) {
        tt_join_new_args a = TT_JOIN_NEW_ARGS_INIT;
        a.ddp = ddp.get();
        a.divide_by_present = options_->divide_by_present, a.examples = options_->examples;
        a.end_early = options_->end_early;
        a.user = options_.get();
        if (options_->before_step)
            a.before_step = [](void *user) { return run(static_cast<join_options *>(user)->before_step); };
        if (options_->after_step)
            a.after_step = [](void *user) { return run(static_cast<join_options *>(user)->after_step); };
        join_.reset(check(detail::call(tt_join_new_with, a)));
    }

    tt_join *get() const noexcept { return join_.get(); }
    void set_examples(std::int64_t examples) { check(tt_join_set_examples(get(), examples)); }
    void wait() {
        detail::then_rethrow([&] { check(tt_join_wait(get())); });
    }
    std::int64_t steps() const { return tt_join_steps(get()); }

  private:
    static tt_status run(const std::function<void()> &step) {
        return detail::guarded([&] { step(); });
    }
    struct end {
        void operator()(tt_join *j) const noexcept { tt_join_free(j); }
    };
    std::unique_ptr<join_options> options_;
    std::unique_ptr<tt_join, end> join_;
};

} // namespace tutti

#endif
