/* Numbers by name: a hash table whose names are borrowed. */
#ifndef TT_BASE_NAME_MAP_H
#define TT_BASE_NAME_MAP_H

#include "base/export.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tt__name_map {
    struct tt__name_entry *table; /* NULL: no room was made */
    size_t room, count;           /* room: a power of two */
} tt__name_map;

/* Make room for `count` names in all. False: no memory, nothing changed. */
TT__EXPORT bool tt__name_map_reserve(tt__name_map *map, size_t count);

/* Put in a name for which there is room. One that is there keeps its number. */
TT__EXPORT void tt__name_map_put(tt__name_map *map, const char *name, int64_t number);

/* Return the number of the name that is `head` and `rest` together, or -1. */
TT__EXPORT int64_t tt__name_map_get(const tt__name_map *map, const char *head, const char *rest);

TT__EXPORT void tt__name_map_free(tt__name_map *map);

#endif
