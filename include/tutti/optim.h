/* tutti/optim.h: optimizers. Arithmetic is that of PyTorch 1.13, to the bit (its AVX2 build, foreach=False); 2.15
 * differs in last digits. One thread at a time.
 *
 * An optimizer has parameter groups, numbered from 0 in the order in which they were added. A group has its own
 * value of every option ("lr", ...), which can be read and set at any time. Options that are switches are 0 or 1. */
#ifndef TUTTI_OPTIM_H
#define TUTTI_OPTIM_H

#include <tutti/nn.h>

TT_BEGIN_DECLS

typedef struct tt_optimizer tt_optimizer;

/* ---- kinds
 *
 * `params` become group 0: tensors of floats, which the optimizer keeps: it and their module may be freed in any order;
 * the list is copied. Each tensor may be in one place of one group. For one of f16 or bf16 the optimizer keeps a master
 * of f32, which is what it updates, and writes it, rounded, to the parameter in each step; values written to the
 * parameter in between count.
 * NULL on failure: TT_ERR_INVALID an empty list, a value out of range, by name, or a parameter that repeats elements in
 * memory; TT_ERR_DTYPE a parameter of another type. A list that is NULL because its object failed leaves that object's
 * error. */

typedef struct tt_sgd_args {
    const tt_named_tensors *params; /* required */
    double lr;                      /* required: >= 0 */
    TT_OPTIONS;
    double momentum; /* >= 0 */
    double dampening;
    double weight_decay; /* >= 0 */
    bool nesterov;       /* needs momentum > 0 and no dampening */
    bool maximize;       /* climb: step along the gradient instead of against it. In every optimizer */
    char tt_end;         /* not an option: see base.h */
} tt_sgd_args;

/* Stochastic gradient descent. PyTorch: torch.optim.SGD. State: "momentum_buffer".
 *   tt_sgd(tt_module_parameters(model), 1e-3, .momentum = 0.9) */
TT_API tt_optimizer *tt_sgd_with(const tt_sgd_args *args, size_t size);

typedef struct tt_adam_args {
    const tt_named_tensors *params; /* required */
    double lr;                      /* required: >= 0 */
    TT_OPTIONS;
    double beta1, beta2; /* 0 to below 1; 0 = 0.9 and 0.999. tt_optimizer_set_option() takes a real 0 */
    double eps;          /* >= 0; 0 = 1e-8, and a real 0 as for the betas */
    double weight_decay; /* >= 0; added to the gradient */
    bool amsgrad;
    bool maximize;
    char tt_end; /* not an option: see base.h */
} tt_adam_args;

/* Kingma and Ba, ICLR 2015. PyTorch: torch.optim.Adam. State: "step", "exp_avg", "exp_avg_sq", with amsgrad
 * "max_exp_avg_sq".
 *   tt_adam(tt_module_parameters(model), 1e-3) */
TT_API tt_optimizer *tt_adam_with(const tt_adam_args *args, size_t size);

typedef struct tt_adamw_args {
    const tt_named_tensors *params; /* required */
    double lr;                      /* required: >= 0 */
    double weight_decay;            /* required: >= 0; of the parameters themselves. PyTorch's default is 0.01 */
    TT_OPTIONS;
    double beta1, beta2, eps; /* as tt_adam */
    bool amsgrad;
    bool maximize;
    char tt_end; /* not an option: see base.h */
} tt_adamw_args;

/* Loshchilov and Hutter, ICLR 2019: Adam with decoupled weight decay. PyTorch: torch.optim.AdamW. State as tt_adam's.
 *   tt_adamw(tt_module_parameters(model), 1e-3, 0.01, .beta2 = 0.95) */
TT_API tt_optimizer *tt_adamw_with(const tt_adamw_args *args, size_t size);

typedef struct tt_rmsprop_args {
    const tt_named_tensors *params; /* required */
    double lr;                      /* required: >= 0. PyTorch's default is 0.01 */
    TT_OPTIONS;
    double alpha;        /* >= 0: what is kept of the mean of squares; 0 = 0.99, and a real 0 as in tt_adam */
    double eps;          /* >= 0; 0 = 1e-8, and a real 0 as in tt_adam */
    double weight_decay; /* >= 0; added to the gradient */
    double momentum;     /* >= 0 */
    bool centered;       /* divide by the root of the variance, not of the mean of squares */
    bool maximize;
    char tt_end; /* not an option: see base.h */
} tt_rmsprop_args;

/* Tieleman and Hinton, 2012; centered: Graves, 2013. PyTorch: torch.optim.RMSprop. State: "step", "square_avg", with
 * momentum "momentum_buffer", centered "grad_avg".
 *   tt_rmsprop(tt_module_parameters(model), 0.01, .momentum = 0.9) */
TT_API tt_optimizer *tt_rmsprop_with(const tt_rmsprop_args *args, size_t size);

typedef struct tt_adagrad_args {
    const tt_named_tensors *params; /* required */
    double lr;                      /* required: >= 0. PyTorch's default is 0.01 */
    TT_OPTIONS;
    double lr_decay;                  /* >= 0: step t is of size lr / (1 + (t - 1) * lr_decay) */
    double weight_decay;              /* >= 0; added to the gradient */
    double initial_accumulator_value; /* >= 0: of the sum of squares */
    double eps;                       /* >= 0; 0 = 1e-10, and a real 0 as in tt_adam */
    bool maximize;
    char tt_end; /* not an option: see base.h */
} tt_adagrad_args;

/* Duchi, Hazan and Singer, JMLR 2011. PyTorch: torch.optim.Adagrad. State: "step", "sum", from a parameter's first step
 * on.
 *   tt_adagrad(tt_module_parameters(model), 0.01) */
TT_API tt_optimizer *tt_adagrad_with(const tt_adagrad_args *args, size_t size);

typedef struct tt_sparse_adam_args {
    const tt_named_tensors *params; /* required */
    double lr;                      /* required: >= 0. PyTorch's default is 0.001 */
    TT_OPTIONS;
    double beta1, beta2, eps; /* as tt_adam */
    bool maximize;
    char tt_end; /* not an option: see base.h */
} tt_sparse_adam_args;

/* Adam for sparse gradients (tt_sparse_grad_values()), and for no others: only rows that have a gradient change, and
 * only their means; all other rows keep both as they are. PyTorch: torch.optim.SparseAdam. State: "step", "exp_avg",
 * "exp_avg_sq", each of the parameter's size.
 *   tt_sparse_adam(tt_module_parameters(table), 1e-3)
 * tt_sgd() without momentum and weight decay and tt_adagrad() without weight decay take such gradients, too. All others
 * refuse them, and this one refuses a gradient of the whole: tt_optimizer_step() fails with TT_ERR_UNSUPPORTED and the
 * parameter's number and shape, and changes nothing of its group. */
TT_API tt_optimizer *tt_sparse_adam_with(const tt_sparse_adam_args *args, size_t size);

typedef struct tt_adadelta_args {
    const tt_named_tensors *params; /* required */
    double lr;                      /* required: >= 0; 1 is the paper's and PyTorch's default */
    TT_OPTIONS;
    double rho;          /* 0 to 1: what is kept of the mean of squares; 0 = 0.9, and a real 0 as in tt_adam */
    double eps;          /* >= 0; 0 = 1e-6, and a real 0 as in tt_adam */
    double weight_decay; /* >= 0; added to the gradient */
    bool maximize;
    char tt_end; /* not an option: see base.h */
} tt_adadelta_args;

/* Zeiler, 2012. PyTorch: torch.optim.Adadelta. State: "step", "square_avg", "acc_delta".
 *   tt_adadelta(tt_module_parameters(model), 1.0) */
TT_API tt_optimizer *tt_adadelta_with(const tt_adadelta_args *args, size_t size);

typedef struct tt_lamb_args {
    const tt_named_tensors *params; /* required */
    double lr;                      /* required: >= 0 */
    double weight_decay;            /* required: >= 0; 0.01 is usual */
    TT_OPTIONS;
    double beta1, beta2; /* as tt_adam */
    double eps;          /* >= 0; 0 = 1e-6, and a real 0 as in tt_adam */
    /* >= 0: gradients of all groups are scaled down to this norm; 0 = 1, and a real 0, no clipping, as in tt_adam */
    double max_grad_norm;
    bool no_bias_correction;
    bool no_grad_averaging; /* the first moment adds gradients as they are */
    bool no_adam_w_mode;    /* weight decay is added to the gradient */
    bool use_nvlamb;        /* the trust ratio also where there is no weight decay */
    bool maximize;
    char tt_end; /* not an option: see base.h */
} tt_lamb_args;

/* You et al., ICLR 2020, as NVIDIA's FusedLAMB computes it; PyTorch has none. For large batches. State: "step",
 * "exp_avg", "exp_avg_sq". Parameters in the host's memory.
 *   tt_lamb(tt_module_parameters(model), 1e-3, 0.01) */
TT_API tt_optimizer *tt_lamb_with(const tt_lamb_args *args, size_t size);

/* ---- parameter groups ---- */

/* The value of an option, by name. */
typedef struct tt_option {
    const char *name;
    double value;
} tt_option;

typedef struct tt_optimizer_add_param_group_args {
    tt_optimizer *optimizer;        /* required */
    const tt_named_tensors *params; /* required */
    TT_OPTIONS;
    const tt_option *options; /* those that differ from what the optimizer was made with, ended by name NULL */
    char tt_end;              /* not an option: see base.h */
} tt_optimizer_add_param_group_args;

/* Add a group; its number is the number of groups before. PyTorch: Optimizer.add_param_group.
 *   tt_optimizer_add_param_group(sgd, tt_module_parameters(head), .options = TT_OPTION_LIST({"lr", 0.1}, {"momentum",
 *   0}))
 * Errors: as of the constructors, and of tt_optimizer_set_option(); nothing is added then. */
TT_API TT_NODISCARD tt_status tt_optimizer_add_param_group_with(const tt_optimizer_add_param_group_args *args,
                                                                size_t size);

/* How many groups; the name of option number i, NULL if there is none. 0 and NULL for NULL. */
TT_API int64_t tt_optimizer_group_count(const tt_optimizer *optimizer);
TT_API const char *tt_optimizer_option_name(const tt_optimizer *optimizer, int64_t i);

/* All groups, for tt_optimizer_set_option(). */
#define TT_ALL_GROUPS (-1)

/* Read / set an option of a group; it holds from the next step on.
 *   tt_optimizer_set_option(adam, TT_ALL_GROUPS, "lr", 1e-4)
 * Errors: TT_ERR_NOT_FOUND no such group, or no such option (the text lists those there are); TT_ERR_INVALID a value
 * that the constructor would refuse (nothing is changed). */
TT_API TT_NODISCARD tt_status tt_optimizer_get_option(const tt_optimizer *optimizer, int64_t group, const char *name,
                                                      double *value);
TT_API TT_NODISCARD tt_status tt_optimizer_set_option(tt_optimizer *optimizer, int64_t group, const char *name,
                                                      double value);

/* ---- a step ---- */

/* Update every parameter that has a gradient. Errors: TT_ERR_INVALID NULL; TT_ERR_STATE a parameter that has another
 * type or size than when it was added; TT_ERR_MEMORY no memory for state. */
TT_API TT_NODISCARD tt_status tt_optimizer_step(tt_optimizer *optimizer);

/* The parameters that steps update, borrowed, named by their numbers: the program's own of f32 and f64, and the masters
 * of those of f16 and bf16. The masters' gradients are f32, and there once tt_grad_scaler_unscale_() or a step has made
 * them: these are the ones to clip. Valid until the next call of this. NULL for NULL, or if memory is out. apex:
 * amp.master_params. */
TT_API const tt_named_tensors *tt_optimizer_master_params(tt_optimizer *optimizer);

/* tt_zero_grad() on every parameter. */
TT_API void tt_optimizer_zero_grad(tt_optimizer *optimizer);

/* ---- state ---- */

/* State as named tensors, all groups' parameters numbered I = 0, 1, ... one after the other:
 *   "state.I.master_param" (f32) for a parameter of f16 or bf16; loading without it keeps the parameter's own values;
 *   "state.I.step" (i64, a scalar) and "state.I.momentum_buffer" for the state that a parameter has;
 *   "param_groups.G.lr" (f64, a scalar) for each option, and "param_groups.G.params" (i64): the numbers in group G.
 * Borrowed until the next step, change of options or call of this; NULL, with the error recorded, if memory is out. */
TT_API const tt_named_tensors *tt_optimizer_state_dict(tt_optimizer *optimizer);

/* Load such a state, the groups' options too. An entry of another name, shape or dtype is an error that names it, and
 * nothing is changed. Parameters without an entry start without state; options without an entry stay. A step may be
 * of any type (PyTorch's is f32). */
TT_API TT_NODISCARD tt_status tt_optimizer_load_state_dict(tt_optimizer *optimizer, const tt_named_tensors *state);

/* NULL is allowed. */
TT_API void tt_optimizer_free(tt_optimizer *optimizer);

#define TT_SGD_ARGS_INIT TT_ARGS_INIT
#define TT_ADAM_ARGS_INIT TT_ARGS_INIT
#define TT_ADAMW_ARGS_INIT TT_ARGS_INIT
#define TT_RMSPROP_ARGS_INIT TT_ARGS_INIT
#define TT_ADAGRAD_ARGS_INIT TT_ARGS_INIT
#define TT_SPARSE_ADAM_ARGS_INIT TT_ARGS_INIT
#define TT_ADADELTA_ARGS_INIT TT_ARGS_INIT
#define TT_LAMB_ARGS_INIT TT_ARGS_INIT
#define TT_OPTIMIZER_ADD_PARAM_GROUP_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_sgd(params_, ...) \
    tt_sgd_with(&(tt_sgd_args){.params = (params_), .lr = __VA_ARGS__, .tt_end = 0}, offsetof(tt_sgd_args, tt_end))
#define tt_adam(params_, ...) \
    tt_adam_with(&(tt_adam_args){.params = (params_), .lr = __VA_ARGS__, .tt_end = 0}, offsetof(tt_adam_args, tt_end))
#define tt_adamw(params_, lr_, ...)                                                                             \
    tt_adamw_with(&(tt_adamw_args){.params = (params_), .lr = (lr_), .weight_decay = __VA_ARGS__, .tt_end = 0}, \
                  offsetof(tt_adamw_args, tt_end))
#define tt_rmsprop(params_, ...) tt_rmsprop_with(TT_ARGS(tt_rmsprop_args, .params = (params_), .lr = __VA_ARGS__))
#define tt_adagrad(params_, ...) tt_adagrad_with(TT_ARGS(tt_adagrad_args, .params = (params_), .lr = __VA_ARGS__))
#define tt_sparse_adam(params_, ...) \
    tt_sparse_adam_with(TT_ARGS(tt_sparse_adam_args, .params = (params_), .lr = __VA_ARGS__))
#define tt_adadelta(params_, ...) tt_adadelta_with(TT_ARGS(tt_adadelta_args, .params = (params_), .lr = __VA_ARGS__))
#define tt_lamb(params_, lr_, ...) \
    tt_lamb_with(TT_ARGS(tt_lamb_args, .params = (params_), .lr = (lr_), .weight_decay = __VA_ARGS__))
#define tt_optimizer_add_param_group(optimizer_, ...)                                                        \
    tt_optimizer_add_param_group_with(                                                                       \
        &(tt_optimizer_add_param_group_args){.optimizer = (optimizer_), .params = __VA_ARGS__, .tt_end = 0}, \
        offsetof(tt_optimizer_add_param_group_args, tt_end))
#define TT_OPTION_LIST(...) \
    (const tt_option[]) {   \
        __VA_ARGS__, { 0 }  \
    }
#endif

/* ---- gradient clipping ---- */

typedef struct tt_clip_grad_norm_args {
    const tt_named_tensors *params; /* required: gradients f32 or f64; those that have none are passed over */
    double max_norm;                /* required: >= 0 */
    TT_OPTIONS;
    double norm_type;        /* > 0, also INFINITY; 0 = 2 */
    bool error_if_nonfinite; /* a norm that is infinite or NaN is TT_ERR_INVALID, and nothing is changed */
    double *total_norm;      /* receives the norm before clipping */
    char tt_end;             /* not an option: see base.h */
} tt_clip_grad_norm_args;

/* Scale all gradients by max_norm / (their norm + 1e-6), if that is below 1, in place. The norm is that of all of them
 * as one vector, added up in f64. After backward and before the optimizer's step; under DDP every rank finds the same
 * one. PyTorch: nn.utils.clip_grad_norm_.
 *   tt_clip_grad_norm_(tt_module_parameters(model), 1.0, .total_norm = &norm)
 * Errors: TT_ERR_INVALID a value out of range; TT_ERR_DTYPE; TT_ERR_MEMORY. */
TT_API TT_NODISCARD tt_status tt_clip_grad_norm_with(const tt_clip_grad_norm_args *args, size_t size);
#define TT_CLIP_GRAD_NORM_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_clip_grad_norm_(params_, ...) \
    tt_clip_grad_norm_with(TT_ARGS(tt_clip_grad_norm_args, .params = (params_), .max_norm = __VA_ARGS__))
#endif

/* Move every element of the gradients into -clip_value .. clip_value, in place. PyTorch: nn.utils.clip_grad_value_.
 * Errors as above. */
TT_API TT_NODISCARD tt_status tt_clip_grad_value_(const tt_named_tensors *params, double clip_value);

/* ---- averages of parameters ---- */

typedef struct tt_ema tt_ema;

typedef struct tt_ema_new_args {
    const tt_named_tensors *params; /* required: tensors, which are kept until the average is freed; names are copied */
    double decay;                   /* required: 0 to 1; 0.999 is usual */
    TT_OPTIONS;
    bool warm_up; /* in update n = 0, 1, ... decay is at most (1 + n) / (10 + n) */
    char tt_end;  /* not an option: see base.h */
} tt_ema_new_args;

/* An exponential moving average of each tensor: the first update copies it, each later one makes
 * average * decay + tensor * (1 - decay), to PyTorch's bits. What is neither f32 nor f64 (a count among a module's
 * buffers) is copied. PyTorch: optim.swa_utils.AveragedModel with get_ema_avg_fn(decay).
 *   tt_ema_new(tt_module_parameters(model), 0.999)
 * NULL on failure: TT_ERR_INVALID an empty or wrong list, decay out of range; TT_ERR_UNSUPPORTED a tensor that is not
 * in the host's memory; TT_ERR_MEMORY. */
TT_API tt_ema *tt_ema_new_with(const tt_ema_new_args *args, size_t size);
#define TT_EMA_NEW_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_ema_new(params_, ...) tt_ema_new_with(TT_ARGS(tt_ema_new_args, .params = (params_), .decay = __VA_ARGS__))
#endif

/* Take the tensors' values into the averages, after an optimizer's step. Errors: TT_ERR_INVALID NULL; TT_ERR_STATE a
 * tensor that has another type or shape than when the average was made; TT_ERR_MEMORY. */
TT_API TT_NODISCARD tt_status tt_ema_update(tt_ema *ema);

/* Evaluate with the averages: keep the tensors' own values aside, overwrite them with the averages, and put their own
 * values back. Errors: as above; TT_ERR_STATE to restore what was not stored. */
TT_API TT_NODISCARD tt_status tt_ema_store(tt_ema *ema);
TT_API TT_NODISCARD tt_status tt_ema_copy_to(tt_ema *ema);
TT_API TT_NODISCARD tt_status tt_ema_restore(tt_ema *ema);

/* "n_averaged" (i64, the number of updates) and "module.NAME" for each average, as AveragedModel's. Borrowed until the
 * next update or call of this; NULL, with the error recorded, if memory is out. */
TT_API const tt_named_tensors *tt_ema_state_dict(tt_ema *ema);

/* Load such a state. All or nothing. Errors: TT_ERR_INVALID another number of entries; TT_ERR_NOT_FOUND a missing one;
 * TT_ERR_SHAPE, TT_ERR_DTYPE; all by name. */
TT_API TT_NODISCARD tt_status tt_ema_load_state_dict(tt_ema *ema, const tt_named_tensors *state);

/* NULL is allowed. */
TT_API void tt_ema_free(tt_ema *ema);

/* ---- learning-rate schedulers
 *
 * A scheduler sets the option "lr" of all groups that its optimizer has when it is made; groups added later keep
 * theirs. It begins epoch 0 when it is made and goes to the next one with each tt_lr_scheduler_step(), after the
 * epoch's (or, as one counts, the batch's) optimizer steps. Rates are PyTorch's to the bit: like PyTorch's, most
 * formulas go from the rate that a group has now, so that schedulers can be combined and rates changed in between. A
 * rate that would come out negative (by rounding, or a chain of schedulers) is 0 instead.
 *
 * The optimizer is borrowed and must outlive the scheduler. Make schedulers before loading a checkpoint. None of these
 * calls blocks; one thread at a time may use an optimizer and its schedulers.
 * NULL on failure: TT_ERR_INVALID a value out of range, by name. An optimizer that is NULL because it failed leaves
 * that object's error. */

typedef struct tt_lr_scheduler tt_lr_scheduler;

typedef struct tt_step_lr_args {
    tt_optimizer *optimizer; /* required */
    int64_t step_size;       /* required: >= 1 */
    TT_OPTIONS;
    double gamma; /* > 0; 0 = 0.1 */
    char tt_end;  /* not an option: see base.h */
} tt_step_lr_args;

/* Every step_size epochs times gamma. PyTorch: lr_scheduler.StepLR.
 *   tt_step_lr(adadelta, 1, .gamma = 0.7) */
TT_API tt_lr_scheduler *tt_step_lr_with(const tt_step_lr_args *args, size_t size);

typedef struct tt_multi_step_lr_args {
    tt_optimizer *optimizer;   /* required */
    const int64_t *milestones; /* required: rising, >= 1; copied */
    int64_t count;             /* required: of milestones */
    TT_OPTIONS;
    double gamma; /* > 0; 0 = 0.1 */
    char tt_end;  /* not an option: see base.h */
} tt_multi_step_lr_args;

/* At each milestone times gamma; twice at one that is listed twice. PyTorch: lr_scheduler.MultiStepLR.
 *   tt_multi_step_lr(sgd, ((int64_t[]){30, 80}), 2) */
TT_API tt_lr_scheduler *tt_multi_step_lr_with(const tt_multi_step_lr_args *args, size_t size);

/* Every epoch times gamma, > 0. PyTorch: lr_scheduler.ExponentialLR. */
TT_API tt_lr_scheduler *tt_exponential_lr(tt_optimizer *optimizer, double gamma);

/* Times factor, above 0 and at most 1, for the first total_iters epochs. PyTorch: lr_scheduler.ConstantLR, whose
 * defaults are 1/3 and 5. */
TT_API tt_lr_scheduler *tt_constant_lr(tt_optimizer *optimizer, double factor, int64_t total_iters);

/* From start_factor (above 0, at most 1) to end_factor (0 to 1) times the rate, by equal steps over total_iters epochs.
 * PyTorch: lr_scheduler.LinearLR, whose defaults are 1/3, 1 and 5. */
TT_API tt_lr_scheduler *tt_linear_lr(tt_optimizer *optimizer, double start_factor, double end_factor,
                                     int64_t total_iters);

typedef struct tt_cosine_annealing_lr_args {
    tt_optimizer *optimizer; /* required */
    int64_t T_max;           /* required: epochs from the highest to the lowest rate, >= 1 */
    TT_OPTIONS;
    double eta_min; /* the lowest rate, >= 0 */
    char tt_end;    /* not an option: see base.h */
} tt_cosine_annealing_lr_args;

/* Half a cosine down, and up again if there are more epochs. PyTorch: lr_scheduler.CosineAnnealingLR.
 *   tt_cosine_annealing_lr(sgd, epochs) */
TT_API tt_lr_scheduler *tt_cosine_annealing_lr_with(const tt_cosine_annealing_lr_args *args, size_t size);

typedef struct tt_cosine_annealing_warm_restarts_args {
    tt_optimizer *optimizer; /* required */
    int64_t T_0;             /* required: epochs to the first restart, >= 1 */
    TT_OPTIONS;
    int64_t T_mult; /* each cycle is so many times as long as the one before, >= 1; 0 = 1 */
    double eta_min; /* the lowest rate, >= 0 */
    char tt_end;    /* not an option: see base.h */
} tt_cosine_annealing_warm_restarts_args;

/* Half a cosine down, then at once to the highest rate: Loshchilov and Hutter, ICLR 2017. PyTorch:
 * lr_scheduler.CosineAnnealingWarmRestarts. */
TT_API tt_lr_scheduler *tt_cosine_annealing_warm_restarts_with(const tt_cosine_annealing_warm_restarts_args *args,
                                                               size_t size);

typedef struct tt_one_cycle_lr_args {
    tt_optimizer *optimizer; /* required */
    double max_lr;           /* required: of all groups, >= 0 */
    int64_t total_steps;     /* required: of the cycle, >= 1 */
    TT_OPTIONS;
    double pct_start;        /* the part of the cycle in which the rate rises, to 1; 0 = 0.3 */
    bool anneal_linear;      /* straight lines instead of cosines */
    bool no_cycle_momentum;  /* leave "momentum", or "beta1", as it is; needed where an optimizer has neither */
    double base_momentum;    /* the lowest, at max_lr; 0 = 0.85 */
    double max_momentum;     /* the highest, at both ends; 0 = 0.95 */
    double div_factor;       /* the rate begins at max_lr / div_factor; 0 = 25 */
    double final_div_factor; /* the rate ends at the first one / final_div_factor; 0 = 1e4 */
    bool three_phase;        /* the rate falls to where it began, then on to the end */
    char tt_end;             /* not an option: see base.h */
} tt_one_cycle_lr_args;

/* Smith and Topin, 2018; for batches rather than epochs. PyTorch: lr_scheduler.OneCycleLR. A step more than total_steps
 * is TT_ERR_STATE.
 *   tt_one_cycle_lr(sgd, 0.1, epochs * batches) */
TT_API tt_lr_scheduler *tt_one_cycle_lr_with(const tt_one_cycle_lr_args *args, size_t size);

/* Return the factor of the first rate of `group` in this epoch. */
typedef double (*tt_lr_lambda)(int64_t epoch, int64_t group, void *user);

/* A function of the program's own, called once for each group and epoch; `user` is handed back. PyTorch:
 * lr_scheduler.LambdaLR. */
TT_API tt_lr_scheduler *tt_lambda_lr(tt_optimizer *optimizer, tt_lr_lambda lambda, void *user);

/* n schedulers (1 to 64) of one optimizer, one after the other: number i begins, at its own epoch 0, in epoch
 * milestones[i - 1]; n - 1 rising milestones, copied. The schedulers become its own, whether it fails or not. PyTorch:
 * lr_scheduler.SequentialLR.
 *   tt_sequential_lr(((tt_lr_scheduler *[]){tt_linear_lr(adam, 0.1, 1, 5), tt_cosine_annealing_lr(adam, 95)}), 2,
 *                    ((int64_t[]){5})) */
TT_API tt_lr_scheduler *tt_sequential_lr(tt_lr_scheduler *const *schedulers, int64_t n, const int64_t *milestones);

/* All n schedulers (1 to 64) of one optimizer in every step, in this order. They become its own, whether it fails or
 * not. PyTorch: lr_scheduler.ChainedScheduler. */
TT_API tt_lr_scheduler *tt_chained_scheduler(tt_lr_scheduler *const *schedulers, int64_t n);

typedef struct tt_reduce_lr_on_plateau_args {
    tt_optimizer *optimizer; /* required */
    int64_t patience;        /* required: so many epochs without improvement change nothing; PyTorch's default is 10 */
    TT_OPTIONS;
    bool mode_max;      /* the metric is better when it is higher */
    double factor;      /* below 1; 0 = 0.1 */
    double threshold;   /* what counts as better: by this part of the best metric; 0 = 1e-4 */
    bool threshold_abs; /* `threshold` is an amount, not a part */
    int64_t cooldown;   /* epochs after a reduction in which nothing is counted */
    double min_lr;
    double eps;  /* a smaller reduction than this is none; 0 = 1e-8 */
    char tt_end; /* not an option: see base.h */
} tt_reduce_lr_on_plateau_args;

/* A smaller rate when a metric stops improving; steps by tt_lr_scheduler_step_metric(). PyTorch:
 * lr_scheduler.ReduceLROnPlateau.
 *   tt_reduce_lr_on_plateau(sgd, 10, .factor = 0.5) */
TT_API tt_lr_scheduler *tt_reduce_lr_on_plateau_with(const tt_reduce_lr_on_plateau_args *args, size_t size);

/* Go to the next epoch. Errors: TT_ERR_INVALID NULL, the wrong one of the two calls, a rate that is not finite (rates
 * stay as they are); TT_ERR_STATE see tt_one_cycle_lr. */
TT_API TT_NODISCARD tt_status tt_lr_scheduler_step(tt_lr_scheduler *scheduler);
TT_API TT_NODISCARD tt_status tt_lr_scheduler_step_metric(tt_lr_scheduler *scheduler, double metric);

/* The rate of a group that the last step set. Errors: TT_ERR_INVALID NULL; TT_ERR_NOT_FOUND no such group. */
TT_API TT_NODISCARD tt_status tt_lr_scheduler_last_lr(const tt_lr_scheduler *scheduler, int64_t group, double *lr);

/* The epoch: the number of steps since the scheduler was made. 0 for NULL. */
TT_API int64_t tt_lr_scheduler_last_epoch(const tt_lr_scheduler *scheduler);

/* Where it stands and what it was made with, as named tensors: "last_epoch" (i64), "base_lrs" and "_last_lr" (f64, a
 * number for each group), and what its kind has ("gamma", f64; "milestones", i64; "_schedulers.I.NAME" of those it is
 * made of). Borrowed until the next call of this; NULL, with the error recorded, if memory is out. */
TT_API const tt_named_tensors *tt_lr_scheduler_state_dict(tt_lr_scheduler *scheduler);

/* Load such a state into a scheduler of the same kinds. Rates are the optimizer's state, and are not set. All or
 * nothing. Errors: TT_ERR_INVALID another number of entries, a value out of range; TT_ERR_NOT_FOUND a missing entry;
 * TT_ERR_SHAPE, TT_ERR_DTYPE; all by name. */
TT_API TT_NODISCARD tt_status tt_lr_scheduler_load_state_dict(tt_lr_scheduler *scheduler,
                                                              const tt_named_tensors *state);

/* NULL is allowed. */
TT_API void tt_lr_scheduler_free(tt_lr_scheduler *scheduler);

#define TT_STEP_LR_ARGS_INIT TT_ARGS_INIT
#define TT_MULTI_STEP_LR_ARGS_INIT TT_ARGS_INIT
#define TT_COSINE_ANNEALING_LR_ARGS_INIT TT_ARGS_INIT
#define TT_COSINE_ANNEALING_WARM_RESTARTS_ARGS_INIT TT_ARGS_INIT
#define TT_ONE_CYCLE_LR_ARGS_INIT TT_ARGS_INIT
#define TT_REDUCE_LR_ON_PLATEAU_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_step_lr(optimizer_, ...) \
    tt_step_lr_with(TT_ARGS(tt_step_lr_args, .optimizer = (optimizer_), .step_size = __VA_ARGS__))
#define tt_multi_step_lr(optimizer_, milestones_, ...) \
    tt_multi_step_lr_with(                             \
        TT_ARGS(tt_multi_step_lr_args, .optimizer = (optimizer_), .milestones = (milestones_), .count = __VA_ARGS__))
#define tt_cosine_annealing_lr(optimizer_, ...) \
    tt_cosine_annealing_lr_with(TT_ARGS(tt_cosine_annealing_lr_args, .optimizer = (optimizer_), .T_max = __VA_ARGS__))
#define tt_cosine_annealing_warm_restarts(optimizer_, ...) \
    tt_cosine_annealing_warm_restarts_with(                \
        TT_ARGS(tt_cosine_annealing_warm_restarts_args, .optimizer = (optimizer_), .T_0 = __VA_ARGS__))
#define tt_one_cycle_lr(optimizer_, max_lr_, ...) \
    tt_one_cycle_lr_with(                         \
        TT_ARGS(tt_one_cycle_lr_args, .optimizer = (optimizer_), .max_lr = (max_lr_), .total_steps = __VA_ARGS__))
#define tt_reduce_lr_on_plateau(optimizer_, ...) \
    tt_reduce_lr_on_plateau_with(                \
        TT_ARGS(tt_reduce_lr_on_plateau_args, .optimizer = (optimizer_), .patience = __VA_ARGS__))
#endif

TT_END_DECLS
#endif
