/* Normalisation, attention, losses, products and convolutions of other kinds. */
#ifndef PARITY_LAYERS_H
#define PARITY_LAYERS_H

#include "parity_conv.h"

#define PARITY_REDUCTION ((tt_reduction)INT("reduction", 0))

/* The last `count` dimensions of x. */
static inline tt_shape parity_last(const parity_call *c, int count) {
    tt_shape shape = {.ndim = count};
    for (int d = 0; d < count; d++)
        shape.dim[d] = tt_tensor_size(c->in[0], d - count);
    return shape;
}

PARITY(batch_norm, tt_batch_norm(in[0], .weight = in[1], .bias = in[2], .training = true, .eps = NUMBER("eps", 0)))

static void parity_batch_norm_running(parity_call *c) {
    tt_tensor **in = c->in;
    parity_give(c, tt_batch_norm(in[0], .weight = in[1], .bias = in[2], .running_mean = in[3], .running_var = in[4],
                                 .training = true, .momentum = NUMBER("momentum", 0), .eps = NUMBER("eps", 0)));
    parity_give(c, in[3]);
    parity_give(c, in[4]);
}
PARITY_OP(batch_norm_running)

PARITY(batch_norm_eval,
       tt_batch_norm(in[0], .weight = in[1], .bias = in[2], .running_mean = in[3], .running_var = in[4]))
PARITY(rms_norm, tt_rms_norm(in[0], parity_last(c, INT("dims", 1)), .weight = in[1], .eps = NUMBER("eps", 0)))
PARITY(layer_norm,
       tt_layer_norm(in[0], parity_last(c, INT("dims", 1)), .weight = in[1], .bias = in[2], .eps = NUMBER("eps", 0)))
PARITY(group_norm, tt_group_norm(in[0], INT("groups", 1), .weight = in[1], .bias = in[2]))
PARITY(matmul_batched, tt_matmul(in[0], in[1]))
PARITY(attention, tt_scaled_dot_product_attention(in[0], in[1], in[2], .attn_mask = in[3],
                                                  .is_causal = INT("causal", 0) != 0, .scale = NUMBER("scale", 0)))
PARITY(attention_masks,
       tt_scaled_dot_product_attention(in[0], in[1], in[2], .attn_mask = in[3], .is_causal = INT("causal", 0) != 0))
PARITY(conv1d, tt_conv1d(in[0], in[1], .bias = in[2], .stride = INT("stride", 1), .padding = INT("padding", 0),
                         .dilation = INT("dilation", 1), .groups = INT("groups", 1)))
PARITY(conv_transpose2d,
       tt_conv_transpose2d(in[0], in[1], .bias = in[2], .stride_hw = PARITY_PAIR("stride"),
                           .padding_hw = PARITY_PAIR("padding"), .dilation_hw = PARITY_PAIR("dilation"),
                           .groups = INT("groups", 1), .output_padding_hw = PARITY_PAIR("output_padding")))
PARITY(nll_loss_options, tt_nll_loss(in[0], in[1], .weight = in[2], .ignore_index = TT_INDEX(INT("ignore", -100)),
                                     .reduction = PARITY_REDUCTION))
PARITY(cross_entropy_options,
       tt_cross_entropy(in[0], in[1], .weight = in[2], .ignore_index = TT_INDEX(INT("ignore", -100)),
                        .label_smoothing = NUMBER("smoothing", 0), .reduction = PARITY_REDUCTION))
PARITY(mse_loss_options, tt_mse_loss(in[0], in[1], .reduction = PARITY_REDUCTION))
PARITY(l1_loss, tt_l1_loss(in[0], in[1], .reduction = PARITY_REDUCTION))
PARITY(smooth_l1_loss, tt_smooth_l1_loss(in[0], in[1], NUMBER("beta", 1), .reduction = PARITY_REDUCTION))
PARITY(bce_with_logits, tt_binary_cross_entropy_with_logits(in[0], in[1], .pos_weight = in[2], .weight = in[3],
                                                            .reduction = PARITY_REDUCTION))
PARITY(kl_div, tt_kl_div(in[0], in[1], .log_target = INT("log_target", 0) != 0, .reduction = PARITY_REDUCTION))

#endif
