/* Convolutions and pooling. */
#ifndef PARITY_CONV_H
#define PARITY_CONV_H

#include "parity.h"

#define PARITY_PAIR(name) \
    { INT(name "_h", 0), INT(name "_w", 0) }

PARITY(conv2d,
       tt_conv2d(in[0], in[1], .bias = in[2], .stride_hw = PARITY_PAIR("stride"), .padding_hw = PARITY_PAIR("padding"),
                 .dilation_hw = PARITY_PAIR("dilation"), .groups = INT("groups", 1)))
PARITY(max_pool2d, tt_max_pool2d(in[0], 0, .kernel_size_hw = PARITY_PAIR("kernel"), .stride_hw = PARITY_PAIR("stride"),
                                 .padding_hw = PARITY_PAIR("padding"), .dilation_hw = PARITY_PAIR("dilation"),
                                 .ceil_mode = INT("ceil", 0) != 0))
PARITY(avg_pool2d,
       tt_avg_pool2d(in[0], 0, .kernel_size_hw = PARITY_PAIR("kernel"), .stride_hw = PARITY_PAIR("stride"),
                     .padding_hw = PARITY_PAIR("padding"), .ceil_mode = INT("ceil", 0) != 0,
                     .exclude_padding = INT("exclude_padding", 0) != 0, .divisor_override = INT("divisor", 0)))
PARITY(adaptive_avg_pool2d, tt_adaptive_avg_pool2d(in[0], INT("height", 1), INT("width", 1)))

#endif
