/* tutti/cpp/amp.hpp: training in mixed precision. */
#ifndef TUTTI_CPP_AMP_HPP
#define TUTTI_CPP_AMP_HPP

#include <tutti/amp.h>
#include <tutti/cpp/optim.hpp>

namespace tutti {

struct grad_scaler_options {
    double growth_factor = 2;
    double backoff_factor = 0.5;
    std::int64_t growth_interval = 2000;
    bool disabled = false;
};

class grad_scaler {
  public:
    explicit grad_scaler(double init_scale = 65536, const grad_scaler_options &o = {}) {
        tt_grad_scaler_new_args a = TT_GRAD_SCALER_NEW_ARGS_INIT;
        a.init_scale = init_scale, a.growth_factor = o.growth_factor, a.backoff_factor = o.backoff_factor;
        a.growth_interval = o.growth_interval, a.disabled = o.disabled;
        scaler_.reset(check(detail::call(tt_grad_scaler_new_with, a)));
    }
    explicit grad_scaler(tt_grad_scaler *owned) : scaler_(check(owned)) {}
    tt_grad_scaler *get() const noexcept { return scaler_.get(); }

    /* Of a disabled one: the loss, lent. */
    tensor scale(const tensor &loss) {
        tt_tensor *scaled = check(tt_grad_scaler_scale(get(), loss.get()));
        return scaled == loss.get() ? tensor::lent(scaled) : tensor(scaled);
    }
    void unscale_(optimizer &o) { check(tt_grad_scaler_unscale_(get(), o.get())); }
    void step(optimizer &o) { check(tt_grad_scaler_step(get(), o.get())); }
    bool found_inf(const optimizer &o) const { return tt_grad_scaler_found_inf(get(), o.get()); }
    void update() { check(tt_grad_scaler_update(get())); }
    void update(double new_scale) { check(tt_grad_scaler_update_to(get(), new_scale)); }
    double get_scale() const { return tt_grad_scaler_get_scale(get()); }
    bool is_enabled() const { return tt_grad_scaler_is_enabled(get()); }
    const tt_named_tensors *state_dict() { return check(tt_grad_scaler_state_dict(get())); }
    void load_state_dict(const tt_named_tensors *state) { check(tt_grad_scaler_load_state_dict(get(), state)); }

  private:
    detail::handle<tt_grad_scaler, tt_grad_scaler_free> scaler_;
};

struct amp_options {
    tt_opt_level opt_level = TT_O1;
    tt_dtype dtype = TT_BF16;
};

/* Set a model and its optimizer up. The scaler that comes back is disabled where none is needed. */
inline grad_scaler amp_initialize(module &model, optimizer &opt, const amp_options &o = {}) {
    tt_grad_scaler *made = nullptr;
    tt_amp_initialize_args a = TT_AMP_INITIALIZE_ARGS_INIT;
    a.model = model.get(), a.optimizer = opt.get(), a.opt_level = o.opt_level, a.dtype = o.dtype, a.scaler = &made;
    check(detail::call(tt_amp_initialize_with, a));
    return grad_scaler(made);
}

} // namespace tutti

#endif
