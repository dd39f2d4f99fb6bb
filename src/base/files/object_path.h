/* Where Tutti's own shared objects are (plug-ins, and devices), and whether they may be loaded. */
#ifndef TT_BASE_OBJECT_PATH_H
#define TT_BASE_OBJECT_PATH_H

#include "base/export.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* Make a list of the folders to look in, in order and separated by ":": those of TT_BACKEND_PATH; then those beside the
 * library, or beside the program that it is linked into: where that was installed (bin) or built (tests/unit). A
 * program with more rights than its caller ignores the caller's TT_BACKEND_PATH. NULL: no memory. The caller frees it.
 * Thread-safe. */
TT__EXPORT char *tt__object_folders_list(void);

/* Take the next folder of a list; false at its end. Skips empty ones, and relative ones, which would depend on the
 * working directory. */
bool tt__object_folder_next(const char **list, char *folder, size_t size);

/* Find `file` in one of the folders: its path, in at most `size` bytes; false: none has it. Check it with
 * tt__trusted_file() before loading it. Thread-safe. */
TT__EXPORT bool tt__object_find(const char *file, char *path, size_t size);

/* tt__trust() (base/files/trusted.h) that records its error. */
TT__EXPORT TT_NODISCARD tt_status tt__trusted_file(const char *path, char real[PATH_MAX]);

#endif
