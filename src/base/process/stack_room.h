/* How much of a thread's stack is left, for calls that nest as deeply as a program asks. */
#ifndef TT_BASE_STACK_ROOM_H
#define TT_BASE_STACK_ROOM_H

#include "base/export.h"

#include <stdbool.h>
#include <stddef.h>

/* Is there enough of this thread's stack left to call what else it may need: 256 KiB, or half of a small stack? *size:
 * of the whole stack. True if it is not known, as on a stack of the program's own. Cheap after a thread's first
 * call. */
TT__EXPORT bool tt__stack_has_room(size_t *size);

#endif
