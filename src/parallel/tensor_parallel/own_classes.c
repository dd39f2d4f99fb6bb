#include "parallel/tensor_parallel/own_classes.h"

#include <inttypes.h>

#include "base/error.h"
#include "tensor/core/tensor.h"

#include <tutti/functional.h>

/* The same on the host, as plain arrays (B). */
typedef struct sorted {
    int64_t *place;
    float *is_own, *counts;
} sorted;

static bool sort_classes(const char *who, tt__own_classes *own, const sorted *to, const int64_t *target,
                         const tt__class_list *list) {
    int64_t all = list->classes * tt_get_world_size(list->group), first = list->classes * tt_get_rank(list->group);
    for (int64_t b = 0; b < list->target->numel; b++) {
        bool ignored = list->ignore && target[b] == *list->ignore;
        if (!ignored && (target[b] < 0 || target[b] >= all)) {
            tt__tensor_fail(TT_ERR_INVALID, "%s: expected classes in 0..%" PRId64 ", got %" PRId64 " at %" PRId64, who,
                            all - 1, target[b], b);
            return false;
        }
        bool is_own = !ignored && target[b] >= first && target[b] < first + list->classes;
        to->place[b] = is_own ? target[b] - first : 0;
        to->is_own[b] = is_own ? 1 : 0;
        to->counts[b] = ignored ? 0 : 1;
        own->counted += !ignored;
    }
    return true;
}

/* x, made on the host, as `dtype` on the list's device; a reference. NULL: no memory. */
static tt_tensor *in_place_of(const char *who, tt_tensor *x, tt_dtype dtype, const tt__class_list *list) {
    tt_tensor *y = tt_to_device(tt_to(x, dtype), tt_tensor_device(list->target));
    return y ? tt__tensor_detached(who, y) : NULL;
}

static bool find_classes(const char *who, tt__own_classes *own, const tt__class_list *list) {
    tt_tensor *given = (tt_tensor *)(uintptr_t)list->target; /* is only read */
    tt_tensor *host = tt_contiguous(tt_to_device(given, tt_device_get("cpu")));
    const tt_shape column = TT_SHAPE(given->numel, 1);
    tt_tensor *place = tt_empty(column, TT_I64), *is_own = tt_empty(column, TT_F32), *counts = tt_empty(column, TT_F32);
    if (!host || !place || !is_own || !counts)
        return false;
    const sorted to = {tt_tensor_i64(place), tt_tensor_f32(is_own), tt_tensor_f32(counts)};
    if (!sort_classes(who, own, &to, tt_tensor_i64(host), list))
        return false;
    own->place = in_place_of(who, place, TT_I64, list);
    own->is_own = in_place_of(who, is_own, list->dtype, list);
    own->counts = in_place_of(who, counts, list->dtype, list);
    return own->place && own->is_own && own->counts;
}

bool tt__own_classes_find(const char *who, tt__own_classes *own, const tt__class_list *list) {
    *own = (tt__own_classes){0};
    if (!tt__tensor_check(who, list->target))
        return false;
    if (list->target->dtype != TT_I64) {
        tt__tensor_fail(TT_ERR_DTYPE, "%s: expected classes as i64, got %s", who, TT__DESCRIBE(list->target));
        return false;
    }
    bool no_grad = tt_no_grad_begin();
    int scope = tt_scope_begin();
    bool found = find_classes(who, own, list);
    tt_scope_end(scope);
    tt_no_grad_end(no_grad);
    if (!found) /* the scope that knew has ended */
        tt__tensor_fail(tt_last_status(), "%s", tt_last_error());
    return found;
}

void tt__own_classes_end(tt__own_classes *own) {
    tt__tensor_unref(own->place);
    tt__tensor_unref(own->is_own);
    tt__tensor_unref(own->counts);
}

tt_tensor *tt__only_where(tt_tensor *mask, tt_tensor *x) {
    tt_tensor *is = tt_to(mask, TT_BOOL), *zeros = x ? tt_zeros_like(mask) : NULL, *y = tt_where(is, x, zeros);
    tt__abandon(is);
    tt__abandon(zeros);
    return y;
}
