/* Helpers for layers: making them with parameters and buffers as PyTorch's begin, and freeing what a forward makes on
 * its way. */
#ifndef TT_NN_INITIAL_H
#define TT_NN_INITIAL_H

#include "tensor/core/tensor.h"

#include <tutti/nn.h>

/* How parameters are drawn. */
typedef struct tt__drawing {
    const char *who; /* begins errors */
    tt_generator *generator;
    tt_dtype dtype;
} tt__drawing;

/* Can layers be made in this dtype, f32 or f64? Else TT_ERR_DTYPE. */
tt_status tt__layer_dtype_check(const char *who, tt_dtype dtype);

/* Make a module whose tt_module_user() is zeroed memory of so many bytes, which tt__layer_destroy, the class's
 * .destroy, frees. NULL and an error: no memory. */
tt_module *tt__layer_new(const char *who, const tt_module_class *cls, size_t user_bytes);
void tt__layer_destroy(tt_module *self);

/* Return the module if `status`, that of adding its parts, is TT_OK; else free it and return NULL. */
tt_module *tt__layer_made(tt_module *module, tt_status status);

/* Are the channels of a convolution and its kernel {along H, along W} at least 1, and do groups divide the channels?
 * Else TT_ERR_INVALID. */
tt_status tt__channels_check(const char *who, int64_t in, int64_t out, const int64_t *kernel, int64_t groups);

/* Add x, which was made and filled with this status, as a parameter; on failure it is freed. */
tt_status tt__add_made(tt_module *module, const char *name, tt_tensor *x, tt_status status);

/* Add a parameter drawn from U(-bound, bound); NULL on failure. */
tt_tensor *tt__add_drawn(tt_module *module, const char *name, tt_shape shape, double bound, const tt__drawing *drawing);

/* In a forward: record an error as the scope's first one, too, and give the status. */
#define TT__FORWARD_FAIL(status, ...) (tt__tensor_fail((status), __VA_ARGS__), (status))

/* In a forward: has x, the input called `name`, the parameters' type and device? Else an error that names the
 * module. */
tt_status tt__check_layer_input(const tt_module *module, const char *name, const tt_tensor *x, const tt_tensor *weight);

/* Add "weight" of this shape and, where `outputs` is not 0, "bias" (outputs), drawn in this order from
 * U(-1/sqrt(fan_in), 1/sqrt(fan_in)), the same bits as PyTorch's linear layers and convolutions. *bias is NULL where
 * there is none. */
tt_status tt__add_weight_and_bias(tt_module *module, tt_shape shape, double fan_in, int64_t outputs,
                                  const tt__drawing *drawing, tt_tensor **weight, tt_tensor **bias);

/* Add a parameter / a buffer, filled with a value; *made is the tensor. `who` begins errors. */
tt_status tt__add_filled(tt_module *module, const char *who, const char *name, tt_shape shape, tt_dtype dtype,
                         double value, tt_tensor **made);
tt_status tt__add_buffer(tt_module *module, const char *who, const char *name, tt_shape shape, tt_dtype dtype,
                         double value, tt_tensor **made);

/* ---- temporaries: tensors that a forward makes on its way. Records hold what they need of them. They are abandoned at
 * the end, because without an open scope nobody else would free them. ---- */

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

/* Run the module: tt_multihead_attention()'s work. `who` is the class that errors name. */
tt_tensor *tt__multihead_attention_run(const char *who, tt_module *module, const tt_multihead_attention_args *a);

#endif
