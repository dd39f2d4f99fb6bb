/* Descriptors of cuDNN: made from attributes, finalized, and collected in a graph. */
#include "tensor/cuda/libraries/cuda_dnn_graph.h"

#include <string.h>

const int tt__dnn_types[TT__DTYPES] = {
    [TT_F32] = TT__DNN_FLOAT, [TT_F64] = TT__DNN_DOUBLE, [TT_F16] = TT__DNN_HALF, [TT_BF16] = TT__DNN_BFLOAT16};

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

void tt__dnn_graph_end(const tt__dnn_use *use, tt__dnn_graph *graph) {
    tt__dnn_end(use, graph->graph);
    for (int i = graph->count - 1; i >= 0; i--)
        tt__dnn_end(use, graph->part[i]);
    memset(graph, 0, sizeof *graph);
}
