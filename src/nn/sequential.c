#include "base/args.h"
#include "base/error.h"
#include "nn/chain.h"
#include "nn/container.h"
#include "nn/module.h"
#include "nn/temporaries.h"

static tt_status give_back(tt_tensor *const *in, int64_t in_count, tt_tensor **out, int64_t out_count) {
    if (in_count != out_count)
        return tt__tensor_fail(TT_ERR_INVALID, "forward: an empty Sequential gives back its %lld tensors, not %lld",
                               (long long)in_count, (long long)out_count),
               TT_ERR_INVALID;
    for (int64_t i = 0; i < in_count; i++)
        out[i] = in[i];
    return TT_OK;
}

/* Run the children: the first takes all inputs, the last gives all outputs. What goes from child to child is freed once
 * its records have it: it may be most of a network's memory. */
static tt_status sequential_forward_many(tt_module *self, tt_tensor *const *in, int64_t in_count, tt_tensor **out,
                                         int64_t out_count) {
    int64_t n = tt_module_child_count(self);
    tt_tensor *between = NULL;
    tt_status status = n ? TT_OK : give_back(in, in_count, out, out_count);
    for (int64_t i = 0; i < n && !status; i++) {
        tt_tensor *const x = between, *y = NULL;
        bool first = i == 0, last = i == n - 1;
        tt_tensor **to = last ? out : &y;
        int64_t to_count = last ? out_count : 1;
        status =
            tt_module_forward_many(tt_module_child_at(self, i), first ? in : &x, first ? in_count : 1, to, to_count);
        if (x && !x->shown && !tt__tensor_is_among(x, in, in_count) && !tt__tensor_is_among(x, to, to_count))
            tt__abandon(x);
        between = y;
    }
    return status;
}

static tt_tensor *sequential_forward(tt_module *self, tt_tensor *x) {
    tt_tensor *y = NULL;
    return sequential_forward_many(self, &x, 1, &y, 1) ? NULL : y;
}

/* ---- as a chain: the children's parts ---- */

static int64_t sequential_part_count(tt_module *self) {
    int64_t parts = 0, children = tt_module_child_count(self);
    for (int64_t i = 0; i < children; i++)
        parts += tt__chain_length(tt_module_child_at(self, i));
    return children ? parts : 1;
}

/* The child that part *part is of, whose number within that child *part becomes; NULL: an empty Sequential. */
static tt_module *child_of_part(tt_module *self, int64_t *part) {
    for (int64_t i = 0; i < tt_module_child_count(self); i++) {
        tt_module *child = tt_module_child_at(self, i);
        int64_t length = tt__chain_length(child);
        if (*part < length)
            return child;
        *part -= length;
    }
    return NULL;
}

static tt_tensor *sequential_forward_part(tt_module *self, int64_t part, tt_tensor *x) {
    int64_t of_child = part;
    tt_module *child = child_of_part(self, &of_child);
    if (child)
        return tt__chain_forward(child, of_child, x);
    if (part == 0 && tt_module_child_count(self) == 0)
        return x;
    return tt__tensor_fail(TT_ERR_STATE, "forward: a Sequential of %lld parts has no part %lld",
                           (long long)sequential_part_count(self), (long long)part);
}

static tt_module *sequential_part_module(tt_module *self, int64_t part, int64_t k) {
    tt_module *child = child_of_part(self, &part);
    return child ? tt__chain_module(child, part, k) : NULL;
}

static const tt_module_class sequential_class =
    TT_MODULE_CLASS(.name = "Sequential", .forward = sequential_forward, .forward_many = sequential_forward_many,
                    .part_count = sequential_part_count, .forward_part = sequential_forward_part,
                    .part_module = sequential_part_module);

tt_module *tt_nn_sequential_with(const tt_nn_sequential_args *args, size_t size) {
    tt_nn_sequential_args a;
    TT__ARGS_COPY(a, args, size);
    return tt__container_new("tt_nn_sequential", &sequential_class, &a);
}
