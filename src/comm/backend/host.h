/* What the library offers plug-ins. */
#ifndef TT_COMM_BACKEND_HOST_H
#define TT_COMM_BACKEND_HOST_H

#include <tutti/backend.h>

extern const tt_backend_host tt__backend_host;

#endif
