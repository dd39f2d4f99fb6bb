/* tutti/cpp/models.hpp: ready models. */
/* Made by tools/wrappers.py of tutti/models.h and tools/wrappers/models.hpp.in. */
#ifndef TUTTI_CPP_MODELS_HPP
#define TUTTI_CPP_MODELS_HPP

#include <optional>
#include <tutti/cpp/nn.hpp>
#include <tutti/models.h>

namespace tutti {

struct model_options {
    tt_generator *generator = nullptr;
    tt_dtype dtype = TT_F32;
};

struct resnet_options {
    bool small_input = false;
    bool zero_init_residual = false;
    tt_generator *generator = nullptr;
    tt_dtype dtype = TT_F32;
};

struct gpt_options {
    double dropout = 0;
    tt_generator *generator = nullptr;
    tt_dtype dtype = TT_F32;
};

struct gpt2_options {
    double embd_pdrop = 0;
    double attn_pdrop = 0;
    double resid_pdrop = 0;
    std::int64_t n_inner = 0; /* 0: 4 n_embd */
    double layer_norm_epsilon = 1e-5;
    bool exact_gelu = false;
    bool no_weight_tying = false;
    tt_generator *generator = nullptr;
    tt_dtype dtype = TT_F32;
};

/* Called with each token as it is made; false ends the text. What it throws comes out of model_generate(). */
using token_callback = std::function<bool(std::int64_t token)>;

struct generate_options {
    double temperature = 0; /* 0: the likeliest token */
    std::int64_t top_k = 0; /* 0: choose from all */
    double top_p = 0;       /* likewise */
    tt_generator *generator = nullptr;
    std::optional<std::int64_t> stop_token = {};
    bool sliding_window = false;
    token_callback on_token = {};
};

/* model_mlp({784, 512, 10}) */
inline module model_mlp(const std::vector<std::int64_t> &sizes, const model_options &o = {}) {
    tt_model_mlp_args a = TT_MODEL_MLP_ARGS_INIT;
    a.sizes = sizes.data(), a.count = std::int64_t(sizes.size()), a.generator = o.generator, a.dtype = o.dtype;
    return module(detail::call(tt_model_mlp_with, a));
}
inline module model_mnist_convnet(double dropout1, double dropout2, const model_options &o = {}) {
    tt_model_mnist_convnet_args a = TT_MODEL_MNIST_CONVNET_ARGS_INIT;
    a.dropout1 = dropout1, a.dropout2 = dropout2, a.generator = o.generator, a.dtype = o.dtype;
    return module(detail::call(tt_model_mnist_convnet_with, a));
}
inline module model_resnet18(std::int64_t num_classes, const resnet_options &o = {}) {
    tt_model_resnet18_args a = TT_MODEL_RESNET18_ARGS_INIT;
    a.num_classes = num_classes, a.small_input = o.small_input, a.zero_init_residual = o.zero_init_residual;
    a.generator = o.generator, a.dtype = o.dtype;
    return module(detail::call(tt_model_resnet18_with, a));
}
inline module model_resnet34(std::int64_t num_classes, const resnet_options &o = {}) {
    tt_model_resnet18_args a = TT_MODEL_RESNET18_ARGS_INIT;
    a.num_classes = num_classes, a.small_input = o.small_input, a.zero_init_residual = o.zero_init_residual;
    a.generator = o.generator, a.dtype = o.dtype;
    return module(detail::call(tt_model_resnet34_with, a));
}
inline module model_resnet50(std::int64_t num_classes, const resnet_options &o = {}) {
    tt_model_resnet18_args a = TT_MODEL_RESNET18_ARGS_INIT;
    a.num_classes = num_classes, a.small_input = o.small_input, a.zero_init_residual = o.zero_init_residual;
    a.generator = o.generator, a.dtype = o.dtype;
    return module(detail::call(tt_model_resnet50_with, a));
}

inline module model_gpt(std::int64_t vocab_size, std::int64_t block_size, std::int64_t n_embd, std::int64_t n_layer,
                        std::int64_t n_head, const gpt_options &o = {}) {
    tt_model_gpt_args a = TT_MODEL_GPT_ARGS_INIT;
    a.vocab_size = vocab_size, a.block_size = block_size, a.n_embd = n_embd, a.n_layer = n_layer, a.n_head = n_head;
    a.dropout = o.dropout, a.generator = o.generator, a.dtype = o.dtype;
    return module(detail::call(tt_model_gpt_with, a));
}
inline module model_gpt2(std::int64_t vocab_size, std::int64_t n_positions, std::int64_t n_embd, std::int64_t n_layer,
                         std::int64_t n_head, const gpt2_options &o = {}) {
    tt_model_gpt2_args a = TT_MODEL_GPT2_ARGS_INIT;
    a.vocab_size = vocab_size, a.n_positions = n_positions, a.n_embd = n_embd, a.n_layer = n_layer, a.n_head = n_head;
    a.embd_pdrop = o.embd_pdrop, a.attn_pdrop = o.attn_pdrop, a.resid_pdrop = o.resid_pdrop, a.n_inner = o.n_inner;
    a.layer_norm_epsilon = o.layer_norm_epsilon, a.exact_gelu = o.exact_gelu, a.no_weight_tying = o.no_weight_tying;
    a.generator = o.generator, a.dtype = o.dtype;
    return module(detail::call(tt_model_gpt2_with, a));
}
inline void model_gpt2_load_state_dict(const module &model, const tt_named_tensors *state) {
    check(tt_model_gpt2_load_state_dict(model.get(), state));
}
inline module model_gpt2_from_pretrained(const std::string &path, tt_dtype dtype = TT_F32) {
    tt_model_gpt2_from_pretrained_args a = TT_MODEL_GPT2_FROM_PRETRAINED_ARGS_INIT;
    a.path = path.c_str(), a.dtype = dtype;
    return module(detail::call(tt_model_gpt2_from_pretrained_with, a));
}

namespace detail {

/* What on_token() is and what it threw. */
struct token_call {
    const token_callback &on_token;
    std::exception_ptr thrown;
    static bool hear(std::int64_t token, void *user) {
        auto *self = static_cast<token_call *>(user);
        try {
            return self->on_token(token);
        } catch (...) {
            self->thrown = std::current_exception();
            return false;
        }
    }
};

} // namespace detail

/* The new tokens behind a prompt: model_generate(model, {5, 7}, 100, {.temperature = 0.8}). */
inline std::vector<std::int64_t> model_generate(const module &model, const std::vector<std::int64_t> &prompt,
                                                std::int64_t max_new_tokens, const generate_options &o = {}) {
    std::vector<std::int64_t> tokens(std::size_t(max_new_tokens < 0 ? 0 : max_new_tokens));
    std::int64_t count = 0;
    detail::token_call call = {o.on_token, nullptr};
    tt_model_generate_args a = TT_MODEL_GENERATE_ARGS_INIT;
    a.tokens = tokens.data(), a.count = &count, a.model = model.get();
    a.prompt = prompt.data(), a.prompt_count = std::int64_t(prompt.size()), a.max_new_tokens = max_new_tokens;
    a.temperature = o.temperature, a.top_k = o.top_k, a.top_p = o.top_p, a.generator = o.generator;
    a.stop_token = {o.stop_token.has_value(), o.stop_token.value_or(0)}, a.sliding_window = o.sliding_window;
    if (o.on_token)
        a.on_token = detail::token_call::hear, a.user = &call;
    check(detail::call(tt_model_generate_with, a));
    if (call.thrown)
        std::rethrow_exception(call.thrown);
    tokens.resize(std::size_t(count));
    return tokens;
}

} // namespace tutti

#endif
