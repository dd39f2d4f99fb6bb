/* tutti/optim.h: optimizers. Arithmetic is PyTorch's, to the bit (its AVX2 build). One thread at a time. */
#ifndef TUTTI_OPTIM_H
#define TUTTI_OPTIM_H

#include <tutti/nn.h>

TT_BEGIN_DECLS

typedef struct tt_optimizer tt_optimizer;

typedef struct tt_sgd_args {
    tt_named_tensors params; /* required: borrowed tensors, which must outlive the optimizer; the list is copied */
    double lr;               /* required: > 0 or 0 */
    double momentum;         /* >= 0 */
    double dampening;
    double weight_decay; /* >= 0 */
    bool nesterov;       /* needs momentum > 0 and no dampening */
    char tt_end;         /* not an option: see base.h */
} tt_sgd_args;

/* Stochastic gradient descent. PyTorch: torch.optim.SGD.
 *   tt_sgd(tt_module_parameters(model), 1e-3, .momentum = 0.9)
 * NULL on failure: TT_ERR_INVALID an empty list or a value out of range, by name. */
TT_API tt_optimizer *tt_sgd_with(const tt_sgd_args *args, size_t size);
#ifndef __cplusplus
#define tt_sgd(...) tt_sgd_with(TT_ARGS(tt_sgd_args, __VA_ARGS__))
#endif

/* Update every parameter that has a gradient. NULL: TT_ERR_INVALID. */
TT_API tt_status tt_optimizer_step(tt_optimizer *optimizer);

/* tt_zero_grad() on every parameter. */
TT_API void tt_optimizer_zero_grad(tt_optimizer *optimizer);

/* State as named tensors: "state.I.momentum_buffer" for parameter number I that has one. Borrowed until the next step. */
TT_API tt_named_tensors tt_optimizer_state_dict(tt_optimizer *optimizer);

/* Put state back. An entry of another name, shape or dtype is an error that names it, and nothing is changed. Parameters without an
 * entry start without state. */
TT_API tt_status tt_optimizer_load_state_dict(tt_optimizer *optimizer, tt_named_tensors state);

/* NULL is allowed. */
TT_API void tt_optimizer_free(tt_optimizer *optimizer);

TT_END_DECLS
#endif
