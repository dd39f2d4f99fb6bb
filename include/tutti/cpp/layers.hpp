/* tutti/cpp/layers.hpp: modules with PyTorch's names, parameters and initial values. */
/* Made by tools/wrappers.py of tutti/layers.h and tools/wrappers/layers.hpp.in. */
#ifndef TUTTI_CPP_LAYERS_HPP
#define TUTTI_CPP_LAYERS_HPP

#include <tutti/cpp/nn.hpp>
#include <tutti/layers.h>

#include <optional>

namespace tutti {

struct linear_options {
    bool no_bias = false;
    tt_generator *generator = nullptr;
    tt_dtype dtype = TT_F32;
};

struct embedding_module_options {
    std::optional<std::int64_t> padding_idx = {};
    tt_generator *generator = nullptr;
    tt_dtype dtype = TT_F32;
    bool sparse = false;
};

struct conv1d_module_options {
    std::int64_t stride = 1;
    std::int64_t padding = 0;
    std::int64_t dilation = 1;
    std::int64_t groups = 1;
    bool no_bias = false;
    tt_generator *generator = nullptr;
    tt_dtype dtype = TT_F32;
};

struct conv2d_module_options {
    pair_hw stride = {};
    pair_hw padding = {};
    pair_hw dilation = {};
    std::int64_t groups = 1;
    bool no_bias = false;
    tt_generator *generator = nullptr;
    tt_dtype dtype = TT_F32;
};

struct conv_transpose2d_module_options {
    std::int64_t stride = 1;
    std::int64_t padding = 0;
    std::int64_t output_padding = 0;
    std::int64_t dilation = 1;
    std::int64_t groups = 1;
    bool no_bias = false;
    tt_generator *generator = nullptr;
    tt_dtype dtype = TT_F32;
};

struct rnn_module_options {
    std::int64_t num_layers = 1;
    bool no_bias = false;
    bool batch_first = false;
    double dropout = 0;
    bool bidirectional = false;
    bool relu = false; /* of nn::rnn() only */
    tt_generator *generator = nullptr;
    tt_dtype dtype = TT_F32;
};

struct rnn_cell_module_options {
    bool no_bias = false;
    bool relu = false; /* of nn::rnn_cell() only */
    tt_generator *generator = nullptr;
    tt_dtype dtype = TT_F32;
};

struct multihead_attention_module_options {
    double dropout = 0;
    bool no_bias = false;
    std::int64_t kdim = 0;
    std::int64_t vdim = 0; /* 0: embed_dim */
    bool batch_first = false;
    bool is_causal = false;
    tt_generator *generator = nullptr;
    tt_dtype dtype = TT_F32;
};

struct multihead_attention_options {
    tensor_ref key_padding_mask = nullptr, attn_mask = nullptr;
    bool is_causal = false;
    tensor *weights = nullptr; /* receives them */
};

struct transformer_encoder_layer_options {
    bool gelu = false;
    double layer_norm_eps = 1e-5;
    bool batch_first = false;
    bool norm_first = false;
    bool is_causal = false;
    tt_generator *generator = nullptr;
    tt_dtype dtype = TT_F32;
};

struct transformer_encoder_options {
    tensor_ref mask = nullptr;
    tensor_ref src_key_padding_mask = nullptr;
    bool is_causal = false;
};

struct batch_norm_module_options {
    double momentum = 0.1;
    double eps = 1e-5;
    bool no_affine = false;
    bool no_running_stats = false;
    tt_dtype dtype = TT_F32;
};

struct norm_module_options {
    double eps = 0; /* 0: the layer's default */
    bool no_affine = false;
    bool no_bias = false; /* of a layer_norm */
    tt_dtype dtype = TT_F32;
};

/* The module's forward with masks: see layers.h. */
inline tensor multihead_attention(const module &m, const tensor &query, const tensor &key, const tensor &value,
                                  const multihead_attention_options &o = {}) {
    tt_tensor *weights = nullptr;
    tt_multihead_attention_args a = TT_MULTIHEAD_ATTENTION_ARGS_INIT;
    a.module = m.get(), a.query = query.get(), a.key = key.get(), a.value = value.get();
    a.key_padding_mask = o.key_padding_mask.get(), a.attn_mask = o.attn_mask.get(), a.is_causal = o.is_causal;
    a.weights = o.weights ? &weights : nullptr;
    tensor y(detail::call(tt_multihead_attention_with, a));
    if (o.weights)
        *o.weights = tensor(weights);
    return y;
}

inline tensor transformer_encoder(const module &m, const tensor &src, const transformer_encoder_options &o = {}) {
    tt_transformer_encoder_args a = TT_TRANSFORMER_ENCODER_ARGS_INIT;
    a.module = m.get(), a.src = src.get(), a.mask = o.mask.get();
    a.src_key_padding_mask = o.src_key_padding_mask.get(), a.is_causal = o.is_causal;
    return tensor(detail::call(tt_transformer_encoder_with, a));
}

namespace nn {

inline module linear(std::int64_t in_features, std::int64_t out_features, const linear_options &o = {}) {
    tt_nn_linear_args a = TT_NN_LINEAR_ARGS_INIT;
    a.in_features = in_features, a.out_features = out_features, a.no_bias = o.no_bias, a.generator = o.generator;
    a.dtype = o.dtype;
    return module(detail::call(tt_nn_linear_with, a));
}
inline module embedding(std::int64_t num_embeddings, std::int64_t embedding_dim,
                        const embedding_module_options &o = {}) {
    tt_nn_embedding_args a = TT_NN_EMBEDDING_ARGS_INIT;
    a.num_embeddings = num_embeddings, a.embedding_dim = embedding_dim;
    a.padding_idx = o.padding_idx ? &*o.padding_idx : nullptr, a.generator = o.generator, a.dtype = o.dtype;
    a.sparse = o.sparse;
    return module(detail::call(tt_nn_embedding_with, a));
}
inline module conv1d(std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel_size,
                     const conv1d_module_options &o = {}) {
    tt_nn_conv1d_args a = TT_NN_CONV1D_ARGS_INIT;
    a.in_channels = in_channels, a.out_channels = out_channels, a.kernel_size = kernel_size, a.stride = o.stride;
    a.padding = o.padding, a.dilation = o.dilation, a.groups = o.groups, a.no_bias = o.no_bias;
    a.generator = o.generator, a.dtype = o.dtype;
    return module(detail::call(tt_nn_conv1d_with, a));
}
inline module conv2d(std::int64_t in_channels, std::int64_t out_channels, const pair_hw &kernel_size,
                     const conv2d_module_options &o = {}) {
    tt_nn_conv2d_args a = TT_NN_CONV2D_ARGS_INIT;
    a.in_channels = in_channels, a.out_channels = out_channels, a.groups = o.groups, a.no_bias = o.no_bias;
    a.generator = o.generator, a.dtype = o.dtype;
    kernel_size.put(a.kernel_size, a.kernel_size_hw);
    o.stride.put(a.stride, a.stride_hw);
    o.padding.put(a.padding, a.padding_hw);
    o.dilation.put(a.dilation, a.dilation_hw);
    return module(detail::call(tt_nn_conv2d_with, a));
}
inline module conv_transpose2d(std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel_size,
                               const conv_transpose2d_module_options &o = {}) {
    tt_nn_conv_transpose2d_args a = TT_NN_CONV_TRANSPOSE2D_ARGS_INIT;
    a.in_channels = in_channels, a.out_channels = out_channels, a.kernel_size = kernel_size, a.stride = o.stride;
    a.padding = o.padding, a.output_padding = o.output_padding, a.dilation = o.dilation, a.groups = o.groups;
    a.no_bias = o.no_bias, a.generator = o.generator, a.dtype = o.dtype;
    return module(detail::call(tt_nn_conv_transpose2d_with, a));
}
inline module max_pool2d(const pair_hw &kernel_size, const max_pool2d_options &o = {}) {
    tt_nn_max_pool2d_args a = TT_NN_MAX_POOL2D_ARGS_INIT;
    a.ceil_mode = o.ceil_mode;
    kernel_size.put(a.kernel_size, a.kernel_size_hw);
    o.stride.put(a.stride, a.stride_hw);
    o.padding.put(a.padding, a.padding_hw);
    o.dilation.put(a.dilation, a.dilation_hw);
    return module(detail::call(tt_nn_max_pool2d_with, a));
}
inline module avg_pool2d(const pair_hw &kernel_size, const avg_pool2d_options &o = {}) {
    tt_nn_avg_pool2d_args a = TT_NN_AVG_POOL2D_ARGS_INIT;
    a.ceil_mode = o.ceil_mode, a.exclude_padding = o.exclude_padding, a.divisor_override = o.divisor_override;
    kernel_size.put(a.kernel_size, a.kernel_size_hw);
    o.stride.put(a.stride, a.stride_hw);
    o.padding.put(a.padding, a.padding_hw);
    return module(detail::call(tt_nn_avg_pool2d_with, a));
}
inline module adaptive_avg_pool2d(std::int64_t height, std::int64_t width) {
    return module(tt_nn_adaptive_avg_pool2d(height, width));
}
inline module batch_norm1d(std::int64_t num_features, const batch_norm_module_options &o = {}) {
    tt_nn_batch_norm2d_args a = TT_NN_BATCH_NORM2D_ARGS_INIT;
    a.num_features = num_features, a.momentum = o.momentum, a.eps = o.eps, a.no_affine = o.no_affine;
    a.no_running_stats = o.no_running_stats, a.dtype = o.dtype;
    return module(detail::call(tt_nn_batch_norm1d_with, a));
}
inline module batch_norm2d(std::int64_t num_features, const batch_norm_module_options &o = {}) {
    tt_nn_batch_norm2d_args a = TT_NN_BATCH_NORM2D_ARGS_INIT;
    a.num_features = num_features, a.momentum = o.momentum, a.eps = o.eps, a.no_affine = o.no_affine;
    a.no_running_stats = o.no_running_stats, a.dtype = o.dtype;
    return module(detail::call(tt_nn_batch_norm2d_with, a));
}
inline module layer_norm(size_list normalized_shape, const norm_module_options &o = {}) {
    tt_nn_layer_norm_args a = TT_NN_LAYER_NORM_ARGS_INIT;
    a.normalized_shape = normalized_shape, a.eps = o.eps, a.no_affine = o.no_affine, a.no_bias = o.no_bias;
    a.dtype = o.dtype;
    return module(detail::call(tt_nn_layer_norm_with, a));
}
inline module rms_norm(size_list normalized_shape, const norm_module_options &o = {}) {
    tt_nn_rms_norm_args a = TT_NN_RMS_NORM_ARGS_INIT;
    a.normalized_shape = normalized_shape, a.eps = o.eps, a.no_affine = o.no_affine, a.dtype = o.dtype;
    return module(detail::call(tt_nn_rms_norm_with, a));
}
inline module group_norm(std::int64_t num_groups, std::int64_t num_channels, const norm_module_options &o = {}) {
    tt_nn_group_norm_args a = TT_NN_GROUP_NORM_ARGS_INIT;
    a.num_groups = num_groups, a.num_channels = num_channels, a.eps = o.eps, a.no_affine = o.no_affine;
    a.dtype = o.dtype;
    return module(detail::call(tt_nn_group_norm_with, a));
}
/* forward_many({x, h_0, c_0}, 3) gives output, h_n and c_n. */
inline module rnn(std::int64_t input_size, std::int64_t hidden_size, const rnn_module_options &o = {}) {
    tt_nn_rnn_args a = TT_NN_RNN_ARGS_INIT;
    a.input_size = input_size, a.hidden_size = hidden_size, a.num_layers = o.num_layers, a.no_bias = o.no_bias;
    a.batch_first = o.batch_first, a.dropout = o.dropout, a.bidirectional = o.bidirectional, a.relu = o.relu;
    a.generator = o.generator, a.dtype = o.dtype;
    return module(detail::call(tt_nn_rnn_with, a));
}
inline module lstm(std::int64_t input_size, std::int64_t hidden_size, const rnn_module_options &o = {}) {
    tt_nn_rnn_args a = TT_NN_RNN_ARGS_INIT;
    a.input_size = input_size, a.hidden_size = hidden_size, a.num_layers = o.num_layers, a.no_bias = o.no_bias;
    a.batch_first = o.batch_first, a.dropout = o.dropout, a.bidirectional = o.bidirectional, a.relu = o.relu;
    a.generator = o.generator, a.dtype = o.dtype;
    return module(detail::call(tt_nn_lstm_with, a));
}
inline module gru(std::int64_t input_size, std::int64_t hidden_size, const rnn_module_options &o = {}) {
    tt_nn_rnn_args a = TT_NN_RNN_ARGS_INIT;
    a.input_size = input_size, a.hidden_size = hidden_size, a.num_layers = o.num_layers, a.no_bias = o.no_bias;
    a.batch_first = o.batch_first, a.dropout = o.dropout, a.bidirectional = o.bidirectional, a.relu = o.relu;
    a.generator = o.generator, a.dtype = o.dtype;
    return module(detail::call(tt_nn_gru_with, a));
}
/* forward_many({x, h, c}, 2) gives h and c. */
inline module rnn_cell(std::int64_t input_size, std::int64_t hidden_size, const rnn_cell_module_options &o = {}) {
    tt_nn_rnn_cell_args a = TT_NN_RNN_CELL_ARGS_INIT;
    a.input_size = input_size, a.hidden_size = hidden_size, a.no_bias = o.no_bias, a.relu = o.relu;
    a.generator = o.generator, a.dtype = o.dtype;
    return module(detail::call(tt_nn_rnn_cell_with, a));
}
inline module lstm_cell(std::int64_t input_size, std::int64_t hidden_size, const rnn_cell_module_options &o = {}) {
    tt_nn_rnn_cell_args a = TT_NN_RNN_CELL_ARGS_INIT;
    a.input_size = input_size, a.hidden_size = hidden_size, a.no_bias = o.no_bias, a.relu = o.relu;
    a.generator = o.generator, a.dtype = o.dtype;
    return module(detail::call(tt_nn_lstm_cell_with, a));
}
inline module gru_cell(std::int64_t input_size, std::int64_t hidden_size, const rnn_cell_module_options &o = {}) {
    tt_nn_rnn_cell_args a = TT_NN_RNN_CELL_ARGS_INIT;
    a.input_size = input_size, a.hidden_size = hidden_size, a.no_bias = o.no_bias, a.relu = o.relu;
    a.generator = o.generator, a.dtype = o.dtype;
    return module(detail::call(tt_nn_gru_cell_with, a));
}
inline module multihead_attention(std::int64_t embed_dim, std::int64_t num_heads,
                                  const multihead_attention_module_options &o = {}) {
    tt_nn_multihead_attention_args a = TT_NN_MULTIHEAD_ATTENTION_ARGS_INIT;
    a.embed_dim = embed_dim, a.num_heads = num_heads, a.dropout = o.dropout, a.no_bias = o.no_bias, a.kdim = o.kdim;
    a.vdim = o.vdim, a.batch_first = o.batch_first, a.is_causal = o.is_causal, a.generator = o.generator;
    a.dtype = o.dtype;
    return module(detail::call(tt_nn_multihead_attention_with, a));
}
inline module transformer_encoder_layer(std::int64_t d_model, std::int64_t nhead, std::int64_t dim_feedforward = 2048,
                                        double dropout = 0.1, const transformer_encoder_layer_options &o = {}) {
    tt_nn_transformer_encoder_layer_args a = TT_NN_TRANSFORMER_ENCODER_LAYER_ARGS_INIT;
    a.d_model = d_model, a.nhead = nhead, a.dim_feedforward = dim_feedforward, a.dropout = dropout, a.gelu = o.gelu;
    a.layer_norm_eps = o.layer_norm_eps, a.batch_first = o.batch_first, a.norm_first = o.norm_first;
    a.is_causal = o.is_causal, a.generator = o.generator, a.dtype = o.dtype;
    return module(detail::call(tt_nn_transformer_encoder_layer_with, a));
}
/* nn::transformer_encoder(nn::transformer_encoder_layer(256, 8), 6); norm: a LayerNorm behind the last layer. */
inline module transformer_encoder(module encoder_layer, std::int64_t num_layers, bool norm = false) {
    tt_nn_transformer_encoder_args a = TT_NN_TRANSFORMER_ENCODER_ARGS_INIT;
    a.encoder_layer = encoder_layer.release(), a.num_layers = num_layers, a.norm = norm;
    return module(detail::call(tt_nn_transformer_encoder_with, a));
}
inline module identity() { return module(tt_nn_identity()); }
inline module relu() { return module(tt_nn_relu()); }
inline module flatten() { return module(tt_nn_flatten()); }
inline module sigmoid() { return module(tt_nn_sigmoid()); }
inline module tanh() { return module(tt_nn_tanh()); }
inline module silu() { return module(tt_nn_silu()); }
inline module gelu(bool tanh = false) { return module(tanh ? tt_nn_gelu_tanh() : tt_nn_gelu()); }
inline module leaky_relu(double negative_slope = 0.01) { return module(tt_nn_leaky_relu(negative_slope)); }
inline module softmax(int dim) { return module(tt_nn_softmax(dim)); }
inline module log_softmax(int dim) { return module(tt_nn_log_softmax(dim)); }
inline module dropout(double p = 0.5) { return module(tt_nn_dropout(p)); }

} // namespace nn

} // namespace tutti

#endif
