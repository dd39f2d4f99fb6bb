/* tutti/cpp/optim.hpp: optimizers, whose arithmetic is PyTorch's, and schedulers of their learning rates. */
/* Made by tools/wrappers.py of tutti/optim.h and tools/wrappers/optim.hpp.in. */
#ifndef TUTTI_CPP_OPTIM_HPP
#define TUTTI_CPP_OPTIM_HPP

#include <cmath>
#include <tutti/cpp/nn.hpp>
#include <tutti/optim.h>

namespace tutti {

/* ---- optimizers */

struct sgd_options {
    double momentum = 0;
    double dampening = 0;
    double weight_decay = 0;
    bool nesterov = false;
    bool maximize = false;
};

struct adam_options {
    double beta1 = 0.9;
    double beta2 = 0.999;
    double eps = 1e-8;
    double weight_decay = 0; /* not of adamw, where it is an argument */
    bool amsgrad = false;
    bool maximize = false;
};

struct rmsprop_options {
    double alpha = 0.99;
    double eps = 1e-8;
    double weight_decay = 0;
    double momentum = 0;
    bool centered = false;
    bool maximize = false;
};

struct adagrad_options {
    double lr_decay = 0;
    double weight_decay = 0;
    double initial_accumulator_value = 0;
    double eps = 1e-10;
    bool maximize = false;
};

struct sparse_adam_options {
    double beta1 = 0.9;
    double beta2 = 0.999;
    double eps = 1e-8;
    bool maximize = false;
};

struct adadelta_options {
    double rho = 0.9;
    double eps = 1e-6;
    double weight_decay = 0;
    bool maximize = false;
};

struct lamb_options {
    double beta1 = 0.9;
    double beta2 = 0.999;
    double eps = 1e-6;
    double max_grad_norm = 1;
    bool bias_correction = true;
    bool grad_averaging = true;
    bool adam_w_mode = true;
    bool use_nvlamb = false;
    bool maximize = false;
};

class optimizer {
  public:
    explicit optimizer(tt_optimizer *owned) : optimizer_(check(owned)) {}
    tt_optimizer *get() const noexcept { return optimizer_.get(); }
    tt_optimizer *release() noexcept { return optimizer_.release(); } /* the caller is to free it */
    void step() { check(tt_optimizer_step(get())); }
    void zero_grad() { tt_optimizer_zero_grad(get()); }
    const tt_named_tensors *master_params() { return check(tt_optimizer_master_params(get())); }
    double option(const std::string &name, std::int64_t group = 0) const {
        double value = 0;
        check(tt_optimizer_get_option(get(), group, name.c_str(), &value));
        return value;
    }
    void set_option(const std::string &name, double value, std::int64_t group = TT_ALL_GROUPS) {
        check(tt_optimizer_set_option(get(), group, name.c_str(), value));
    }
    /* Names of options, the same for all groups. */
    std::vector<std::string> options() const {
        std::vector<std::string> names;
        while (const char *name = tt_optimizer_option_name(get(), std::int64_t(names.size())))
            names.push_back(name);
        return names;
    }
    std::int64_t group_count() const { return tt_optimizer_group_count(get()); }

    /* add_param_group(head.parameters(), {{"lr", 0.1}}): the options that differ from those the optimizer was made
     * with. */
    void add_param_group(const tt_named_tensors *params,
                         const std::vector<std::pair<std::string, double>> &options = {}) {
        std::vector<tt_option> list;
        for (const auto &[name, value] : options)
            list.push_back({name.c_str(), value});
        list.push_back({nullptr, 0});
        tt_optimizer_add_param_group_args a = TT_OPTIMIZER_ADD_PARAM_GROUP_ARGS_INIT;
        a.optimizer = get(), a.params = params, a.options = list.data();
        check(detail::call(tt_optimizer_add_param_group_with, a));
    }
    const tt_named_tensors *state_dict() { return check(tt_optimizer_state_dict(get())); }
    void load_state_dict(const tt_named_tensors *state) { check(tt_optimizer_load_state_dict(get(), state)); }

  private:
    detail::handle<tt_optimizer, tt_optimizer_free> optimizer_;
};

inline optimizer sgd(const tt_named_tensors *params, double lr, const sgd_options &o = {}) {
    tt_sgd_args a = TT_SGD_ARGS_INIT;
    a.params = params, a.lr = lr, a.momentum = o.momentum, a.dampening = o.dampening, a.weight_decay = o.weight_decay;
    a.nesterov = o.nesterov, a.maximize = o.maximize;
    return optimizer(detail::call(tt_sgd_with, a));
}

inline optimizer adam(const tt_named_tensors *params, double lr, const adam_options &o = {}) {
    tt_adam_args a = TT_ADAM_ARGS_INIT;
    a.params = params, a.lr = lr, a.beta1 = o.beta1, a.beta2 = o.beta2, a.eps = o.eps;
    a.weight_decay = o.weight_decay, a.amsgrad = o.amsgrad, a.maximize = o.maximize;
    return optimizer(detail::call(tt_adam_with, a));
}
inline optimizer adamw(const tt_named_tensors *params, double lr, double weight_decay, const adam_options &o = {}) {
    tt_adamw_args a = TT_ADAMW_ARGS_INIT;
    a.params = params, a.lr = lr, a.weight_decay = weight_decay, a.beta1 = o.beta1, a.beta2 = o.beta2, a.eps = o.eps;
    a.amsgrad = o.amsgrad, a.maximize = o.maximize;
    return optimizer(detail::call(tt_adamw_with, a));
}
inline optimizer rmsprop(const tt_named_tensors *params, double lr, const rmsprop_options &o = {}) {
    tt_rmsprop_args a = TT_RMSPROP_ARGS_INIT;
    a.params = params, a.lr = lr, a.alpha = o.alpha, a.eps = o.eps, a.weight_decay = o.weight_decay;
    a.momentum = o.momentum, a.centered = o.centered, a.maximize = o.maximize;
    return optimizer(detail::call(tt_rmsprop_with, a));
}
inline optimizer adagrad(const tt_named_tensors *params, double lr, const adagrad_options &o = {}) {
    tt_adagrad_args a = TT_ADAGRAD_ARGS_INIT;
    a.params = params, a.lr = lr, a.lr_decay = o.lr_decay, a.weight_decay = o.weight_decay;
    a.initial_accumulator_value = o.initial_accumulator_value, a.eps = o.eps, a.maximize = o.maximize;
    return optimizer(detail::call(tt_adagrad_with, a));
}
inline optimizer sparse_adam(const tt_named_tensors *params, double lr, const sparse_adam_options &o = {}) {
    tt_sparse_adam_args a = TT_SPARSE_ADAM_ARGS_INIT;
    a.params = params, a.lr = lr, a.beta1 = o.beta1, a.beta2 = o.beta2, a.eps = o.eps, a.maximize = o.maximize;
    return optimizer(detail::call(tt_sparse_adam_with, a));
}
inline optimizer adadelta(const tt_named_tensors *params, double lr, const adadelta_options &o = {}) {
    tt_adadelta_args a = TT_ADADELTA_ARGS_INIT;
    a.params = params, a.lr = lr, a.rho = o.rho, a.eps = o.eps, a.weight_decay = o.weight_decay;
    a.maximize = o.maximize;
    return optimizer(detail::call(tt_adadelta_with, a));
}
inline optimizer lamb(const tt_named_tensors *params, double lr, double weight_decay, const lamb_options &o = {}) {
    tt_lamb_args a = TT_LAMB_ARGS_INIT;
    a.params = params, a.lr = lr, a.weight_decay = weight_decay, a.beta1 = o.beta1, a.beta2 = o.beta2, a.eps = o.eps;
    a.max_grad_norm = o.max_grad_norm, a.no_bias_correction = !o.bias_correction;
    a.no_grad_averaging = !o.grad_averaging, a.no_adam_w_mode = !o.adam_w_mode, a.use_nvlamb = o.use_nvlamb;
    a.maximize = o.maximize;
    return optimizer(detail::call(tt_lamb_with, a));
}

/* ---- gradient clipping */

/* Returns the norm before clipping. norm_type may be INFINITY. */
inline double clip_grad_norm_(const tt_named_tensors *params, double max_norm, double norm_type = 2,
                              bool error_if_nonfinite = false) {
    double total = 0;
    tt_clip_grad_norm_args a = TT_CLIP_GRAD_NORM_ARGS_INIT;
    a.params = params, a.max_norm = max_norm, a.norm_type = norm_type, a.error_if_nonfinite = error_if_nonfinite;
    a.total_norm = &total;
    check(detail::call(tt_clip_grad_norm_with, a));
    return total;
}
inline void clip_grad_value_(const tt_named_tensors *params, double clip_value) {
    check(tt_clip_grad_value_(params, clip_value));
}

/* ---- averages of parameters */

/* The tensors are kept until it goes. */
class ema {
  public:
    ema(const tt_named_tensors *params, double decay, bool warm_up = false) {
        tt_ema_new_args a = TT_EMA_NEW_ARGS_INIT;
        a.params = params, a.decay = decay, a.warm_up = warm_up;
        ema_.reset(check(detail::call(tt_ema_new_with, a)));
    }
    tt_ema *get() const noexcept { return ema_.get(); }
    void update() { check(tt_ema_update(get())); }
    void store() { check(tt_ema_store(get())); }
    void copy_to() { check(tt_ema_copy_to(get())); }
    void restore() { check(tt_ema_restore(get())); }
    const tt_named_tensors *state_dict() { return check(tt_ema_state_dict(get())); }
    void load_state_dict(const tt_named_tensors *state) { check(tt_ema_load_state_dict(get(), state)); }

  private:
    detail::handle<tt_ema, tt_ema_free> ema_;
};

/* ---- learning-rate schedulers */

/* The optimizer must outlive it. */
class lr_scheduler {
  public:
    explicit lr_scheduler(tt_lr_scheduler *owned) : scheduler_(check(owned)) {}
    tt_lr_scheduler *get() const noexcept { return scheduler_.get(); }
    void step() { check(tt_lr_scheduler_step(get())); }
    void step(double metric) { check(tt_lr_scheduler_step_metric(get(), metric)); }
    double last_lr(std::int64_t group = 0) const {
        double lr = 0;
        check(tt_lr_scheduler_last_lr(get(), group, &lr));
        return lr;
    }
    std::int64_t last_epoch() const { return tt_lr_scheduler_last_epoch(get()); }
    const tt_named_tensors *state_dict() { return check(tt_lr_scheduler_state_dict(get())); }
    void load_state_dict(const tt_named_tensors *state) { check(tt_lr_scheduler_load_state_dict(get(), state)); }

  private:
    friend lr_scheduler lambda_lr(optimizer &, std::function<double(std::int64_t, std::int64_t)>);
    friend lr_scheduler sequential_lr(std::vector<lr_scheduler>, const std::vector<std::int64_t> &);
    friend lr_scheduler chained_scheduler(std::vector<lr_scheduler>);
    /* Give them up to C, and what they keep alive to `kept`. */
    static std::vector<tt_lr_scheduler *> released(std::vector<lr_scheduler> &all,
                                                   std::vector<std::shared_ptr<void>> &kept) {
        std::vector<tt_lr_scheduler *> list;
        list.reserve(all.size());
        for (lr_scheduler &s : all)
            kept.insert(kept.end(), s.kept_.begin(), s.kept_.end());
        for (lr_scheduler &s : all)
            list.push_back(s.scheduler_.release());
        return list;
    }

    std::vector<std::shared_ptr<void>> kept_; /* functions that C calls; ends after the scheduler */
    detail::handle<tt_lr_scheduler, tt_lr_scheduler_free> scheduler_;
};

inline lr_scheduler step_lr(optimizer &o, std::int64_t step_size, double gamma = 0.1) {
    tt_step_lr_args a = TT_STEP_LR_ARGS_INIT;
    a.optimizer = o.get(), a.step_size = step_size, a.gamma = gamma;
    return lr_scheduler(detail::call(tt_step_lr_with, a));
}
inline lr_scheduler multi_step_lr(optimizer &o, const std::vector<std::int64_t> &milestones, double gamma = 0.1) {
    tt_multi_step_lr_args a = TT_MULTI_STEP_LR_ARGS_INIT;
    a.optimizer = o.get(), a.milestones = milestones.data(), a.count = std::int64_t(milestones.size());
    a.gamma = gamma;
    return lr_scheduler(detail::call(tt_multi_step_lr_with, a));
}
inline lr_scheduler exponential_lr(optimizer &o, double gamma) {
    return lr_scheduler(tt_exponential_lr(o.get(), gamma));
}
inline lr_scheduler constant_lr(optimizer &o, double factor = 1.0 / 3, std::int64_t total_iters = 5) {
    return lr_scheduler(tt_constant_lr(o.get(), factor, total_iters));
}
inline lr_scheduler linear_lr(optimizer &o, double start_factor = 1.0 / 3, double end_factor = 1,
                              std::int64_t total_iters = 5) {
    return lr_scheduler(tt_linear_lr(o.get(), start_factor, end_factor, total_iters));
}
inline lr_scheduler cosine_annealing_lr(optimizer &o, std::int64_t T_max, double eta_min = 0) {
    tt_cosine_annealing_lr_args a = TT_COSINE_ANNEALING_LR_ARGS_INIT;
    a.optimizer = o.get(), a.T_max = T_max, a.eta_min = eta_min;
    return lr_scheduler(detail::call(tt_cosine_annealing_lr_with, a));
}
inline lr_scheduler cosine_annealing_warm_restarts(optimizer &o, std::int64_t T_0, std::int64_t T_mult = 1,
                                                   double eta_min = 0) {
    tt_cosine_annealing_warm_restarts_args a = TT_COSINE_ANNEALING_WARM_RESTARTS_ARGS_INIT;
    a.optimizer = o.get(), a.T_0 = T_0, a.T_mult = T_mult, a.eta_min = eta_min;
    return lr_scheduler(detail::call(tt_cosine_annealing_warm_restarts_with, a));
}

struct one_cycle_options {
    double pct_start = 0.3;
    bool anneal_linear = false;
    bool cycle_momentum = true;
    double base_momentum = 0.85;
    double max_momentum = 0.95;
    double div_factor = 25;
    double final_div_factor = 1e4;
    bool three_phase = false;
};

inline lr_scheduler one_cycle_lr(optimizer &o, double max_lr, std::int64_t total_steps,
                                 const one_cycle_options &options = {}) {
    tt_one_cycle_lr_args a = TT_ONE_CYCLE_LR_ARGS_INIT;
    a.optimizer = o.get(), a.max_lr = max_lr, a.total_steps = total_steps, a.pct_start = options.pct_start;
    a.anneal_linear = options.anneal_linear, a.no_cycle_momentum = !options.cycle_momentum;
    a.base_momentum = options.base_momentum, a.max_momentum = options.max_momentum, a.div_factor = options.div_factor;
    a.final_div_factor = options.final_div_factor, a.three_phase = options.three_phase;
    return lr_scheduler(detail::call(tt_one_cycle_lr_with, a));
}

/* What it throws is an error of the step. */
inline lr_scheduler lambda_lr(optimizer &o, std::function<double(std::int64_t epoch, std::int64_t group)> lambda) {
    using function = std::function<double(std::int64_t, std::int64_t)>;
    auto kept = std::make_shared<function>(std::move(lambda));
    tt_lr_lambda call = [](std::int64_t epoch, std::int64_t group, void *user) {
        double factor = NAN;
        tt_ignore(detail::guarded([&] { factor = (*static_cast<function *>(user))(epoch, group); }));
        return factor;
    };
    lr_scheduler made(tt_lambda_lr(o.get(), call, kept.get()));
    made.kept_.push_back(kept);
    return made;
}

inline lr_scheduler sequential_lr(std::vector<lr_scheduler> schedulers, const std::vector<std::int64_t> &milestones) {
    if (milestones.size() + 1 != schedulers.size())
        check(tt_fail(TT_ERR_INVALID, "sequential_lr: expected a milestone less than the %zu schedulers, got %zu",
                      schedulers.size(), milestones.size()));
    std::vector<std::shared_ptr<void>> kept;
    std::vector<tt_lr_scheduler *> list = lr_scheduler::released(schedulers, kept);
    lr_scheduler made(tt_sequential_lr(list.data(), std::int64_t(list.size()), milestones.data()));
    made.kept_ = std::move(kept);
    return made;
}
inline lr_scheduler chained_scheduler(std::vector<lr_scheduler> schedulers) {
    std::vector<std::shared_ptr<void>> kept;
    std::vector<tt_lr_scheduler *> list = lr_scheduler::released(schedulers, kept);
    lr_scheduler made(tt_chained_scheduler(list.data(), std::int64_t(list.size())));
    made.kept_ = std::move(kept);
    return made;
}

struct plateau_options {
    bool mode_max = false;
    double factor = 0.1;
    double threshold = 1e-4;
    bool threshold_abs = false;
    std::int64_t cooldown = 0;
    double min_lr = 0;
    double eps = 1e-8;
};

inline lr_scheduler reduce_lr_on_plateau(optimizer &o, std::int64_t patience = 10,
                                         const plateau_options &options = {}) {
    tt_reduce_lr_on_plateau_args a = TT_REDUCE_LR_ON_PLATEAU_ARGS_INIT;
    a.optimizer = o.get(), a.patience = patience, a.mode_max = options.mode_max, a.factor = options.factor;
    a.threshold = options.threshold, a.threshold_abs = options.threshold_abs, a.cooldown = options.cooldown;
    a.min_lr = options.min_lr, a.eps = options.eps;
    return lr_scheduler(detail::call(tt_reduce_lr_on_plateau_with, a));
}

} // namespace tutti

#endif
