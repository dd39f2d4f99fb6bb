/* tutti/layers.h: modules with PyTorch's names, parameters and initial values. nn.h includes it.
 *
 * Each forward is an operator of functional.h, whose errors it gives. N images, B batch, C channels. */
#ifndef TUTTI_LAYERS_H
#define TUTTI_LAYERS_H

#include <tutti/nn.h>

TT_BEGIN_DECLS

typedef struct tt_nn_linear_args {
    int64_t in_features;  /* required */
    int64_t out_features; /* required */
    TT_OPTIONS;
    bool no_bias;
    tt_generator *generator; /* NULL = the thread's default */
    tt_dtype dtype;          /* TT_F32, the default, or TT_F64 */
    char tt_end;             /* not an option: see base.h */
} tt_nn_linear_args;

/* x (B...,in) -> (B...,out). Parameters "weight" (out,in) and "bias" (out), drawn in this order from U(-1/sqrt(in),
 * 1/sqrt(in)), the same bits as torch.nn.Linear.
 *   tt_nn_linear(784, 512, .no_bias = true)
 * Errors: TT_ERR_INVALID sizes below 1; TT_ERR_DTYPE another dtype. */
TT_API tt_module *tt_nn_linear_with(const tt_nn_linear_args *args, size_t size);

typedef struct tt_nn_embedding_args {
    int64_t num_embeddings; /* required */
    int64_t embedding_dim;  /* required */
    TT_OPTIONS;
    const int64_t *padding_idx; /* a row (negative: from the end) that begins as 0 and gets no gradient; NULL: none */
    tt_generator *generator;    /* NULL = the thread's default */
    tt_dtype dtype;             /* TT_F32, the default, or TT_F64 */
    bool sparse;                /* the weight's gradient is of the rows that were read: tt_sparse_grad_values(), also
                                   over ranks (tt_ddp()) */
    char tt_end;                /* not an option: see base.h */
} tt_nn_embedding_args;

/* indices (...) i64 -> (...,C): see tt_embedding(). Parameter "weight" (num_embeddings, C), drawn from the normal
 * distribution, the same bits as torch.nn.Embedding.
 *   tt_nn_embedding(50257, 768)     tt_nn_embedding(1000, 64, .padding_idx = &(int64_t){0})
 * Errors: TT_ERR_INVALID sizes below 1, padding_idx out of range; TT_ERR_DTYPE another dtype. */
TT_API tt_module *tt_nn_embedding_with(const tt_nn_embedding_args *args, size_t size);

typedef struct tt_nn_conv1d_args {
    int64_t in_channels;  /* required */
    int64_t out_channels; /* required */
    int64_t kernel_size;  /* required */
    TT_OPTIONS;
    int64_t stride, padding, dilation, groups; /* as tt_conv1d()'s */
    bool no_bias;
    tt_generator *generator; /* NULL = the thread's default */
    tt_dtype dtype;          /* TT_F32, the default, or TT_F64 */
    char tt_end;             /* not an option: see base.h */
} tt_nn_conv1d_args;

/* x (N,in,L) -> (N,out,Q): see tt_conv1d(). Parameters "weight" (out,in/groups,S) and "bias" (out), drawn as
 * torch.nn.Conv1d draws them. Errors as tt_nn_conv2d()'s. */
TT_API tt_module *tt_nn_conv1d_with(const tt_nn_conv1d_args *args, size_t size);

typedef struct tt_nn_conv2d_args {
    int64_t in_channels;  /* required */
    int64_t out_channels; /* required */
    int64_t kernel_size;  /* required; 0: see kernel_size_hw */
    TT_OPTIONS;
    int64_t stride, padding, dilation, groups; /* as tt_conv2d()'s, and so are the pairs */
    int64_t stride_hw[2], padding_hw[2], dilation_hw[2];
    int64_t kernel_size_hw[2]; /* instead of kernel_size: {along H, along W} */
    bool no_bias;
    tt_generator *generator; /* NULL = the thread's default */
    tt_dtype dtype;          /* TT_F32, the default, or TT_F64 */
    char tt_end;             /* not an option: see base.h */
} tt_nn_conv2d_args;

/* x (N,in,H,W) -> (N,out,P,Q): see tt_conv2d(). Parameters "weight" (out,in/groups,R,S) and "bias" (out), drawn in this
 * order from U(-1/sqrt(n), 1/sqrt(n)), n = in/groups R S, the same bits as torch.nn.Conv2d.
 *   tt_nn_conv2d(3, 64, 7, .stride = 2, .padding = 3, .no_bias = true)
 * Errors: TT_ERR_INVALID sizes below 1, channels that groups don't divide, options out of range; TT_ERR_DTYPE. */
TT_API tt_module *tt_nn_conv2d_with(const tt_nn_conv2d_args *args, size_t size);

typedef struct tt_nn_conv_transpose2d_args {
    int64_t in_channels;  /* required */
    int64_t out_channels; /* required */
    int64_t kernel_size;  /* required; along H and W, as are the options */
    TT_OPTIONS;
    int64_t stride, padding, output_padding, dilation, groups; /* as tt_conv_transpose2d()'s */
    bool no_bias;
    tt_generator *generator; /* NULL = the thread's default */
    tt_dtype dtype;          /* TT_F32, the default, or TT_F64 */
    char tt_end;             /* not an option: see base.h */
} tt_nn_conv_transpose2d_args;

/* x (N,in,P,Q) -> (N,out,H,W): see tt_conv_transpose2d(). Parameters "weight" (in,out/groups,R,S) and "bias" (out),
 * drawn as torch.nn.ConvTranspose2d draws them. Errors as tt_nn_conv2d()'s. */
TT_API tt_module *tt_nn_conv_transpose2d_with(const tt_nn_conv_transpose2d_args *args, size_t size);

typedef struct tt_nn_rnn_args {
    int64_t input_size;  /* required */
    int64_t hidden_size; /* required */
    TT_OPTIONS;
    int64_t num_layers; /* at most 1000; 0, the default, is 1 */
    bool no_bias;
    bool batch_first;        /* x and output are (B,T,...), not (T,B,...) */
    double dropout;          /* of what goes from one layer to the next, in training mode */
    bool bidirectional;      /* each layer runs in both directions; outputs stand side by side */
    bool relu;               /* of tt_nn_rnn() only: max(a, 0) in place of tanh(a) */
    tt_generator *generator; /* NULL = the thread's default */
    tt_dtype dtype;          /* TT_F32, the default, or TT_F64 */
    char tt_end;             /* not an option: see base.h */
} tt_nn_rnn_args;

/* torch.nn.RNN, LSTM, GRU, without proj_size and packed sequences. T steps, B sequences, H = hidden_size, L =
 * num_layers times directions (1 or 2). x (T,B,input_size), or (T,input_size) without a batch; output (T,B,H times
 * directions): the states of the last layer; h_n, c_n (L,B,H): the last states of each layer and direction.
 *   tt_module *lstm = tt_nn_lstm(64, 128, .num_layers = 2, .batch_first = true);
 *   tt_tensor *y = tt_module_forward(lstm, x), *out[3];                     output alone, from a state of zeros
 *   tt_module_forward_many(lstm, TT_TENSORS(x, h_0, c_0), out, 3)           output, h_n, c_n
 * A GRU or RNN takes x or (x, h_0), and gives output or (output, h_n). Parameters weight_ih_l0, weight_hh_l0,
 * bias_ih_l0, bias_hh_l0, those of the other direction with _reverse behind, then those of layer 1, drawn in this order
 * from U(-1/sqrt(H), 1/sqrt(H)): PyTorch's bits.
 * Errors: TT_ERR_INVALID sizes below 1, dropout outside of 0..1, .relu of another kind; TT_ERR_DTYPE. Of a forward:
 * TT_ERR_INVALID numbers of tensors, another device; TT_ERR_SHAPE; TT_ERR_DTYPE. */
TT_API tt_module *tt_nn_rnn_with(const tt_nn_rnn_args *args, size_t size);
TT_API tt_module *tt_nn_lstm_with(const tt_nn_rnn_args *args, size_t size);
TT_API tt_module *tt_nn_gru_with(const tt_nn_rnn_args *args, size_t size);

typedef struct tt_nn_rnn_cell_args {
    int64_t input_size;  /* required */
    int64_t hidden_size; /* required */
    TT_OPTIONS;
    bool no_bias;
    bool relu;               /* of tt_nn_rnn_cell() only: max(a, 0) in place of tanh(a) */
    tt_generator *generator; /* NULL = the thread's default */
    tt_dtype dtype;          /* TT_F32, the default, or TT_F64 */
    char tt_end;             /* not an option: see base.h */
} tt_nn_rnn_cell_args;

/* torch.nn.RNNCell, LSTMCell, GRUCell: one step. x (B,input_size) and the state before, h (and c) (B,H), or all without
 * B; without a state it is zeros. Gives h, or h and c.
 *   tt_module_forward_many(lstm_cell, TT_TENSORS(x, h, c), out, 2)
 * Parameters weight_ih, weight_hh, bias_ih, bias_hh, drawn as tt_nn_rnn()'s. Errors as tt_nn_rnn()'s. */
TT_API tt_module *tt_nn_rnn_cell_with(const tt_nn_rnn_cell_args *args, size_t size);
TT_API tt_module *tt_nn_lstm_cell_with(const tt_nn_rnn_cell_args *args, size_t size);
TT_API tt_module *tt_nn_gru_cell_with(const tt_nn_rnn_cell_args *args, size_t size);

/* ---- attention. B batch, T queries, S keys, E embed_dim */

typedef struct tt_nn_multihead_attention_args {
    int64_t embed_dim; /* required */
    int64_t num_heads; /* required: divides embed_dim */
    TT_OPTIONS;
    double dropout; /* of the weights, in training mode */
    bool no_bias;
    int64_t kdim, vdim;      /* of key and value; 0, the default: embed_dim */
    bool batch_first;        /* (B,T,E), not (T,B,E) */
    bool is_causal;          /* row t sees the first t + 1 keys, in each forward */
    tt_generator *generator; /* NULL = the thread's default */
    tt_dtype dtype;          /* TT_F32, the default, or TT_F64 */
    char tt_end;             /* not an option: see base.h */
} tt_nn_multihead_attention_args;

/* torch.nn.MultiheadAttention, without add_bias_kv and add_zero_attn. Forward takes x (self-attention), or query, key
 * and value, and gives the output (T,B,E), or that and the weights; tt_multihead_attention() takes masks. Parameters
 * "in_proj_weight" (3E,E), or q_proj_weight, k_proj_weight, v_proj_weight where kdim or vdim differ from E;
 * "in_proj_bias", "out_proj.weight", "out_proj.bias": PyTorch's bits.
 * Errors: TT_ERR_INVALID; TT_ERR_DTYPE. */
TT_API tt_module *tt_nn_multihead_attention_with(const tt_nn_multihead_attention_args *args, size_t size);

typedef struct tt_multihead_attention_args {
    tt_module *module; /* required: of tt_nn_multihead_attention(), no wrapper */
    tt_tensor *query;  /* required: (T,B,E), (B,T,E) where batch_first, or (T,E) */
    tt_tensor *key;    /* required: (S,B,kdim), (B,S,kdim) where batch_first, or (S,kdim) */
    tt_tensor *value;  /* required: (S,B,vdim), (B,S,vdim) where batch_first, or (S,vdim) */
    TT_OPTIONS;
    /* Masks as PyTorch's module has them: bool, true what is hidden (tt_scaled_dot_product_attention()'s say what is
     * seen), or floats, added to the scores. They get no gradient. */
    tt_tensor *key_padding_mask; /* (B,S), or (S) */
    tt_tensor *attn_mask;        /* (T,S) or (B num_heads,T,S) */
    bool is_causal;              /* besides the masks */
    tt_tensor **weights;         /* receives the mean of all heads' weights, (B,T,S); NULL on failure */
    char tt_end;                 /* not an option: see base.h */
} tt_multihead_attention_args;

/* The module's forward, without its hooks. Weights are made only where .weights asks for them (PyTorch's need_weights
 * is true by default); then, and where dropout acts, T x S numbers are in memory, else not. A row that sees nothing is
 * 0 before out_proj (PyTorch: NaN).
 *   tt_multihead_attention(attention, x, x, x, .is_causal = true)
 * Errors: as of operators. */
TT_API tt_tensor *tt_multihead_attention_with(const tt_multihead_attention_args *args, size_t size);

typedef struct tt_nn_transformer_encoder_layer_args {
    int64_t d_model;         /* required */
    int64_t nhead;           /* required: divides d_model */
    int64_t dim_feedforward; /* required: PyTorch's default is 2048 */
    double dropout;          /* required: PyTorch's default is 0.1 */
    TT_OPTIONS;
    bool gelu;               /* in place of relu */
    double layer_norm_eps;   /* 0, the default, is 1e-5 */
    bool batch_first;        /* (B,T,d_model), not (T,B,d_model) */
    bool norm_first;         /* before attention and feedforward, not behind */
    bool is_causal;          /* as tt_nn_multihead_attention()'s */
    tt_generator *generator; /* NULL = the thread's default */
    tt_dtype dtype;          /* TT_F32, the default, or TT_F64 */
    char tt_end;             /* not an option: see base.h */
} tt_nn_transformer_encoder_layer_args;

/* torch.nn.TransformerEncoderLayer: self_attn, linear1, linear2, norm1, norm2: PyTorch's names and bits. Forward takes
 * x and gives the same shape; tt_transformer_encoder() takes masks.
 *   tt_nn_transformer_encoder_layer(256, 8, 1024, 0.1, .batch_first = true, .norm_first = true)
 * Errors: TT_ERR_INVALID; TT_ERR_DTYPE. */
TT_API tt_module *tt_nn_transformer_encoder_layer_with(const tt_nn_transformer_encoder_layer_args *args, size_t size);

typedef struct tt_nn_transformer_encoder_args {
    tt_module *encoder_layer; /* required: of tt_nn_transformer_encoder_layer(); owned, also on failure */
    int64_t num_layers;       /* required: 1 to 1000 */
    TT_OPTIONS;
    bool norm;   /* a LayerNorm(d_model), of the layer's eps, behind the last layer */
    char tt_end; /* not an option: see base.h */
} tt_nn_transformer_encoder_args;

/* torch.nn.TransformerEncoder: "layers.0" is encoder_layer, the others are copies of it, with the same values, as
 * PyTorch makes them; and "norm".
 *   tt_nn_transformer_encoder(layer, 6, .norm = true)
 * Errors: that of a NULL layer; TT_ERR_INVALID another kind of layer, num_layers out of range; TT_ERR_STATE a layer
 * that has a parent already. */
TT_API tt_module *tt_nn_transformer_encoder_with(const tt_nn_transformer_encoder_args *args, size_t size);

typedef struct tt_transformer_encoder_args {
    tt_module *module; /* required: an encoder or one of its layers, no wrapper */
    tt_tensor *src;    /* required: (T,B,d_model), (B,T,d_model) where batch_first, or (T,d_model) */
    TT_OPTIONS;
    tt_tensor *mask;                 /* as .attn_mask of tt_multihead_attention() */
    tt_tensor *src_key_padding_mask; /* as .key_padding_mask */
    bool is_causal;
    char tt_end; /* not an option: see base.h */
} tt_transformer_encoder_args;

/* The module's forward with masks, and without its hooks (those of what is inside run).
 *   tt_transformer_encoder(encoder, x, .src_key_padding_mask = padding)
 * Errors: as of operators. */
TT_API tt_tensor *tt_transformer_encoder_with(const tt_transformer_encoder_args *args, size_t size);

/* ---- pooling, normalisation, activations */

typedef struct tt_nn_max_pool2d_args {
    int64_t kernel_size; /* required; 0: see kernel_size_hw */
    TT_OPTIONS;
    int64_t stride, padding, dilation; /* as tt_max_pool2d()'s, and so is the rest */
    int64_t kernel_size_hw[2], stride_hw[2], padding_hw[2], dilation_hw[2];
    bool ceil_mode;
    char tt_end; /* not an option: see base.h */
} tt_nn_max_pool2d_args;

typedef struct tt_nn_avg_pool2d_args {
    int64_t kernel_size; /* required; 0: see kernel_size_hw */
    TT_OPTIONS;
    int64_t stride, padding; /* as tt_avg_pool2d()'s, and so is the rest */
    int64_t kernel_size_hw[2], stride_hw[2], padding_hw[2];
    bool ceil_mode;
    bool exclude_padding;
    int64_t divisor_override;
    char tt_end; /* not an option: see base.h */
} tt_nn_avg_pool2d_args;

/* torch.nn.MaxPool2d, AvgPool2d, AdaptiveAvgPool2d: (N,C,H,W) -> (N,C,P,Q). A stride that is not given is kernel_size.
 *   tt_nn_max_pool2d(3, .stride = 2, .padding = 1)
 * TT_ERR_INVALID a size below 1; other options are checked by each forward. */
TT_API tt_module *tt_nn_max_pool2d_with(const tt_nn_max_pool2d_args *args, size_t size);
TT_API tt_module *tt_nn_avg_pool2d_with(const tt_nn_avg_pool2d_args *args, size_t size);
TT_API tt_module *tt_nn_adaptive_avg_pool2d(int64_t height, int64_t width);

typedef struct tt_nn_batch_norm2d_args {
    int64_t num_features; /* required */
    TT_OPTIONS;
    double momentum, eps;  /* 0, the default: 0.1 and 1e-5 */
    bool no_affine;        /* no weight and bias */
    bool no_running_stats; /* each batch by its own, in evaluation too */
    tt_dtype dtype;        /* TT_F32, the default, or TT_F64 */
    char tt_end;           /* not an option: see base.h */
} tt_nn_batch_norm2d_args;

/* torch.nn.BatchNorm1d of (N,C) or (N,C,L), BatchNorm2d of (N,C,H,W). Parameters "weight" (ones), "bias" (zeros);
 * buffers "running_mean" (zeros), "running_var" (ones), "num_batches_tracked" (i64). See tt_batch_norm().
 * Errors: TT_ERR_INVALID num_features below 1, negative numbers; TT_ERR_DTYPE. */
TT_API tt_module *tt_nn_batch_norm1d_with(const tt_nn_batch_norm2d_args *args, size_t size);
TT_API tt_module *tt_nn_batch_norm2d_with(const tt_nn_batch_norm2d_args *args, size_t size);

typedef struct tt_nn_layer_norm_args {
    tt_shape normalized_shape; /* required: the last dimensions of x */
    TT_OPTIONS;
    double eps;     /* 0, the default, is 1e-5 */
    bool no_affine; /* no weight and bias */
    bool no_bias;
    tt_dtype dtype; /* TT_F32, the default, or TT_F64 */
    char tt_end;    /* not an option: see base.h */
} tt_nn_layer_norm_args;

typedef struct tt_nn_rms_norm_args {
    tt_shape normalized_shape; /* required: the last dimensions of x */
    TT_OPTIONS;
    double eps;     /* 0, the default: see tt_rms_norm() */
    bool no_affine; /* no weight */
    tt_dtype dtype; /* TT_F32, the default, or TT_F64 */
    char tt_end;    /* not an option: see base.h */
} tt_nn_rms_norm_args;

typedef struct tt_nn_group_norm_args {
    int64_t num_groups;   /* required: divides num_channels */
    int64_t num_channels; /* required */
    TT_OPTIONS;
    double eps;     /* 0, the default, is 1e-5 */
    bool no_affine; /* no weight and bias */
    tt_dtype dtype; /* TT_F32, the default, or TT_F64 */
    char tt_end;    /* not an option: see base.h */
} tt_nn_group_norm_args;

/* torch.nn.LayerNorm, RMSNorm, GroupNorm. Parameters "weight" (ones) and "bias" (zeros; RMSNorm has none).
 *   tt_nn_layer_norm(TT_SHAPE(256))     tt_nn_group_norm(8, 64)
 * Errors: TT_ERR_INVALID sizes below 1, a negative eps; TT_ERR_DTYPE. */
TT_API tt_module *tt_nn_layer_norm_with(const tt_nn_layer_norm_args *args, size_t size);
TT_API tt_module *tt_nn_rms_norm_with(const tt_nn_rms_norm_args *args, size_t size);
TT_API tt_module *tt_nn_group_norm_with(const tt_nn_group_norm_args *args, size_t size);

/* torch.nn.Identity: gives x itself. */
TT_API tt_module *tt_nn_identity(void);

/* torch.nn.ReLU; torch.nn.Flatten(start_dim=1). */
TT_API tt_module *tt_nn_relu(void);
TT_API tt_module *tt_nn_flatten(void);

/* torch.nn.Sigmoid; torch.nn.Tanh; torch.nn.SiLU. */
TT_API tt_module *tt_nn_sigmoid(void);
TT_API tt_module *tt_nn_tanh(void);
TT_API tt_module *tt_nn_silu(void);

/* torch.nn.GELU(); torch.nn.GELU(approximate="tanh"). */
TT_API tt_module *tt_nn_gelu(void);
TT_API tt_module *tt_nn_gelu_tanh(void);

/* torch.nn.LeakyReLU; its default slope is 0.01. */
TT_API tt_module *tt_nn_leaky_relu(double negative_slope);

/* torch.nn.Softmax(dim); torch.nn.LogSoftmax(dim). */
TT_API tt_module *tt_nn_softmax(int dim);
TT_API tt_module *tt_nn_log_softmax(int dim);

/* torch.nn.Dropout: drops elements with probability p, from the thread's default generator, while it is in training
 * mode. TT_ERR_INVALID p outside of 0..1. */
TT_API tt_module *tt_nn_dropout(double p);

#define TT_NN_LINEAR_ARGS_INIT TT_ARGS_INIT
#define TT_NN_EMBEDDING_ARGS_INIT TT_ARGS_INIT
#define TT_NN_CONV1D_ARGS_INIT TT_ARGS_INIT
#define TT_NN_CONV2D_ARGS_INIT TT_ARGS_INIT
#define TT_NN_CONV_TRANSPOSE2D_ARGS_INIT TT_ARGS_INIT
#define TT_NN_RNN_ARGS_INIT TT_ARGS_INIT
#define TT_NN_RNN_CELL_ARGS_INIT TT_ARGS_INIT
#define TT_NN_MULTIHEAD_ATTENTION_ARGS_INIT TT_ARGS_INIT
#define TT_MULTIHEAD_ATTENTION_ARGS_INIT TT_ARGS_INIT
#define TT_NN_TRANSFORMER_ENCODER_LAYER_ARGS_INIT TT_ARGS_INIT
#define TT_NN_TRANSFORMER_ENCODER_ARGS_INIT TT_ARGS_INIT
#define TT_TRANSFORMER_ENCODER_ARGS_INIT TT_ARGS_INIT
#define TT_NN_MAX_POOL2D_ARGS_INIT TT_ARGS_INIT
#define TT_NN_AVG_POOL2D_ARGS_INIT TT_ARGS_INIT
#define TT_NN_BATCH_NORM2D_ARGS_INIT TT_ARGS_INIT
#define TT_NN_LAYER_NORM_ARGS_INIT TT_ARGS_INIT
#define TT_NN_RMS_NORM_ARGS_INIT TT_ARGS_INIT
#define TT_NN_GROUP_NORM_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_nn_batch_norm1d(...) tt_nn_batch_norm1d_with(TT_ARGS(tt_nn_batch_norm2d_args, .num_features = __VA_ARGS__))
#define tt_nn_batch_norm2d(...) tt_nn_batch_norm2d_with(TT_ARGS(tt_nn_batch_norm2d_args, .num_features = __VA_ARGS__))
#define tt_nn_layer_norm(...) tt_nn_layer_norm_with(TT_ARGS(tt_nn_layer_norm_args, .normalized_shape = __VA_ARGS__))
#define tt_nn_rms_norm(...) tt_nn_rms_norm_with(TT_ARGS(tt_nn_rms_norm_args, .normalized_shape = __VA_ARGS__))
#define tt_nn_group_norm(num_groups_, ...) \
    tt_nn_group_norm_with(TT_ARGS(tt_nn_group_norm_args, .num_groups = (num_groups_), .num_channels = __VA_ARGS__))
#define tt_nn_conv_transpose2d(in_channels_, out_channels_, ...)                                    \
    tt_nn_conv_transpose2d_with(TT_ARGS(tt_nn_conv_transpose2d_args, .in_channels = (in_channels_), \
                                        .out_channels = (out_channels_), .kernel_size = __VA_ARGS__))
#define tt_nn_max_pool2d(...) tt_nn_max_pool2d_with(TT_ARGS(tt_nn_max_pool2d_args, .kernel_size = __VA_ARGS__))
#define tt_nn_avg_pool2d(...) tt_nn_avg_pool2d_with(TT_ARGS(tt_nn_avg_pool2d_args, .kernel_size = __VA_ARGS__))
#define tt_nn_embedding(num_embeddings_, ...) \
    tt_nn_embedding_with(                     \
        TT_ARGS(tt_nn_embedding_args, .num_embeddings = (num_embeddings_), .embedding_dim = __VA_ARGS__))
#define tt_nn_conv1d(in_channels_, out_channels_, ...)                                                           \
    tt_nn_conv1d_with(TT_ARGS(tt_nn_conv1d_args, .in_channels = (in_channels_), .out_channels = (out_channels_), \
                              .kernel_size = __VA_ARGS__))
#define tt_nn_rnn(input_size_, ...) \
    tt_nn_rnn_with(TT_ARGS(tt_nn_rnn_args, .input_size = (input_size_), .hidden_size = __VA_ARGS__))
#define tt_nn_lstm(input_size_, ...) \
    tt_nn_lstm_with(TT_ARGS(tt_nn_rnn_args, .input_size = (input_size_), .hidden_size = __VA_ARGS__))
#define tt_nn_gru(input_size_, ...) \
    tt_nn_gru_with(TT_ARGS(tt_nn_rnn_args, .input_size = (input_size_), .hidden_size = __VA_ARGS__))
#define tt_nn_rnn_cell(input_size_, ...) \
    tt_nn_rnn_cell_with(TT_ARGS(tt_nn_rnn_cell_args, .input_size = (input_size_), .hidden_size = __VA_ARGS__))
#define tt_nn_lstm_cell(input_size_, ...) \
    tt_nn_lstm_cell_with(TT_ARGS(tt_nn_rnn_cell_args, .input_size = (input_size_), .hidden_size = __VA_ARGS__))
#define tt_nn_gru_cell(input_size_, ...) \
    tt_nn_gru_cell_with(TT_ARGS(tt_nn_rnn_cell_args, .input_size = (input_size_), .hidden_size = __VA_ARGS__))
#define tt_nn_multihead_attention(embed_dim_, ...) \
    tt_nn_multihead_attention_with(                \
        TT_ARGS(tt_nn_multihead_attention_args, .embed_dim = (embed_dim_), .num_heads = __VA_ARGS__))
#define tt_multihead_attention(module_, query_, key_, ...)                                                   \
    tt_multihead_attention_with(TT_ARGS(tt_multihead_attention_args, .module = (module_), .query = (query_), \
                                        .key = (key_), .value = __VA_ARGS__))
#define tt_nn_transformer_encoder_layer(d_model_, nhead_, dim_feedforward_, ...)                              \
    tt_nn_transformer_encoder_layer_with(TT_ARGS(tt_nn_transformer_encoder_layer_args, .d_model = (d_model_), \
                                                 .nhead = (nhead_), .dim_feedforward = (dim_feedforward_),    \
                                                 .dropout = __VA_ARGS__))
#define tt_nn_transformer_encoder(encoder_layer_, ...) \
    tt_nn_transformer_encoder_with(                    \
        TT_ARGS(tt_nn_transformer_encoder_args, .encoder_layer = (encoder_layer_), .num_layers = __VA_ARGS__))
#define tt_transformer_encoder(module_, ...) \
    tt_transformer_encoder_with(TT_ARGS(tt_transformer_encoder_args, .module = (module_), .src = __VA_ARGS__))
#define tt_nn_conv2d(in_channels_, out_channels_, ...)                                                           \
    tt_nn_conv2d_with(TT_ARGS(tt_nn_conv2d_args, .in_channels = (in_channels_), .out_channels = (out_channels_), \
                              .kernel_size = __VA_ARGS__))
#define tt_nn_linear(in_features_, ...)                                                                              \
    tt_nn_linear_with(&(tt_nn_linear_args){.in_features = (in_features_), .out_features = __VA_ARGS__, .tt_end = 0}, \
                      offsetof(tt_nn_linear_args, tt_end))
#endif

TT_END_DECLS
#endif
