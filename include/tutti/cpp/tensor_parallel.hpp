/* tutti/cpp/tensor_parallel.hpp: layers whose weights are divided among the ranks of a group. */
/* Made by tools/wrappers.py of tutti/tensor_parallel.h and tools/wrappers/tensor_parallel.hpp.in. */
#ifndef TUTTI_CPP_TENSOR_PARALLEL_HPP
#define TUTTI_CPP_TENSOR_PARALLEL_HPP

#include <tutti/cpp/comm.hpp>
#include <tutti/cpp/functional.hpp>
#include <tutti/cpp/nn.hpp>
#include <tutti/tensor_parallel.h>

namespace tutti {

struct parallel_linear_options {
    bool no_bias = false;
    bool gather_output = false; /* of column_parallel_linear() */
    bool scatter_input = false; /* of row_parallel_linear() */
    tt_generator *generator = nullptr;
    tt_dtype dtype = TT_F32;
};

struct vocab_parallel_embedding_options {
    tt_generator *generator = nullptr;
    tt_dtype dtype = TT_F32;
};

namespace nn {

inline module column_parallel_linear(std::int64_t in_features, std::int64_t out_features, const group &g,
                                     const parallel_linear_options &o = {}) {
    tt_nn_column_parallel_linear_args a = TT_NN_COLUMN_PARALLEL_LINEAR_ARGS_INIT;
    a.in_features = in_features, a.out_features = out_features, a.group = g.get(), a.no_bias = o.no_bias;
    a.gather_output = o.gather_output, a.generator = o.generator, a.dtype = o.dtype;
    return module(detail::call(tt_nn_column_parallel_linear_with, a));
}
inline module row_parallel_linear(std::int64_t in_features, std::int64_t out_features, const group &g,
                                  const parallel_linear_options &o = {}) {
    tt_nn_row_parallel_linear_args a = TT_NN_ROW_PARALLEL_LINEAR_ARGS_INIT;
    a.in_features = in_features, a.out_features = out_features, a.group = g.get(), a.no_bias = o.no_bias;
    a.scatter_input = o.scatter_input, a.generator = o.generator, a.dtype = o.dtype;
    return module(detail::call(tt_nn_row_parallel_linear_with, a));
}
inline module vocab_parallel_embedding(std::int64_t num_embeddings, std::int64_t embedding_dim, const group &g,
                                       const vocab_parallel_embedding_options &o = {}) {
    tt_nn_vocab_parallel_embedding_args a = TT_NN_VOCAB_PARALLEL_EMBEDDING_ARGS_INIT;
    a.num_embeddings = num_embeddings, a.embedding_dim = embedding_dim, a.group = g.get(), a.generator = o.generator;
    a.dtype = o.dtype;
    return module(detail::call(tt_nn_vocab_parallel_embedding_with, a));
}

} // namespace nn

struct tp_cross_entropy_options {
    std::int64_t ignore_index = -100;
    tt_reduction reduction = TT_REDUCTION_MEAN;
};
inline tensor tp_cross_entropy(const tensor &logits, const tensor &target, const group &g,
                               const tp_cross_entropy_options &o = {}) {
    tt_tp_cross_entropy_args a = TT_TP_CROSS_ENTROPY_ARGS_INIT;
    a.logits = logits.get(), a.target = target.get(), a.group = g.get(), a.ignore_index = {true, o.ignore_index};
    a.reduction = o.reduction;
    return tensor(detail::call(tt_tp_cross_entropy_with, a));
}

inline tensor tp_copy(const tensor &x, const group &g) {
    return tensor::made_of(tt_tp_copy(x.get(), g.get()), x.get());
}
inline tensor tp_reduce(const tensor &x, const group &g) {
    return tensor::made_of(tt_tp_reduce(x.get(), g.get()), x.get());
}
inline tensor tp_scatter(const tensor &x, const group &g) {
    return tensor::made_of(tt_tp_scatter(x.get(), g.get()), x.get());
}
inline tensor tp_gather(const tensor &x, const group &g) {
    return tensor::made_of(tt_tp_gather(x.get(), g.get()), x.get());
}

inline void tp_load_state_dict(module &m, const tt_named_tensors *full) { check(tt_tp_load_state_dict(m.get(), full)); }
/* `full` nullptr: this rank only gives its parts. */
inline void tp_save_state_dict(module &m, const tt_named_tensors *full) { check(tt_tp_save_state_dict(m.get(), full)); }

} // namespace tutti

#endif
