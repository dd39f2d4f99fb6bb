/* Linear layers divided among n ranks: x (B,C)  W (K,C)  bias (K)  ->  y = x W^T + bias (B,K). Rank r has
 *   column parallel: part r of W's rows (K/n,C), and computes part r of y's columns
 *   row parallel: part r of W's columns (K,C/n), and computes a summand of y from part r of x's columns */
#include <inttypes.h>
#include <stdio.h>

#include "autograd/record.h"
#include "base/args.h"
#include "base/error.h"
#include "parallel/tensor_parallel/tensor_parallel.h"

#include <tutti/tensor_parallel.h>

/* Arguments of both layers. */
typedef struct linear_sizes {
    const char *who;
    int64_t in, out;
    bool no_bias;
    tt_generator *generator;
    tt_dtype dtype;
} linear_sizes;

static tt_module *make_plain_linear(const void *args) {
    const linear_sizes *l = args;
    return tt_nn_linear(l->in, l->out, .no_bias = l->no_bias, .generator = l->generator, .dtype = l->dtype);
}

static const char *describe_layer(const linear_sizes *l, const char *option, char *text, size_t size) {
    snprintf(text, size, "a linear layer %" PRId64 " -> %" PRId64 " of %s, %s bias%s", l->in, l->out,
             tt_dtype_name(l->dtype), l->no_bias ? "no" : "with", option);
    return text;
}

/* ---- column parallel ---- */

static tt_tensor *column_forward(tt_module *self, tt_tensor *x) {
    const tt__sharding *s = tt_module_user(self);
    tt_tensor *in = tt_tp_copy(x, s->group), *y = tt_linear(in, s->weight, s->bias);
    if (in != x)
        tt__abandon(in);
    if (!s->whole_on_outside)
        return y;
    tt_tensor *whole = tt_tp_gather(y, s->group);
    if (whole != y)
        tt__abandon(y);
    return whole;
}

static const tt_module_class column_class =
    TT_MODULE_CLASS(.name = "ColumnParallelLinear", .forward = column_forward, .destroy = tt__sharded_destroy);

tt_module *tt_nn_column_parallel_linear_with(const tt_nn_column_parallel_linear_args *args, size_t size) {
    tt_nn_column_parallel_linear_args a;
    TT__ARGS_COPY(a, args, size);
    const linear_sizes l = {
        "tt_nn_column_parallel_linear", a.in_features, a.out_features, a.no_bias, a.generator, a.dtype};
    char text[160];
    const tt__sharded_layer layer = {.who = l.who,
                                     .cls = &column_class,
                                     .sharding = {.group = a.group, .whole_on_outside = a.gather_output},
                                     .name = "out_features",
                                     .divided = a.out_features,
                                     .make = make_plain_linear,
                                     .args = &l};
    return tt__sharded_layer_make(&layer, describe_layer(&l, a.gather_output ? ", gathered" : "", text, sizeof text));
}

/* ---- row parallel ---- */

/* y is summed in place over the ranks: nothing uses this rank's summand, and its gradient is the sum's. */
static tt_tensor *row_forward(tt_module *self, tt_tensor *x) {
    const tt__sharding *s = tt_module_user(self);
    tt_tensor *in = s->whole_on_outside ? tt_tp_scatter(x, s->group) : x;
    tt_tensor *y = tt_linear(in, s->weight, NULL);
    if (in != x)
        tt__abandon(in);
    if (!y)
        return NULL;
    tt_status status =
        tt_get_world_size(s->group) > 1 ? tt__tp_all_reduce("tt_nn_row_parallel_linear", s->group, y, TT_SUM) : TT_OK;
    if (status) {
        tt__abandon(y);
        return tt__tensor_fail(status, "%s", tt_last_error());
    }
    if (!s->bias)
        return y;
    tt_tensor *bias = y->dtype == s->bias->dtype ? s->bias : tt_to(s->bias, y->dtype); /* under autocast */
    tt_tensor *biased = tt_add(y, bias);
    tt__abandon(y);
    if (bias != s->bias)
        tt__abandon(bias);
    return biased;
}

static const tt_module_class row_class =
    TT_MODULE_CLASS(.name = "RowParallelLinear", .forward = row_forward, .destroy = tt__sharded_destroy);

tt_module *tt_nn_row_parallel_linear_with(const tt_nn_row_parallel_linear_args *args, size_t size) {
    tt_nn_row_parallel_linear_args a;
    TT__ARGS_COPY(a, args, size);
    const linear_sizes l = {
        "tt_nn_row_parallel_linear", a.in_features, a.out_features, a.no_bias, a.generator, a.dtype};
    char text[160];
    const tt__sharded_layer layer = {
        .who = l.who,
        .cls = &row_class,
        .sharding = {.group = a.group, .weight_dim = 1, .bias_dim = -1, .whole_on_outside = a.scatter_input},
        .name = "in_features",
        .divided = a.in_features,
        .make = make_plain_linear,
        .args = &l};
    return tt__sharded_layer_make(&layer, describe_layer(&l, a.scatter_input ? ", scattered" : "", text, sizeof text));
}
