#include "store/server/key_table.h"

#include "base/build.h"
#include "base/hash.h"
#include "base/machine/clock.h"
#include "base/random_bytes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_BUCKETS = 64 };

void tt__store_table_init(tt__store_table *table) {
    *table = (tt__store_table){0};
    tt__random_seed(table->seed, sizeof table->seed);
}

/* Update the table's counts after an entry has changed. */
static void entry_changed(tt__store_table *table, tt__store_entry *entry) {
    bool kept = entry->present || entry->queued;
    size_t bytes = sizeof *entry + entry->key_size + entry->value.capacity + entry->queue_bytes;
    table->kept += (size_t)kept - (size_t)entry->kept;
    table->bytes += bytes - entry->charged;
    entry->kept = kept;
    entry->charged = bytes;
}

static void free_entry(tt__store_entry *entry) {
    for (tt__store_item *item = entry->first, *next; item; item = next) {
        next = item->next;
        free(item);
    }
    tt__bytes_free(&entry->value);
    free(entry);
}

void tt__store_table_free(tt__store_table *table) {
    for (size_t i = 0; i < table->bucket_count; i++)
        for (tt__store_entry *e = table->buckets[i], *next; e; e = next) {
            next = e->next;
            free_entry(e);
        }
    free(table->buckets);
    *table = (tt__store_table){0};
}

static tt__store_entry **bucket_of(const tt__store_table *table, uint64_t hash) {
    return &table->buckets[hash & (table->bucket_count - 1)];
}

static tt__store_entry *find_slot(const tt__store_table *table, tt__span key, uint64_t hash) {
    if (!table->bucket_count)
        return NULL;
    for (tt__store_entry *e = *bucket_of(table, hash); e; e = e->next)
        if (e->hash == hash && e->key_size == key.size && !memcmp(e->key, key.data, key.size))
            return e;
    return NULL;
}

tt__store_entry *tt__store_table_find(const tt__store_table *table, tt__span key) {
    return find_slot(table, key, tt__siphash13(table->seed, key.data, key.size));
}

/* Keep at most one entry a bucket on average. A table that can't grow is slower, not wrong. */
static bool grow_buckets(tt__store_table *table) {
    if (table->entries < table->bucket_count)
        return true;
    size_t old_count = table->bucket_count, count = old_count ? 2 * old_count : FIRST_BUCKETS;
    tt__store_entry **old = table->buckets, **buckets = calloc(count, sizeof *buckets);
    if (!buckets)
        return old_count > 0;
    table->buckets = buckets;
    table->bucket_count = count;
    for (size_t i = 0; i < old_count; i++)
        for (tt__store_entry *e = old[i], *next; e; e = next) {
            next = e->next;
            tt__store_entry **bucket = bucket_of(table, e->hash);
            e->next = *bucket;
            *bucket = e;
        }
    free(old);
    return true;
}

tt__store_entry *tt__store_table_obtain(tt__store_table *table, tt__span key) {
    uint64_t hash = tt__siphash13(table->seed, key.data, key.size);
    tt__store_entry *entry = find_slot(table, key, hash);
    if (entry)
        return entry;
    if (!grow_buckets(table) || !(entry = calloc(1, sizeof *entry + key.size)))
        return NULL;
    entry->hash = hash;
    tt__list_init(&entry->waiters);
    tt__list_init(&entry->barriers);
    tt__list_init(&entry->watchers);
    entry->key_size = key.size;
    memcpy(entry->key, key.data, key.size);
    tt__store_entry **bucket = bucket_of(table, hash);
    entry->next = *bucket;
    *bucket = entry;
    table->entries++;
    entry_changed(table, entry);
    return entry;
}

static void mark_present(tt__store_table *table, tt__store_entry *entry) {
    table->present += !entry->present;
    entry->present = true;
    entry_changed(table, entry);
}

bool tt__store_entry_assign(tt__store_table *table, tt__store_entry *entry, tt__span data) {
    bool fits = data.size <= entry->value.capacity && data.size >= entry->value.capacity / 4;
    tt__bytes value = {0};
    if (fits) {
        value = entry->value;
        value.size = 0;
    }
    tt__bytes_put(&value, data.data, data.size);
    if (value.failed)
        return false;
    if (!fits)
        tt__bytes_free(&entry->value);
    entry->value = value;
    mark_present(table, entry);
    return true;
}

bool tt__store_entry_append(tt__store_table *table, tt__store_entry *entry, tt__span data) {
    if (!tt__bytes_reserve(&entry->value, data.size)) {
        entry->value.failed = false;
        return false;
    }
    tt__bytes_put(&entry->value, data.data, data.size);
    mark_present(table, entry);
    return true;
}

bool tt__store_value_number(tt__span value, int64_t *number) {
    char text[64]; /* a longer text is no number */
    size_t size = value.size < sizeof text - 1 ? value.size : sizeof text - 1;
    if (size)
        memcpy(text, value.data, size);
    text[size] = '\0';
    char *end;
    errno = 0;
    *number = strtoll(text, &end, 10);
    return end != text && !errno && (*end || size == value.size);
}

bool tt__store_entry_number(const tt__store_entry *entry, int64_t *number) {
    *number = 0;
    return !entry->present || tt__store_value_number(tt__store_entry_value(entry), number);
}

void tt__store_entry_clear(tt__store_table *table, tt__store_entry *entry) {
    table->present -= entry->present;
    entry->present = false;
    tt__bytes_free(&entry->value);
    entry_changed(table, entry);
}

bool tt__store_entry_push(tt__store_table *table, tt__store_entry *entry, tt__span data) {
    tt__store_item *item = malloc(sizeof *item + data.size);
    if (!item)
        return false;
    item->next = NULL;
    item->size = data.size;
    if (data.size)
        memcpy(item->data, data.data, data.size);
    if (entry->first)
        entry->last->next = item;
    else
        entry->first = item;
    entry->last = item;
    entry->queued++;
    entry->queue_bytes += sizeof *item + data.size;
    entry_changed(table, entry);
    return true;
}

tt__store_item *tt__store_entry_pop(tt__store_table *table, tt__store_entry *entry) {
    tt__store_item *item = entry->first;
    entry->first = item->next;
    entry->queued--;
    entry->queue_bytes -= sizeof *item + item->size;
    entry_changed(table, entry);
    return item;
}

void tt__store_table_settle(tt__store_table *table, tt__store_entry *entry) {
    if (entry->kept || !tt__list_empty(&entry->waiters) || !tt__list_empty(&entry->barriers) ||
        !tt__list_empty(&entry->watchers))
        return;
    tt__store_entry **at = bucket_of(table, entry->hash);
    while (*at != entry)
        at = &(*at)->next;
    *at = entry->next;
    table->entries--;
    table->bytes -= entry->charged;
    free_entry(entry);
}

bool tt__store_key_begins(tt__span key, const char *prefix) {
    size_t n = strlen(prefix);
    return key.size >= n && !memcmp(key.data, prefix, n);
}

void tt__store_table_forget(tt__store_table *table, const char *lasting) {
    if (TT__MUTANT(renewed_store_keeps_keys))
        return;
    for (size_t i = 0; i < table->bucket_count; i++)
        for (tt__store_entry *e = table->buckets[i], *next; e; e = next) {
            next = e->next;
            if (tt__store_key_begins(tt__store_entry_key(e), lasting))
                continue;
            tt__store_entry_clear(table, e);
            while (e->queued)
                free(tt__store_entry_pop(table, e));
            tt__store_table_settle(table, e);
        }
}
