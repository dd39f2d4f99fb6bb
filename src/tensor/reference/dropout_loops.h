/* Dropout: included by float_loops.h. */
#include "base/philox.h"

static bool dropout_keeps(const tt__dropout *call, int64_t i) {
    uint32_t words[4];
    tt__philox(call->key, (uint64_t)i / 4, words);
    return words[i % 4] >= call->limit;
}

static tt_status ref_dropout(tt_tensor *y, const tt_tensor *x, const tt__dropout *call) {
    for (tt__iter it = TT__ITER_OVER(y, x); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++) {
            bool keeps = dropout_keeps(call, &AT(0, i) - (TYPE *)y->data);
            AT(0, i) = keeps ? FROM_F64((double)LOAD(AT(1, i)) * call->scale) : STORE(0);
        }
    return TT_OK;
}

#define DROPOUT_KERNELS .dropout = ref_dropout
