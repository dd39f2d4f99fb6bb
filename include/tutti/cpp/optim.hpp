/* tutti/cpp/optim.hpp: optimizers, whose arithmetic is PyTorch's. */
#ifndef TUTTI_CPP_OPTIM_HPP
#define TUTTI_CPP_OPTIM_HPP

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

struct adadelta_options {
    double rho = 0.9;
    double eps = 1e-6;
    double weight_decay = 0;
    bool maximize = false;
};

class optimizer {
  public:
    explicit optimizer(tt_optimizer *owned) : optimizer_(check(owned)) {}
    tt_optimizer *get() const noexcept { return optimizer_.get(); }
    void step() { check(tt_optimizer_step(get())); }
    void zero_grad() { tt_optimizer_zero_grad(get()); }
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
    a.params = params, a.lr = lr, a.momentum = o.momentum, a.dampening = o.dampening;
    a.weight_decay = o.weight_decay, a.nesterov = o.nesterov, a.maximize = o.maximize;
    return optimizer(detail::call(tt_sgd_with, a));
}

namespace detail {
template <class Args, class Make>
optimizer adam_kind(Make make, const tt_named_tensors *params, double lr, double weight_decay, const adam_options &o) {
    Args a = {};
    a.params = params, a.lr = lr, a.beta1 = o.beta1, a.beta2 = o.beta2, a.eps = o.eps;
    a.weight_decay = weight_decay, a.amsgrad = o.amsgrad, a.maximize = o.maximize;
    return optimizer(call(make, a));
}
} // namespace detail

inline optimizer adam(const tt_named_tensors *params, double lr, const adam_options &o = {}) {
    return detail::adam_kind<tt_adam_args>(tt_adam_with, params, lr, o.weight_decay, o);
}
inline optimizer adamw(const tt_named_tensors *params, double lr, double weight_decay, const adam_options &o = {}) {
    return detail::adam_kind<tt_adamw_args>(tt_adamw_with, params, lr, weight_decay, o);
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
inline optimizer adadelta(const tt_named_tensors *params, double lr, const adadelta_options &o = {}) {
    tt_adadelta_args a = TT_ADADELTA_ARGS_INIT;
    a.params = params, a.lr = lr, a.rho = o.rho, a.eps = o.eps, a.weight_decay = o.weight_decay;
    a.maximize = o.maximize;
    return optimizer(detail::call(tt_adadelta_with, a));
}

} // namespace tutti

#endif
