/* The server's keys: a hash table of entries. An entry also holds the sessions that wait for its key or watch it, so
 * that a change finds them without a search. A name may be a key and a queue at once, each with values of its own. An
 * entry is freed when it has neither values nor sessions. */
#ifndef TT_STORE_KEY_TABLE_H
#define TT_STORE_KEY_TABLE_H

#include "base/bytes.h"
#include "base/list.h"

/* A value in a queue. */
typedef struct tt__store_item {
    struct tt__store_item *next;
    size_t size;
    uint8_t data[];
} tt__store_item;

typedef struct tt__store_entry {
    struct tt__store_entry *next; /* in its bucket */
    uint64_t hash;
    tt__list_node waiters, barriers, watchers;
    bool present; /* has a value, which may be empty */
    tt__bytes value;
    tt__store_item *first, *last; /* the oldest and the newest value of its queue */
    uint64_t queued;              /* how many there are */
    bool kept;                    /* has a value or a queue */
    size_t queue_bytes, charged;  /* memory of its queue; what table->bytes counts for this entry */
    size_t key_size;
    uint8_t key[];
} tt__store_entry;

typedef struct tt__store_table {
    tt__store_entry **buckets;
    size_t bucket_count;           /* 0 or a power of two */
    size_t entries, present, kept; /* all; with a value; with a value or a queue */
    size_t bytes;                  /* of memory, taken by all entries */
    uint64_t seed[2];              /* random, so that clients can't choose keys that collide */
} tt__store_table;

void tt__store_table_init(tt__store_table *table);
void tt__store_table_free(tt__store_table *table);

/* Find the entry of `key`, or NULL. */
tt__store_entry *tt__store_table_find(const tt__store_table *table, tt__span key);

/* Find the entry of `key`, or make one without a value; NULL when memory is out. */
tt__store_entry *tt__store_table_obtain(tt__store_table *table, tt__span key);

/* Set the value to `data`, which is not in the entry's memory; false: no memory, the old value stays. */
bool tt__store_entry_assign(tt__store_table *table, tt__store_entry *entry, tt__span data);

/* Append `data` to the value (a missing value counts as empty); false when memory is out. */
bool tt__store_entry_append(tt__store_table *table, tt__store_entry *entry, tt__span data);

/* Append a value to the queue; false when memory is out. */
bool tt__store_entry_push(tt__store_table *table, tt__store_entry *entry, tt__span data);

/* Take the oldest value out of the queue, which is not empty: the caller's to free(). */
tt__store_item *tt__store_entry_pop(tt__store_table *table, tt__store_entry *entry);

/* Is there a value, or one in the queue? WAIT and CHECK ask for this. */
static inline bool tt__store_entry_there(const tt__store_entry *entry) { return entry && entry->kept; }

/* Parse the number at the start of a value, as C++'s stoll does. False if there is none. */
bool tt__store_value_number(tt__span value, int64_t *number);

/* The same for an entry; a missing value counts as 0. */
bool tt__store_entry_number(const tt__store_entry *entry, int64_t *number);

/* Remove the value; the entry stays. */
void tt__store_entry_clear(tt__store_table *table, tt__store_entry *entry);

/* Remove the values and queues of all keys that don't begin with `lasting`. */
void tt__store_table_forget(tt__store_table *table, const char *lasting);

/* Does the key begin with `prefix`? */
bool tt__store_key_begins(tt__span key, const char *prefix);

/* Free the entry if nothing is left in it. */
void tt__store_table_settle(tt__store_table *table, tt__store_entry *entry);

static inline tt__span tt__store_entry_key(const tt__store_entry *entry) {
    return (tt__span){entry->key, entry->key_size};
}
static inline tt__span tt__store_entry_value(const tt__store_entry *entry) {
    return (tt__span){entry->value.data, entry->value.size};
}

#endif
