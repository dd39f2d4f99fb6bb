/* A forked child whose program runs in a new thread, as tt_spawn() makes them. What a layer has noted of the parent's
 * threads, and of this process being a mere fork, is no longer so. */
#ifndef TT_BASE_NEW_PROCESS_H
#define TT_BASE_NEW_PROCESS_H

#include "base/export.h"

/* Have `begin` called by tt__new_process_begins(), in children forked from now on. At most 8 in a
 * process; each once. */
TT__EXPORT void tt__on_new_process(void (*begin)(void));

/* Call them. To be called in the child, before the program's thread is started. */
void tt__new_process_begins(void);

#endif
