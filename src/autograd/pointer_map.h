/* Numbers by pointer: open addressing, in memory of the pool. */
#ifndef TT_AUTOGRAD_POINTER_MAP_H
#define TT_AUTOGRAD_POINTER_MAP_H

#include <stdbool.h>
#include <stdint.h>

typedef struct tt__pointer_map {
    struct tt__pointer_entry *table; /* NULL: nothing was ever put in */
    uint32_t room, count;            /* room: a power of two */
} tt__pointer_map;

/* Return the number of `key`, or -1. */
int64_t tt__pointer_map_get(const tt__pointer_map *map, const void *key);

/* Set the number of `key`, >= 0. False: no memory, nothing changed. */
bool tt__pointer_map_put(tt__pointer_map *map, const void *key, int64_t number);

void tt__pointer_map_free(tt__pointer_map *map);

#endif
