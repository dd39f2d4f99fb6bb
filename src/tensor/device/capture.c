#include "tensor/device/capture.h"

#include "base/error.h"
#include "base/quarantine.h"

#include <stdlib.h>

/* A source, and where its number lies among the graph's words. */
typedef struct graph_entry {
    tt__graph_source source;
    size_t first;
} graph_entry;

/* Words lie in blocks on the device, each set at once; a number lies in one block. */
struct tt_graph {
    const tt_device *device;
    void *captured; /* the device's */
    graph_entry *entries;
    size_t count, room;
    uint64_t *words;          /* block_count * TT__GRAPH_WORDS: the replay's */
    void **blocks;            /* on the device, the graph's own */
    size_t block_count, used; /* used: words of the last block */
    bool spoiled;
    tt__saved_error error; /* why, if it is spoiled */
};

static _Thread_local tt__graph *capturing;

tt__graph *tt__capturing(const tt_device *device) {
    return capturing && (!device || capturing->device == device) ? capturing : NULL;
}

/* ---- capturing ---- */

tt_status tt__graph_check(const char *who, const tt_device *device) {
    if (!device->graphs)
        return tt__fail(TT_ERR_UNSUPPORTED, "%s: expected a device with graphs, as TT_CUDA(0), got %s", who,
                        device->name);
    return tt__capture_refuse(who, NULL);
}

tt__graph *tt__graph_begin(const char *who, const tt_device *device) {
    if (tt__graph_check(who, device))
        return NULL;
    tt__graph *graph = calloc(1, sizeof *graph);
    if (!graph)
        return tt__fail_null(TT_ERR_MEMORY, "%s: no memory for a graph", who);
    graph->device = device;
    if (device->graphs->begin(device, &graph->captured)) {
        free(graph);
        tt__fail_prefix("%s", who);
        return NULL;
    }
    capturing = graph;
    return graph;
}

tt_status tt__graph_end(tt__graph *graph, tt_status status) {
    if (!status && graph->spoiled) {
        tt__error_restore(&graph->error);
        status = tt_last_status();
    }
    capturing = NULL;
    tt_status ended = graph->device->graphs->end(graph->device, graph->captured, !status);
    return status ? status : ended;
}

void tt__graph_spoil(tt__graph *graph) {
    if (graph->spoiled)
        return;
    tt__error_save(&graph->error);
    tt__error_restore(&graph->error);
    graph->spoiled = true;
}

tt_status tt__capture_refuse(const char *who, const tt_device *device) {
    tt__graph *graph = tt__capturing(device);
    if (!graph)
        return TT_OK;
    tt_status status =
        tt__fail(TT_ERR_STATE,
                 "%s can't be captured in a graph: the host does it, or waits for it, and a replay would not; do it "
                 "outside of the captured function",
                 who);
    tt__graph_spoil(graph);
    return status;
}

void tt__graph_free(tt__graph *graph) {
    for (size_t i = graph->count; i-- > 0;)
        if (graph->entries[i].source.release)
            graph->entries[i].source.release(graph->entries[i].source.object);
    for (size_t b = 0; b < graph->block_count; b++)
        graph->device->free(graph->device, graph->blocks[b]);
    graph->device->graphs->free(graph->device, graph->captured);
    free(graph->entries);
    free(graph->words);
    free(graph->blocks);
    tt__quarantine(graph, sizeof *graph, free);
}

/* ---- sources ---- */

static tt_status no_graph_room(size_t n) { return tt__fail(TT_ERR_MEMORY, "no memory for %zu numbers of a graph", n); }

/* Add a block of words. */
static tt_status add_block(tt__graph *graph) {
    const size_t n = graph->block_count + 1;
    void **blocks = realloc(graph->blocks, n * sizeof *blocks);
    if (!blocks)
        return no_graph_room(n * TT__GRAPH_WORDS);
    graph->blocks = blocks;
    uint64_t *words = reallocarray(graph->words, n * TT__GRAPH_WORDS, sizeof *words);
    if (!words)
        return no_graph_room(n * TT__GRAPH_WORDS);
    graph->words = words;
    blocks[n - 1] = graph->device->graphs->numbers(graph->device, TT__GRAPH_WORDS * sizeof *words);
    if (!blocks[n - 1])
        return tt_last_status();
    for (size_t i = 0; i < TT__GRAPH_WORDS; i++)
        words[(n - 1) * TT__GRAPH_WORDS + i] = 0;
    graph->block_count = n;
    graph->used = 0;
    return TT_OK;
}

static tt_status entries_have_room(tt__graph *graph) {
    if (graph->count < graph->room)
        return TT_OK;
    const size_t room = graph->room ? 2 * graph->room : 64;
    graph_entry *entries = reallocarray(graph->entries, room, sizeof *entries);
    if (!entries)
        return no_graph_room(room);
    graph->entries = entries;
    graph->room = room;
    return TT_OK;
}

tt_status tt__graph_add(tt__graph *graph, const tt__graph_source *source, const void **at) {
    TT__TRY(entries_have_room(graph));
    if (source->words && (!graph->block_count || graph->used + source->words > TT__GRAPH_WORDS))
        TT__TRY(add_block(graph));
    const size_t last = graph->block_count - 1;
    graph->entries[graph->count++] =
        (graph_entry){.source = *source, .first = source->words ? last * TT__GRAPH_WORDS + graph->used : 0};
    if (!source->words)
        return TT_OK;
    *at = (const uint64_t *)graph->blocks[last] + graph->used;
    graph->used += source->words;
    return TT_OK;
}

/* ---- replays ---- */

static tt_status set_blocks(const tt__graph *graph) {
    for (size_t b = 0; b < graph->block_count; b++)
        TT__TRY(graph->device->graphs->set(graph->device, graph->blocks[b], &graph->words[b * TT__GRAPH_WORDS],
                                           b + 1 < graph->block_count ? TT__GRAPH_WORDS : graph->used));
    return TT_OK;
}

tt_status tt__graph_launch(const char *who, tt__graph *graph) {
    TT__TRY(tt__capture_refuse(who, NULL));
    for (size_t i = 0; i < graph->count; i++)
        if (graph->entries[i].source.give)
            graph->entries[i].source.give(&graph->entries[i].source, &graph->words[graph->entries[i].first]);
    tt_status status = set_blocks(graph);
    if (!status)
        status = graph->device->graphs->launch(graph->device, graph->captured);
    if (status)
        return tt__fail_prefix("%s", who);
    for (size_t i = 0; i < graph->count; i++)
        if (graph->entries[i].source.enqueued)
            graph->entries[i].source.enqueued(&graph->entries[i].source);
    return TT_OK;
}
