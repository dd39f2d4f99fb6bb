/* Attention of f16, and of bf16 where oneDNN has no fast products of it: one matrix of the batch at a time in f32,
 * which stays in the cache. */
#include "tensor/cpu/half/cpu_half.h"

#include "base/error.h"
#include "tensor/cpu/cpu_attention.h"
#include "tensor/cpu/half/wide.h"
#include "tensor/cpu/onednn/onednn_product.h"

static bool by_onednn(const tt__attention *in) { return in->q->dtype == TT_BF16 && tt__onednn_takes_bf16(); }

enum { Q, K, V, Y, G, DQ, DK, DV, WIDES };

static tt_status widen_inputs(tt__wide w[WIDES], const tt__attention *in, tt__attention *wide) {
    for (int i = 0; i < WIDES; i++)
        w[i] = (tt__wide){.x = NULL};
    *wide = *in;
    wide->q = &w[Q].seen;
    wide->k = &w[K].seen;
    wide->v = &w[V].seen;
    TT__TRY(tt__wide_begin(&w[Q], in->q, TT__WIDE_IN));
    TT__TRY(tt__wide_begin(&w[K], in->k, TT__WIDE_IN));
    return tt__wide_begin(&w[V], in->v, TT__WIDE_IN);
}

tt_status tt__cpu_attention_half(tt_tensor *y, tt_tensor *stats, const tt__attention *in) {
    tt__wide w[WIDES];
    tt__attention wide;
    tt_status done = by_onednn(in) ? tt__cpu_attention(y, stats, in) : TT_ERR_UNSUPPORTED;
    if (done != TT_ERR_UNSUPPORTED)
        return done;
    tt_status status = widen_inputs(w, in, &wide);
    if (!status)
        status = tt__wide_begin(&w[Y], y, TT__WIDE_OUT);
    if (!status)
        status = tt__cpu_attention(&w[Y].seen, stats, &wide);
    return tt__wide_end(status, WIDES, w);
}

tt_status tt__cpu_attention_backward_half(tt_tensor *dq, tt_tensor *dk, tt_tensor *dv, const tt_tensor *stats,
                                          const tt_tensor *g, const tt__attention *in) {
    tt__wide w[WIDES];
    tt__attention wide;
    tt_tensor *const out[] = {dq, dk, dv};
    tt_status done = by_onednn(in) ? tt__cpu_attention_backward(dq, dk, dv, stats, g, in) : TT_ERR_UNSUPPORTED;
    if (done != TT_ERR_UNSUPPORTED)
        return done;
    tt_status status = widen_inputs(w, in, &wide);
    if (!status)
        status = tt__wide_begin(&w[G], g, TT__WIDE_IN);
    for (int i = 0; i < 3 && !status; i++)
        status = tt__wide_begin(&w[DQ + i], out[i], TT__WIDE_OUT);
    if (!status)
        status = tt__cpu_attention_backward(&w[DQ].seen, &w[DK].seen, &w[DV].seen, stats, &w[G].seen, &wide);
    return tt__wide_end(status, WIDES, w);
}
