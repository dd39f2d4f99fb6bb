/* tutti/cpp/metrics.hpp: a training run's numbers on disk. */
#ifndef TUTTI_CPP_METRICS_HPP
#define TUTTI_CPP_METRICS_HPP

#include <tutti/cpp/base.hpp>
#include <tutti/metrics.h>

namespace tutti {

struct summary_writer_options {
    bool no_events = false;
    bool no_csv = false;
};

class summary_writer {
  public:
    explicit summary_writer(const std::string &log_dir, const summary_writer_options &o = {})
        : writer_(check(open(log_dir, o))) {}
    tt_summary_writer *get() const noexcept { return writer_.get(); }
    void add_scalar(const std::string &tag, double value, std::int64_t step) {
        check(tt_summary_writer_add_scalar(get(), tag.c_str(), value, step));
    }
    void add_text(const std::string &tag, const std::string &text, std::int64_t step) {
        check(tt_summary_writer_add_text(get(), tag.c_str(), text.c_str(), step));
    }
    void add_histogram(const std::string &tag, const float *values, std::int64_t count, std::int64_t step) {
        check(tt_summary_writer_add_histogram(get(), tag.c_str(), values, count, TT_F32, step));
    }
    void add_histogram(const std::string &tag, const double *values, std::int64_t count, std::int64_t step) {
        check(tt_summary_writer_add_histogram(get(), tag.c_str(), values, count, TT_F64, step));
    }
    void purge(std::int64_t step) { check(tt_summary_writer_purge(get(), step)); }
    void flush() { check(tt_summary_writer_flush(get())); }
    std::string log_dir() const { return tt_summary_writer_log_dir(get()); }

  private:
    static tt_summary_writer *open(const std::string &log_dir, const summary_writer_options &o) {
        tt_summary_writer_new_args a = TT_SUMMARY_WRITER_NEW_ARGS_INIT;
        a.log_dir = log_dir.c_str(), a.no_events = o.no_events, a.no_csv = o.no_csv;
        return detail::call(tt_summary_writer_new_with, a);
    }
    detail::handle<tt_summary_writer, tt_summary_writer_free> writer_;
};

} // namespace tutti

#endif
