/* tutti/cpp/job.hpp: what a process tells those who watch its job. */
#ifndef TUTTI_CPP_JOB_HPP
#define TUTTI_CPP_JOB_HPP

#include <tutti/cpp/base.hpp>
#include <tutti/job.h>

namespace tutti {

/* ---- what people see of a training run */

struct publish_progress_options {
    std::int64_t steps = 0;
    std::int64_t epoch = 0;
    std::int64_t epochs = 0;
    std::int64_t samples = 0;
};

inline void publish_progress(std::int64_t step, double loss, const publish_progress_options &o = {}) {
    tt_publish_progress_args a = TT_PUBLISH_PROGRESS_ARGS_INIT;
    a.step = step, a.loss = loss, a.steps = o.steps, a.epoch = o.epoch, a.epochs = o.epochs, a.samples = o.samples;
    detail::call(tt_publish_progress_with, a);
}

/* ---- timers for what may hang */

/* expires timer(60000, "validation"); the launcher ends this process if that lives longer. */
class expires {
  public:
    explicit expires(std::int64_t after_ms, const char *name = nullptr, site where = site::here()) {
        tt_expires_args a = TT_EXPIRES_ARGS_INIT;
        a.out = &timer_, a.after_ms = after_ms, a.name = name, a.file = where.file, a.line = where.line;
        check(detail::call(tt_expires_with, a));
    }
    ~expires() { tt_expires_end(timer_); }
    expires(const expires &) = delete;
    expires &operator=(const expires &) = delete;

  private:
    int timer_ = 0;
};

} // namespace tutti

#endif
