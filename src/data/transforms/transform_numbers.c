/* Transforms of numbers: ToTensor and Normalize. Divisions stay divisions, as in torchvision. */
#include "data/transforms/transform.h"

#include "base/error.h"
#include "data/loader/convert_kernels.h"
#include "tensor/shape/shape.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static tt_status to_tensor_fit(const tt_transform *self, const tt_tensor_spec *in, tt_tensor_spec *out) {
    *out = *in;
    out->dtype = TT_F32;
    if (in->dtype == TT_U8)
        return TT_OK;
    return tt__fail(TT_ERR_DTYPE, "%s: expected u8, got %s", self->cls->name, tt_dtype_name(in->dtype));
}

static tt_status to_tensor_apply(const tt_transform *self, const tt_tensor_spec *in, const void *from, void *to,
                                 tt_draws *draws) {
    (void)self, (void)draws;
    TT__LEVEL_CHOOSE(tt__convert_kernels)->normalize(to, from, (size_t)tt__shape_numel(&in->shape), 0, 1);
    return TT_OK;
}

tt_transform *tt_to_tensor(void) {
    static const tt__transform_class cls = {.name = "tt_to_tensor", .fit = to_tensor_fit, .apply = to_tensor_apply};
    const tt_transform t = {.cls = &cls};
    return tt__transform_new(&t, sizeof t);
}

/* ---- per channel ---- */

typedef struct channels {
    tt_transform base;
    int64_t n;
    float *mean, *std; /* (n) one allocation */
} channels;

static tt_status channels_fit(const tt_transform *self, const tt_tensor_spec *in, tt_tensor_spec *out) {
    const channels *c = (const channels *)self;
    *out = *in;
    if (in->dtype != TT_F32)
        return tt__fail(TT_ERR_DTYPE, "%s: expected f32, got %s; tt_to_tensor() comes before it", self->cls->name,
                        tt_dtype_name(in->dtype));
    if (c->n == 1 || (in->shape.ndim >= 1 && in->shape.dim[0] == c->n))
        return TT_OK;
    return tt__fail(TT_ERR_SHAPE, "%s: expected images of %" PRId64 " channels, got %" PRId64, self->cls->name, c->n,
                    in->shape.ndim ? in->shape.dim[0] : 1);
}

static tt_status channels_apply(const tt_transform *self, const tt_tensor_spec *in, const void *from, void *to,
                                tt_draws *draws) {
    const channels *c = (const channels *)self;
    int64_t plane = tt__shape_numel(&in->shape) / c->n;
    const float *x = from;
    float *y = to;
    (void)draws;
    for (int64_t k = 0; k < c->n; k++)
        for (int64_t i = k * plane; i < (k + 1) * plane; i++)
            y[i] = (x[i] - c->mean[k]) / c->std[k];
    return TT_OK;
}

static void channels_destroy(tt_transform *self) { free(((channels *)self)->mean); }

static tt_status check_channels(const double *mean, const double *std, int64_t n) {
    if (n < 1 || n > INT32_MAX || !mean || !std)
        return tt__fail(TT_ERR_INVALID, "tt_normalize_channels: expected at least 1 mean and std, got %s%" PRId64,
                        mean && std ? "" : "NULL and ", n);
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(mean[i]) || !isfinite(std[i]) || !((float)std[i] > 0))
            return tt__fail(TT_ERR_INVALID,
                            "tt_normalize_channels: channel %" PRId64
                            ": expected finite numbers and std > 0, got mean %g, std %g",
                            i, mean[i], std[i]);
    return TT_OK;
}

tt_transform *tt_normalize_channels(const double *mean, const double *std, int64_t n) {
    static const tt__transform_class cls = {
        .name = "tt_normalize_channels", .fit = channels_fit, .apply = channels_apply, .destroy = channels_destroy};
    if (check_channels(mean, std, n))
        return NULL;
    channels c = {.base.cls = &cls, .n = n, .mean = malloc(2 * (size_t)n * sizeof *c.mean)};
    if (!c.mean)
        return tt__fail_null(TT_ERR_MEMORY, "tt_normalize_channels: out of memory");
    c.std = c.mean + n;
    for (int64_t i = 0; i < n; i++) {
        c.mean[i] = (float)mean[i];
        c.std[i] = (float)std[i];
    }
    tt_transform *t = tt__transform_new(&c, sizeof c);
    if (!t)
        free(c.mean);
    return t;
}
