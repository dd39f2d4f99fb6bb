/* Finding and checking plug-ins. */
#ifndef TT_COMM_BACKEND_PLUGIN_LOAD_H
#define TT_COMM_BACKEND_PLUGIN_LOAD_H

#include <tutti/backend.h>

/* Find the table of back end `name`, or of the shared object at `name` if there is a slash in it. It is loaded at the
 * first call, and stays loaded. Errors: TT_ERR_UNSUPPORTED no such back end (the text lists the folders searched and
 * the back ends found), it can't be loaded, or its table lacks something (the text names it). Thread-safe. */
tt_status tt__plugin_load(const tt_backend **out, const char *name);

/* What must be in a table, whose copy *out becomes: zeros where it is of an older header. `path` is for the text. */
tt_status tt__plugin_check(tt_backend *out, const tt_backend *table, const char *path);

#endif
