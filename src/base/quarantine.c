#include "base/quarantine.h"

#include "base/error.h"
#include "base/setting.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* How many objects, and how many bytes in all, are kept before the oldest are released. */
enum { KEPT_OBJECTS = 1 << 18, KEPT_BYTES = 128 << 20 };

static const uint64_t freed_mark = 0x8d1fb7c36a52e094;

typedef struct kept_object {
    void *object;
    size_t size;
    void (*release)(void *);
} kept_object;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static kept_object kept[KEPT_OBJECTS]; /* a ring: the `kept_count` before `next_place` are in use */
static size_t next_place, kept_count, kept_bytes;

bool tt__is_debugging(void) {
    static _Atomic int cached = -1;
    int on = atomic_load_explicit(&cached, memory_order_relaxed);
    if (on < 0) {
        on = tt__setting_is_on(TT__DEBUG);
        atomic_store_explicit(&cached, on, memory_order_relaxed);
    }
    return on;
}

/* Under the lock: if there is no room for `size` more bytes, take out the oldest; else return one without an object. */
static kept_object take_oldest(size_t size) {
    kept_object oldest = {0};
    if (kept_count < KEPT_OBJECTS && (!kept_count || kept_bytes + size <= KEPT_BYTES))
        return oldest;
    oldest = kept[(next_place - kept_count) % KEPT_OBJECTS];
    kept_count--;
    kept_bytes -= oldest.size;
    return oldest;
}

static void keep_object(const kept_object *object) {
    pthread_mutex_lock(&lock);
    for (kept_object oldest; (oldest = take_oldest(object->size)).object;) {
        pthread_mutex_unlock(&lock);
        oldest.release(oldest.object);
        pthread_mutex_lock(&lock);
    }
    kept[next_place] = *object;
    next_place = (next_place + 1) % KEPT_OBJECTS;
    kept_count++;
    kept_bytes += object->size;
    pthread_mutex_unlock(&lock);
}

void tt__quarantine(void *object, size_t size, void (*release)(void *)) {
    if (__builtin_expect(!tt__is_debugging(), 1)) {
        release(object);
        return;
    }
    memcpy(object, &freed_mark, sizeof freed_mark);
    keep_object(&(kept_object){object, size, release});
}

bool tt__freed_before(const char *who, const void *object) {
    uint64_t first;
    if (__builtin_expect(!tt__is_debugging(), 1) || !object)
        return false;
    memcpy(&first, object, sizeof first);
    if (first != freed_mark)
        return false;
    tt__fail(TT_ERR_STATE, "%s: it was freed before; free an object once, and set pointers to what was freed to NULL",
             who);
    return true;
}
