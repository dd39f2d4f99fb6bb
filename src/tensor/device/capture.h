/* Graphs: what a thread enqueues on a device while it captures one, and what the host does at each replay.
 *
 * A captured call repeats the numbers that it was given. A number that is new in each step (a key of dropout, the count
 * of an optimizer's steps) lies in memory of the device instead, and has a source: code that gives it for a replay.
 * Sources are called in the order in which they were added, so that random draws come as in steps that are not
 * captured. A call that makes the host wait, or that the host does alone, refuses to be captured. */
#ifndef TT_TENSOR_CAPTURE_H
#define TT_TENSOR_CAPTURE_H

#include "tensor/core/tensor.h"
#include "tensor/device/device.h"

typedef struct tt_graph tt__graph; /* the public one, tutti/graph.h */

/* Something that the host does for each replay. */
typedef struct tt__graph_source {
    void *object; /* borrowed until the graph ends */
    size_t index[2];
    size_t words; /* of the number, at most TT__GRAPH_WORDS; 0: it has none */
    /* Write the number for the next replay; change nothing else, except by drawing. NULL if there are no words. */
    void (*give)(const struct tt__graph_source *source, uint64_t *words);
    void (*enqueued)(const struct tt__graph_source *source); /* the replay has been enqueued; or NULL */
    void (*release)(void *object);                           /* the graph ends; or NULL */
} tt__graph_source;

/* Can this thread capture a graph of the device now? */
tt_status tt__graph_check(const char *who, const tt_device *device);

/* Begin to capture in this thread. NULL: an error that starts with `who`. */
tt__graph *tt__graph_begin(const char *who, const tt_device *device);

/* End the capture. `status`: what the captured function returned. If that is an error it is returned as it is, and the
 * graph can't be replayed. */
tt_status tt__graph_end(tt__graph *graph, tt_status status);

/* Enqueue the graph's work, with new numbers. */
tt_status tt__graph_launch(const char *who, tt__graph *graph);

/* Free a graph whose capture has ended. */
void tt__graph_free(tt__graph *graph);

/* The graph of `device` (NULL: of any) that this thread captures; NULL: none. */
tt__graph *tt__capturing(const tt_device *device);

/* Add a source; what it points to is copied. *at: where on the device its number lies. On failure nothing is added. */
tt_status tt__graph_add(tt__graph *graph, const tt__graph_source *source, const void **at);

/* Let the capture fail with the thread's last error, whatever the captured function returns. */
void tt__graph_spoil(tt__graph *graph);

/* Fail, and let the capture fail, if this thread captures a graph of the device (NULL: of any): call `who` can't be
 * repeated. */
tt_status tt__capture_refuse(const char *who, const tt_device *device);

#endif
