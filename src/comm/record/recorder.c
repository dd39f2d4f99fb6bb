#include "comm/record/recorder.h"

#include "base/machine/host_name.h"
#include "comm/op.h"
#include "comm/record/seqlock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

tt__record_block tt__record_blocks[TT__RECORD_OWNERS];

void tt__recorder_init(tt__recorder *recorder, int rank, int world) {
    static _Atomic uint32_t recorders;
    recorder->rank = rank;
    recorder->world = world;
    recorder->pid = (int64_t)getpid();
    recorder->serial = atomic_fetch_add(&recorders, 1) + 1;
    tt__ticks_init();
    recorder->begin = tt__moment_now();
    snprintf(recorder->program, sizeof recorder->program, "%s", program_invocation_short_name);
    tt__host_name(recorder->hostname, sizeof recorder->hostname);
    memcpy(recorder->files[0], "?", 2); /* where there is no name */
    recorder->magic = TT__RECORDER_MAGIC;
}

/* ---- writing */

static bool owns_block(tt__record_block *block, uintptr_t thread) {
    uintptr_t nobody = 0;
    return atomic_compare_exchange_strong(&block->owner, &nobody, thread) || nobody == thread;
}

uint32_t tt__record_refill(tt__recorder *recorder) {
    tt__record_block *mine = tt__record_block_of(tt__this_thread());
    if (!owns_block(mine, tt__this_thread()))
        return atomic_fetch_add_explicit(&recorder->calls, 1, memory_order_acq_rel) + 1;
    uint32_t first = atomic_fetch_add_explicit(&recorder->calls, TT__RECORD_BLOCK, memory_order_acq_rel);
    atomic_store_explicit(&mine->serial, recorder->serial, memory_order_relaxed);
    atomic_store_explicit(&mine->next, first + 1, memory_order_relaxed);
    atomic_store_explicit(&mine->left, TT__RECORD_BLOCK - 1, memory_order_relaxed);
    return first + 1;
}

/* Copy a name. One that is too long keeps its end, which differs between files. */
static void copy_name(char name[TT__FILE_SIZE], const char *path) {
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    size_t n = strlen(base);
    bool cut = n > TT__FILE_SIZE - 1;
    snprintf(name, TT__FILE_SIZE, "%s%s", cut ? "..." : "",
             cut ? base + n - (TT__FILE_SIZE - 1 - strlen("...")) : base);
}

/* Open addressing, a few tries; slot 0 is for those that find no room. A slot is claimed, then named, then given its
 * key, so that a reader that finds a key finds the name; two threads that add one name at the same time may take two
 * slots. */
uint8_t tt__record_file_add(tt__recorder *recorder, const char *file) {
    enum { CLAIMED = 1, TRIES = 16 };
    uint32_t slot = tt__record_file_slot(file);
    for (int i = 0; file && i < TRIES; i++, slot = (slot + 1) % TT__FILES) {
        uintptr_t key = atomic_load_explicit(&recorder->file_keys[slot], memory_order_acquire);
        if (slot == 0)
            continue;
        if (key == (uintptr_t)file)
            return (uint8_t)slot;
        if (key || !atomic_compare_exchange_strong(&recorder->file_keys[slot], &key, CLAIMED))
            continue;
        copy_name(recorder->files[slot], file);
        atomic_store_explicit(&recorder->file_keys[slot], (uintptr_t)file, memory_order_release);
        return (uint8_t)slot;
    }
    return 0;
}

void tt__recorder_wait(tt__recorder *recorder, const tt__waiting *what) {
    tt__waiting *waiting = &recorder->waiting;
    uint32_t version = tt__seqlock_begin(&waiting->version);
    waiting->group = what->group;
    waiting->seq = what->seq;
    waiting->whom = what->whom;
    waiting->record = what->record;
    waiting->word = what->word;
    waiting->since = what->since;
    waiting->thread = what->thread;
    tt__seqlock_end(&waiting->version, version);
}

/* "0-3, 8"; what does not fit ends with "...". */
static void list_ranks(const int *ranks, int size, char *text, size_t room) {
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0, last; i < size; i = last + 1) {
        char part[32];
        for (last = i; last + 1 < size && ranks[last + 1] == ranks[last] + 1;)
            last++;
        int n = snprintf(part, sizeof part, last > i ? "%s%d-%d" : "%s%d", i ? ", " : "", ranks[i], ranks[last]);
        if (used + (size_t)n + sizeof ", ..." > room) {
            snprintf(text + used, room - used, ", ...");
            return;
        }
        memcpy(text + used, part, (size_t)n + 1);
        used += (size_t)n;
    }
}

void tt__recorder_name_group(tt__recorder *recorder, uint32_t id, const int *ranks, int size) {
    uint32_t used = atomic_load_explicit(&recorder->groups_used, memory_order_relaxed);
    tt__group_name *name = &recorder->groups[used < TT__GROUPS_NAMED ? used : 1 + (used - 1) % (TT__GROUPS_NAMED - 1)];
    name->size = size;
    atomic_store_explicit(&name->user, 0, memory_order_relaxed);
    list_ranks(ranks, size, name->ranks, sizeof name->ranks);
    atomic_store_explicit(&name->id, id, memory_order_release);
    atomic_store_explicit(&recorder->groups_used, used + 1, memory_order_release);
}

/* ---- reading */

bool tt__record_read(const tt__recorder *recorder, uint32_t number, tt__call_record *copy) {
    const tt__record_slot *slot = &recorder->records[(number - 1) % TT__RECORDS];
    uint16_t state = atomic_load_explicit(&slot->state, memory_order_acquire);
    uint32_t before = atomic_load_explicit(&slot->number, memory_order_acquire), kind = TT__RECORD_GET(slot, kind);
    if (state == TT__CALL_NONE || before != number)
        return false;
    *copy = (tt__call_record){.number = number,
                              .seq = TT__RECORD_GET(slot, seq),
                              .call = TT__RECORD_GET(slot, call),
                              .group = TT__RECORD_GET(slot, group),
                              .op = (uint8_t)kind,
                              .dtype = (uint8_t)(kind >> 8),
                              .reduce_op = (uint8_t)(kind >> 16),
                              .flags = (uint8_t)(kind >> 24),
                              .root = TT__RECORD_GET(slot, root),
                              .line = TT__RECORD_GET(slot, line),
                              .count = TT__RECORD_GET(slot, count),
                              .begin = TT__RECORD_GET(slot, begin),
                              .end = TT__RECORD_GET(slot, end),
                              .algorithm = TT__RECORD_GET(slot, algorithm),
                              .file = TT__RECORD_GET(slot, file),
                              .state = state,
                              .tag = TT__RECORD_GET(slot, tag)};
    uint32_t check = TT__RECORD_GET(slot, check);
    atomic_thread_fence(memory_order_acquire);
    return TT__RECORD_GET(slot, number) == number && check == tt__record_check(copy);
}

void tt__record_put(tt__recorder *recorder, const tt__call_record *record) {
    tt__record_slot *slot = &recorder->records[(record->number - 1) % TT__RECORDS];
    TT__RECORD_SET(slot, number, record->number);
    TT__RECORD_SET(slot, seq, record->seq);
    TT__RECORD_SET(slot, call, record->call);
    TT__RECORD_SET(slot, group, record->group);
    TT__RECORD_SET(slot, kind, tt__record_kind_of(record));
    TT__RECORD_SET(slot, root, record->root);
    TT__RECORD_SET(slot, line, record->line);
    TT__RECORD_SET(slot, count, record->count);
    TT__RECORD_SET(slot, begin, record->begin);
    TT__RECORD_SET(slot, end, record->end);
    TT__RECORD_SET(slot, algorithm, record->algorithm);
    TT__RECORD_SET(slot, file, record->file);
    TT__RECORD_SET(slot, tag, record->tag);
    TT__RECORD_SET(slot, check, tt__record_check(record));
    tt__record_ready(slot, (tt__call_state)record->state);
}

bool tt__recorder_waiting(const tt__recorder *recorder, tt__waiting *copy) {
    return tt__seqlock_read(&recorder->waiting.version, (void *)copy, (const void *)&recorder->waiting, sizeof *copy) &&
           copy->since != 0;
}

uint64_t tt__record_bytes(const tt__call_record *record) {
    return record->op < TT_OPS && tt__op_is((tt_op)record->op, TT__OP_ELEMENTS)
               ? record->count * tt_dtype_size((tt_dtype)record->dtype)
               : 0;
}

/* Write the arguments between the brackets. */
static void record_arguments_text(const tt__call_record *record, char *text, size_t size) {
    const char *dtype = tt_dtype_name((tt_dtype)record->dtype),
               *op = tt_reduce_op_name((tt_reduce_op)record->reduce_op);
    char data[64];
    snprintf(data, sizeof data, "%s x %" PRIu64, dtype, record->count);
    switch ((tt_op)record->op) {
    case TT_OP_ALL_REDUCE:
    case TT_OP_ALL_REDUCE_COALESCED:
    case TT_OP_REDUCE_SCATTER:
        snprintf(text, size, "%s, %s", data, op);
        return;
    case TT_OP_REDUCE:
        snprintf(text, size, "%s, %s, root %d", data, op, record->root);
        return;
    case TT_OP_BROADCAST:
    case TT_OP_GATHER:
    case TT_OP_SCATTER:
        snprintf(text, size, "%s, root %d", data, record->root);
        return;
    case TT_OP_ALL_GATHER:
    case TT_OP_ALL_GATHER_V:
    case TT_OP_ALL_TO_ALL:
    case TT_OP_ALL_TO_ALL_V:
        snprintf(text, size, "%s", data);
        return;
    case TT_OP_SEND:
        snprintf(text, size, "%s, to %d, tag %d", data, record->root, record->tag);
        return;
    case TT_OP_RECV:
        if (record->root < 0)
            snprintf(text, size, "%s, from any, tag %d", data, record->tag);
        else
            snprintf(text, size, "%s, from %d, tag %d", data, record->root, record->tag);
        return;
    case TT_OP_BATCH_ISEND_IRECV:
        snprintf(text, size, "%" PRIu64 " operations", record->count);
        return;
    case TT_OP_ALLOC:
        snprintf(text, size, "%" PRIu64 " bytes", record->count);
        return;
    case TT_OP_FREE:
        if (record->count == UINT64_MAX)
            snprintf(text, size, "NULL");
        else
            snprintf(text, size, "allocation %" PRIu64, record->count);
        return;
    default: /* barriers, groups */
        text[0] = '\0';
    }
}

const char *tt__record_text(const tt__recorder *recorder, const tt__call_record *record, char *text, size_t size) {
    char arguments[128];
    record_arguments_text(record, arguments, sizeof arguments);
    int n = snprintf(text, size, "%s(%s) %s %.*s", tt_op_name((tt_op)record->op), arguments, record->line ? "at" : "in",
                     TT__FILE_SIZE - 1, recorder->files[record->file]);
    if (record->line && n >= 0 && (size_t)n < size)
        snprintf(text + n, size - (size_t)n, ":%d", record->line);
    return text;
}

static const tt__group_name *name_of(const tt__recorder *recorder, uint32_t id) {
    for (int i = 0; i < TT__GROUPS_NAMED; i++)
        if (atomic_load_explicit(&recorder->groups[i].id, memory_order_acquire) == id && recorder->groups[i].size)
            return &recorder->groups[i];
    return NULL;
}

void tt__recorder_note_user(tt__recorder *recorder, uint32_t id, uint32_t user) {
    tt__group_name *name = (tt__group_name *)(uintptr_t)name_of(recorder, id);
    if (name)
        atomic_store_explicit(&name->user, user, memory_order_relaxed);
}

uint32_t tt__recorder_group_user(const tt__recorder *recorder, uint32_t id) {
    const tt__group_name *name = name_of(recorder, id);
    uint32_t user = name ? atomic_load_explicit(&name->user, memory_order_relaxed) : 0;
    atomic_thread_fence(memory_order_acquire); /* its place may have been given to another group meanwhile */
    return name && atomic_load_explicit(&name->id, memory_order_relaxed) == id ? user : 0;
}

const char *tt__recorder_group_ranks(const tt__recorder *recorder, uint32_t id) {
    const tt__group_name *name = name_of(recorder, id);
    return name ? name->ranks : "?";
}

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

uint32_t tt__record_device_check(const tt__record_device *ran) {
    uint64_t mixed = (uint64_t)ran->begin_ns ^ tt__rotated((uint64_t)ran->duration_ns, 31);
    mixed ^= ran->number * UINT64_C(0x9e3779b97f4a7c15) + ((uint64_t)ran->type << 16 | ran->index);
    return (uint32_t)(mixed ^ mixed >> 32);
}

void tt__record_put_device(tt__recorder *recorder, const tt__record_device *ran) {
    tt__device_slot *slot = &recorder->devices[(ran->number - 1) % TT__RECORDS];
    TT__RECORD_SET(slot, number, 0);
    atomic_thread_fence(memory_order_release);
    TT__RECORD_SET(slot, device, (uint32_t)ran->type << 16 | ran->index);
    TT__RECORD_SET(slot, begin_ns, (uint64_t)ran->begin_ns);
    TT__RECORD_SET(slot, duration_ns, (uint64_t)ran->duration_ns);
    TT__RECORD_SET(slot, check, tt__record_device_check(ran));
    atomic_store_explicit(&slot->number, ran->number, memory_order_release);
}

void tt__record_note_device(tt__recorder *recorder, const tt__record_slot *slot, const tt__record_device *ran) {
    if (tt__record_is(slot, ran->number))
        tt__record_put_device(recorder, ran);
}

bool tt__record_read_device(const tt__recorder *recorder, uint32_t number, tt__record_device *copy) {
    const tt__device_slot *slot = &recorder->devices[(number - 1) % TT__RECORDS];
    uint32_t before = atomic_load_explicit(&slot->number, memory_order_acquire);
    uint32_t device = TT__RECORD_GET(slot, device);
    if (!number || before != number)
        return false;
    *copy = (tt__record_device){.number = number,
                                .type = (uint16_t)(device >> 16),
                                .index = (uint16_t)device,
                                .begin_ns = (int64_t)TT__RECORD_GET(slot, begin_ns),
                                .duration_ns = (int64_t)TT__RECORD_GET(slot, duration_ns)};
    uint32_t check = TT__RECORD_GET(slot, check);
    atomic_thread_fence(memory_order_acquire);
    return TT__RECORD_GET(slot, number) == number && check == tt__record_device_check(copy) && copy->duration_ns >= 0 &&
           copy->begin_ns == tt__ns_checked(copy->begin_ns) && copy->duration_ns == tt__ns_checked(copy->duration_ns);
}
