/* tutti/cpp/trainer.hpp: the loop that most training programs write. */
#ifndef TUTTI_CPP_TRAINER_HPP
#define TUTTI_CPP_TRAINER_HPP

#include <tutti/cpp/amp.hpp>
#include <tutti/cpp/checkpoint.hpp>
#include <tutti/cpp/comm.hpp>
#include <tutti/cpp/data.hpp>
#include <tutti/cpp/elastic_training.hpp>
#include <tutti/cpp/local_sgd.hpp>
#include <tutti/cpp/metrics.hpp>
#include <tutti/trainer.h>

namespace tutti {

/* A run under way, lent to the program's functions. */
class trainer {
  public:
    explicit trainer(tt_trainer *lent) : trainer_(lent) {}
    tt_trainer *get() const noexcept { return trainer_; }
    tutti::module model() const { return module::lent(tt_trainer_model(get())); }
    std::int64_t epoch() const { return tt_trainer_epoch(get()); }
    std::int64_t steps() const { return tt_trainer_steps(get()); }
    bool evaluating() const { return tt_trainer_evaluating(get()); }
    void stop() { tt_trainer_stop(get()); }
    void add_metric(const std::string &name, double value, std::int64_t examples) {
        check(tt_trainer_add_metric(get(), name.c_str(), value, examples));
    }

  private:
    tt_trainer *trainer_;
};

/* The mean loss of a batch; what it throws ends the run. */
using trainer_step = std::function<tensor(trainer &, const batch &)>;
/* What it throws is dropped. */
using trainer_display = std::function<void(const tt_trainer_report &)>;

/* Sets a communication hook on the wrapper; what it throws ends the run. */
using trainer_comm_hook = std::function<void(module &)>;

/* As tt_trainer_run_args; what is pointed to is borrowed. */
struct trainer_options {
    tt_group *group = nullptr;
    tutti::elastic *elastic = nullptr;
    tutti::sampler *sampler = nullptr;
    std::int64_t epochs = 0, max_steps = 0, accumulate = 0;
    int virtual_ranks = 0;
    std::size_t bucket_cap_bytes = 0;
    double clip_norm = 0, clip_value = 0;
    std::uint64_t step_seed = 0;
    tt_dtype autocast = TT_F32;
    grad_scaler *scaler = nullptr;
    bool allow_nonfinite = false;
    tt_lr_scheduler *scheduler = nullptr;
    tt_trainer_when scheduler_when = TT_TRAINER_EACH_EPOCH;
    tt_ema *ema = nullptr;
    model_averager *averager = nullptr;
    trainer_comm_hook comm_hook = {};
    loader *eval_loader = nullptr;
    trainer_step eval = {};
    std::int64_t eval_every = 0, eval_every_steps = 0;
    std::string monitor = {};
    bool monitor_max = false;
    std::int64_t patience = 0;
    std::string checkpoint = {};
    std::int64_t save_every = 0, save_every_steps = 0, keep = 0;
    std::string best_checkpoint = {}, resume = {};
    bool stop_on_signals = false;
    bool graph = false;
    summary_writer *metrics = nullptr;
    std::int64_t log_every = 0;
    trainer_display display = {};
};

namespace detail {

struct trainer_calls {
    trainer_step step, eval;
    trainer_display display;
    trainer_comm_hook comm_hook;

    static tt_tensor *run(const trainer_step &call, tt_trainer *t, const tt_batch *b) {
        tt_tensor *loss = nullptr;
        tt_status status = guarded([&] {
            in_scope_of_c scope;
            trainer now(t);
            batch lent{tensor::lent(b->x), tensor::lent(b->y), b->size, b->indices};
            loss = call(now, lent).hand_over();
        });
        return status ? nullptr : loss;
    }
    static tt_tensor *on_step(tt_trainer *t, const tt_batch *b, void *user) {
        return run(static_cast<trainer_calls *>(user)->step, t, b);
    }
    static tt_tensor *on_eval(tt_trainer *t, const tt_batch *b, void *user) {
        return run(static_cast<trainer_calls *>(user)->eval, t, b);
    }
    static tt_status on_comm_hook(tt_module *ddp, void *user) {
        return guarded([&] {
            module lent = module::lent(ddp);
            static_cast<trainer_calls *>(user)->comm_hook(lent);
        });
    }
};

inline const char *text_or_null(const std::string &text) { return text.empty() ? nullptr : text.c_str(); }

} // namespace detail

/* Show reports on a FILE *: {.display = trainer_console(stdout)}. */
inline trainer_display trainer_console(std::FILE *file) {
    return [file](const tt_trainer_report &report) { tt_trainer_console(&report, file); };
}

inline tt_trainer_result trainer_run(module &model, optimizer &opt, loader &batches, trainer_step step,
                                     const trainer_options &o) {
    detail::trainer_calls calls{std::move(step), o.eval, o.display, o.comm_hook};
    tt_trainer_result result = {};
    tt_trainer_run_args a = TT_TRAINER_RUN_ARGS_INIT;
    a.model = model.get(), a.optimizer = opt.get(), a.loader = batches.get();
    a.step = detail::trainer_calls::on_step, a.user = &calls, a.result = &result;
    a.group = o.group, a.elastic = o.elastic ? o.elastic->get() : nullptr;
    a.sampler = o.sampler ? o.sampler->get() : nullptr;
    a.epochs = o.epochs, a.max_steps = o.max_steps, a.accumulate = o.accumulate;
    a.virtual_ranks = o.virtual_ranks, a.bucket_cap_bytes = o.bucket_cap_bytes;
    a.clip_norm = o.clip_norm, a.clip_value = o.clip_value, a.step_seed = o.step_seed;
    a.autocast = o.autocast, a.scaler = o.scaler ? o.scaler->get() : nullptr;
    a.allow_nonfinite = o.allow_nonfinite;
    a.scheduler = o.scheduler, a.scheduler_when = o.scheduler_when, a.ema = o.ema;
    a.averager = o.averager ? o.averager->get() : nullptr;
    a.comm_hook = o.comm_hook ? detail::trainer_calls::on_comm_hook : nullptr;
    a.eval_loader = o.eval_loader ? o.eval_loader->get() : nullptr;
    a.eval = o.eval ? detail::trainer_calls::on_eval : nullptr;
    a.eval_every = o.eval_every, a.eval_every_steps = o.eval_every_steps;
    a.monitor = detail::text_or_null(o.monitor), a.monitor_max = o.monitor_max, a.patience = o.patience;
    a.checkpoint = detail::text_or_null(o.checkpoint), a.save_every = o.save_every;
    a.save_every_steps = o.save_every_steps, a.keep = o.keep;
    a.best_checkpoint = detail::text_or_null(o.best_checkpoint), a.resume = detail::text_or_null(o.resume);
    a.stop_on_signals = o.stop_on_signals, a.graph = o.graph;
    a.metrics = o.metrics ? o.metrics->get() : nullptr, a.log_every = o.log_every;
    if (o.display) {
        a.display = [](const tt_trainer_report *report, void *user) {
            try {
                (*static_cast<const trainer_display *>(user))(*report);
            } catch (...) { /* a display does not end the training */
            }
        };
        a.display_user = &calls.display;
    }
    check(detail::call(tt_trainer_run_with, a));
    return result;
}

} // namespace tutti

#endif
