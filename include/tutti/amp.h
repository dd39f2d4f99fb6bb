/* tutti/amp.h: training in mixed precision: the gradient scaler, and models and optimizers set up for 16-bit floats.
 * Autocast itself is in autograd.h. docs/mixed_precision.md has all of it on one page. PyTorch: torch.cuda.amp; apex.
 * One thread at a time. */
#ifndef TUTTI_AMP_H
#define TUTTI_AMP_H

#include <tutti/optim.h>

TT_BEGIN_DECLS

/* ---- loss scaling ----
 *
 * f16 has no room for small gradients: the loss is multiplied by a scale before backward, gradients are divided by it
 * before the step, a step whose gradients are infinite or NaN is skipped, and the scale falls after such a step and
 * rises after many others. bf16 needs none of it.
 *
 *   tt_grad_scaler *scaler = tt_grad_scaler_new(0);
 *   tt_status status = tt_backward(tt_grad_scaler_scale(scaler, loss));
 *   if (!status) status = tt_grad_scaler_unscale_(scaler, sgd);        only to clip, or to look at gradients
 *   if (!status) status = tt_grad_scaler_step(scaler, sgd);
 *   if (!status) status = tt_grad_scaler_update(scaler);
 *
 * Under DDP gradients are the same on all ranks when backward returns, and so is what a scaler finds in them: all ranks
 * skip the same steps, and their scales stay equal. */

typedef struct tt_grad_scaler tt_grad_scaler;

typedef struct tt_grad_scaler_new_args {
    double init_scale; /* required: the first scale; 0 = 65536 */
    TT_OPTIONS;
    double growth_factor;    /* > 1; 0 = 2 */
    double backoff_factor;   /* above 0, below 1; 0 = 0.5 */
    int64_t growth_interval; /* steps in a row without infinities or NaN before the scale grows, >= 1; 0 = 2000 */
    bool disabled;           /* scales nothing, and steps always */
    char tt_end;             /* not an option: see base.h */
} tt_grad_scaler_new_args;

/* NULL on failure: TT_ERR_INVALID a value out of range, by name; TT_ERR_MEMORY. PyTorch: torch.cuda.amp.GradScaler.
 *   tt_grad_scaler_new(65536, .growth_interval = 100) */
TT_API tt_grad_scaler *tt_grad_scaler_new_with(const tt_grad_scaler_new_args *args, size_t size);
#define TT_GRAD_SCALER_NEW_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_grad_scaler_new(...) tt_grad_scaler_new_with(TT_ARGS(tt_grad_scaler_new_args, .init_scale = __VA_ARGS__))
#endif

/* loss times the scale, recorded; the loss itself where the scaler is disabled. NULL gives NULL. */
TT_API tt_tensor *tt_grad_scaler_scale(tt_grad_scaler *scaler, tt_tensor *loss);

/* Divide the gradients of all groups by the scale, in place, and look for infinities and NaN among them, both in one
 * pass. Gradients of 16 bits become the f32 gradients of the optimizer's master parameters
 * (tt_optimizer_master_params()). At most once for each optimizer between updates; a step does it if nobody has.
 * Errors: TT_ERR_STATE this optimizer's gradients were divided or stepped since the last update, no parameter has a
 * gradient, or a gradient changed its type; TT_ERR_INVALID NULL; TT_ERR_MEMORY. */
TT_API TT_NODISCARD tt_status tt_grad_scaler_unscale_(tt_grad_scaler *scaler, tt_optimizer *optimizer);

/* tt_optimizer_step(), unless the gradients have infinities or NaN; divides them first if that was not done. Errors:
 * TT_ERR_STATE a second step since the last update, or no parameter has a gradient; those of both calls. */
TT_API TT_NODISCARD tt_status tt_grad_scaler_step(tt_grad_scaler *scaler, tt_optimizer *optimizer);

/* Were there infinities or NaN when this optimizer's gradients were divided, since the last update? */
TT_API bool tt_grad_scaler_found_inf(const tt_grad_scaler *scaler, const tt_optimizer *optimizer);

/* End the iteration, after the steps of all optimizers: the scale times backoff_factor where one of them found
 * infinities or NaN, times growth_factor after growth_interval iterations in a row without. A scale that would become
 * infinite stays. Errors: TT_ERR_STATE no gradients were divided since the last update; TT_ERR_INVALID NULL. */
TT_API TT_NODISCARD tt_status tt_grad_scaler_update(tt_grad_scaler *scaler);

/* End the iteration with this scale, also where no gradients were divided; a disabled scaler stays as it is.
 * Errors: TT_ERR_INVALID NULL, a scale that is not above 0 or that f32 does not hold. PyTorch: update(new_scale). */
TT_API TT_NODISCARD tt_status tt_grad_scaler_update_to(tt_grad_scaler *scaler, double new_scale);

/* The scale now: 1 where the scaler is disabled or NULL. */
TT_API double tt_grad_scaler_get_scale(const tt_grad_scaler *scaler);

/* Does it scale? No: it is disabled or NULL. */
TT_API bool tt_grad_scaler_is_enabled(const tt_grad_scaler *scaler);

/* "scale", "growth_factor", "backoff_factor" (f64, scalars), "growth_interval" and "_growth_tracker" (i64), which
 * counts iterations; nothing of a disabled one. Borrowed until the next call of this; NULL, with the error recorded, if
 * memory is out. In a checkpoint: tt_checkpoint_save(..., .scaler = scaler). */
TT_API const tt_named_tensors *tt_grad_scaler_state_dict(tt_grad_scaler *scaler);

/* Load such a state; a disabled scaler takes anything and stays as it is. All or nothing. Errors: TT_ERR_INVALID
 * another number of entries (a disabled one was saved?), a value out of range; TT_ERR_NOT_FOUND a missing entry;
 * TT_ERR_SHAPE; by name. */
TT_API TT_NODISCARD tt_status tt_grad_scaler_load_state_dict(tt_grad_scaler *scaler, const tt_named_tensors *state);

/* NULL is allowed. */
TT_API void tt_grad_scaler_free(tt_grad_scaler *scaler);

/* ---- a model and its optimizer, set up at once ---- */

/* What is computed in which type; apex's names. The parameters that an optimizer updates are f32 in all of them. */
typedef enum tt_opt_level {
    TT_O1, /* the model runs under autocast; its parameters stay f32 */
    TT_O0, /* nothing is changed */
    TT_O2, /* as TT_O1, with parameters and buffers of `dtype`, except those of batch norms */
    TT_O3  /* parameters, buffers and all that is computed are of `dtype` */
} tt_opt_level;

typedef struct tt_amp_initialize_args {
    tt_module *model;        /* required */
    tt_optimizer *optimizer; /* required: over the model's parameters; NULL: there is none (evaluation) */
    TT_OPTIONS;
    tt_opt_level opt_level;  /* TT_O1 unless told otherwise */
    tt_dtype dtype;          /* TT_F16 or TT_BF16, the default */
    tt_grad_scaler **scaler; /* receives a scaler, the caller's to free: for TT_F16 one with the defaults, else (bf16,
                                TT_O0) a disabled one; NULL on failure */
    char tt_end;             /* not an option: see base.h */
} tt_amp_initialize_args;

/* Set a model up for mixed precision: from now on tt_module_forward() of it casts and autocasts as the level says, and
 * gives f32. Under TT_O2 and TT_O3 inputs are cast to `dtype`, parameters and buffers become `dtype` in place, and the
 * optimizer goes on with masters of f32, which begin with the same values. Call it after making the optimizer, before
 * wrapping (tt_ddp()) and before loading a checkpoint; once. All or nothing.
 *   tt_amp_initialize(model, adam, .opt_level = TT_O2)
 *   tt_amp_initialize(model, adam, .opt_level = TT_O2, .dtype = TT_F16, .scaler = &scaler)
 * Errors: TT_ERR_INVALID no model, a level that there is not; TT_ERR_DTYPE another dtype, or (TT_O2, TT_O3, with an
 * optimizer) f64 parameters, by name; TT_ERR_STATE it was called for this model, or (TT_O2, TT_O3) as tt_module_to();
 * TT_ERR_MEMORY. apex: amp.initialize. */
TT_API TT_NODISCARD tt_status tt_amp_initialize_with(const tt_amp_initialize_args *args, size_t size);
#define TT_AMP_INITIALIZE_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_amp_initialize(model_, ...) \
    tt_amp_initialize_with(TT_ARGS(tt_amp_initialize_args, .model = (model_), .optimizer = __VA_ARGS__))
#endif

TT_END_DECLS
#endif
