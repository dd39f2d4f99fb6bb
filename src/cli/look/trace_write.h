/* Chrome's trace format, which Perfetto reads: https://ui.perfetto.dev */
#ifndef TT_CLI_TRACE_WRITE_H
#define TT_CLI_TRACE_WRITE_H

#include "cli/look/job_view.h"

/* Write the last calls of every rank to `path`, whole or not at all: one process per rank, one thread per group (more
 * where asynchronous calls of a group overlap), an arrow from the rank that came last to those that waited for it, all
 * on one clock. Errors: TT_ERR_IO, TT_ERR_MEMORY. */
tt_status tt__trace_write(const tt__view *view, const char *path);

#endif
