#include "autograd/pointer_map.h"

#include "tensor/core/pool.h"

#include <string.h>

struct tt__pointer_entry {
    const void *key; /* NULL: free */
    int64_t number;
};

typedef struct tt__pointer_entry pointer_entry;

enum { FIRST_ROOM = 64 };

/* Find the entry of `key`, or the free one where it belongs. */
static pointer_entry *entry_for_key(const tt__pointer_map *map, const void *key) {
    uint64_t hash = (uint64_t)(uintptr_t)key * UINT64_C(0x9e3779b97f4a7c15);
    uint32_t at = (uint32_t)(hash >> 32) & (map->room - 1);
    while (map->table[at].key && map->table[at].key != key)
        at = (at + 1) & (map->room - 1);
    return &map->table[at];
}

int64_t tt__pointer_map_get(const tt__pointer_map *map, const void *key) {
    const pointer_entry *e = map->table ? entry_for_key(map, key) : NULL;
    return e && e->key ? e->number : -1;
}

static bool map_grow(tt__pointer_map *map) {
    tt__pointer_map larger = {.room = map->room ? 2 * map->room : FIRST_ROOM, .count = map->count};
    size_t bytes = larger.room * sizeof(pointer_entry);
    larger.table = tt__pool_alloc(bytes);
    if (!larger.table)
        return false;
    memset(larger.table, 0, bytes);
    for (uint32_t i = 0; i < map->room; i++)
        if (map->table[i].key)
            *entry_for_key(&larger, map->table[i].key) = map->table[i];
    tt__pool_free(map->table);
    *map = larger;
    return true;
}

bool tt__pointer_map_put(tt__pointer_map *map, const void *key, int64_t number) {
    if (2 * map->count >= map->room && !map_grow(map))
        return false;
    pointer_entry *e = entry_for_key(map, key);
    map->count += !e->key;
    *e = (pointer_entry){key, number};
    return true;
}

void tt__pointer_map_free(tt__pointer_map *map) {
    tt__pool_free(map->table);
    *map = (tt__pointer_map){0};
}
