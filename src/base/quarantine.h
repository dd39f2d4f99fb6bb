/* TT_DEBUG=1: memory of objects that were freed is kept for long instead of being used again, so that a second free is
 * an error and not a crash. Otherwise none of this costs anything. */
#ifndef TT_BASE_QUARANTINE_H
#define TT_BASE_QUARANTINE_H

#include "base/export.h"

/* Is TT_DEBUG set, and not to 0? */
bool tt__is_debugging(void);

/* Release the memory of an object that has ended: at once or, under TT_DEBUG=1, much later, its first 8 bytes marked
 * until then. `size`: its bytes, 8 or more. `release`: free(), or what gives the memory back to where it is from. */
TT__EXPORT void tt__quarantine(void *object, size_t size, void (*release)(void *));

/* Begin a public free: was the object freed before? Then that is recorded, TT_ERR_STATE, and nothing may follow.
 * `who`: "tt_module_free". Always false for NULL and without TT_DEBUG=1. */
TT__EXPORT bool tt__freed_before(const char *who, const void *object);

#endif
