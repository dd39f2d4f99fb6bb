/* All that Tutti asks of oneDNN. dnnl_sgemm is the same in its versions 2 and 3. */
#include "base/error.h"
#include "tensor/cpu/gemm.h"
#include "tensor/cpu/onednn_load.h"

/* How oneDNN is told of a matrix: stored by rows ('N') or by columns ('T'), and the distance of two lines. */
typedef struct layout {
    char trans;
    dnnl_dim_t ld;
} layout;

static layout layout_of(const tt__matrix *m) {
    if ((m->col_step == 1 || m->cols == 1) && (m->row_step >= m->cols || m->rows == 1))
        return (layout){'N', m->rows == 1 ? m->cols : m->row_step};
    return (layout){'T', m->cols == 1 ? m->rows : m->col_step};
}

tt_status tt__gemm_onednn(const tt__matrix *a, const tt__matrix *b, const tt__matrix *c, bool accumulate) {
    layout la = layout_of(a), lb = layout_of(b);
    const tt__onednn *onednn = tt__onednn_get();
    if (!onednn)
        return TT_ERR_UNSUPPORTED;
    dnnl_status_t status = onednn->dnnl_sgemm(la.trans, lb.trans, c->rows, c->cols, a->cols, 1.0f, a->data, la.ld,
                                              b->data, lb.ld, accumulate ? 1.0f : 0.0f, c->data, c->row_step);
    if (status != dnnl_success)
        return tt__fail(status == dnnl_out_of_memory ? TT_ERR_MEMORY : TT_ERR_SYSTEM,
                        "oneDNN could not multiply (%lld, %lld) by (%lld, %lld): status %d", (long long)a->rows,
                        (long long)a->cols, (long long)b->rows, (long long)b->cols, (int)status);
    return TT_OK;
}
