/* Graphs as programs see them. The capture itself is tensor/device/capture.h. */
#include "base/error.h"
#include "base/quarantine.h"
#include "tensor/device/capture.h"

#include <tutti/autograd.h>
#include <tutti/graph.h>

static const char capture[] = "tt_graph_capture";

static tt_status check_capture(const tt_device *device, int warmup, tt_graph_fn function) {
    if (!device || !function)
        return tt__fail(TT_ERR_INVALID, "%s: `%s` is NULL", capture, device ? "function" : "device");
    if (warmup < 0)
        return tt__fail(TT_ERR_INVALID, "%s: expected at least 0 warm-ups, got %d", capture, warmup);
    return tt__graph_check(capture, device);
}

/* Call the function without the copies that autocast keeps: a replay would see their old values. */
static tt_status call_captured(tt_graph_fn function, void *user) {
    int scope = tt_scope_begin();
    if (!scope)
        return tt_last_status();
    tt_clear_autocast_cache();
    const uint64_t errors = tt__error_count();
    tt_status status = function(user);
    if (status && tt__error_count() == errors)
        tt__fail(status, "the captured function failed: %s", tt_status_text(status));
    tt_clear_autocast_cache();
    tt_scope_end(scope);
    return status;
}

tt_graph *tt_graph_capture(const tt_device *device, int warmup, tt_graph_fn function, void *user) {
    tt_status status = check_capture(device, warmup, function);
    for (int i = 0; i < warmup && !status; i++)
        status = call_captured(function, user);
    tt__graph *graph = status ? NULL : tt__graph_begin(capture, device);
    if (!graph)
        return NULL;
    status = tt__graph_end(graph, call_captured(function, user));
    if (!status)
        return graph;
    tt__fail_prefix("%s", capture);
    tt__graph_free(graph);
    return NULL;
}

tt_status tt_graph_replay(tt_graph *graph) {
    static const char who[] = "tt_graph_replay";
    return graph ? tt__graph_launch(who, graph) : tt__fail(TT_ERR_INVALID, "%s: the graph is NULL", who);
}

void tt_graph_free(tt_graph *graph) {
    if (graph && !tt__freed_before("tt_graph_free", graph))
        tt__graph_free(graph);
}
