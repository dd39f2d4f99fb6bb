/* This host's name. */
#ifndef TT_BASE_HOST_NAME_H
#define TT_BASE_HOST_NAME_H

#include "base/export.h"

#include <stddef.h>

/* Write the name that the host calls itself, cut to `size` bytes with its end; "?" if it has none. */
TT__EXPORT void tt__host_name(char *name, size_t size);

#endif
