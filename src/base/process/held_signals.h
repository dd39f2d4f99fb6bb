/* Parts in which no signal handler may run on this thread. */
#ifndef TT_BASE_HELD_SIGNALS_H
#define TT_BASE_HELD_SIGNALS_H

#include "base/export.h"

#include <signal.h>

/* Hold back signals until tt__signals_release(), but those that an instruction itself raises. They come then. */
TT__EXPORT void tt__signals_hold(sigset_t *before);
TT__EXPORT void tt__signals_release(const sigset_t *before);

#endif
