/* Where Tutti's own shared objects lie: plug-ins, and the devices that are one. */
#ifndef TT_BASE_OBJECT_PATH_H
#define TT_BASE_OBJECT_PATH_H

#include "base/export.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* Make a list of the folders to look in, separated by ":", in order: those of TT_BACKEND_PATH; beside the library; or,
 * where it is linked into a program, in the tree that the program was installed in (bin) or built in (tests/unit). A
 * program that runs with more rights than its caller has takes no folder from the caller's environment. NULL: no
 * memory. The caller frees it. Thread-safe. */
TT__EXPORT char *tt__object_folders_list(void);

/* Take the next folder of a list; false at its end. Skips empty ones, and relative ones: where those lie depends on
 * where the program happens to be. */
bool tt__object_folder_next(const char **list, char *folder, size_t size);

/* Find `file` in one of the folders: its path, of at most `size` letters; false: it is in none. Whether it may be
 * loaded is tt__trusted_file()'s to say. Thread-safe. */
TT__EXPORT bool tt__object_find(const char *file, char *path, size_t size);

#endif
