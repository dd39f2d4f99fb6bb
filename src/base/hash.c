#include "base/hash.h"

#include "base/random_bytes.h"

#include <endian.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static uint64_t rotate_left(uint64_t x, int by) { return x << by | x >> (64 - by); }

static void sip_round(uint64_t v[4]) {
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotate_left(v[1], 13) ^ v[0];
    v[3] = rotate_left(v[3], 16) ^ v[2];
    v[0] = rotate_left(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = rotate_left(v[1], 17) ^ v[2];
    v[3] = rotate_left(v[3], 21) ^ v[0];
    v[2] = rotate_left(v[2], 32);
}

static void siphash_absorb(uint64_t v[4], uint64_t word) {
    v[3] ^= word;
    sip_round(v);
    v[0] ^= word;
}

void tt__siphash_begin(tt__siphash *hash, const uint64_t key[2]) {
    *hash = (tt__siphash){.v = {key[0] ^ UINT64_C(0x736f6d6570736575), key[1] ^ UINT64_C(0x646f72616e646f6d),
                                key[0] ^ UINT64_C(0x6c7967656e657261), key[1] ^ UINT64_C(0x7465646279746573)}};
}

void tt__siphash_add(tt__siphash *hash, const void *data, size_t size) {
    const uint8_t *p = data;
    while (size) {
        size_t at = hash->size % 8, n = size >= 8 && !at ? 8 : 1;
        uint64_t bytes = 0;
        memcpy(&bytes, p, n);
        hash->word |= le64toh(bytes) << 8 * at;
        if (at + n == 8) {
            siphash_absorb(hash->v, hash->word);
            hash->word = 0;
        }
        hash->size += n;
        size -= n;
        p += n;
    }
}

uint64_t tt__siphash_end(tt__siphash *hash) {
    uint64_t *v = hash->v;
    siphash_absorb(v, (uint64_t)hash->size << 56 | hash->word);
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

uint64_t tt__siphash13(const uint64_t key[2], const void *data, size_t size) {
    tt__siphash hash;
    tt__siphash_begin(&hash, key);
    tt__siphash_add(&hash, data, size);
    return tt__siphash_end(&hash);
}

/* ---- SipHash with a key of this process ---- */

static uint64_t own_key[2];

static void draw_own_key(void) { tt__random_seed(own_key, sizeof own_key); }

static void siphash_begin_own(tt__siphash *hash) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, draw_own_key);
    tt__siphash_begin(hash, own_key);
}

uint64_t tt__siphash_own(const void *data, size_t size) {
    tt__siphash hash;
    siphash_begin_own(&hash);
    tt__siphash_add(&hash, data, size);
    return tt__siphash_end(&hash);
}

/* ---- the map: open addressing, at most half full. SipHash is used, because names may come from files, which could
 * choose them to collide. ---- */

struct tt__name_entry {
    const char *name; /* NULL: free */
    uint64_t hash;
    int64_t number;
};

typedef struct tt__name_entry name_entry;

static uint64_t hash_name(const char *head, const char *rest) {
    tt__siphash hash;
    siphash_begin_own(&hash);
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
