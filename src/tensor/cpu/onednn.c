/* dnnl_sgemm is the same in versions 2 and 3. */
#include "tensor/cpu/onednn.h"

#include "base/error.h"
#include "tensor/cpu/onednn_load.h"
#include "tensor/parallel.h"

/* A matrix's layout as oneDNN takes it: stored by rows ('N') or by columns ('T'), and the distance of two lines. */
typedef struct layout {
    char trans;
    dnnl_dim_t ld;
} layout;

static layout layout_of(const tt_tensor *m) {
    int64_t rows = m->shape.dim[0], cols = m->shape.dim[1];
    if (tt__matrix_is_stored(m, 0))
        return (layout){'N', rows == 1 ? cols : m->stride[0]};
    return (layout){'T', cols == 1 ? rows : m->stride[1]};
}

tt_status tt__onednn_matmul_f32(tt_tensor *y, const tt_tensor *a, const tt_tensor *b, double beta) {
    const tt__onednn *onednn = tt__onednn_get();
    if (!onednn)
        return TT_ERR_UNSUPPORTED;
    int64_t M = y->shape.dim[0], N = y->shape.dim[1], K = a->shape.dim[1];
    layout la = layout_of(a), lb = layout_of(b), ly = layout_of(y);
    tt__parallel_prepare();
    dnnl_status_t status = onednn->dnnl_sgemm(la.trans, lb.trans, M, N, K, 1.0f, a->data, la.ld, b->data, lb.ld,
                                              (float)beta, y->data, ly.ld);
    if (status != dnnl_success)
        return tt__fail(status == dnnl_out_of_memory ? TT_ERR_MEMORY : TT_ERR_SYSTEM,
                        "oneDNN could not multiply (%lld, %lld) by (%lld, %lld): status %d", (long long)M, (long long)K,
                        (long long)K, (long long)N, (int)status);
    return TT_OK;
}
