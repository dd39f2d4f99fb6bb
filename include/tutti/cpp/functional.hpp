/* tutti/cpp/functional.hpp: operators with gradients. */
#ifndef TUTTI_CPP_FUNCTIONAL_HPP
#define TUTTI_CPP_FUNCTIONAL_HPP

#include <tutti/cpp/tensor.hpp>
#include <tutti/functional.h>

#include <array>

namespace tutti {

/* One number for both dimensions, or {along H, along W}. */
class pair_hw {
  public:
    pair_hw() = default;
    pair_hw(std::int64_t both) : both_(both) {}
    pair_hw(std::int64_t h, std::int64_t w) : hw_{h, w} {}
    void put(std::int64_t &both, std::int64_t (&hw)[2]) const noexcept {
        both = both_;
        hw[0] = hw_[0], hw[1] = hw_[1];
    }

  private:
    std::int64_t both_ = 0;
    std::array<std::int64_t, 2> hw_ = {};
};

struct conv2d_options {
    pair_hw stride = {}, padding = {}, dilation = {};
    std::int64_t groups = 1;
};

/* Optional tensors may be empty. */
struct conv1d_options {
    tensor_ref bias = nullptr;
    std::int64_t stride = 1, padding = 0, dilation = 1, groups = 1;
};

struct conv_transpose2d_options {
    tensor_ref bias = nullptr;
    pair_hw stride = {}, padding = {}, output_padding = {}, dilation = {};
    std::int64_t groups = 1;
};

struct max_pool2d_options {
    pair_hw stride = {}, padding = {}, dilation = {};
    bool ceil_mode = false;
};

struct avg_pool2d_options {
    pair_hw stride = {}, padding = {};
    bool ceil_mode = false, exclude_padding = false;
    std::int64_t divisor_override = 0;
};

/* Optional tensors may be empty. */
struct batch_norm_options {
    tensor_ref running_mean = nullptr, running_var = nullptr, weight = nullptr, bias = nullptr;
    bool training = false;
    double momentum = 0.1, eps = 1e-5;
};

struct norm_options {
    tensor_ref weight = nullptr, bias = nullptr;
    double eps = 0; /* 0: the operator's default */
};

namespace detail {

/* Fill the args of an operator, or of its module. */
template <class Args> Args max_pool2d_args(const pair_hw &kernel_size, const max_pool2d_options &o) {
    Args a = TT_ARGS_INIT;
    kernel_size.put(a.kernel_size, a.kernel_size_hw);
    o.stride.put(a.stride, a.stride_hw);
    o.padding.put(a.padding, a.padding_hw);
    o.dilation.put(a.dilation, a.dilation_hw);
    a.ceil_mode = o.ceil_mode;
    return a;
}
template <class Args> Args avg_pool2d_args(const pair_hw &kernel_size, const avg_pool2d_options &o) {
    Args a = TT_ARGS_INIT;
    kernel_size.put(a.kernel_size, a.kernel_size_hw);
    o.stride.put(a.stride, a.stride_hw);
    o.padding.put(a.padding, a.padding_hw);
    a.ceil_mode = o.ceil_mode, a.exclude_padding = o.exclude_padding, a.divisor_override = o.divisor_override;
    return a;
}

} // namespace detail

inline tensor add(const tensor &a, const tensor &b) { return tensor(tt_add(a.get(), b.get())); }
inline tensor sub(const tensor &a, const tensor &b) { return tensor(tt_sub(a.get(), b.get())); }
inline tensor mul(const tensor &a, const tensor &b) { return tensor(tt_mul(a.get(), b.get())); }
inline tensor scale(const tensor &x, double factor) { return tensor(tt_scale(x.get(), factor)); }
inline tensor operator+(const tensor &a, const tensor &b) { return add(a, b); }
inline tensor operator-(const tensor &a, const tensor &b) { return sub(a, b); }
inline tensor operator*(const tensor &a, const tensor &b) { return mul(a, b); }
inline tensor operator*(const tensor &x, double factor) { return scale(x, factor); }
inline tensor operator*(double factor, const tensor &x) { return scale(x, factor); }
inline tensor mean(const tensor &x) { return tensor(tt_mean(x.get())); }
inline tensor sum(const tensor &x) { return tensor(tt_sum(x.get())); }
inline tensor matmul(const tensor &a, const tensor &b) { return tensor(tt_matmul(a.get(), b.get())); }
inline tensor relu(const tensor &x) { return tensor(tt_relu(x.get())); }
inline tensor log_softmax(const tensor &x, int dim) { return tensor(tt_log_softmax(x.get(), dim)); }
inline tensor linear(const tensor &x, const tensor &weight) {
    return tensor(tt_linear(x.get(), weight.get(), nullptr));
}
inline tensor linear(const tensor &x, const tensor &weight, const tensor &bias) {
    return tensor(tt_linear(x.get(), weight.get(), bias.get()));
}
inline tensor conv2d(const tensor &x, const tensor &weight, tt_tensor *bias, const conv2d_options &o) {
    tt_conv2d_args a = TT_CONV2D_ARGS_INIT;
    a.x = x.get(), a.weight = weight.get(), a.bias = bias, a.groups = o.groups;
    o.stride.put(a.stride, a.stride_hw);
    o.padding.put(a.padding, a.padding_hw);
    o.dilation.put(a.dilation, a.dilation_hw);
    return tensor(detail::call(tt_conv2d_with, a));
}
inline tensor conv2d(const tensor &x, const tensor &weight, const conv2d_options &o = {}) {
    return conv2d(x, weight, nullptr, o);
}
inline tensor conv2d(const tensor &x, const tensor &weight, const tensor &bias, const conv2d_options &o = {}) {
    return conv2d(x, weight, bias.get(), o);
}
inline tensor conv1d(const tensor &x, const tensor &weight, const conv1d_options &o = {}) {
    tt_conv1d_args a = TT_CONV1D_ARGS_INIT;
    a.x = x.get(), a.weight = weight.get(), a.bias = o.bias.get();
    a.stride = o.stride, a.padding = o.padding, a.dilation = o.dilation, a.groups = o.groups;
    return tensor(detail::call(tt_conv1d_with, a));
}
inline tensor conv_transpose2d(const tensor &x, const tensor &weight, const conv_transpose2d_options &o = {}) {
    tt_conv_transpose2d_args a = TT_CONV_TRANSPOSE2D_ARGS_INIT;
    a.x = x.get(), a.weight = weight.get(), a.bias = o.bias.get(), a.groups = o.groups;
    o.stride.put(a.stride, a.stride_hw);
    o.padding.put(a.padding, a.padding_hw);
    o.output_padding.put(a.output_padding, a.output_padding_hw);
    o.dilation.put(a.dilation, a.dilation_hw);
    return tensor(detail::call(tt_conv_transpose2d_with, a));
}
inline tensor max_pool2d(const tensor &x, const pair_hw &kernel_size, const max_pool2d_options &o = {}) {
    tt_max_pool2d_args a = detail::max_pool2d_args<tt_max_pool2d_args>(kernel_size, o);
    a.x = x.get();
    return tensor(detail::call(tt_max_pool2d_with, a));
}
inline tensor avg_pool2d(const tensor &x, const pair_hw &kernel_size, const avg_pool2d_options &o = {}) {
    tt_avg_pool2d_args a = detail::avg_pool2d_args<tt_avg_pool2d_args>(kernel_size, o);
    a.x = x.get();
    return tensor(detail::call(tt_avg_pool2d_with, a));
}
inline tensor adaptive_avg_pool2d(const tensor &x, std::int64_t height, std::int64_t width) {
    return tensor(tt_adaptive_avg_pool2d(x.get(), height, width));
}
inline tensor batch_norm(const tensor &x, const batch_norm_options &o = {}) {
    tt_batch_norm_args a = TT_BATCH_NORM_ARGS_INIT;
    a.x = x.get(), a.running_mean = o.running_mean.get(), a.running_var = o.running_var.get();
    a.weight = o.weight.get(), a.bias = o.bias.get();
    a.training = o.training, a.momentum = o.momentum, a.eps = o.eps;
    return tensor(detail::call(tt_batch_norm_with, a));
}
inline tensor layer_norm(const tensor &x, tt_shape normalized_shape, const norm_options &o = {}) {
    tt_layer_norm_args a = TT_LAYER_NORM_ARGS_INIT;
    a.x = x.get(), a.normalized_shape = normalized_shape;
    a.weight = o.weight.get(), a.bias = o.bias.get(), a.eps = o.eps;
    return tensor(detail::call(tt_layer_norm_with, a));
}
inline tensor rms_norm(const tensor &x, tt_shape normalized_shape, const norm_options &o = {}) {
    tt_rms_norm_args a = TT_RMS_NORM_ARGS_INIT;
    a.x = x.get(), a.normalized_shape = normalized_shape, a.weight = o.weight.get(), a.eps = o.eps;
    return tensor(detail::call(tt_rms_norm_with, a));
}
inline tensor group_norm(const tensor &x, std::int64_t num_groups, const norm_options &o = {}) {
    tt_group_norm_args a = TT_GROUP_NORM_ARGS_INIT;
    a.x = x.get(), a.num_groups = num_groups;
    a.weight = o.weight.get(), a.bias = o.bias.get(), a.eps = o.eps;
    return tensor(detail::call(tt_group_norm_with, a));
}
inline tensor nll_loss(const tensor &log_prob, const tensor &target) {
    return tensor(tt_nll_loss(log_prob.get(), target.get()));
}
inline tensor cross_entropy(const tensor &logits, const tensor &target) {
    return tensor(tt_cross_entropy(logits.get(), target.get()));
}
inline tensor mse_loss(const tensor &input, const tensor &target) {
    return tensor(tt_mse_loss(input.get(), target.get()));
}

} // namespace tutti

#endif
