#include "tensor/cpu/cpu_dropout.h"

#include "tensor/cpu/levels.h"
#include "tensor/device/parallel.h"
#include "tensor/shape/iter.h"

/* Elements that one thread takes at a time, a multiple of Philox's four. */
enum { BLOCK = 1 << 13 };

typedef struct dropout_arrays {
    const tt__dropout *call;
    const float *x;
    float *y;
} dropout_arrays;

static void dropout_block(void *user, int64_t begin, int64_t end) {
    const dropout_arrays *k = user;
    tt__pointwise()->dropout(begin, end, k->x, k->call->key, k->call->limit, (float)k->call->scale, k->y);
}

tt_status tt__cpu_dropout_f32(tt_tensor *y, const tt_tensor *x, const tt__dropout *call) {
    if (!TT__IS_FLAT(y, x))
        return tt__reference_kernels[TT_F32]->dropout(y, x, call);
    dropout_arrays k = {.call = call, .x = x->data, .y = y->data};
    tt__parallel_for(y->numel, BLOCK, dropout_block, &k);
    return TT_OK;
}
