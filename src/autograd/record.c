#include "autograd/record.h"

#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static tt_status save_all(tt_node *node, int saves, const tt__to_save *save) {
    for (int i = 0; i < saves; i++)
        TT__TRY(tt__node_save(node, save[i].x, save[i].name));
    return TT_OK;
}

tt_tensor *tt__recorded(const tt__operator *op, tt_tensor *y, int n, tt_tensor *const *inputs, int saves,
                        const tt__to_save *save, const void *state, size_t state_bytes) {
    if (!y || !tt__wants_grad(n, inputs))
        return y;
    tt_node *node = tt__node_new(op, n, inputs, 1, saves, state, state_bytes);
    bool done = node && !save_all(node, saves, save);
    if (done)
        tt__node_made(node, 0, y);
    tt__node_unref(node);
    return done ? y : tt__abandon(y);
}

/* Return the text without the operator's name. Errors of the operations underneath begin with it, those of kernels and
 * of memory don't. */
static const char *without_name(const char *who, const char *text) {
    size_t n = strlen(who);
    return !strncmp(text, who, n) && !strncmp(text + n, ": ", 2) ? text + n + 2 : text;
}

tt_tensor *tt__made(const char *who, tt_tensor *y, tt_status status) {
    if (!status)
        return y;
    char text[TT__ERROR_TEXT_SIZE];
    snprintf(text, sizeof text, "%s", tt_last_error());
    tt__tensor_fail(status, "%s: %s", who, without_name(who, text));
    return tt__abandon(y);
}

/* "a f32 (2), b i64 (3)" */
static void list_arguments(int n, const tt__argument *arguments, char *text, size_t size) {
    size_t used = 0;
    for (int i = 0; i < n && used < size; i++)
        if (arguments[i].x)
            used += (size_t)snprintf(text + used, size - used, "%s%s %s", used ? ", " : "", arguments[i].name,
                                     TT__DESCRIBE(arguments[i].x));
}

bool tt__check_floats(const char *who, int n, const tt__argument *arguments) {
    const tt_tensor *first = arguments[0].x;
    bool fit = true;
    for (int i = 0; i < n; i++) {
        const tt_tensor *x = arguments[i].x;
        if (!x)
            continue;
        if (!tt__tensor_check(who, x))
            return false;
        fit = fit && tt__is_float(x->dtype) && x->dtype == first->dtype;
    }
    if (!fit) {
        char text[640];
        list_arguments(n, arguments, text, sizeof text);
        tt__tensor_fail(TT_ERR_DTYPE, "%s: expected floats%s, got %s", who, n > 1 ? ", of one dtype" : "", text);
        return false;
    }
    for (int i = 1; i < n; i++)
        if (!TT__SAME_DEVICE(who, first, arguments[i].x))
            return false;
    return true;
}

static bool check_target_shapes(const char *who, const char *name, const tt_tensor *x, const tt_tensor *target) {
    if (x->shape.ndim != 2 || (x->shape.dim[1] == 0 && x->shape.dim[0] > 0))
        tt__tensor_fail(TT_ERR_SHAPE, "%s: expected %s (B, V) with V at least 1, got %s %s", who, name, name,
                        TT__DESCRIBE(x));
    else if (target->dtype != TT_I64)
        tt__tensor_fail(TT_ERR_DTYPE, "%s: expected target i64 (%" PRId64 "), got target %s", who, x->shape.dim[0],
                        TT__DESCRIBE(target));
    else if (target->shape.ndim != 1 || target->shape.dim[0] != x->shape.dim[0])
        tt__tensor_fail(TT_ERR_SHAPE, "%s: expected target (%" PRId64 ") to match %s %s, got target %s", who,
                        x->shape.dim[0], name, TT__DESCRIBE(x), TT__DESCRIBE(target));
    else
        return TT__SAME_DEVICE(who, x, target);
    return false;
}

static bool check_weight(const char *who, const tt_tensor *x, const tt_tensor *weight) {
    int64_t V = x->shape.dim[1];
    if (!weight || (weight->shape.ndim == 1 && weight->shape.dim[0] == V))
        return true;
    tt__tensor_fail(TT_ERR_SHAPE, "%s: expected weight (%" PRId64 "), one for each class, got weight %s", who, V,
                    TT__DESCRIBE(weight));
    return false;
}

bool tt__check_targets(const char *who, const char *name, const tt_tensor *x, const tt_tensor *target,
                       const tt_tensor *weight, int64_t ignore, bool *ignored) {
    if (!TT__CHECK_FLOATS(who, {name, x}, {"weight", weight}) || !tt__tensor_check(who, target) ||
        !check_target_shapes(who, name, x, target) || !check_weight(who, x, weight))
        return false;
    tt_status status = tt__check_classes(who, target, x->shape.dim[1], ignore, ignored);
    return !status || tt__made(who, NULL, status);
}

bool tt__check_reduction(const char *who, tt_reduction reduction, bool batchmean) {
    if ((int)reduction >= TT_REDUCTION_MEAN &&
        (reduction <= TT_REDUCTION_NONE || (batchmean && reduction == TT_REDUCTION_BATCHMEAN)))
        return true;
    tt__tensor_fail(TT_ERR_INVALID, "%s: expected a reduction TT_REDUCTION_MEAN, _SUM%s or _NONE, got %d", who,
                    batchmean ? ", _BATCHMEAN" : "", (int)reduction);
    return false;
}
