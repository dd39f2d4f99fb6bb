/* tutti/cpp/functional.hpp: operators with gradients. */
/* Made by tools/wrappers.py of tutti/functional.h and tools/wrappers/functional.hpp.in. */
#ifndef TUTTI_CPP_FUNCTIONAL_HPP
#define TUTTI_CPP_FUNCTIONAL_HPP

#include <tutti/cpp/tensor.hpp>
#include <tutti/functional.h>

#include <array>
#include <optional>

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
    pair_hw stride = {};
    pair_hw padding = {};
    pair_hw dilation = {};
    std::int64_t groups = 1;
};

/* Optional tensors may be empty. */
struct conv1d_options {
    tensor_ref bias = nullptr;
    std::int64_t stride = 1;
    std::int64_t padding = 0;
    std::int64_t dilation = 1;
    std::int64_t groups = 1;
};

struct conv_transpose2d_options {
    tensor_ref bias = nullptr;
    pair_hw stride = {};
    pair_hw padding = {};
    pair_hw output_padding = {};
    pair_hw dilation = {};
    std::int64_t groups = 1;
};

struct max_pool2d_options {
    pair_hw stride = {};
    pair_hw padding = {};
    pair_hw dilation = {};
    bool ceil_mode = false;
};

struct avg_pool2d_options {
    pair_hw stride = {};
    pair_hw padding = {};
    bool ceil_mode = false;
    bool exclude_padding = false;
    std::int64_t divisor_override = 0;
};

/* Optional tensors may be empty. */
struct batch_norm_options {
    tensor_ref running_mean = nullptr;
    tensor_ref running_var = nullptr;
    tensor_ref weight = nullptr;
    tensor_ref bias = nullptr;
    bool training = false;
    double momentum = 0.1;
    double eps = 1e-5;
};

struct norm_options {
    tensor_ref weight = nullptr;
    tensor_ref bias = nullptr;
    double eps = 0; /* 0: the operator's default */
};

/* Those that are as in C; what ends in _ changes x, and gives it back. */
inline tensor add(const tensor &a, const tensor &b) { return tensor(tt_add(a.get(), b.get())); }
inline tensor sub(const tensor &a, const tensor &b) { return tensor(tt_sub(a.get(), b.get())); }
inline tensor mul(const tensor &a, const tensor &b) { return tensor(tt_mul(a.get(), b.get())); }
inline tensor div(const tensor &a, const tensor &b) { return tensor(tt_div(a.get(), b.get())); }
inline tensor maximum(const tensor &a, const tensor &b) { return tensor(tt_maximum(a.get(), b.get())); }
inline tensor minimum(const tensor &a, const tensor &b) { return tensor(tt_minimum(a.get(), b.get())); }
inline tensor scale(const tensor &x, double factor) { return tensor(tt_scale(x.get(), factor)); }
inline tensor add_scalar(const tensor &x, double number) { return tensor(tt_add_scalar(x.get(), number)); }
inline tensor pow(const tensor &x, double exponent) { return tensor(tt_pow(x.get(), exponent)); }
inline tensor exp(const tensor &x) { return tensor(tt_exp(x.get())); }
inline tensor log(const tensor &x) { return tensor(tt_log(x.get())); }
inline tensor log1p(const tensor &x) { return tensor(tt_log1p(x.get())); }
inline tensor sqrt(const tensor &x) { return tensor(tt_sqrt(x.get())); }
inline tensor abs(const tensor &x) { return tensor(tt_abs(x.get())); }
inline tensor neg(const tensor &x) { return tensor(tt_neg(x.get())); }
inline tensor reciprocal(const tensor &x) { return tensor(tt_reciprocal(x.get())); }
inline tensor clamp(const tensor &x, double min, double max) { return tensor(tt_clamp(x.get(), min, max)); }
inline tensor &add_(tensor &x, const tensor &b) { return check(tt_add_(x.get(), b.get())), x; }
inline tensor &sub_(tensor &x, const tensor &b) { return check(tt_sub_(x.get(), b.get())), x; }
inline tensor &mul_(tensor &x, const tensor &b) { return check(tt_mul_(x.get(), b.get())), x; }
inline tensor &div_(tensor &x, const tensor &b) { return check(tt_div_(x.get(), b.get())), x; }
inline tensor &scale_(tensor &x, double factor) { return check(tt_scale_(x.get(), factor)), x; }
inline tensor &relu_(tensor &x) { return check(tt_relu_(x.get())), x; }
inline tensor &fill_(tensor &x, double value) { return check(tt_fill_(x.get(), value)), x; }
inline tensor &zero_(tensor &x) { return check(tt_zero_(x.get())), x; }
inline tensor where(const tensor &condition, const tensor &a, const tensor &b) {
    return tensor(tt_where(condition.get(), a.get(), b.get()));
}
inline tensor masked_fill(const tensor &x, const tensor &mask, double value) {
    return tensor(tt_masked_fill(x.get(), mask.get(), value));
}
inline tensor matmul(const tensor &a, const tensor &b) { return tensor(tt_matmul(a.get(), b.get())); }
inline tensor bmm(const tensor &a, const tensor &b) { return tensor(tt_bmm(a.get(), b.get())); }
inline tensor index_select(const tensor &x, int dim, const tensor &index) {
    return tensor(tt_index_select(x.get(), dim, index.get()));
}
inline tensor gather_dim(const tensor &x, int dim, const tensor &index) {
    return tensor(tt_gather_dim(x.get(), dim, index.get()));
}
inline tensor scatter_add(const tensor &x, int dim, const tensor &index, const tensor &src) {
    return tensor(tt_scatter_add(x.get(), dim, index.get(), src.get()));
}
inline tensor cumsum(const tensor &x, int dim) { return tensor(tt_cumsum(x.get(), dim)); }
inline tensor relu(const tensor &x) { return tensor(tt_relu(x.get())); }
inline tensor sigmoid(const tensor &x) { return tensor(tt_sigmoid(x.get())); }
inline tensor silu(const tensor &x) { return tensor(tt_silu(x.get())); }
inline tensor tanh(const tensor &x) { return tensor(tt_tanh(x.get())); }
inline tensor adaptive_avg_pool2d(const tensor &x, std::int64_t height, std::int64_t width) {
    return tensor(tt_adaptive_avg_pool2d(x.get(), height, width));
}
inline tensor softmax(const tensor &x, int dim) { return tensor(tt_softmax(x.get(), dim)); }
inline tensor log_softmax(const tensor &x, int dim) { return tensor(tt_log_softmax(x.get(), dim)); }
inline tensor pow(const tensor &a, const tensor &b) { return tensor(tt_pow_tensor(a.get(), b.get())); }
inline tensor operator+(const tensor &a, const tensor &b) { return add(a, b); }
inline tensor operator-(const tensor &a, const tensor &b) { return sub(a, b); }
inline tensor operator*(const tensor &a, const tensor &b) { return mul(a, b); }
inline tensor operator/(const tensor &a, const tensor &b) { return div(a, b); }
inline tensor operator-(const tensor &x) { return neg(x); }
inline tensor operator+(const tensor &x, double number) { return add_scalar(x, number); }
inline tensor operator-(const tensor &x, double number) { return add_scalar(x, -number); }
inline tensor operator*(const tensor &x, double factor) { return scale(x, factor); }
inline tensor operator*(double factor, const tensor &x) { return scale(x, factor); }

namespace detail {

template <class Call> std::pair<tensor, tensor> extreme(Call function, const tensor &x, int dim, bool keepdim) {
    tt_tensor *indices = nullptr;
    tt_max_args a = TT_MAX_ARGS_INIT;
    a.x = x.get(), a.dim = dims(dim), a.keepdim = keepdim, a.indices = &indices;
    tensor values(call(function, a));
    return {std::move(values), tensor(indices)};
}

} // namespace detail

/* sum(x), sum(x, {dims(0, -1), true}). */
inline tensor sum(const tensor &x, const reduction_options &o = {}) {
    tt_sum_args a = TT_SUM_ARGS_INIT;
    a.x = x.get(), a.dim = o.dim, a.keepdim = o.keepdim;
    return tensor(detail::call(tt_sum_with, a));
}
inline tensor mean(const tensor &x, const reduction_options &o = {}) {
    tt_sum_args a = TT_SUM_ARGS_INIT;
    a.x = x.get(), a.dim = o.dim, a.keepdim = o.keepdim;
    return tensor(detail::call(tt_mean_with, a));
}
inline tensor var(const tensor &x, double correction = 1, const reduction_options &o = {}) {
    tt_var_args a = TT_VAR_ARGS_INIT;
    a.x = x.get(), a.correction = correction, a.dim = o.dim, a.keepdim = o.keepdim;
    return tensor(detail::call(tt_var_with, a));
}
inline tensor norm(const tensor &x, double p = 2, const reduction_options &o = {}) {
    tt_norm_args a = TT_NORM_ARGS_INIT;
    a.x = x.get(), a.p = p, a.dim = o.dim, a.keepdim = o.keepdim;
    return tensor(detail::call(tt_norm_with, a));
}
inline tensor amax(const tensor &x, const reduction_options &o = {}) {
    tt_sum_args a = TT_SUM_ARGS_INIT;
    a.x = x.get(), a.dim = o.dim, a.keepdim = o.keepdim;
    return tensor(detail::call(tt_amax_with, a));
}
inline tensor amin(const tensor &x, const reduction_options &o = {}) {
    tt_sum_args a = TT_SUM_ARGS_INIT;
    a.x = x.get(), a.dim = o.dim, a.keepdim = o.keepdim;
    return tensor(detail::call(tt_amin_with, a));
}
inline tensor max(const tensor &x) {
    tt_max_args a = TT_MAX_ARGS_INIT;
    a.x = x.get();
    return tensor(detail::call(tt_max_with, a));
}
inline tensor min(const tensor &x) {
    tt_max_args a = TT_MAX_ARGS_INIT;
    a.x = x.get();
    return tensor(detail::call(tt_min_with, a));
}
/* Values and indices along a dimension. */
inline std::pair<tensor, tensor> max(const tensor &x, int dim, bool keepdim = false) {
    return detail::extreme(tt_max_with, x, dim, keepdim);
}
inline std::pair<tensor, tensor> min(const tensor &x, int dim, bool keepdim = false) {
    return detail::extreme(tt_min_with, x, dim, keepdim);
}

inline tensor dropout(const tensor &x, double p = 0.5, bool training = true, tt_generator *generator = nullptr) {
    tt_dropout_args a = TT_DROPOUT_ARGS_INIT;
    a.x = x.get(), a.p = p, a.training = training, a.generator = generator;
    return tensor::made_of(detail::call(tt_dropout_with, a), x.get());
}
inline tensor leaky_relu(const tensor &x, double negative_slope = 0.01) {
    return tensor(tt_leaky_relu(x.get(), negative_slope));
}
struct gelu_options {
    bool tanh = false;
};

inline tensor gelu(const tensor &x, const gelu_options &o = {}) {
    tt_gelu_args a = TT_GELU_ARGS_INIT;
    a.x = x.get(), a.tanh = o.tanh;
    return tensor(detail::call(tt_gelu_with, a));
}
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
    a.x = x.get(), a.weight = weight.get(), a.bias = o.bias.get(), a.stride = o.stride, a.padding = o.padding;
    a.dilation = o.dilation, a.groups = o.groups;
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
    tt_max_pool2d_args a = TT_MAX_POOL2D_ARGS_INIT;
    a.x = x.get(), a.ceil_mode = o.ceil_mode;
    kernel_size.put(a.kernel_size, a.kernel_size_hw);
    o.stride.put(a.stride, a.stride_hw);
    o.padding.put(a.padding, a.padding_hw);
    o.dilation.put(a.dilation, a.dilation_hw);
    return tensor(detail::call(tt_max_pool2d_with, a));
}
inline tensor avg_pool2d(const tensor &x, const pair_hw &kernel_size, const avg_pool2d_options &o = {}) {
    tt_avg_pool2d_args a = TT_AVG_POOL2D_ARGS_INIT;
    a.x = x.get(), a.ceil_mode = o.ceil_mode, a.exclude_padding = o.exclude_padding;
    a.divisor_override = o.divisor_override;
    kernel_size.put(a.kernel_size, a.kernel_size_hw);
    o.stride.put(a.stride, a.stride_hw);
    o.padding.put(a.padding, a.padding_hw);
    return tensor(detail::call(tt_avg_pool2d_with, a));
}
inline tensor batch_norm(const tensor &x, const batch_norm_options &o = {}) {
    tt_batch_norm_args a = TT_BATCH_NORM_ARGS_INIT;
    a.x = x.get(), a.running_mean = o.running_mean.get(), a.running_var = o.running_var.get();
    a.weight = o.weight.get(), a.bias = o.bias.get(), a.training = o.training, a.momentum = o.momentum, a.eps = o.eps;
    return tensor(detail::call(tt_batch_norm_with, a));
}
inline tensor layer_norm(const tensor &x, size_list normalized_shape, const norm_options &o = {}) {
    tt_layer_norm_args a = TT_LAYER_NORM_ARGS_INIT;
    a.x = x.get(), a.normalized_shape = normalized_shape, a.weight = o.weight.get(), a.bias = o.bias.get();
    a.eps = o.eps;
    return tensor(detail::call(tt_layer_norm_with, a));
}
inline tensor rms_norm(const tensor &x, size_list normalized_shape, const norm_options &o = {}) {
    tt_rms_norm_args a = TT_RMS_NORM_ARGS_INIT;
    a.x = x.get(), a.normalized_shape = normalized_shape, a.weight = o.weight.get(), a.eps = o.eps;
    return tensor(detail::call(tt_rms_norm_with, a));
}
inline tensor group_norm(const tensor &x, std::int64_t num_groups, const norm_options &o = {}) {
    tt_group_norm_args a = TT_GROUP_NORM_ARGS_INIT;
    a.x = x.get(), a.num_groups = num_groups, a.weight = o.weight.get(), a.bias = o.bias.get(), a.eps = o.eps;
    return tensor(detail::call(tt_group_norm_with, a));
}

/* ---- losses */

struct class_loss_options {
    tensor_ref weight = nullptr;
    std::int64_t ignore_index = -100;
    double label_smoothing = 0; /* of cross_entropy() */
    tt_reduction reduction = TT_REDUCTION_MEAN;
};
inline tensor nll_loss(const tensor &log_prob, const tensor &target, const class_loss_options &o = {}) {
    tt_nll_loss_args a = TT_NLL_LOSS_ARGS_INIT;
    a.log_prob = log_prob.get(), a.target = target.get(), a.weight = o.weight.get();
    a.ignore_index = {true, o.ignore_index}, a.reduction = o.reduction;
    return tensor(detail::call(tt_nll_loss_with, a));
}
inline tensor cross_entropy(const tensor &logits, const tensor &target, const class_loss_options &o = {}) {
    tt_cross_entropy_args a = TT_CROSS_ENTROPY_ARGS_INIT;
    a.logits = logits.get(), a.target = target.get(), a.weight = o.weight.get();
    a.ignore_index = {true, o.ignore_index}, a.label_smoothing = o.label_smoothing, a.reduction = o.reduction;
    return tensor(detail::call(tt_cross_entropy_with, a));
}

inline tensor mse_loss(const tensor &input, const tensor &target, tt_reduction reduction = TT_REDUCTION_MEAN) {
    tt_mse_loss_args a = TT_MSE_LOSS_ARGS_INIT;
    a.input = input.get(), a.target = target.get(), a.reduction = reduction;
    return tensor(detail::call(tt_mse_loss_with, a));
}
inline tensor l1_loss(const tensor &input, const tensor &target, tt_reduction reduction = TT_REDUCTION_MEAN) {
    tt_l1_loss_args a = TT_L1_LOSS_ARGS_INIT;
    a.input = input.get(), a.target = target.get(), a.reduction = reduction;
    return tensor(detail::call(tt_l1_loss_with, a));
}
inline tensor smooth_l1_loss(const tensor &input, const tensor &target, double beta = 1,
                             tt_reduction reduction = TT_REDUCTION_MEAN) {
    tt_smooth_l1_loss_args a = TT_SMOOTH_L1_LOSS_ARGS_INIT;
    a.input = input.get(), a.target = target.get(), a.beta = beta, a.reduction = reduction;
    return tensor(detail::call(tt_smooth_l1_loss_with, a));
}
struct logit_loss_options {
    tensor_ref weight = nullptr;
    tensor_ref pos_weight = nullptr;
    tt_reduction reduction = TT_REDUCTION_MEAN;
};

inline tensor binary_cross_entropy_with_logits(const tensor &input, const tensor &target,
                                               const logit_loss_options &o = {}) {
    tt_binary_cross_entropy_with_logits_args a = TT_BINARY_CROSS_ENTROPY_WITH_LOGITS_ARGS_INIT;
    a.input = input.get(), a.target = target.get(), a.weight = o.weight.get(), a.pos_weight = o.pos_weight.get();
    a.reduction = o.reduction;
    return tensor(detail::call(tt_binary_cross_entropy_with_logits_with, a));
}
inline tensor kl_div(const tensor &input, const tensor &target, tt_reduction reduction = TT_REDUCTION_MEAN,
                     bool log_target = false) {
    tt_kl_div_args a = TT_KL_DIV_ARGS_INIT;
    a.input = input.get(), a.target = target.get(), a.reduction = reduction, a.log_target = log_target;
    return tensor(detail::call(tt_kl_div_with, a));
}

inline tensor cat(const tensor_list &x, int dim = 0) { return tensor(tt_cat(x.data(), x.size(), dim)); }
inline tensor stack(const tensor_list &x, int dim = 0) { return tensor(tt_stack(x.data(), x.size(), dim)); }
inline tensor scatter_dim(const tensor &x, int dim, const tensor &index, const tensor &src) {
    return tensor(tt_scatter_dim(x.get(), dim, index.get(), src.get()));
}
inline tensor scatter_dim(const tensor &x, int dim, const tensor &index, double value) {
    return tensor(tt_scatter_value(x.get(), dim, index.get(), value));
}
inline tensor embedding(const tensor &weight, const tensor &indices, std::optional<std::int64_t> padding_idx = {},
                        bool sparse = false) {
    tt_embedding_args a = TT_EMBEDDING_ARGS_INIT;
    a.weight = weight.get(), a.indices = indices.get(), a.padding_idx = padding_idx ? &*padding_idx : nullptr;
    a.sparse = sparse;
    return tensor(detail::call(tt_embedding_with, a));
}

inline tensor triu(const tensor &x, std::int64_t diagonal = 0) { return tensor(tt_triu(x.get(), diagonal)); }
inline tensor tril(const tensor &x, std::int64_t diagonal = 0) { return tensor(tt_tril(x.get(), diagonal)); }

struct values_and_indices {
    tensor values, indices;
};
inline values_and_indices sort(const tensor &x, int dim = -1, bool descending = false) {
    tt_tensor *values = nullptr, *indices = nullptr;
    tt_sort_args args = TT_SORT_ARGS_INIT;
    args.values = &values, args.indices = &indices, args.x = x.get(), args.dim = dim, args.descending = descending;
    check(tt_sort_with(&args, offsetof(tt_sort_args, tt_end)));
    return {tensor(values), tensor(indices)};
}
inline values_and_indices topk(const tensor &x, std::int64_t k, int dim = -1, bool smallest = false) {
    tt_tensor *values = nullptr, *indices = nullptr;
    tt_topk_args args = TT_TOPK_ARGS_INIT;
    args.values = &values, args.indices = &indices, args.x = x.get();
    args.k = k, args.dim = dim, args.smallest = smallest;
    check(tt_topk_with(&args, offsetof(tt_topk_args, tt_end)));
    return {tensor(values), tensor(indices)};
}
inline tensor argsort(const tensor &x, int dim = -1, bool descending = false) {
    tt_argsort_args a = TT_ARGSORT_ARGS_INIT;
    a.x = x.get(), a.dim = dim, a.descending = descending;
    return tensor(detail::call(tt_argsort_with, a));
}
inline tensor interpolate(const tensor &x, size_list size, tt_interpolate_mode mode = TT_NEAREST,
                          bool align_corners = false) {
    tt_interpolate_args a = TT_INTERPOLATE_ARGS_INIT;
    a.x = x.get(), a.size = size, a.mode = mode, a.align_corners = align_corners;
    return tensor(detail::call(tt_interpolate_with, a));
}
struct attention_options {
    tensor_ref attn_mask = nullptr;
    bool is_causal = false;
    double scale = 0;
};

inline tensor scaled_dot_product_attention(const tensor &q, const tensor &k, const tensor &v,
                                           const attention_options &o = {}) {
    tt_scaled_dot_product_attention_args a = TT_SCALED_DOT_PRODUCT_ATTENTION_ARGS_INIT;
    a.q = q.get(), a.k = k.get(), a.v = v.get(), a.attn_mask = o.attn_mask.get(), a.is_causal = o.is_causal;
    a.scale = o.scale;
    return tensor(detail::call(tt_scaled_dot_product_attention_with, a));
}

} // namespace tutti

#endif
