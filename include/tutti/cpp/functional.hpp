/* tutti/cpp/functional.hpp: operators with gradients. */
#ifndef TUTTI_CPP_FUNCTIONAL_HPP
#define TUTTI_CPP_FUNCTIONAL_HPP

#include <tutti/cpp/tensor.hpp>
#include <tutti/functional.h>

namespace tutti {

inline tensor add(const tensor &a, const tensor &b) { return tensor(tt_add(a.get(), b.get())); }
inline tensor sub(const tensor &a, const tensor &b) { return tensor(tt_sub(a.get(), b.get())); }
inline tensor mul(const tensor &a, const tensor &b) { return tensor(tt_mul(a.get(), b.get())); }
inline tensor scale(const tensor &x, double factor) { return tensor(tt_scale(x.get(), factor)); }
inline tensor div(const tensor &a, const tensor &b) { return tensor(tt_div(a.get(), b.get())); }
inline tensor maximum(const tensor &a, const tensor &b) { return tensor(tt_maximum(a.get(), b.get())); }
inline tensor minimum(const tensor &a, const tensor &b) { return tensor(tt_minimum(a.get(), b.get())); }
inline tensor add_scalar(const tensor &x, double number) { return tensor(tt_add_scalar(x.get(), number)); }
inline tensor pow(const tensor &x, double exponent) { return tensor(tt_pow(x.get(), exponent)); }
inline tensor exp(const tensor &x) { return tensor(tt_exp(x.get())); }
inline tensor log(const tensor &x) { return tensor(tt_log(x.get())); }
inline tensor sqrt(const tensor &x) { return tensor(tt_sqrt(x.get())); }
inline tensor abs(const tensor &x) { return tensor(tt_abs(x.get())); }
inline tensor neg(const tensor &x) { return tensor(tt_neg(x.get())); }
inline tensor reciprocal(const tensor &x) { return tensor(tt_reciprocal(x.get())); }
inline tensor clamp(const tensor &x, double min, double max) { return tensor(tt_clamp(x.get(), min, max)); }
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

/* What all reductions have: the tensor and its dimensions. */
template <class Args> Args reduction(Args a, const tensor &x, const reduction_options &o) {
    a.x = x.get(), a.dim = o.dim, a.keepdim = o.keepdim;
    return a;
}

template <class Call> std::pair<tensor, tensor> extreme(Call function, const tensor &x, int dim, bool keepdim) {
    tt_tensor *indices = nullptr;
    tt_max_args a = reduction(tt_max_args TT_MAX_ARGS_INIT, x, {dims(dim), keepdim});
    a.indices = &indices;
    tensor values(call(function, a));
    return {std::move(values), tensor(indices)};
}

} // namespace detail

/* sum(x), sum(x, {dims(0, -1), true}). */
inline tensor sum(const tensor &x, const reduction_options &o = {}) {
    return tensor(detail::call(tt_sum_with, detail::reduction(tt_sum_args TT_SUM_ARGS_INIT, x, o)));
}
inline tensor mean(const tensor &x, const reduction_options &o = {}) {
    return tensor(detail::call(tt_mean_with, detail::reduction(tt_sum_args TT_SUM_ARGS_INIT, x, o)));
}
inline tensor var(const tensor &x, double correction = 1, const reduction_options &o = {}) {
    tt_var_args a = detail::reduction(tt_var_args TT_VAR_ARGS_INIT, x, o);
    a.correction = correction;
    return tensor(detail::call(tt_var_with, a));
}
inline tensor norm(const tensor &x, double p = 2, const reduction_options &o = {}) {
    tt_norm_args a = detail::reduction(tt_norm_args TT_NORM_ARGS_INIT, x, o);
    a.p = p;
    return tensor(detail::call(tt_norm_with, a));
}
inline tensor max(const tensor &x) {
    return tensor(detail::call(tt_max_with, detail::reduction(tt_max_args TT_MAX_ARGS_INIT, x, {})));
}
inline tensor min(const tensor &x) {
    return tensor(detail::call(tt_min_with, detail::reduction(tt_max_args TT_MAX_ARGS_INIT, x, {})));
}
/* Values and indices along a dimension. */
inline std::pair<tensor, tensor> max(const tensor &x, int dim, bool keepdim = false) {
    return detail::extreme(tt_max_with, x, dim, keepdim);
}
inline std::pair<tensor, tensor> min(const tensor &x, int dim, bool keepdim = false) {
    return detail::extreme(tt_min_with, x, dim, keepdim);
}

inline tensor matmul(const tensor &a, const tensor &b) { return tensor(tt_matmul(a.get(), b.get())); }

/* In place: these change x, and give it back. */
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
inline tensor dropout(const tensor &x, double p = 0.5, bool training = true, tt_generator *generator = nullptr) {
    tt_dropout_args a = TT_DROPOUT_ARGS_INIT;
    a.x = x.get(), a.p = p, a.training = training, a.generator = generator;
    return tensor::made_of(detail::call(tt_dropout_with, a), x.get());
}
inline tensor relu(const tensor &x) { return tensor(tt_relu(x.get())); }
inline tensor leaky_relu(const tensor &x, double negative_slope = 0.01) {
    return tensor(tt_leaky_relu(x.get(), negative_slope));
}
inline tensor sigmoid(const tensor &x) { return tensor(tt_sigmoid(x.get())); }
inline tensor silu(const tensor &x) { return tensor(tt_silu(x.get())); }
inline tensor tanh(const tensor &x) { return tensor(tt_tanh(x.get())); }
struct gelu_options {
    bool tanh = false;
};
inline tensor gelu(const tensor &x, const gelu_options &o = {}) {
    tt_gelu_args a = TT_GELU_ARGS_INIT;
    a.x = x.get(), a.tanh = o.tanh;
    return tensor(detail::call(tt_gelu_with, a));
}
inline tensor softmax(const tensor &x, int dim) { return tensor(tt_softmax(x.get(), dim)); }
inline tensor log_softmax(const tensor &x, int dim) { return tensor(tt_log_softmax(x.get(), dim)); }
inline tensor linear(const tensor &x, const tensor &weight) {
    return tensor(tt_linear(x.get(), weight.get(), nullptr));
}
inline tensor linear(const tensor &x, const tensor &weight, const tensor &bias) {
    return tensor(tt_linear(x.get(), weight.get(), bias.get()));
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
    a.log_prob = log_prob.get(), a.target = target.get(), a.weight = o.weight.get(), a.reduction = o.reduction;
    a.ignore_index = {true, o.ignore_index};
    return tensor(detail::call(tt_nll_loss_with, a));
}
inline tensor cross_entropy(const tensor &logits, const tensor &target, const class_loss_options &o = {}) {
    tt_cross_entropy_args a = TT_CROSS_ENTROPY_ARGS_INIT;
    a.logits = logits.get(), a.target = target.get(), a.weight = o.weight.get(), a.reduction = o.reduction;
    a.ignore_index = {true, o.ignore_index}, a.label_smoothing = o.label_smoothing;
    return tensor(detail::call(tt_cross_entropy_with, a));
}

namespace detail {

/* What all losses of two tensors have. */
template <class Args> Args loss(Args a, const tensor &input, const tensor &target, tt_reduction reduction) {
    a.input = input.get(), a.target = target.get(), a.reduction = reduction;
    return a;
}

} // namespace detail

inline tensor mse_loss(const tensor &input, const tensor &target, tt_reduction reduction = TT_REDUCTION_MEAN) {
    return tensor(detail::call(tt_mse_loss_with,
                               detail::loss(tt_mse_loss_args TT_MSE_LOSS_ARGS_INIT, input, target, reduction)));
}
inline tensor l1_loss(const tensor &input, const tensor &target, tt_reduction reduction = TT_REDUCTION_MEAN) {
    return tensor(detail::call(tt_l1_loss_with,
                               detail::loss(tt_l1_loss_args TT_L1_LOSS_ARGS_INIT, input, target, reduction)));
}
inline tensor smooth_l1_loss(const tensor &input, const tensor &target, double beta = 1,
                             tt_reduction reduction = TT_REDUCTION_MEAN) {
    auto a = detail::loss(tt_smooth_l1_loss_args TT_SMOOTH_L1_LOSS_ARGS_INIT, input, target, reduction);
    a.beta = beta;
    return tensor(detail::call(tt_smooth_l1_loss_with, a));
}
struct logit_loss_options {
    tensor_ref weight = nullptr, pos_weight = nullptr;
    tt_reduction reduction = TT_REDUCTION_MEAN;
};
inline tensor binary_cross_entropy_with_logits(const tensor &input, const tensor &target,
                                               const logit_loss_options &o = {}) {
    using args = tt_binary_cross_entropy_with_logits_args;
    auto a = detail::loss(args TT_BINARY_CROSS_ENTROPY_WITH_LOGITS_ARGS_INIT, input, target, o.reduction);
    a.weight = o.weight.get(), a.pos_weight = o.pos_weight.get();
    return tensor(detail::call(tt_binary_cross_entropy_with_logits_with, a));
}
inline tensor kl_div(const tensor &input, const tensor &target, tt_reduction reduction = TT_REDUCTION_MEAN,
                     bool log_target = false) {
    auto a = detail::loss(tt_kl_div_args TT_KL_DIV_ARGS_INIT, input, target, reduction);
    a.log_target = log_target;
    return tensor(detail::call(tt_kl_div_with, a));
}

} // namespace tutti

#endif
