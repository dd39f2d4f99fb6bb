/* Graphs: the work that a thread enqueues, captured on a stream of its own, so that other threads' work goes on. */
#include "tensor/cuda/cuda_kernels.h"
#include "tensor/cuda/device/cuda_state.h"

#include <stdlib.h>

_Static_assert((int)TT__CUDA_WORDS == (int)TT__GRAPH_WORDS, "what set() takes");

static tt__cuda_state *graph_state(const tt_device *device) { return (tt__cuda_state *)(void *)device; }

/* Free the graph's memory for all at once: by the order of the stream, new uses run after the launches that are
 * enqueued. */
static void graph_memory_end(tt__cuda_graph *graph) {
    if (tt__cuda_is_forked())
        return;
    pthread_mutex_lock(&graph->state->lock);
    tt__arena_pool_end(&graph->state->arena, &graph->pool);
    for (size_t i = 0; i < graph->other_count; i++)
        tt__arena_give(&graph->state->arena, graph->others[i]);
    pthread_mutex_unlock(&graph->state->lock);
}

/* ---- capturing ---- */

static tt_status begin_capture(tt__cuda_graph *graph) {
    const char *name = graph->state->name;
    tt_status status = tt__cuda_enter(graph->state);
    if (!status)
        status = tt__cuda_check(cudaStreamCreateWithFlags(&graph->stream, cudaStreamNonBlocking),
                                "making a stream on %s for a graph", name);
    if (status)
        return status;
    /* Relaxed: this thread may also pin memory or make a library's handle, which are not work of the stream. Calls that
     * a replay could not repeat are refused by name. */
    status = tt__cuda_check(cudaStreamBeginCapture(graph->stream, cudaStreamCaptureModeRelaxed),
                            "beginning to capture a graph on %s", name);
    if (status)
        (void)cudaStreamDestroy(graph->stream);
    return status;
}

static tt_status graph_begin(const tt_device *device, void **out) {
    tt__cuda_graph *graph = calloc(1, sizeof *graph);
    if (!graph)
        return tt__cuda_host->fail(TT_ERR_MEMORY, "%s: no memory for a graph", device->name);
    graph->state = graph_state(device);
    tt_status status = begin_capture(graph);
    if (status) {
        free(graph);
        return status;
    }
    tt__cuda_capturing = graph;
    *out = graph;
    return TT_OK;
}

/* Warn of an empty graph: most likely the function works on another device, whose work a replay will not repeat. */
static void warn_if_empty(const tt__cuda_graph *graph, cudaGraph_t captured) {
    size_t count = 0;
    if (!cudaGraphGetNodes(captured, NULL, &count) && !count)
        tt__cuda_host->log(TT_LOG_WARNING,
                           "tt_graph_capture: the graph is empty: the function has enqueued nothing on %s. Work on "
                           "other devices is not captured",
                           graph->state->name);
}

static tt_status instantiate(tt__cuda_graph *graph, cudaGraph_t captured) {
    warn_if_empty(graph, captured);
    tt_status status = tt__cuda_check(cudaGraphInstantiate(&graph->exec, captured, 0),
                                      "making a captured graph ready on %s", graph->state->name);
    (void)cudaGraphDestroy(captured);
    return status;
}

static tt_status graph_end(const tt_device *device, void *p, bool keep) {
    tt__cuda_graph *graph = p;
    cudaGraph_t captured = NULL;
    cudaError_t error = cudaStreamEndCapture(graph->stream, &captured);
    tt__cuda_capturing = NULL;
    (void)cudaStreamDestroy(graph->stream);
    graph->stream = NULL;
    if (keep && !error)
        return instantiate(graph, captured);
    if (captured)
        (void)cudaGraphDestroy(captured);
    if (keep)
        return tt__cuda_check(error, "capturing a graph on %s", device->name);
    (void)cudaGetLastError();
    return TT_OK;
}

/* ---- launching ---- */

static void *graph_numbers(const tt_device *device, size_t bytes) {
    return tt__cuda_take(graph_state(device), NULL, bytes);
}

static tt_status graph_set(const tt_device *device, void *to, const uint64_t *words, size_t n) {
    tt__cuda_state *state = graph_state(device);
    tt_status status = tt__cuda_enter(state);
    return status ? status
                  : tt__cuda_check(tt__cuda_set_words(tt__cuda_stream(state), to, words, n),
                                   "setting the numbers of a graph on %s", state->name);
}

static tt_status graph_launch(const tt_device *device, void *p) {
    const tt__cuda_graph *graph = p;
    tt_status status = tt__cuda_enter(graph->state);
    return status ? status
                  : tt__cuda_check(cudaGraphLaunch(graph->exec, tt__cuda_stream(graph->state)),
                                   "launching a graph on %s", device->name);
}

static void graph_free(const tt_device *device, void *p) {
    tt__cuda_graph *graph = p;
    (void)device;
    if (graph->exec && !tt__cuda_enter(graph->state))
        (void)cudaGraphExecDestroy(graph->exec); /* a launch under way ends first */
    graph_memory_end(graph);
    free(graph->others);
    free(graph);
}

const tt__device_graphs tt__cuda_graphs = {.begin = graph_begin,
                                           .end = graph_end,
                                           .numbers = graph_numbers,
                                           .set = graph_set,
                                           .launch = graph_launch,
                                           .free = graph_free};
