#include "tensor/cuda/libraries/cuda_dnn_graph.h"

#include <string.h>

/* ---- a convolution ---- */

static int dnn_tensor(tt__dnn_use *use, const tt__dnn_key *key, tt__dnn_graph *graph, int64_t name, const int64_t d[4],
                      int64_t alignment, tt__dnn_object *tensor) {
    const int64_t contiguous[4] = {d[1] * d[2] * d[3], d[2] * d[3], d[3], 1};
    const int64_t channels_last[4] = {d[1] * d[2] * d[3], 1, d[3] * d[1], d[1]};
    const tt__dnn_attribute all[] = {
        {TT__DNN_TENSOR_TYPE, TT__DNN_AS_DATA_TYPE, 1, &tt__dnn_types[key->dtype]},
        {TT__DNN_TENSOR_DIMS, TT__DNN_AS_INT64, 4, d},
        {TT__DNN_TENSOR_STRIDES, TT__DNN_AS_INT64, 4, key->channels_last ? channels_last : contiguous},
        {TT__DNN_TENSOR_NAME, TT__DNN_AS_INT64, 1, &name},
        {TT__DNN_TENSOR_ALIGNMENT, TT__DNN_AS_INT64, 1, &alignment}};
    return tt__dnn_part(use, graph, TT__DNN_TENSOR, sizeof all / sizeof *all, all, tensor);
}

static int dnn_window(tt__dnn_use *use, const tt__dnn_key *key, tt__dnn_graph *graph, tt__dnn_object *convolution) {
    const int compute = key->dtype == TT_F64 ? TT__DNN_DOUBLE : TT__DNN_FLOAT, mode = TT__DNN_CROSS_CORRELATION;
    const int64_t dims = 2;
    const tt__dnn_attribute all[] = {{TT__DNN_CONV_COMPUTE, TT__DNN_AS_DATA_TYPE, 1, &compute},
                                     {TT__DNN_CONV_MODE, TT__DNN_AS_CONV_MODE, 1, &mode},
                                     {TT__DNN_CONV_DIMS, TT__DNN_AS_INT64, 1, &dims},
                                     {TT__DNN_CONV_PRE_PADDINGS, TT__DNN_AS_INT64, 2, key->padding},
                                     {TT__DNN_CONV_POST_PADDINGS, TT__DNN_AS_INT64, 2, key->padding},
                                     {TT__DNN_CONV_DILATIONS, TT__DNN_AS_INT64, 2, key->dilation},
                                     {TT__DNN_CONV_STRIDES, TT__DNN_AS_INT64, 2, key->stride}};
    return tt__dnn_part(use, graph, TT__DNN_CONVOLUTION, sizeof all / sizeof *all, all, convolution);
}

/* The attributes of the three operations, each with the same meaning. */
static const struct {
    int kind, x, y, w, convolution, alpha, beta;
} dnn_operations[] = {[TT__DNN_MAKES_Y] = {TT__DNN_OP_FORWARD, TT__DNN_FORWARD_X, TT__DNN_FORWARD_Y, TT__DNN_FORWARD_W,
                                           TT__DNN_FORWARD_CONV, TT__DNN_FORWARD_ALPHA, TT__DNN_FORWARD_BETA},
                      [TT__DNN_MAKES_DX] = {TT__DNN_OP_BACKWARD_DATA, TT__DNN_DATA_DX, TT__DNN_DATA_DY, TT__DNN_DATA_W,
                                            TT__DNN_DATA_CONV, TT__DNN_DATA_ALPHA, TT__DNN_DATA_BETA},
                      [TT__DNN_MAKES_DW] = {TT__DNN_OP_BACKWARD_WEIGHT, TT__DNN_WEIGHT_X, TT__DNN_WEIGHT_DY,
                                            TT__DNN_WEIGHT_DW, TT__DNN_WEIGHT_CONV, TT__DNN_WEIGHT_ALPHA,
                                            TT__DNN_WEIGHT_BETA}};

/* alpha and beta have the type that is computed in. */
static int dnn_operation(tt__dnn_use *use, const tt__dnn_key *key, tt__dnn_graph *graph, const tt__dnn_object part[4],
                         tt__dnn_object *operation) {
    const int direction = (int)key->direction, wide = key->dtype == TT_F64;
    const int type = wide ? TT__DNN_AS_DOUBLE : TT__DNN_AS_FLOAT;
    const double one = 1, zero = 0;
    const float one_f32 = 1, zero_f32 = 0;
    const tt__dnn_attribute all[] = {{dnn_operations[direction].x, TT__DNN_AS_DESCRIPTOR, 1, &part[0]},
                                     {dnn_operations[direction].y, TT__DNN_AS_DESCRIPTOR, 1, &part[1]},
                                     {dnn_operations[direction].w, TT__DNN_AS_DESCRIPTOR, 1, &part[2]},
                                     {dnn_operations[direction].convolution, TT__DNN_AS_DESCRIPTOR, 1, &part[3]},
                                     {dnn_operations[direction].alpha, type, 1, wide ? (const void *)&one : &one_f32},
                                     {dnn_operations[direction].beta, type, 1, wide ? (const void *)&zero : &zero_f32}};
    return tt__dnn_part(use, graph, dnn_operations[direction].kind, sizeof all / sizeof *all, all, operation);
}

static int dnn_convolution_graph(tt__dnn_use *use, const tt__dnn_key *key, tt__dnn_graph *graph) {
    tt__dnn_object part[4], operation;
    int status = dnn_tensor(use, key, graph, TT__DNN_X, key->x, key->alignment[0], &part[0]);
    if (!status)
        status = dnn_tensor(use, key, graph, TT__DNN_Y, key->y, key->alignment[1], &part[1]);
    if (!status)
        status = dnn_tensor(use, key, graph, TT__DNN_W, key->w, key->alignment[2], &part[2]);
    if (!status)
        status = dnn_window(use, key, graph, &part[3]);
    if (!status)
        status = dnn_operation(use, key, graph, part, &operation);
    return status ? status : tt__dnn_graph_of(use, 1, &operation, graph);
}

/* ---- graphs ---- */

int tt__dnn_graph_begin(tt__dnn_use *use, const tt__dnn_key *key, tt__dnn_graph *graph) {
    memset(graph, 0, sizeof *graph);
    return key->direction >= TT__DNN_ATTENDS ? tt__dnn_attention_graph(use, key, graph)
                                             : dnn_convolution_graph(use, key, graph);
}
