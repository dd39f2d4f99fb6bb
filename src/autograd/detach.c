#include "tensor/core/tensor.h"

#include <tutti/autograd.h>

tt_tensor *tt_detach(tt_tensor *x) {
    return x && tt__tensor_check("tt_detach", x) ? tt__tensor_alias("tt_detach", x, x->shape, x->stride, 0) : NULL;
}
