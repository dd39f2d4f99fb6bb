#include "autograd/sparse_grad.h"

#include "base/args.h"
#include "base/error.h"
#include "tensor/ops/ops.h"

tt_tensor *tt_sparse_grad_indices(const tt_tensor *x) {
    const tt__leaf *leaf = tt__leaf_of(x);
    return leaf ? leaf->rows : NULL;
}

tt_tensor *tt_sparse_grad_values(const tt_tensor *x) {
    const tt__leaf *leaf = tt__leaf_of(x);
    return leaf ? leaf->values : NULL;
}

tt_tensor *tt__grad_values(const tt_tensor *x) {
    const tt__leaf *leaf = tt__leaf_of(x);
    return leaf && leaf->defined ? leaf->grad : leaf ? leaf->values : NULL;
}

/* ---- adding to a leaf */

static tt_status add_rows_locked(tt__leaf *leaf, tt_tensor *rows, tt_tensor *values) {
    if (leaf->placed || leaf->part)
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "tt_backward: %s gets a sparse gradient, and its gradient lies in the memory of a wrapper "
                        "(tt_ddp()), or is sharded, which are for gradients of the whole: leave .sparse out",
                        TT__DESCRIBE(leaf->tensor));
    if (leaf->defined || leaf->lender)
        return tt__leaf_refuse_both(leaf);
    if (leaf->rows)
        TT__TRY(tt__rows_add("tt_backward", leaf->rows, leaf->values, &rows, &values));
    TT__TRY(tt__tensor_adopt(rows, "a leaf"));
    tt_status status = tt__tensor_adopt(values, "a leaf");
    if (status) {
        tt__tensor_disown(rows);
        return status;
    }
    tt__leaf_drop_rows(leaf);
    leaf->rows = rows;
    leaf->values = values;
    return TT_OK;
}

tt_status tt__leaf_add_rows(tt__leaf *leaf, tt_tensor *rows, tt_tensor *values) {
    pthread_mutex_lock(&leaf->lock);
    tt_status status = add_rows_locked(leaf, rows, values);
    pthread_mutex_unlock(&leaf->lock);
    return status;
}

tt_status tt__leaf_set_rows(tt_tensor *x, tt_tensor *rows, tt_tensor *values) {
    tt__leaf *leaf = tt__leaf_of(x);
    pthread_mutex_lock(&leaf->lock);
    tt__leaf_drop_rows(leaf);
    tt_status status = add_rows_locked(leaf, rows, values);
    pthread_mutex_unlock(&leaf->lock);
    return status;
}

/* ---- refusing */

tt_status tt__refuse_sparse_grad(const char *who, const char *name, const tt_tensor *x) {
    if (!x->sparse_grad || !x->requires_grad)
        return TT_OK;
    return tt__fail(TT_ERR_UNSUPPORTED,
                    "%s: parameter \"%s\" is given sparse gradients, which tt_ddp() alone averages: make its "
                    "embedding without .sparse",
                    who, name);
}
