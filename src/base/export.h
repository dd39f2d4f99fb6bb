/* Internal functions of libtutti-comm that libtutti or bindings use, too. The mark exports them from the shared
 * library. Their version node carries the full version (cmake/library.map.in): the loader refuses a libtutti-comm of
 * another release, and nobody else can bind to them by chance. tools/lint.py refuses a marked function that neither
 * uses. */
#ifndef TT_BASE_EXPORT_H
#define TT_BASE_EXPORT_H

#include <tutti/base.h>

#define TT__EXPORT TT_API

#endif
