/* Lists beside the recorder's records, so that texts can distinguish calls that differ in nothing else. */
#include "comm/record/recorder.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const tt__list_slot *lists_place_of(const tt__recorder *recorder, uint32_t number) {
    return &recorder->lists[number % TT__LISTS];
}

static uint32_t count_kept(const tt__record_list *list) { return list->n < TT__LISTED ? list->n : TT__LISTED; }

static uint64_t check_of_list(const tt__record_list *list) {
    uint64_t check = list->number * UINT64_C(0x9e3779b97f4a7c15) + ((uint64_t)list->first << 32 | list->n);
    for (uint32_t i = 0; i < count_kept(list); i++)
        check = tt__rotated(check, 7) ^ list->values[i];
    return tt__rotated(check, 7) ^ list->total;
}

static void lists_add(tt__record_list *list, const int64_t *values, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (list->n < TT__LISTED)
            list->values[list->n] = (uint64_t)values[i];
        list->n++;
        list->total += (uint64_t)values[i];
    }
}

void tt__record_put_list(tt__recorder *recorder, const tt__record_list *list) {
    tt__list_slot *slot = &recorder->lists[list->number % TT__LISTS];
    TT__RECORD_SET(slot, number, 0);
    atomic_thread_fence(memory_order_release);
    TT__RECORD_SET(slot, first, list->first);
    TT__RECORD_SET(slot, n, list->n);
    TT__RECORD_SET(slot, total, list->total);
    for (uint32_t i = 0; i < count_kept(list); i++)
        TT__RECORD_SET(slot, values[i], list->values[i]);
    TT__RECORD_SET(slot, check, check_of_list(list));
    atomic_store_explicit(&slot->number, list->number, memory_order_release);
}

void tt__record_keep_lists(tt__recorder *recorder, uint32_t number, const tt__lists *lists) {
    tt__record_list list = {.number = number};
    lists_add(&list, lists->first, lists->firsts);
    list.first = (uint32_t)lists->firsts;
    lists_add(&list, lists->second, lists->seconds);
    tt__record_put_list(recorder, &list);
}

bool tt__record_read_list(const tt__recorder *recorder, uint32_t number, tt__record_list *copy) {
    const tt__list_slot *slot = lists_place_of(recorder, number);
    uint32_t before = atomic_load_explicit(&slot->number, memory_order_acquire);
    if (!number || before != number)
        return false;
    *copy = (tt__record_list){
        number, TT__RECORD_GET(slot, first), TT__RECORD_GET(slot, n), TT__RECORD_GET(slot, total), {0}};
    for (uint32_t i = 0; i < count_kept(copy); i++)
        copy->values[i] = TT__RECORD_GET(slot, values[i]);
    uint64_t check = TT__RECORD_GET(slot, check);
    atomic_thread_fence(memory_order_acquire);
    return TT__RECORD_GET(slot, number) == number && copy->first <= copy->n && check == check_of_list(copy);
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

const char *tt__record_lists_text(const tt__recorder *recorder, const tt__call_record *record, char *text,
                                  size_t size) {
    enum { ROOM = 72 };
    char first[ROOM] = "", second[ROOM] = "";
    tt__record_list list;
    text[0] = '\0';
    if (!tt__record_read_list(recorder, record->number, &list))
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
