/* What a forward makes on its way. Records hold what they need of it; the rest is abandoned at the end, as nobody else
 * frees it where no scope is open. */
#ifndef TT_NN_TEMPORARIES_H
#define TT_NN_TEMPORARIES_H

#include "tensor/core/tensor.h"

/* Is x one of the list? */
static inline bool tt__tensor_is_among(const tt_tensor *x, tt_tensor *const *list, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (list[i] == x)
            return true;
    return false;
}

enum { TT__TEMPORARIES = 64 };

typedef struct tt__temporaries {
    int n;
    tt_tensor *x[TT__TEMPORARIES];
} tt__temporaries;

/* Note x, unless it is NULL, one of `given` (ended by NULL), or noted already: operators may give back what they
 * got. */
static inline tt_tensor *tt__temporary(tt__temporaries *t, tt_tensor *const *given, tt_tensor *x) {
    for (; *given; given++)
        if (*given == x)
            return x;
    for (int i = 0; i < t->n; i++)
        if (t->x[i] == x)
            return x;
    if (x && t->n < TT__TEMPORARIES)
        t->x[t->n++] = x;
    return x;
}

/* Abandon what was noted, but `result` and `other` (may be NULL). */
static inline void tt__temporaries_end(tt__temporaries *t, const tt_tensor *result, const tt_tensor *other) {
    while (t->n--)
        if (t->x[t->n] != result && t->x[t->n] != other)
            tt__abandon(t->x[t->n]);
}

#endif
