/* Losses over rows of V classes, in double: included by float_loops.h. */

static double class_weight(const tt_tensor *w, int64_t v) { return w ? (double)LOAD(((const TYPE *)w->data)[v]) : 1; }

static tt_status ref_nll_rows(tt_tensor *loss, tt_tensor *share, const tt_tensor *x, const tt_tensor *t,
                              const tt_tensor *w, const tt__nll *call) {
    int64_t R = x->shape.dim[0], V = x->shape.dim[1];
    for (int64_t r = 0; r < R; r++) {
        const TYPE *row = (const TYPE *)x->data + r * V;
        int64_t target = ((const int64_t *)t->data)[r];
        bool counts = target != call->ignore;
        double weight = counts ? class_weight(w, target) : 0, all = 0;
        for (int64_t v = 0; v < V && counts && call->smoothing != 0; v++)
            all += class_weight(w, v) * (double)LOAD(row[v]);
        double hit = counts ? weight * (double)LOAD(row[target]) : 0;
        ((TYPE *)share->data)[r] = FROM_F64(weight);
        ((TYPE *)loss->data)[r] = FROM_F64((call->smoothing - 1) * hit - call->smoothing / (double)V * all);
    }
    return TT_OK;
}

static tt_status ref_nll_rows_backward(tt_tensor *dx, const tt_tensor *t, const tt_tensor *w, const tt_tensor *g,
                                       const tt__nll *call) {
    int64_t R = dx->shape.dim[0], V = dx->shape.dim[1];
    for (int64_t r = 0; r < R; r++) {
        TYPE *row = (TYPE *)dx->data + r * V;
        int64_t target = ((const int64_t *)t->data)[r];
        double gradient = target == call->ignore ? 0 : (double)LOAD(((const TYPE *)g->data)[r]);
        double each = call->smoothing == 0 ? 0 : call->smoothing / (double)V * gradient; /* 0, even of NaN */
        for (int64_t v = 0; v < V; v++)
            row[v] = FROM_F64(-(each == 0 ? 0 : each * class_weight(w, v)));
        if (target != call->ignore)
            row[target] = FROM_F64(-(each + (1 - call->smoothing) * gradient) * class_weight(w, target));
    }
    return TT_OK;
}

#define LOSS_KERNELS .nll_rows = ref_nll_rows, .nll_rows_backward = ref_nll_rows_backward
