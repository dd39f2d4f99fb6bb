/* For operators: recording a call in one step, and checks of arguments. */
#ifndef TT_AUTOGRAD_RECORD_H
#define TT_AUTOGRAD_RECORD_H

#include "autograd/grad.h"
#include "autograd/node.h"
#include "tensor/ops/ops.h"

#include <tutti/functional.h>

/* A tensor that backward needs, and its name in errors. `x` NULL: not needed this time, but it keeps its number. */
typedef struct tt__to_save {
    const tt_tensor *x;
    const char *name;
} tt__to_save;

/* Record y as the result of `op` on `n` inputs if one of them requires a gradient, and return it. y NULL, or no memory:
 * NULL, and y is freed. */
tt_tensor *tt__recorded(const tt__operator *op, tt_tensor *y, int n, tt_tensor *const *inputs, int saves,
                        const tt__to_save *save, const void *state, size_t state_bytes);

/* return tt__recorded(&op, y, TT__INPUTS(a, b), TT__SAVES({a, "a"}, {b, "b"}), TT__NO_STATE); */
#define TT__INPUTS(...) \
    (int)(sizeof((tt_tensor *[]){__VA_ARGS__}) / sizeof(tt_tensor *)), (tt_tensor *[]) { __VA_ARGS__ }
#define TT__SAVES(...) \
    (int)(sizeof((tt__to_save[]){__VA_ARGS__}) / sizeof(tt__to_save)), (tt__to_save[]) { __VA_ARGS__ }
#define TT__NO_SAVES 0, NULL
#define TT__STATE(value) &(value), sizeof(value)
#define TT__NO_STATE NULL, 0

/* Return y if `status` is TT_OK; else NULL: the error is also the scope's, and y is freed. */
tt_tensor *tt__made(const char *who, tt_tensor *y, tt_status status);

/* y after `call`, which gives it its values: loss = TT__MADE(who, loss, tt__nll_loss_out(who, loss, x, target)). NULL
 * stays NULL, without the call. */
#define TT__MADE(who, y, call) ((y) ? tt__made((who), (y), (call)) : NULL)

/* ---- arguments */

typedef struct tt__argument {
    const char *name;
    const tt_tensor *x; /* NULL: skipped; not the first */
} tt__argument;

/* Are all arguments alive, floats of one dtype, on one device? Else false, and an error that names them. */
bool tt__check_floats(const char *who, int n, const tt__argument *arguments);
#define TT__CHECK_FLOATS(who, ...)                                                               \
    tt__check_floats((who), (int)(sizeof((tt__argument[]){__VA_ARGS__}) / sizeof(tt__argument)), \
                     (tt__argument[]){__VA_ARGS__})

/* Is x, called `name`, floats (B,V), B and V at least 1, target i64 (B) in 0..V-1 or `ignore`, and weight NULL or (V),
 * as x? Else false, and an error. *ignored: `ignore` is among them, or could be. */
bool tt__check_targets(const char *who, const char *name, const tt_tensor *x, const tt_tensor *target,
                       const tt_tensor *weight, int64_t ignore, bool *ignored);

#endif
