/* tutti/optim.h: optimizers. Arithmetic is PyTorch's, to the bit (its AVX2 build, foreach=False). One thread at a time.
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
 * `params` become group 0: borrowed tensors of f32 or f64, which must outlive the optimizer; the list is copied. Each
 * tensor may be in one place of one group.
 * NULL on failure: TT_ERR_INVALID an empty list or a value out of range, by name; TT_ERR_DTYPE a parameter of another
 * type. A list that is NULL because its object failed leaves that object's error. */

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
    double eps;          /* >= 0; 0 = 1e-8, likewise */
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
    double eps;          /* >= 0; 0 = 1e-8, likewise */
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

typedef struct tt_adadelta_args {
    const tt_named_tensors *params; /* required */
    double lr;                      /* required: >= 0; 1 is the paper's and PyTorch's default */
    TT_OPTIONS;
    double rho;          /* 0 to 1: what is kept of the mean of squares; 0 = 0.9, and a real 0 as in tt_adam */
    double eps;          /* >= 0; 0 = 1e-6, likewise */
    double weight_decay; /* >= 0; added to the gradient */
    bool maximize;
    char tt_end; /* not an option: see base.h */
} tt_adadelta_args;

/* Zeiler, 2012. PyTorch: torch.optim.Adadelta. State: "step", "square_avg", "acc_delta".
 *   tt_adadelta(tt_module_parameters(model), 1.0) */
TT_API tt_optimizer *tt_adadelta_with(const tt_adadelta_args *args, size_t size);

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

/* tt_zero_grad() on every parameter. */
TT_API void tt_optimizer_zero_grad(tt_optimizer *optimizer);

/* ---- state ---- */

/* State as named tensors, all groups' parameters numbered I = 0, 1, ... one after the other:
 *   "state.I.step" (i64, a scalar) and "state.I.momentum_buffer" for the state that a parameter has;
 *   "param_groups.G.lr" (f64, a scalar) for each option, and "param_groups.G.params" (i64): the numbers in group G.
 * Borrowed until the next step, change of options or call of this; NULL, with the error recorded, if memory is out. */
TT_API const tt_named_tensors *tt_optimizer_state_dict(tt_optimizer *optimizer);

/* Put state back, options of groups too. An entry of another name, shape or dtype is an error that names it, and
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
#define TT_ADADELTA_ARGS_INIT TT_ARGS_INIT
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
#define tt_adadelta(params_, ...) tt_adadelta_with(TT_ARGS(tt_adadelta_args, .params = (params_), .lr = __VA_ARGS__))
#define tt_optimizer_add_param_group(optimizer_, ...)                                                        \
    tt_optimizer_add_param_group_with(                                                                       \
        &(tt_optimizer_add_param_group_args){.optimizer = (optimizer_), .params = __VA_ARGS__, .tt_end = 0}, \
        offsetof(tt_optimizer_add_param_group_args, tt_end))
#define TT_OPTION_LIST(...) \
    (const tt_option[]) {   \
        __VA_ARGS__, { 0 }  \
    }
#endif

TT_END_DECLS
#endif
