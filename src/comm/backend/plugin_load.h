/* Finding and checking plug-ins. */
#ifndef TT_COMM_BACKEND_PLUGIN_LOAD_H
#define TT_COMM_BACKEND_PLUGIN_LOAD_H

#include <tutti/backend.h>

#include <limits.h>

/* Find the file of back end `name`, or the one at `name` if there is a slash in it, and load nothing. `real` becomes
 * its path, from the root on and without links. Errors: TT_ERR_UNSUPPORTED no such back end (the text lists the folders
 * searched and the back ends found); TT_ERR_AUTH somebody else may write to it (base/files/trusted.h). Thread-safe. */
tt_status tt__plugin_find(char real[PATH_MAX], const char *name);

/* Find the table of a back end, by tt__plugin_find(). It is loaded at the first call, and stays loaded. Errors: also
 * TT_ERR_UNSUPPORTED it can't be loaded, or its table lacks something (the text names it). Thread-safe. */
tt_status tt__plugin_load(const tt_backend **out, const char *name);

/* Check that a table has what it must have. *out := a copy, with zeros for what an older header lacks. `path` is for
 * errors. */
tt_status tt__plugin_check(tt_backend *out, const tt_backend *table, const char *path);

#endif
