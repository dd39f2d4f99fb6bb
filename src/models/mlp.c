#include "base/args.h"
#include "models/parts.h"

#include <tutti/models.h>

static const char who[] = "tt_model_mlp";

static tt_module *mlp_linear(const tt_model_mlp_args *a, int64_t i) {
    return tt_nn_linear(a->sizes[i], a->sizes[i + 1], .generator = a->generator, .dtype = a->dtype);
}

static tt_status mlp_build(tt_module *mlp, const tt_model_mlp_args *a) {
    TT__TRY(tt__add_numbered(mlp, tt_nn_flatten()));
    for (int64_t i = 0; i + 1 < a->count; i++) {
        TT__TRY(tt__add_numbered(mlp, mlp_linear(a, i)));
        if (i + 2 < a->count)
            TT__TRY(tt__add_numbered(mlp, tt_nn_relu()));
    }
    return TT_OK;
}

tt_module *tt_model_mlp_with(const tt_model_mlp_args *args, size_t size) {
    tt_model_mlp_args a;
    TT__ARGS_COPY(a, args, size);
    if (!a.sizes || a.count < 2)
        return tt__fail_null(TT_ERR_INVALID, "%s: expected at least 2 sizes, those of input and output, got %lld%s",
                             who, (long long)a.count, a.sizes ? "" : " and no list");
    if (tt__layer_dtype_check(who, a.dtype))
        return NULL;
    tt_module *mlp = tt__empty_sequential();
    tt_status status = mlp ? mlp_build(mlp, &a) : tt_last_status();
    return tt__model_made(who, mlp, status);
}
