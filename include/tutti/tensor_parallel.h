/* tutti/tensor_parallel.h: layers whose weights are divided among the ranks of a group. Shoeybi et al. (2019),
 * "Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism".
 *
 *   tt_nn_sequential(tt_nn_column_parallel_linear(512, 2048, tp), tt_nn_relu(),
 *                    tt_nn_row_parallel_linear(2048, 512, tp))
 *
 * Every rank of the group `tp` runs the same program on the same batch, and has the same loss and the same gradients of
 * parameters that are not divided. The first layer gives each rank its own columns of the result; the second one takes
 * them, and sums over the ranks. Together they make one all-reduce in forward and one in backward. Copies of such a
 * model on other ranks are trained by tt_ddp() on a group of their own (tutti/mesh.h).
 *
 * The weights begin as the parts of the matrix that the plain layer would draw from the same seed, so that a seed gives
 * one model, whatever the number of ranks; all ranks of the group must be seeded alike. Names are the plain layer's.
 *
 * n: the number of ranks of the group. Groups are borrowed while a layer or a record lives; after a group is destroyed
 * its layers can only be freed. Threads: as in parallel.h; making these layers, and their forward and backward, are
 * calls on the group. */
#ifndef TUTTI_TENSOR_PARALLEL_H
#define TUTTI_TENSOR_PARALLEL_H

#include <tutti/comm.h>
#include <tutti/nn.h>

TT_BEGIN_DECLS

/* ---- layers ---- */

typedef struct tt_nn_column_parallel_linear_args {
    int64_t in_features;  /* required */
    int64_t out_features; /* required: a multiple of n */
    tt_group *group;      /* required */
    TT_OPTIONS;
    bool no_bias;
    bool gather_output;      /* gather all columns on every rank */
    tt_generator *generator; /* NULL = the thread's default */
    tt_dtype dtype;          /* TT_F32, the default, or TT_F64 */
    char tt_end;             /* not an option: see base.h */
} tt_nn_column_parallel_linear_args;

/* x (B...,in), the same on all ranks -> this rank's columns (B...,out/n), or with .gather_output (B...,out). Parameters
 * "weight" (out/n,in) and "bias" (out/n): rows of the plain layer's. Collective, and so are its forward (with
 * .gather_output) and backward. PyTorch: ColwiseParallel on a Linear.
 *   tt_nn_column_parallel_linear(512, 2048, tp)
 * Errors: TT_ERR_INVALID sizes below 1, out_features that n does not divide; TT_ERR_DTYPE another dtype;
 * TT_ERR_MISMATCH names the argument that differs between ranks, or the rank that drew other values. */
TT_API tt_module *tt_nn_column_parallel_linear_with(const tt_nn_column_parallel_linear_args *args, size_t size);

typedef struct tt_nn_row_parallel_linear_args {
    int64_t in_features;  /* required: a multiple of n */
    int64_t out_features; /* required */
    tt_group *group;      /* required */
    TT_OPTIONS;
    bool no_bias;
    bool scatter_input;      /* x has all columns, the same on every rank */
    tt_generator *generator; /* NULL = the thread's default */
    tt_dtype dtype;          /* TT_F32, the default, or TT_F64 */
    char tt_end;             /* not an option: see base.h */
} tt_nn_row_parallel_linear_args;

/* This rank's columns x (B...,in/n), or with .scatter_input x (B...,in) -> (B...,out), the same on all ranks.
 * Parameters "weight" (out,in/n), columns of the plain layer's, and "bias" (out), which every rank has whole.
 * Collective, and so is its forward. PyTorch: RowwiseParallel on a Linear.
 *   tt_nn_row_parallel_linear(2048, 512, tp)
 * Errors: as above, for in_features. */
TT_API tt_module *tt_nn_row_parallel_linear_with(const tt_nn_row_parallel_linear_args *args, size_t size);

typedef struct tt_nn_vocab_parallel_embedding_args {
    int64_t num_embeddings; /* required: a multiple of n */
    int64_t embedding_dim;  /* required */
    tt_group *group;        /* required */
    TT_OPTIONS;
    tt_generator *generator; /* NULL = the thread's default */
    tt_dtype dtype;          /* TT_F32, the default, or TT_F64 */
    char tt_end;             /* not an option: see base.h */
} tt_nn_vocab_parallel_embedding_args;

/* indices (...) i64, the same on all ranks -> (...,C), the same on all ranks. Parameter "weight" (num_embeddings/n, C):
 * rows of the plain layer's. Collective, and so is its forward.
 *   tt_nn_vocab_parallel_embedding(50304, 768, tp)
 * Errors: as above, for num_embeddings; in forward TT_ERR_INVALID names an index out of range. */
TT_API tt_module *tt_nn_vocab_parallel_embedding_with(const tt_nn_vocab_parallel_embedding_args *args, size_t size);

/* ---- loss ---- */

typedef struct tt_tp_cross_entropy_args {
    tt_tensor *logits; /* required: this rank's classes (B,V/n), as many on all ranks */
    tt_tensor *target; /* required: i64 (B) in 0..V-1, or ignore_index; the same on all ranks */
    tt_group *group;   /* required */
    TT_OPTIONS;
    tt_index ignore_index; /* rows with this target don't count; not given: -100 */
    tt_reduction reduction;
    char tt_end; /* not an option: see base.h */
} tt_tp_cross_entropy_args;

/* tt_cross_entropy() of logits whose columns are divided among the ranks, as a column-parallel layer returns them. The
 * result is the same on all ranks. Logits are never gathered: a maximum, a sum and one logit of each row are
 * all-reduced in forward, and nothing in backward. f16 and bf16 are computed in f32.
 *   tt_tp_cross_entropy(tt_module_forward(head, h), target, tp)
 * Errors: as tt_cross_entropy(); TT_ERR_MISMATCH ranks with different numbers of rows or classes; those of
 * tt_all_reduce(). */
TT_API tt_tensor *tt_tp_cross_entropy_with(const tt_tp_cross_entropy_args *args, size_t size);

/* ---- operators of which the layers are made ----
 *
 * In a group of one rank each returns x itself. Errors: TT_ERR_INVALID no group; TT_ERR_SHAPE a last dimension that n
 * does not divide, or none; those of the collective, in backward, too. */

/* tt_tp_copy: x; its gradient is summed over the ranks. tt_tp_reduce: x summed over the ranks; its gradient is
 * unchanged. Megatron's f and g. */
TT_API tt_tensor *tt_tp_copy(tt_tensor *x, tt_group *group);
TT_API tt_tensor *tt_tp_reduce(tt_tensor *x, tt_group *group);

/* tt_tp_scatter: x (...,C) -> this rank's columns (...,C/n). tt_tp_gather: the columns x (...,C) of all ranks ->
 * (...,nC). The backward of one is the forward of the other. */
TT_API tt_tensor *tt_tp_scatter(tt_tensor *x, tt_group *group);
TT_API tt_tensor *tt_tp_gather(tt_tensor *x, tt_group *group);

/* ---- checkpoints ----
 *
 * `full` is the state_dict of the plain model: the same names, with whole tensors. */

/* Load this rank's part of each tensor into `module`. Not collective. Names, status and errors as those of
 * tt_module_load_state_dict(), strictly; TT_ERR_SHAPE names the whole shape that was expected. */
TT_API TT_NODISCARD tt_status tt_tp_load_state_dict(tt_module *module, const tt_named_tensors *full);

/* Join the parts: write every entry of `module`'s state_dict, whole, to the tensor of that name in `full`. Collective
 * over the groups of the layers; a rank whose `full` is NULL only gives its parts.
 *   tt_tp_save_state_dict(model, rank == 0 ? tt_module_state_dict(plain) : NULL)
 * Errors: TT_ERR_NOT_FOUND, TT_ERR_SHAPE, TT_ERR_DTYPE a tensor that `full` lacks or that does not fit, reported when
 * all parts were given; those of tt_all_gather(). */
TT_API TT_NODISCARD tt_status tt_tp_save_state_dict(tt_module *module, const tt_named_tensors *full);

#define TT_NN_COLUMN_PARALLEL_LINEAR_ARGS_INIT TT_ARGS_INIT
#define TT_NN_ROW_PARALLEL_LINEAR_ARGS_INIT TT_ARGS_INIT
#define TT_NN_VOCAB_PARALLEL_EMBEDDING_ARGS_INIT TT_ARGS_INIT
#define TT_TP_CROSS_ENTROPY_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_nn_column_parallel_linear(in_, out_, ...)                                                   \
    tt_nn_column_parallel_linear_with(TT_ARGS(tt_nn_column_parallel_linear_args, .in_features = (in_), \
                                              .out_features = (out_), .group = __VA_ARGS__))
#define tt_nn_row_parallel_linear(in_, out_, ...) \
    tt_nn_row_parallel_linear_with(               \
        TT_ARGS(tt_nn_row_parallel_linear_args, .in_features = (in_), .out_features = (out_), .group = __VA_ARGS__))
#define tt_nn_vocab_parallel_embedding(num_, dim_, ...)                                                        \
    tt_nn_vocab_parallel_embedding_with(TT_ARGS(tt_nn_vocab_parallel_embedding_args, .num_embeddings = (num_), \
                                                .embedding_dim = (dim_), .group = __VA_ARGS__))
#define tt_tp_cross_entropy(logits_, target_, ...) \
    tt_tp_cross_entropy_with(                      \
        TT_ARGS(tt_tp_cross_entropy_args, .logits = (logits_), .target = (target_), .group = __VA_ARGS__))
#endif

TT_END_DECLS
#endif
