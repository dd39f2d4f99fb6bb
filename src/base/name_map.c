/* Open addressing, at most half full, by SipHash under a key of this process: names may come out of files, which could
 * have been chosen to fall into one place. */
#include "base/name_map.h"
#include "base/siphash.h"

#include <stdlib.h>
#include <string.h>

struct tt__name_entry {
    const char *name; /* NULL: free */
    uint64_t hash;
    int64_t number;
};

typedef struct tt__name_entry name_entry;

static uint64_t hash_name(const char *head, const char *rest) {
    tt__siphash hash;
    tt__siphash_begin_own(&hash);
    tt__siphash_add(&hash, head, strlen(head));
    tt__siphash_add(&hash, rest, strlen(rest));
    return tt__siphash_end(&hash);
}

/* Find the entry of a name, or the free one where it belongs. */
static name_entry *entry_of_name(const tt__name_map *map, uint64_t hash, const char *head, const char *rest) {
    size_t n = strlen(head), at = (size_t)hash & (map->room - 1);
    for (;; at = (at + 1) & (map->room - 1)) {
        name_entry *e = &map->table[at];
        if (!e->name || (e->hash == hash && !strncmp(e->name, head, n) && !strcmp(e->name + n, rest)))
            return e;
    }
}

bool tt__name_map_reserve(tt__name_map *map, size_t count) {
    tt__name_map larger = {.room = map->room ? map->room : 32};
    while (larger.room / 2 < count)
        larger.room *= 2;
    if (larger.room == map->room)
        return true;
    larger.table = calloc(larger.room, sizeof *larger.table);
    if (!larger.table)
        return false;
    for (size_t i = 0; i < map->room; i++)
        if (map->table[i].name)
            *entry_of_name(&larger, map->table[i].hash, map->table[i].name, "") = map->table[i];
    larger.count = map->count;
    free(map->table);
    *map = larger;
    return true;
}

void tt__name_map_put(tt__name_map *map, const char *name, int64_t number) {
    uint64_t hash = hash_name(name, "");
    name_entry *e = entry_of_name(map, hash, name, "");
    if (e->name)
        return;
    *e = (name_entry){name, hash, number};
    map->count++;
}

int64_t tt__name_map_get(const tt__name_map *map, const char *head, const char *rest) {
    const name_entry *e = map->table ? entry_of_name(map, hash_name(head, rest), head, rest) : NULL;
    return e && e->name ? e->number : -1;
}

void tt__name_map_free(tt__name_map *map) {
    free(map->table);
    *map = (tt__name_map){0};
}
