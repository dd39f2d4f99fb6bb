/* tutti/comm_hooks.h: communication hooks, which send fewer bytes than averaging gradients as they are.
 *
 * Each function registers a hook on a wrapper (tt_ddp(), tt_elastic_ddp()) in place of its present one, as
 * tt_ddp_register_comm_hook() does; that call with NULL ends the hook. Collective, between steps: settings are compared
 * over the ranks. A hook's state belongs to the wrapper, and stays when the wrapper's group changes.
 *
 * Bytes that a rank sends for a bucket of C elements of f32 among N ranks, in units of (N-1)/N; without a hook 8 C:
 *   f16, bf16   4 C
 *   int8        2 C, and 8 C / block of scales
 *   top-k       8 N density C
 *   PowerSGD    8 rank (rows + columns) for each compressed matrix, 8 for each element of other gradients
 * After a step all ranks hold bitwise the same gradients, as without a hook. Gradients that are inf or NaN, or overflow
 * f16, give inf or NaN on all ranks, so that a gradient scaler finds them.
 *
 * Error feedback (Seide et al., "1-Bit Stochastic Gradient Descent", Interspeech 2014; Karimireddy et al., "Error
 * Feedback Fixes SignSGD", ICML 2019): the part of a rank's gradient that compression left out is added to its
 * next one. Each rank has its own errors, one number for each element; those of a parameter that no rank uses in a step
 * stay unchanged.
 *
 * Element types: all_reduce takes all; f16 and bf16 take f32, f64, and their own; int8, top-k and PowerSGD take f32
 * only. A wrapper with a parameter of another type is refused, by name (TT_ERR_UNSUPPORTED).
 *
 * Errors of all: TT_ERR_INVALID no wrapper, or an option out of its range, by name; TT_ERR_MISMATCH the ranks set
 * different hooks or options, and the hook before stays; TT_ERR_MEMORY, and those of tt_group_alloc(), for the buffers:
 * gradients are then averaged as without a hook. */
#ifndef TUTTI_COMM_HOOKS_H
#define TUTTI_COMM_HOOKS_H

#include <tutti/parallel.h>

TT_BEGIN_DECLS

/* Average as without a hook, as a base for comparisons. PyTorch: default_hooks.allreduce_hook. */
TT_API TT_NODISCARD tt_status tt_all_reduce_hook(tt_module *ddp);

/* Round gradients to 16 bits, divide by the number of ranks, round, sum, and round the sum (which is PyTorch's result
 * on two ranks; on more, its sums are rounded at each step). f16 is finer, but gradients from 65520 on become inf, and
 * those below 3e-8 zero; bf16 has f32's range. PyTorch: default_hooks.fp16_compress_hook, bf16_compress_hook. */
TT_API TT_NODISCARD tt_status tt_f16_hook(tt_module *ddp);
TT_API TT_NODISCARD tt_status tt_bf16_hook(tt_module *ddp);

typedef struct tt_int8_hook_args {
    tt_module *ddp; /* required */
    TT_OPTIONS;
    int64_t block;          /* elements that share a scale, 8 to 65536; 0 = 256 */
    bool no_error_feedback; /* forget what rounding left out */
    char tt_end;            /* not an option: see base.h */
} tt_int8_hook_args;

/* Round gradients to whole multiples, -127 to 127, of a scale for each block of elements. Each rank receives its slice
 * of all others' (all_to_all), averages it, rounds again, and all gather the slices. Both roundings have error feedback
 * (Tang et al., "DoubleSqueeze", ICML 2019). A block with an inf or NaN becomes NaN, and its errors zero.
 *   tt_int8_hook(ddp, .block = 128) */
TT_API TT_NODISCARD tt_status tt_int8_hook_with(const tt_int8_hook_args *args, size_t size);

typedef struct tt_top_k_hook_args {
    tt_module *ddp; /* required */
    TT_OPTIONS;
    double density;         /* the share of each gradient's elements that is sent, above 0 to 1; 0 = 0.01 */
    bool no_error_feedback; /* forget what is not sent */
    char tt_end;            /* not an option: see base.h */
} tt_top_k_hook_args;

/* Send only the elements of each gradient that are largest in magnitude (at least one), with their places; of equal
 * ones the first. All ranks gather all ranks' elements. Aji and Heafield, "Sparse Communication for Distributed
 * Gradient Descent", EMNLP 2017; Stich et al., "Sparsified SGD with Memory", NeurIPS 2018. inf and NaN count as
 * largest.
 *   tt_top_k_hook(ddp, .density = 0.05) */
TT_API TT_NODISCARD tt_status tt_top_k_hook_with(const tt_top_k_hook_args *args, size_t size);

typedef struct tt_powersgd_hook_args {
    tt_module *ddp; /* required */
    TT_OPTIONS;
    int rank; /* of the matrices that are sent; 0 = 1. PyTorch: matrix_approximation_rank */
    /* The first step that is compressed, counted from 0; 0 = 1000; below 0: the very first. PyTorch:
     * start_powerSGD_iter, which must be above 1 */
    int64_t start;
    double min_compression_rate;      /* compress if (rows + columns) * rank * this < rows * columns; 0 = 2 */
    bool no_error_feedback;           /* forget what the approximation left out. PyTorch: use_error_feedback */
    bool no_warm_start;               /* draw new matrices in each step. PyTorch: warm_start */
    double orthogonalization_epsilon; /* added to the length of columns, where rank is 1 or 2, as PyTorch does */
    uint32_t seed;                    /* of the first matrices. PyTorch: random_seed */
    char tt_end;                      /* not an option: see base.h */
} tt_powersgd_hook_args;

/* Approximate each gradient, seen as a matrix M (dimension 0, all others), by P Q': P = M Q is summed over the ranks
 * and made orthogonal, Q = M' P averaged. The next step begins with that Q. Gradients with one dimension, and those
 * that are too small to gain from it, are averaged as they are. Vogels et al., "PowerSGD: Practical Low-Rank Gradient
 * Compression", NeurIPS 2019. Draws the same numbers as PyTorch from the same seed (numpy's RandomState included), so
 * gradients agree; PyTorch: powerSGD_hook.
 *   tt_powersgd_hook(ddp, .rank = 4, .start = 10)
 * Two differences: a column of zeros, as a gradient of zeros gives, becomes a unit vector, where PyTorch makes NaN,
 * or with an epsilon leaves zeros for ever; and after a step with inf or NaN, all matrices of the affected buckets are
 * drawn again, and their errors become zero. */
TT_API TT_NODISCARD tt_status tt_powersgd_hook_with(const tt_powersgd_hook_args *args, size_t size);

/* The state of this rank's hook: "powersgd.error.fc.weight", "powersgd.q.fc.weight", "powersgd.step" ... Each rank
 * saves its own, as each has its own errors: tt_safetensors_save() to a file with the rank in its name.
 * tt_trainer_run(.comm_hook) has all ranks' in its checkpoints.
 * The list is the hook's, valid until the next call, or the hook's end. NULL: `ddp` has none of the hooks above, or no
 * memory.
 * Not collective. PyTorch: PowerSGDState can be pickled. */
TT_API const tt_named_tensors *tt_comm_hook_state_dict(tt_module *ddp);

/* Load a state of a hook of the same name and settings. Collective, between steps, on a wrapper that has a group. A
 * rank that has no state, as it is new, gives an empty list (TT_NAMED_TENSORS(0, NULL, NULL)). All ranks take the part
 * of the state that is alike on all (PowerSGD's step count, matrices and draws) from the rank that has come furthest.
 * Errors are each rank's own, and valid for that number of ranks only. On another number of ranks they begin at zero,
 * which loses what one step's compression left out; int8's errors of averages also do if buckets differ. The same holds
 * when a wrapper's group changes (tt_elastic_restore()).
 * Errors: TT_ERR_NOT_FOUND an entry is missing; TT_ERR_SHAPE, TT_ERR_DTYPE one that does not fit; TT_ERR_MISMATCH
 * another rank's list has failed, and it is named; TT_ERR_INVALID as tt_comm_hook_state_dict(), or a step count below
 * 0; TT_ERR_STATE no group, or a step is under way. After a failure errors and matrices begin anew on all ranks. */
TT_API TT_NODISCARD tt_status tt_comm_hook_load_state_dict(tt_module *ddp, const tt_named_tensors *state);

#define TT_INT8_HOOK_ARGS_INIT TT_ARGS_INIT
#define TT_TOP_K_HOOK_ARGS_INIT TT_ARGS_INIT
#define TT_POWERSGD_HOOK_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_int8_hook(...) tt_int8_hook_with(TT_ARGS(tt_int8_hook_args, .ddp = __VA_ARGS__))
#define tt_top_k_hook(...) tt_top_k_hook_with(TT_ARGS(tt_top_k_hook_args, .ddp = __VA_ARGS__))
#define tt_powersgd_hook(...) tt_powersgd_hook_with(TT_ARGS(tt_powersgd_hook_args, .ddp = __VA_ARGS__))
#endif

TT_END_DECLS
#endif
