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
inline tensor operator+(const tensor &a, const tensor &b) { return add(a, b); }
inline tensor operator-(const tensor &a, const tensor &b) { return sub(a, b); }
inline tensor operator*(const tensor &a, const tensor &b) { return mul(a, b); }
inline tensor operator*(const tensor &x, double factor) { return scale(x, factor); }
inline tensor operator*(double factor, const tensor &x) { return scale(x, factor); }
inline tensor mean(const tensor &x) { return tensor(tt_mean(x.get())); }
inline tensor sum(const tensor &x) { return tensor(tt_sum(x.get())); }
inline tensor matmul(const tensor &a, const tensor &b) { return tensor(tt_matmul(a.get(), b.get())); }
inline tensor bmm(const tensor &a, const tensor &b) { return tensor(tt_bmm(a.get(), b.get())); }
inline tensor relu(const tensor &x) { return tensor(tt_relu(x.get())); }
inline tensor log_softmax(const tensor &x, int dim) { return tensor(tt_log_softmax(x.get(), dim)); }
inline tensor linear(const tensor &x, const tensor &weight) {
    return tensor(tt_linear(x.get(), weight.get(), nullptr));
}
inline tensor linear(const tensor &x, const tensor &weight, const tensor &bias) {
    return tensor(tt_linear(x.get(), weight.get(), bias.get()));
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

inline tensor cat(const tensor_list &x, int dim = 0) { return tensor(tt_cat(x.data(), x.size(), dim)); }
inline tensor stack(const tensor_list &x, int dim = 0) { return tensor(tt_stack(x.data(), x.size(), dim)); }
inline tensor index_select(const tensor &x, int dim, const tensor &index) {
    return tensor(tt_index_select(x.get(), dim, index.get()));
}
inline tensor gather_dim(const tensor &x, int dim, const tensor &index) {
    return tensor(tt_gather_dim(x.get(), dim, index.get()));
}
inline tensor scatter_dim(const tensor &x, int dim, const tensor &index, const tensor &src) {
    return tensor(tt_scatter_dim(x.get(), dim, index.get(), src.get()));
}
inline tensor scatter_dim(const tensor &x, int dim, const tensor &index, double value) {
    return tensor(tt_scatter_value(x.get(), dim, index.get(), value));
}
inline tensor scatter_add(const tensor &x, int dim, const tensor &index, const tensor &src) {
    return tensor(tt_scatter_add(x.get(), dim, index.get(), src.get()));
}
inline tensor embedding(const tensor &weight, const tensor &indices) {
    tt_embedding_args args = TT_EMBEDDING_ARGS_INIT;
    args.weight = weight.get(), args.indices = indices.get();
    return tensor(tt_embedding_with(&args, offsetof(tt_embedding_args, tt_end)));
}
inline tensor embedding(const tensor &weight, const tensor &indices, std::int64_t padding_idx) {
    tt_embedding_args args = TT_EMBEDDING_ARGS_INIT;
    args.weight = weight.get(), args.indices = indices.get(), args.padding_idx = &padding_idx;
    return tensor(tt_embedding_with(&args, offsetof(tt_embedding_args, tt_end)));
}

inline tensor triu(const tensor &x, std::int64_t diagonal = 0) { return tensor(tt_triu(x.get(), diagonal)); }
inline tensor tril(const tensor &x, std::int64_t diagonal = 0) { return tensor(tt_tril(x.get(), diagonal)); }
inline tensor cumsum(const tensor &x, int dim) { return tensor(tt_cumsum(x.get(), dim)); }

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
    tt_argsort_args args = TT_ARGSORT_ARGS_INIT;
    args.x = x.get(), args.dim = dim, args.descending = descending;
    return tensor(tt_argsort_with(&args, offsetof(tt_argsort_args, tt_end)));
}
inline tensor interpolate(const tensor &x, tt_shape size, tt_interpolate_mode mode = TT_NEAREST,
                          bool align_corners = false) {
    tt_interpolate_args args = TT_INTERPOLATE_ARGS_INIT;
    args.x = x.get(), args.size = size, args.mode = mode, args.align_corners = align_corners;
    return tensor(tt_interpolate_with(&args, offsetof(tt_interpolate_args, tt_end)));
}
struct attention_options {
    tensor_ref attn_mask = nullptr;
    bool is_causal = false;
    double scale = 0;
};
inline tensor scaled_dot_product_attention(const tensor &q, const tensor &k, const tensor &v,
                                           const attention_options &o = {}) {
    tt_scaled_dot_product_attention_args args = TT_SCALED_DOT_PRODUCT_ATTENTION_ARGS_INIT;
    args.q = q.get(), args.k = k.get(), args.v = v.get();
    args.attn_mask = o.attn_mask.get(), args.is_causal = o.is_causal, args.scale = o.scale;
    return tensor(tt_scaled_dot_product_attention_with(&args, offsetof(tt_scaled_dot_product_attention_args, tt_end)));
}

} // namespace tutti

#endif
