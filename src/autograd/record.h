/* For operators: recording a call in one step, casts and checks of arguments, and in backward the gradients of results
 * and inputs. */
#ifndef TT_AUTOGRAD_RECORD_H
#define TT_AUTOGRAD_RECORD_H

#include "autograd/node.h"
#include "tensor/ops/ops.h"

#include <tutti/autograd.h>
#include <tutti/functional.h>

/* A tensor that backward needs, and its name in errors. `x` NULL: this call does not need it, but its number stays
 * reserved. */
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

/* Return y if `status` is TT_OK. Else free y, record the error for the scope too, and return NULL. */
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

/* Return the gradient of result number `output`, borrowed; any layout. NULL: there is none (it is zero). */
tt_tensor *tt__grad_of(const tt_node *node, int output);

/* Does this pass want the gradient of input `i` now? */
bool tt__grad_wanted(const tt_node *node, int i);

/* Return a tensor to write the gradient of input `i` to: one of the input's shape, dtype, device and order of memory,
 * dense, with undefined values; or a leaf's own gradient, if that is free. Pass it to tt__grad_give(). NULL: no
 * memory. */
tt_tensor *tt__grad_dest(tt_node *node, int i);

/* The same for an elementwise backward that reads each element before it writes it: this may return the gradient of the
 * node's only result, to be overwritten, if nobody else uses that and it has the layout of the input's. */
tt_tensor *tt__grad_over(tt_node *node, int i);

/* Give the gradient of input `i`: x, of its shape and dtype. A tensor that this backward made is taken over; any other
 * is shared, and copied when it would have to change. It is added to other contributions. At most once for each input.
 * x NULL: TT_ERR_MEMORY. */
tt_status tt__grad_give(tt_node *node, int i, tt_tensor *x);

/* Return the tensor that the operator saved as number `i`, borrowed. NULL: it saved none, or (TT_ERR_STATE) it was
 * overwritten since: the error names operator and tensor. */
tt_tensor *tt__saved(const tt_node *node, int i);

/* Return the state that the operator stored. */
static inline void *tt__state(const tt_node *node) { return node->state; }

/* Write a gradient and give it: TT__GIVE(node, 0, dx, tt__relu_backward_out(who, dx, y, g)). Leaves the function on
 * failure. */
#define TT__GIVE(node, i, dest, write) TT__GIVE_AT(tt__grad_dest, node, i, dest, write)
#define TT__GIVE_OVER(node, i, dest, write) TT__GIVE_AT(tt__grad_over, node, i, dest, write)
#define TT__GIVE_AT(place, node, i, dest, write)   \
    do {                                           \
        tt_tensor *dest = place((node), (i));      \
        if (!dest)                                 \
            return tt_last_status();               \
        TT__TRY(write);                            \
        TT__TRY(tt__grad_give((node), (i), dest)); \
    } while (0)

/* If autocast is on in this thread, replace the inputs of operator `who` by casts as the table says; casts are
 * recorded. at (n): where the operator keeps its inputs; NULLs and inputs that are not floats stay. False, and an
 * error: no memory, or a type that autocast does not know. */
bool tt__autocast(const char *who, int n, tt_tensor **const *at);
#define TT__AUTOCAST(who, ...) \
    tt__autocast((who), (int)(sizeof((tt_tensor **[]){__VA_ARGS__}) / sizeof(void *)), (tt_tensor * *[]){__VA_ARGS__})

/* The same for a list of any length: returns x, or a list in its place; NULL and an error. */
tt_tensor *const *tt__autocast_list(const char *who, int64_t n, tt_tensor *const *x);
void tt__autocast_list_done(tt_tensor *const *list, tt_tensor *const *x);

/* Autocast's state in this thread, for calls that are repeated later between `now = tt__autocast_again(state)` and
 * tt_autocast_end(now). */
int tt__autocast_state(void);
int tt__autocast_again(int state);

/* Is this one of the reductions, where `batchmean` is one? Else false, and an error. */
bool tt__check_reduction(const char *who, tt_reduction reduction, bool batchmean);

#endif
