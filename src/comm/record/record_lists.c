/* Lists beside the recorder's records, so that texts can distinguish calls that differ in nothing else. */
#include "comm/record/recorder.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static tt__record_list *lists_place_of(const tt__recorder *recorder, uint32_t number) {
    return (tt__record_list *)&recorder->lists[number % TT__LISTS];
}

static void lists_keep(tt__record_list *list, const int64_t *values, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (list->n < TT__LISTED)
            list->values[list->n] = (uint64_t)values[i];
        list->n++;
        list->total += (uint64_t)values[i];
    }
}

void tt__record_keep_lists(tt__recorder *recorder, uint32_t number, const tt__lists *lists) {
    tt__record_list *list = lists_place_of(recorder, number);
    atomic_store_explicit(&list->number, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    list->n = 0;
    list->total = 0;
    lists_keep(list, lists->first, lists->firsts);
    list->first = (uint32_t)lists->firsts;
    lists_keep(list, lists->second, lists->seconds);
    atomic_store_explicit(&list->number, number, memory_order_release);
}

static bool read_list(const tt__recorder *recorder, const tt__record *record, tt__record_list *copy) {
    uint32_t number = atomic_load_explicit(&record->number, memory_order_relaxed);
    const tt__record_list *list = lists_place_of(recorder, number);
    uint32_t before = atomic_load_explicit(&list->number, memory_order_acquire);
    memcpy((void *)copy, (const void *)list, sizeof *copy);
    atomic_thread_fence(memory_order_acquire);
    return before == number && atomic_load_explicit(&list->number, memory_order_relaxed) == number;
}

/* "3, 4, 3"; of what isn't kept or has no room "...". */
static size_t values_text(const tt__record_list *list, uint32_t from, uint32_t end, char *text, size_t size) {
    size_t used = 0;
    for (uint32_t i = from; i < end; i++) {
        char one[32];
        int n = i < TT__LISTED ? snprintf(one, sizeof one, "%s%" PRIu64, i > from ? ", " : "", list->values[i]) : 0;
        if (!n || used + (size_t)n + sizeof ", ..." > size)
            return used + (size_t)snprintf(text + used, size - used, "%s...", i > from ? ", " : "");
        memcpy(text + used, one, (size_t)n + 1);
        used += (size_t)n;
    }
    return used;
}

const char *tt__record_lists_text(const tt__recorder *recorder, const tt__record *record, char *text, size_t size) {
    enum { ROOM = 72 };
    char first[ROOM] = "", second[ROOM] = "";
    tt__record_list list;
    text[0] = '\0';
    if (!read_list(recorder, record, &list))
        return text;
    values_text(&list, 0, list.first, first, ROOM);
    values_text(&list, list.first, list.n, second, ROOM);
    if (list.n > list.first)
        snprintf(text, size, " sending %s, receiving %s", first, second);
    else if (record->op == TT_OP_NEW_GROUP)
        snprintf(text, size, " of ranks %s", first);
    else
        snprintf(text, size, " with counts %s (together %" PRIu64 ")", first, list.total);
    return text;
}
