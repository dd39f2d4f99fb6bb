/* TT_DEBUG=1: the memory of freed objects is kept for long instead of being used again, so that freeing an object twice
 * is an error and no crash. Without it nothing here costs anything. */
#ifndef TT_BASE_QUARANTINE_H
#define TT_BASE_QUARANTINE_H

#include "base/export.h"

/* Is TT_DEBUG set, and not to 0? */
bool tt__is_debugging(void);

/* Release the memory of an object by `release`, such as free(): at once or, under TT_DEBUG=1, much later, with a mark
 * in its first 8 bytes meanwhile. `size`: its bytes, 8 or more. */
TT__EXPORT void tt__quarantine(void *object, size_t size, void (*release)(void *));

/* Was the object freed before? If so, TT_ERR_STATE is recorded, and the caller, a public free, must return. `who`: its
 * name, "tt_module_free". Always false for NULL and without TT_DEBUG=1. */
TT__EXPORT bool tt__freed_before(const char *who, const void *object);

#endif
