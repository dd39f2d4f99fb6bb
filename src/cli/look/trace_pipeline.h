/* Drawing what ran in a pipeline's step, from the file that tt_pipeline_write_trace() wrote. */
#ifndef TT_CLI_TRACE_PIPELINE_H
#define TT_CLI_TRACE_PIPELINE_H

#include <tutti/base.h>

/* Draw the step in `path`: as text on stdout, or as SVG into `picture` if that is not NULL. The idle share comes with
 * both. Errors: TT_ERR_IO; TT_ERR_FORMAT no such trace; TT_ERR_MEMORY. */
tt_status tt__trace_draw_pipeline(const char *path, const char *picture);

#endif
