#include "tensor/cuda/cuda_dnn_graph.h"

#include <string.h>

/* ---- descriptors ---- */

static const char *dnn_kind_name(int kind) {
    switch (kind) {
    case TT__DNN_TENSOR:
        return "a tensor";
    case TT__DNN_CONVOLUTION:
        return "a convolution";
    case TT__DNN_POINTWISE:
    case TT__DNN_MATMUL:
    case TT__DNN_REDUCTION:
        return "a function";
    case TT__DNN_GRAPH:
        return "a graph";
    case TT__DNN_HEURISTICS:
        return "heuristics";
    case TT__DNN_CONFIG:
        return "an engine's configuration";
    case TT__DNN_ENGINE:
        return "an engine";
    case TT__DNN_PLAN:
        return "a plan";
    case TT__DNN_PACK:
        return "a call's pointers";
    default:
        return "an operation";
    }
}

/* Note what failed, if something did. */
static int dnn_note(tt__dnn_use *use, int status, const char *function, int kind) {
    if (status) {
        use->function = function;
        use->object = dnn_kind_name(kind);
    }
    return status;
}

int tt__dnn_create(tt__dnn_use *use, int kind, tt__dnn_object *object) {
    *object = NULL;
    int status = use->dnn->BackendCreateDescriptor(kind, object);
    if (status)
        *object = NULL;
    return dnn_note(use, status, "cudnnBackendCreateDescriptor", kind);
}

void tt__dnn_end(const tt__dnn_use *use, tt__dnn_object object) {
    if (object)
        use->dnn->BackendDestroyDescriptor(object);
}

static int dnn_fill(tt__dnn_use *use, int kind, int n, const tt__dnn_attribute *attributes, tt__dnn_object object) {
    for (const tt__dnn_attribute *a = attributes; a < attributes + n; a++) {
        int status = use->dnn->BackendSetAttribute(object, a->name, a->type, a->count, a->list);
        if (status)
            return dnn_note(use, status, "cudnnBackendSetAttribute", kind);
    }
    return dnn_note(use, use->dnn->BackendFinalize(object), "cudnnBackendFinalize", kind);
}

int tt__dnn_make(tt__dnn_use *use, int kind, int n, const tt__dnn_attribute *attributes, tt__dnn_object *object) {
    int status = tt__dnn_create(use, kind, object);
    if (!status)
        status = dnn_fill(use, kind, n, attributes, *object);
    if (status) {
        tt__dnn_end(use, *object);
        *object = NULL;
    }
    return status;
}

int tt__dnn_get(tt__dnn_use *use, int kind, tt__dnn_object object, const tt__dnn_attribute *attribute, int64_t *count,
                void *list) {
    *count = 0;
    int status = use->dnn->BackendGetAttribute(object, attribute->name, attribute->type, attribute->count, count, list);
    return dnn_note(use, status, "cudnnBackendGetAttribute", kind);
}

int tt__dnn_part(tt__dnn_use *use, tt__dnn_graph *graph, int kind, int n, const tt__dnn_attribute *attributes,
                 tt__dnn_object *object) {
    int status = tt__dnn_make(use, kind, n, attributes, object);
    if (!status)
        graph->part[graph->count++] = *object;
    return status;
}

int tt__dnn_graph_of(tt__dnn_use *use, int n, const tt__dnn_object *operations, tt__dnn_graph *graph) {
    const tt__dnn_attribute all[] = {{TT__DNN_GRAPH_OPS, TT__DNN_AS_DESCRIPTOR, n, operations},
                                     {TT__DNN_GRAPH_HANDLE, TT__DNN_AS_HANDLE, 1, &use->handle}};
    return tt__dnn_make(use, TT__DNN_GRAPH, 2, all, &graph->graph);
}

/* ---- a convolution ---- */

const int tt__dnn_types[TT__DTYPES] = {
    [TT_F32] = TT__DNN_FLOAT, [TT_F64] = TT__DNN_DOUBLE, [TT_F16] = TT__DNN_HALF, [TT_BF16] = TT__DNN_BFLOAT16};

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

void tt__dnn_graph_end(const tt__dnn_use *use, tt__dnn_graph *graph) {
    tt__dnn_end(use, graph->graph);
    for (int i = graph->count - 1; i >= 0; i--)
        tt__dnn_end(use, graph->part[i]);
    memset(graph, 0, sizeof *graph);
}
