/* Parameters and buffers as PyTorch's layers begin with them. */
#ifndef TT_NN_INITIAL_H
#define TT_NN_INITIAL_H

#include "tensor/tensor.h"

#include <tutti/nn.h>

/* Who draws what. */
typedef struct tt__drawing {
    const char *who; /* begins errors */
    tt_generator *generator;
    tt_dtype dtype;
} tt__drawing;

/* Is dtype one that layers are made in, f32 or f64? Else TT_ERR_DTYPE. */
tt_status tt__layer_dtype_check(const char *who, tt_dtype dtype);

/* Add "weight" of this shape and, where `outputs` is not 0, "bias" (outputs), drawn in this order from
 * U(-1/sqrt(fan_in), 1/sqrt(fan_in)), the same bits as PyTorch's linear layers and convolutions. *bias is NULL where
 * there is none. */
tt_status tt__add_weight_and_bias(tt_module *module, tt_shape shape, double fan_in, int64_t outputs,
                                  const tt__drawing *drawing, tt_tensor **weight, tt_tensor **bias);

/* Add a parameter / a buffer, filled with a value; *made is the tensor. `who` begins errors. */
tt_status tt__add_filled(tt_module *module, const char *who, const char *name, tt_shape shape, tt_dtype dtype,
                         double value, tt_tensor **made);
tt_status tt__add_buffer(tt_module *module, const char *who, const char *name, tt_shape shape, tt_dtype dtype,
                         double value, tt_tensor **made);

#endif
