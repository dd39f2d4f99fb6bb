/* Data sets: inputs and targets, two tensors of one length. */
#include "data/dataset.h"

#include "base/error.h"
#include "tensor/ops.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* ---- making ---- */

/* Let go of a tensor that was to be taken over; a scope's or a holder's is theirs to free. */
static void discard(tt_tensor *x) {
    if (x && x->owner == TT__OWNER_CALLER)
        tt_tensor_free(x);
}

/* x as the data set holds it: contiguous, a view with gaps is copied. NULL and an error, and x is let go, if that can't be. */
static tt_tensor *take(tt_tensor *x) {
    if (x && !x->contiguous) {
        tt_tensor *copy = tt__clone_contiguous("tt_tensor_dataset", x);
        discard(x);
        x = copy;
    }
    if (x && tt__tensor_adopt(x, "a data set")) {
        discard(x);
        return NULL;
    }
    return x;
}

/* Both are taken over, whatever happens. inputs NULL: an error is recorded already. */
static tt_dataset *dataset_of(tt_tensor *inputs, tt_tensor *targets) {
    tt_dataset *dataset = calloc(1, sizeof *dataset);
    if (!dataset) {
        discard(inputs);
        discard(targets);
        return tt__fail_null(TT_ERR_MEMORY, "out of memory for a data set");
    }
    dataset->inputs = take(inputs);
    dataset->targets = take(targets);
    if (!dataset->inputs || (targets && !dataset->targets)) {
        tt_dataset_free(dataset);
        return NULL;
    }
    return dataset;
}

static tt_status check(const tt_tensor *inputs, const tt_tensor *targets) {
    static const char who[] = "tt_tensor_dataset";
    if (!inputs)
        return tt__tensor_first_error(who);
    if (inputs->shape.ndim < 1 || (targets && targets->shape.ndim < 1))
        return tt__fail(TT_ERR_SHAPE, "%s: expected a dimension that counts examples, got inputs %s, targets %s", who,
                        TT__DESCRIBE(inputs), TT__DESCRIBE(targets));
    if (targets && inputs->shape.dim[0] != targets->shape.dim[0])
        return tt__fail(TT_ERR_SHAPE, "%s: expected as many targets as inputs, got inputs %s, targets %s", who,
                        TT__DESCRIBE(inputs), TT__DESCRIBE(targets));
    return TT_OK;
}

tt_dataset *tt_tensor_dataset(tt_tensor *inputs, tt_tensor *targets) {
    if (check(inputs, targets)) {
        discard(inputs);
        discard(targets);
        return NULL;
    }
    return dataset_of(inputs, targets);
}

tt_dataset *tt_subset(tt_dataset *base, int64_t begin, int64_t end) {
    if (!base) /* the reason it could not be made says more than we could */
        return tt_last_status() ? NULL : tt__fail_null(TT_ERR_INVALID, "tt_subset: the data set is NULL");
    int64_t n = tt_dataset_size(base);
    if (begin < 0 || end < begin || end > n)
        return tt__fail_null(TT_ERR_INVALID,
                             "tt_subset: expected 0 <= begin <= end <= %" PRId64 ", got %" PRId64 " and %" PRId64, n,
                             begin, end);
    tt_tensor *inputs = tt__narrow("tt_subset", base->inputs, 0, begin, end - begin);
    tt_tensor *targets = base->targets ? tt__narrow("tt_subset", base->targets, 0, begin, end - begin) : NULL;
    if (base->targets && !targets) {
        discard(inputs);
        return NULL;
    }
    tt_dataset *subset = dataset_of(inputs, targets);
    if (subset)
        subset->base = base;
    return subset;
}

void tt_dataset_free(tt_dataset *dataset) {
    if (!dataset)
        return;
    tt__tensor_disown(dataset->inputs);
    tt__tensor_disown(dataset->targets);
    free(dataset);
}

/* ---- looking ---- */

int64_t tt_dataset_size(const tt_dataset *dataset) { return dataset ? dataset->inputs->shape.dim[0] : 0; }

tt_tensor *tt_dataset_inputs(const tt_dataset *dataset) { return dataset ? dataset->inputs : NULL; }

tt_tensor *tt_dataset_targets(const tt_dataset *dataset) { return dataset ? dataset->targets : NULL; }

/* ---- normalisation ---- */

tt_status tt_dataset_normalize(tt_dataset *dataset, double mean, double std) {
    if (!dataset)
        return tt__fail(TT_ERR_INVALID, "tt_dataset_normalize: the data set is NULL");
    if (dataset->inputs->dtype != TT_U8)
        return tt__fail(TT_ERR_DTYPE, "tt_dataset_normalize: expected u8 inputs, got %s",
                        TT__DESCRIBE(dataset->inputs));
    if (!isfinite(mean) || !isfinite(std) || !((float)std > 0))
        return tt__fail(TT_ERR_INVALID,
                        "tt_dataset_normalize: expected finite numbers and std > 0, got mean %g, std %g", mean, std);
    dataset->normalized = true;
    dataset->mean = (float)mean;
    dataset->std = (float)std;
    return TT_OK;
}

const tt_dataset *tt__dataset_normalization(const tt_dataset *dataset) {
    while (!dataset->normalized && dataset->base)
        dataset = dataset->base;
    return dataset->normalized ? dataset : NULL;
}
