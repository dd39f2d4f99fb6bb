/* Losses as cases for gradcheck.h; the names are those of tests/vectors/torch-loss.json. */
#ifndef OP_CASES_LOSS_H
#define OP_CASES_LOSS_H

#include "gradcheck.h"

/* Of V classes, row by row: 0, 3, 6, ... modulo V; every third is `ignored`, if that is not -1. */
static tt_tensor *class_targets(const tt_tensor *x, int64_t ignored) {
    tt_tensor *t = tt_arange(tt_tensor_size(x, 0));
    for (int64_t i = 0; i < tt_tensor_size(x, 0); i++)
        tt_tensor_i64(t)[i] = i % 3 == 1 && ignored != -1 ? ignored : i * 3 % tt_tensor_size(x, 1);
    return tt_to_device(t, tt_tensor_device(x));
}

/* 0.5, 0.8, 1.1, ... of x's kind. */
static tt_tensor *class_weights(const tt_tensor *x) {
    tt_tensor *w = tt_add_scalar(tt_scale(tt_to(tt_arange(tt_tensor_size(x, 1)), TT_F32), 0.3), 0.5);
    return tt_to_device(tt_to(w, tt_tensor_dtype(x)), tt_tensor_device(x));
}

/* Probabilities from numbers in -1..1. */
static tt_tensor *half(tt_tensor *x) { return tt_add_scalar(tt_scale(x, 0.45), 0.5); }

static tt_tensor *f_nll_sum(tt_tensor *const *in) {
    return tt_nll_loss(in[0], class_targets(in[0], -1), .reduction = TT_REDUCTION_SUM);
}
static tt_tensor *f_nll_weight(tt_tensor *const *in) {
    return tt_nll_loss(in[0], class_targets(in[0], -100), .weight = class_weights(in[0]));
}
static tt_tensor *f_nll_none(tt_tensor *const *in) {
    return tt_nll_loss(in[0], class_targets(in[0], 2), .ignore_index = TT_INDEX(2), .reduction = TT_REDUCTION_NONE);
}
static tt_tensor *f_ce_ignore(tt_tensor *const *in) { return tt_cross_entropy(in[0], class_targets(in[0], -100)); }
static tt_tensor *f_ce_smooth(tt_tensor *const *in) {
    return tt_cross_entropy(in[0], class_targets(in[0], -1), .label_smoothing = 0.1);
}
static tt_tensor *f_ce_all(tt_tensor *const *in) {
    return tt_cross_entropy(in[0], class_targets(in[0], 1), .label_smoothing = 0.3, .ignore_index = TT_INDEX(1),
                            .weight = class_weights(in[0]));
}
static tt_tensor *f_ce_none(tt_tensor *const *in) {
    return tt_cross_entropy(in[0], class_targets(in[0], 1), .label_smoothing = 0.3, .ignore_index = TT_INDEX(1),
                            .weight = class_weights(in[0]), .reduction = TT_REDUCTION_NONE);
}
/* Of images (B,V,H,W), every third pixel ignored. */
static tt_tensor *image_targets(const tt_tensor *x) {
    tt_tensor *t = tt_empty(TT_SHAPE(tt_tensor_size(x, 0), tt_tensor_size(x, 2), tt_tensor_size(x, 3)), TT_I64);
    for (int64_t i = 0; i < tt_tensor_numel(t); i++)
        tt_tensor_i64(t)[i] = i % 3 == 1 ? -100 : i * 3 % tt_tensor_size(x, 1);
    return tt_to_device(t, tt_tensor_device(x));
}
static tt_tensor *f_ce_images(tt_tensor *const *in) {
    return tt_cross_entropy(in[0], image_targets(in[0]), .weight = class_weights(in[0]));
}
static tt_tensor *f_ce_images_none(tt_tensor *const *in) {
    return tt_cross_entropy(in[0], image_targets(in[0]), .reduction = TT_REDUCTION_NONE);
}
static tt_tensor *f_nll_images(tt_tensor *const *in) { return tt_nll_loss(in[0], image_targets(in[0])); }
static tt_tensor *f_mse_sum(tt_tensor *const *in) { return tt_mse_loss(in[0], in[1], .reduction = TT_REDUCTION_SUM); }
static tt_tensor *f_mse_none(tt_tensor *const *in) { return tt_mse_loss(in[0], in[1], .reduction = TT_REDUCTION_NONE); }
static tt_tensor *f_l1(tt_tensor *const *in) { return tt_l1_loss(in[0], in[1]); }
static tt_tensor *f_l1_none(tt_tensor *const *in) { return tt_l1_loss(in[0], in[1], .reduction = TT_REDUCTION_NONE); }
static tt_tensor *f_smooth_l1(tt_tensor *const *in) { return tt_smooth_l1_loss(in[0], in[1], 1); }
static tt_tensor *f_smooth_l1_half(tt_tensor *const *in) {
    return tt_smooth_l1_loss(in[0], in[1], 0.4, .reduction = TT_REDUCTION_SUM);
}
static tt_tensor *f_bce(tt_tensor *const *in) {
    return tt_binary_cross_entropy_with_logits(tt_scale(in[0], 4), half(in[1]));
}
static tt_tensor *f_bce_weights(tt_tensor *const *in) {
    return tt_binary_cross_entropy_with_logits(tt_scale(in[0], 4), half(in[1]), .weight = class_weights(in[0]),
                                               .pos_weight = tt_scale(class_weights(in[1]), 3));
}
static tt_tensor *f_bce_of_weights(tt_tensor *const *in) {
    return tt_binary_cross_entropy_with_logits(in[0], half(in[0]), .weight = half(in[1]), .pos_weight = half(in[2]));
}
static tt_tensor *f_kl_div(tt_tensor *const *in) { return tt_kl_div(in[0], half(in[1])); }
static tt_tensor *f_kl_div_batch(tt_tensor *const *in) {
    return tt_kl_div(in[0], half(in[1]), .reduction = TT_REDUCTION_BATCHMEAN);
}
static tt_tensor *f_kl_div_log(tt_tensor *const *in) {
    return tt_kl_div(in[0], in[1], .log_target = true, .reduction = TT_REDUCTION_NONE);
}

static const gradcheck_case loss_cases[] = {
    {"nll_loss sum", f_nll_sum, 1, {{2, {4, 5}}}},
    {"nll_loss weight", f_nll_weight, 1, {{2, {7, 5}}}},
    {"nll_loss none", f_nll_none, 1, {{2, {7, 5}}}},
    {"cross_entropy ignore", f_ce_ignore, 1, {{2, {7, 5}}}},
    {"cross_entropy smooth", f_ce_smooth, 1, {{2, {4, 19}}}},
    {"cross_entropy all", f_ce_all, 1, {{2, {7, 5}}}},
    {"cross_entropy none", f_ce_none, 1, {{2, {7, 5}}}},
    {"cross_entropy images", f_ce_images, 1, {{4, {2, 3, 4, 5}}}},
    {"cross_entropy images none", f_ce_images_none, 1, {{4, {2, 3, 4, 5}}}},
    {"nll_loss images", f_nll_images, 1, {{4, {2, 3, 4, 5}}}},
    {"mse_loss sum", f_mse_sum, 2, {{2, {4, 5}}, {2, {4, 5}}}},
    {"mse_loss none", f_mse_none, 2, {{2, {4, 5}}, {2, {4, 5}}}},
    {"l1_loss", f_l1, 2, {{2, {4, 5}}, {2, {4, 5}}}},
    {"l1_loss none", f_l1_none, 2, {{2, {4, 5}}, {2, {4, 5}}}},
    {"smooth_l1_loss", f_smooth_l1, 2, {{2, {4, 5}}, {2, {4, 5}}}},
    {"smooth_l1_loss half", f_smooth_l1_half, 2, {{2, {4, 5}}, {2, {4, 5}}}},
    {"bce_with_logits", f_bce, 2, {{2, {4, 5}}, {2, {4, 5}}}},
    {"bce_with_logits weights", f_bce_weights, 2, {{2, {4, 5}}, {2, {4, 5}}}},
    {"kl_div", f_kl_div, 2, {{2, {4, 5}}, {2, {4, 5}}}},
    {"kl_div batchmean", f_kl_div_batch, 2, {{2, {4, 5}}, {2, {4, 5}}}},
    {"kl_div log_target", f_kl_div_log, 2, {{2, {4, 5}}, {2, {4, 5}}}},
};

/* PyTorch gives these weights no gradient. */
static const gradcheck_case weight_cases[] = {
    {"bce_with_logits of weights", f_bce_of_weights, 3, {{2, {4, 5}}, {2, {4, 1}}, {1, {5}}}},
};

#endif
