/* Models and optimizers for mixed precision, by apex's levels. */
#include "base/args.h"
#include "base/error.h"
#include "nn/module.h"
#include "optim/optimizer.h"

#include <tutti/amp.h>

static const char who[] = "tt_amp_initialize";

/* Masters are f32, so an optimizer of f64 parameters could not go on with them. */
static tt_status check_parameters(const tt_amp_initialize_args *a) {
    const tt_named_tensors *all = tt_module_parameters(a->model);
    for (int64_t i = 0; all && i < all->count; i++)
        if (tt_tensor_dtype(all->tensors[i]) == TT_F64)
            return tt__fail(TT_ERR_DTYPE,
                            "%s: expected f32 parameters, got \"%s\" of f64; call tt_module_to(model, TT_F32) before "
                            "the optimizer is made",
                            who, all->names[i]);
    return all ? TT_OK : tt_last_status();
}

static tt_status check_initialize(const tt_amp_initialize_args *a) {
    if (!a->model)
        return tt__fail_argument("%s: the model is NULL", who);
    if (a->opt_level != TT_O0 && a->opt_level != TT_O1 && a->opt_level != TT_O2 && a->opt_level != TT_O3)
        return tt__fail(TT_ERR_INVALID, "%s: expected opt_level TT_O0 to TT_O3, got %d", who, (int)a->opt_level);
    if (!tt__wants_master(a->dtype))
        return tt__fail(TT_ERR_DTYPE, "%s: expected dtype TT_F16 or TT_BF16, got %s", who, tt_dtype_name(a->dtype));
    if (tt__module_amp_of(a->model).on)
        return tt__fail(TT_ERR_STATE, "%s: it was called for this %s already", who, tt_module_class_name(a->model));
    bool converts = a->opt_level == TT_O2 || a->opt_level == TT_O3;
    return converts && a->optimizer ? check_parameters(a) : TT_OK;
}

/* Convert the model; the optimizer goes on with masters. */
static tt_status convert_both(const tt_amp_initialize_args *a) {
    tt_tensor **masters = NULL;
    tt_status status = a->optimizer ? tt__masters_prepare(who, a->optimizer, &masters) : TT_OK;
    if (!status)
        status =
            a->opt_level == TT_O2 ? tt__module_to_but_batch_norm(a->model, a->dtype) : tt_module_to(a->model, a->dtype);
    if (a->optimizer)
        tt__masters_take(a->optimizer, masters, !status);
    return status;
}

tt_status tt_amp_initialize_with(const tt_amp_initialize_args *args, size_t size) {
    tt_amp_initialize_args a;
    TT__ARGS_COPY(a, args, size);
    if (a.scaler)
        *a.scaler = NULL;
    if (a.dtype == TT_F32)
        a.dtype = TT_BF16; /* the default: none was given */
    TT__TRY(check_initialize(&a));
    bool scales = a.dtype == TT_F16 && a.opt_level != TT_O0;
    tt_grad_scaler *scaler = a.scaler ? tt_grad_scaler_new(0, .disabled = !scales) : NULL;
    if (a.scaler && !scaler)
        return tt_last_status();
    tt_status status = a.opt_level == TT_O2 || a.opt_level == TT_O3 ? convert_both(&a) : TT_OK;
    if (status) {
        tt_grad_scaler_free(scaler);
        return status;
    }
    if (a.scaler)
        *a.scaler = scaler;
    tt__module_set_amp(a.model, (tt__module_amp){.on = a.opt_level != TT_O0,
                                                 .casts_inputs = a.opt_level == TT_O2 || a.opt_level == TT_O3,
                                                 .autocasts = a.opt_level == TT_O1 || a.opt_level == TT_O2,
                                                 .dtype = a.dtype});
    return TT_OK;
}
