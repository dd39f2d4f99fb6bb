/* The flight recorder: the latest calls of this process, in shared memory that its peers and the launcher can read,
 * also when it hangs or is dead.
 *
 * One ring a process, for all its groups. The record of a call is written once, before the arrival word; the agreement
 * check, error texts, `tutti top` and `tutti trace` all read this one. Times are ticks of tt__ticks().
 *
 * A rank hands its memory to its launcher (own_recorder.c, net/job/job_socket.h), which keeps it open and copies the
 * recorder when the rank ends (launch/local/watch.h). Readers map the memory and take a checked copy
 * (record_copy.c). */
#ifndef TT_COMM_RECORD_RECORDER_H
#define TT_COMM_RECORD_RECORDER_H

#include "base/export.h"
#include "base/machine/clock.h"
#include "net/job/job_socket.h"

#include <tutti/backend.h>

#include <stdatomic.h>
#include <stdbool.h>

enum {
    TT__RECORDS = 1024,
    TT__FILES = 256,
    TT__FILE_SIZE = 48,
    TT__GROUPS_NAMED = 64,
    TT__LISTS = 64,
    TT__LISTED = 27,
    TT__RPC_RECORDS = 512,
    TT__RPC_FUNCTIONS = 256,
    TT__RPC_FUNCTION_SIZE = 64,
    TT__RPC_MAKERS = 4
};

/* What became of a call. */
typedef enum tt__call_state {
    TT__CALL_NONE,   /* never used, or being written */
    TT__CALL_QUEUED, /* asynchronous, not yet told to others */
    TT__CALL_BEGUN,
    TT__CALL_DONE,
    TT__CALL_FAILED
} tt__call_state;

/* A call, as readers have it. */
typedef struct tt__call_record {
    uint32_t number;                     /* calls of this process before this one, plus 1 (wraps) */
    uint32_t seq;                        /* in its group */
    uint32_t call;                       /* among the program's calls on the group, as errors count; 0: not yet one */
    uint32_t group;                      /* id */
    uint8_t op, dtype, reduce_op, flags; /* tt_op, tt_dtype, tt_reduce_op, TT__RECORD_... */
    int32_t root;                        /* or peer */
    int32_t line;
    uint64_t count;
    uint64_t begin, end; /* ticks; end 0: not done, or done so fast that the clock was not read: tt__record_done() */
    uint8_t algorithm;   /* number in the table of algorithms, 0 = none */
    uint8_t file;        /* index in files[] */
    uint16_t state;      /* tt__call_state */
    int32_t tag;
} tt__call_record;

/* A record's place in the ring, (number - 1) % TT__RECORDS; a cache line. Its owner writes; `state` last, with release.
 * A reader takes it if `state` is not NONE, `number` is the same before and after, and `check` is right. `check` finds
 * records of two writers: a thread may stand still while others go around the ring, and then write on. */
typedef struct tt__record_slot {
    _Alignas(64) _Atomic uint32_t number;
    _Atomic uint32_t seq, call, group, kind; /* kind: op, dtype, reduce_op, flags, a byte each */
    _Atomic int32_t root, line;
    _Atomic uint32_t check; /* tt__record_check() */
    _Atomic uint64_t count, begin, end;
    _Atomic uint8_t algorithm, file;
    _Atomic uint16_t state;
    _Atomic int32_t tag;
} tt__record_slot;

_Static_assert(sizeof(tt__record_slot) == 64, "a record is a cache line");

enum { TT__RECORD_SYMMETRIC = 1, TT__RECORD_ASYNC = 2, TT__RECORD_CHILD = 4 /* part of another call */ };

/* Values of a call, beside its record, that may differ between ranks: counts of uneven sizes, or the ranks of a new
 * group. Only the latest calls have one. */
typedef struct tt__record_list {
    uint32_t number;   /* of the record */
    uint32_t first, n; /* number of values in the first list; in both */
    uint64_t total;    /* of all, also of those that are not kept */
    uint64_t values[TT__LISTED];
} tt__record_list;

/* The slot of a list in the recorder, number % TT__LISTS. `number` is 0 while it is being written. */
typedef struct tt__list_slot {
    _Atomic uint32_t number, first, n;
    _Atomic uint64_t total, check, values[TT__LISTED];
} tt__list_slot;

/* When a call ran on its device, by the device's own measurement, as readers have it. Its slot in the recorder has the
 * index of the call's record; `number` is 0 while it is being written. */
typedef struct tt__record_device {
    uint32_t number;     /* of the record */
    uint16_t type;       /* tt_device_type */
    uint16_t index;      /* of the device */
    int64_t begin_ns;    /* CLOCK_MONOTONIC */
    int64_t duration_ns; /* >= 0 */
} tt__record_device;

typedef struct tt__device_slot {
    _Atomic uint32_t number, device, check; /* device: type, index, two bytes each; tt__record_device_check() */
    _Atomic uint64_t begin_ns, duration_ns;
} tt__device_slot;

/* The rank for which the process has waited longer than a moment. `since` 0: none. Under a sequence lock
 * (seqlock.h). */
typedef struct tt__waiting {
    _Atomic uint32_t version;
    uint32_t group, seq; /* which call; seq 0: a receive */
    int32_t whom;        /* the first rank of the job that has not come; -1: any */
    uint64_t since;      /* ticks */
    uint32_t record;     /* number of the call's record */
    uint32_t word;       /* of the call's signature */
    uint32_t thread;     /* that waits: tt__thread_mark(); 0: another thread makes the group's calls */
} tt__waiting;

/* The progress of training, as the program reports it (tt_publish_progress()). Under a sequence lock (seqlock.h);
 * version 0: nothing was said. */
typedef struct tt__progress {
    _Atomic uint32_t version;
    int64_t epoch, epochs, step, steps; /* 0: not known */
    double loss;                        /* NAN: not known */
    int64_t samples;                    /* of this rank, since the first call */
    int64_t at_ns;                      /* CLOCK_MONOTONIC: of the last call */
    int64_t base_samples, base_ns;      /* a call some seconds ago, from which rates are counted */
} tt__progress;

/* Where the time of steps whose gradients are averaged goes: of the last one, or means over some tens of them, in ns.
 * Under a sequence lock; version 0: there was none. */
typedef struct tt__averaging {
    _Atomic uint32_t version;
    int64_t steps, bytes, buckets;                             /* steps so far; bytes and buckets of the gradients */
    int64_t forward_ns, backward_ns, averaging_ns, overlap_ns; /* overlap: averaging while gradients still come */
} tt__averaging;

/* A call of this process to a worker (tutti/rpc.h), as readers have it. */
typedef struct tt__rpc_record {
    uint32_t number;     /* calls to workers before this one, plus 1 (wraps) */
    int32_t to;          /* the worker's id */
    uint64_t bytes;      /* sent */
    uint64_t begin, end; /* ticks; end 0: not done */
    uint8_t function;    /* index in rpc_functions[] */
    uint16_t state;      /* tt__call_state */
} tt__rpc_record;

/* Its place, in a ring of its own, as there may be a million calls a second: (number - 1) % TT__RPC_RECORDS. One thread
 * at a time writes: `number` first, and `state` last, with release. */
typedef struct tt__rpc_slot {
    _Alignas(64) _Atomic uint32_t number;
    _Atomic int32_t to;
    _Atomic uint64_t bytes, begin, end;
    _Atomic uint8_t function;
    _Atomic uint16_t state;
} tt__rpc_slot;

/* The number of references to values here that a function has made. */
typedef struct tt__rpc_made {
    int64_t count;
    int32_t function; /* index in rpc_functions[] */
} tt__rpc_made;

/* The state of this process as a worker, published some times a second. Under a sequence lock; version 0: it is no
 * worker. */
typedef struct tt__rpc_shown {
    _Atomic uint32_t version;
    int32_t id;                                 /* -1: no longer a worker */
    char name[128];                             /* of the worker */
    int64_t threads, idle;                      /* that run functions; of those, that run none */
    int64_t calls, calls_made, serving, served; /* calls to others: under way, so far; calls of others: the same */
    int64_t owned, held;                        /* references: to values here; to those of others */
    /* bytes: of calls that came and have not begun; waiting: yet to be sent */
    int64_t bytes, waiting;
    int64_t at_ns;                           /* CLOCK_MONOTONIC: when this was so */
    int64_t base_made, base_served, base_ns; /* some seconds ago, from which rates are counted */
    tt__rpc_made makers[TT__RPC_MAKERS];     /* the most first; count 0: no more */
} tt__rpc_shown;

/* A group's name and ranks. */
typedef struct tt__group_name {
    _Atomic uint32_t id; /* written last; 0: the first group of the job, if size is not 0 */
    int32_t size;
    _Atomic uint32_t user; /* the thread that makes its calls, as of the owner's last wait; 0: any may */
    char ranks[56];        /* "0-3, 8", ranks of the job; cut with "..." */
} tt__group_name;

typedef struct tt__recorder {
    uint64_t magic; /* TT__RECORDER_MAGIC */
    int32_t rank, world;
    int64_t pid;
    uint32_t serial;  /* differs between the recorders that a process makes */
    tt__moment begin; /* when it was made: with any later moment of this host it turns ticks into ns */
    /* This host's realtime minus that of rank 0's host, measured over the connection; 0: not measured. */
    _Atomic int64_t offset_ns;
    char program[64], hostname[64];
    tt__recovery_words recovery; /* where older recorders have padding */
    /* Numbers given out so far, in blocks of TT__RECORD_BLOCK to each thread; wraps. */
    _Alignas(128) _Atomic uint32_t calls;
    tt__waiting waiting;
    _Alignas(128) tt__progress progress;
    _Alignas(128) tt__averaging averaging;
    /* The owner's pointers, by which it finds names again. */
    _Alignas(128) _Atomic uintptr_t file_keys[TT__FILES];
    char files[TT__FILES][TT__FILE_SIZE];
    _Atomic uint32_t groups_used;
    tt__group_name groups[TT__GROUPS_NAMED];
    _Alignas(128) tt__record_slot records[TT__RECORDS];
    tt__list_slot lists[TT__LISTS];
    tt__device_slot devices[TT__RECORDS];
    _Alignas(128) uint32_t rpc_calls; /* the last number given out; the owner's alone */
    uint32_t rpc_open;                /* records in the ring of calls that are not done; the owner's alone */
    tt__rpc_slot rpc_records[TT__RPC_RECORDS];
    _Alignas(128) tt__rpc_shown rpc;
    char rpc_functions[TT__RPC_FUNCTIONS][TT__RPC_FUNCTION_SIZE];
} tt__recorder;

_Static_assert(offsetof(tt__recorder, recovery) == TT__RECOVERY_AT, "readers know where the words lie");
_Static_assert(TT__RECORDER_ALIGN % _Alignof(tt__recorder) == 0, "a launcher maps it where ranks say");

#define TT__RECORDER_MAGIC UINT64_C(0x3872636552745454) /* "TTtRecr8" */

/* Name the process. The memory is zeroed. */
void tt__recorder_init(tt__recorder *recorder, int rank, int world);

/* ---- writing */

enum { TT__RECORD_BLOCK = 16, TT__RECORD_OWNERS = 256 };

/* Record numbers reserved for a thread. It gives them out without a locked counter, which would wait for all stores
 * before it, also those to lines that peers read. Found by the thread's pointer, not _Thread_local: in a library that
 * may be loaded late, thread-local memory costs a call. When a thread has ended, the next one with the same pointer
 * takes its block. */
typedef struct tt__record_block {
    _Alignas(64) _Atomic uintptr_t owner; /* 0: nobody yet; never changes again */
    _Atomic uint32_t serial, next, left;  /* the owner's alone */
} tt__record_block;

extern tt__record_block tt__record_blocks[TT__RECORD_OWNERS];

/* Return a number for the calling thread; not 0. */
static inline uintptr_t tt__this_thread(void) { return (uintptr_t)__builtin_thread_pointer(); }

/* A thread's number in fewer bits, for other processes; not 0. */
static inline uint32_t tt__thread_mark(uintptr_t thread) {
    return (uint32_t)((thread * UINT64_C(0x9e3779b97f4a7c15)) >> 32) | 1;
}

static inline tt__record_block *tt__record_block_of(uintptr_t thread) {
    return &tt__record_blocks[(thread * UINT64_C(0x9e3779b97f4a7c15)) >> 56];
}

/* Take a number for a thread that has none left. Also reserves more, unless another thread has its block. */
uint32_t tt__record_refill(tt__recorder *recorder);

static inline uint32_t tt__record_number(tt__recorder *recorder) {
    uintptr_t thread = tt__this_thread();
    tt__record_block *mine = tt__record_block_of(thread);
    uint32_t next = atomic_load_explicit(&mine->next, memory_order_relaxed);
    uint32_t left = atomic_load_explicit(&mine->left, memory_order_relaxed);
    uint32_t behind = atomic_load_explicit(&recorder->calls, memory_order_relaxed) - next;
    if (__builtin_expect(atomic_load_explicit(&mine->owner, memory_order_relaxed) != thread ||
                             atomic_load_explicit(&mine->serial, memory_order_relaxed) != recorder->serial || !left ||
                             behind > TT__RECORDS / 2,
                         0))
        return tt__record_refill(recorder);
    atomic_store_explicit(&mine->next, next + 1, memory_order_relaxed);
    atomic_store_explicit(&mine->left, left - 1, memory_order_relaxed);
    return next + 1;
}

uint8_t tt__record_file_add(tt__recorder *recorder, const char *file);

static inline uint32_t tt__record_file_slot(const char *file) {
    return (uint32_t)(((uintptr_t)file * UINT64_C(0x9e3779b97f4a7c15)) >> 56);
}

/* Return the index in files[] of `file`, which must stay as long as the process: a string literal. */
static inline uint8_t tt__record_file(tt__recorder *recorder, const char *file) {
    uint32_t slot = tt__record_file_slot(file);
    if (__builtin_expect(
            atomic_load_explicit(&recorder->file_keys[slot], memory_order_acquire) == (uintptr_t)file && file, 1))
        return (uint8_t)slot;
    return tt__record_file_add(recorder, file);
}

static inline uint32_t tt__record_kind_of(const tt__call_record *record) {
    return record->op | (uint32_t)record->dtype << 8 | (uint32_t)record->reduce_op << 16 |
           (uint32_t)record->flags << 24;
}

static inline uint64_t tt__rotated(uint64_t bits, int by) { return bits << by | bits >> (64 - by); }

/* Mix the fields of a record that are written once. form: the call and its place, the same in all calls from one line;
 * of: also its number and begin. */
static inline uint64_t tt__record_form_check(const tt__call_record *record) {
    uint64_t kind = (uint64_t)tt__record_kind_of(record) << 32 | record->group;
    uint64_t place = (uint64_t)(uint32_t)record->root << 32 | (uint32_t)record->line;
    uint64_t rest = (uint64_t)(uint32_t)record->tag << 32 | record->file;
    return kind ^ tt__rotated(place, 11) ^ tt__rotated(rest, 23) ^ tt__rotated(record->count, 37);
}
static inline uint32_t tt__record_check_of(uint64_t form, uint32_t number, uint64_t begin) {
    uint64_t mixed = form ^ (number * UINT64_C(0x9e3779b97f4a7c15)) ^ tt__rotated(begin, 49);
    return (uint32_t)(mixed ^ mixed >> 32);
}
static inline uint32_t tt__record_check(const tt__call_record *record) {
    return tt__record_check_of(tt__record_form_check(record), record->number, record->begin);
}

/* The fields that all calls from one line have in common, computed once; seq, call, number and times are not set. */
typedef struct tt__record_form {
    tt__call_record call;
    uint64_t check; /* tt__record_form_check() */
} tt__record_form;

#define TT__RECORD_SET(slot, field, value) atomic_store_explicit(&(slot)->field, (value), memory_order_relaxed)
#define TT__RECORD_GET(slot, field) atomic_load_explicit(&(slot)->field, memory_order_relaxed)

/* Begin the record of a call of this form, as number `seq` of its group, `call` of the program's; *number: its own.
 * Then tt__record_ready(). Threads that use different groups may call it at once. */
static inline tt__record_slot *tt__record_begin_form(tt__recorder *recorder, const tt__record_form *form, uint32_t seq,
                                                     uint32_t call, uint32_t *number) {
    *number = tt__record_number(recorder);
    uint64_t begin = tt__ticks();
    tt__record_slot *slot = &recorder->records[(*number - 1) % TT__RECORDS];
    TT__RECORD_SET(slot, state, TT__CALL_NONE);
    TT__RECORD_SET(slot, number, *number);
    atomic_thread_fence(memory_order_release);
    TT__RECORD_SET(slot, seq, seq);
    TT__RECORD_SET(slot, call, call);
    TT__RECORD_SET(slot, group, form->call.group);
    TT__RECORD_SET(slot, kind, tt__record_kind_of(&form->call));
    TT__RECORD_SET(slot, root, form->call.root);
    TT__RECORD_SET(slot, line, form->call.line);
    TT__RECORD_SET(slot, count, form->call.count);
    TT__RECORD_SET(slot, begin, begin);
    TT__RECORD_SET(slot, end, 0);
    TT__RECORD_SET(slot, algorithm, 0);
    TT__RECORD_SET(slot, file, form->call.file);
    TT__RECORD_SET(slot, tag, form->call.tag);
    TT__RECORD_SET(slot, check, tt__record_check_of(form->check, *number, begin));
    return slot;
}

/* Return the form of `call`, of which group, op, dtype, reduce_op, flags, root, count and tag are given, from `file`,
 * which must stay as long as the process, and `line`. */
static inline tt__record_form tt__record_form_of(tt__recorder *recorder, const char *file, int line,
                                                 tt__call_record call) {
    call.file = tt__record_file(recorder, file);
    call.line = line;
    return (tt__record_form){.call = call, .check = tt__record_form_check(&call)};
}

/* Begin the record of a call without keeping its form; seq and call are given in `call`, too. */
static inline tt__record_slot *tt__record_begin(tt__recorder *recorder, const char *file, int line,
                                                tt__call_record call) {
    uint32_t number;
    tt__record_form form = tt__record_form_of(recorder, file, line, call);
    return tt__record_begin_form(recorder, &form, call.seq, call.call, &number);
}

/* Publish a record that was just begun: readers may take it. `state`: QUEUED or BEGUN. */
static inline void tt__record_ready(tt__record_slot *slot, tt__call_state state) {
    atomic_store_explicit(&slot->state, (uint16_t)state, memory_order_release);
}

/* Is this still the record of call `number`? After TT__RECORDS more calls another has its slot. */
static inline bool tt__record_is(const tt__record_slot *slot, uint32_t number) {
    return atomic_load_explicit(&slot->number, memory_order_relaxed) == number;
}

/* Note in the record of call `number`, if it is still in the slot, that the call has begun; its numbers in its group;
 * its algorithm. */
static inline void tt__record_note_begun(tt__record_slot *slot, uint32_t number) {
    if (tt__record_is(slot, number))
        tt__record_ready(slot, TT__CALL_BEGUN);
}

static inline void tt__record_note_seq(tt__record_slot *slot, uint32_t number, uint32_t seq, uint32_t call) {
    if (!tt__record_is(slot, number))
        return;
    TT__RECORD_SET(slot, seq, seq);
    TT__RECORD_SET(slot, call, call);
}

static inline void tt__record_note_algorithm(tt__record_slot *slot, uint32_t number, uint8_t algorithm) {
    if (tt__record_is(slot, number))
        TT__RECORD_SET(slot, algorithm, algorithm);
}

/* Note the call's end: DONE or FAILED. looked: write the time, too. A call that never waited longer than a moment
 * leaves it out, and readers infer its end from the others' records. */
static inline void tt__record_done(tt__record_slot *slot, uint32_t number, tt__call_state state, bool looked) {
    if (!tt__record_is(slot, number))
        return;
    if (looked)
        TT__RECORD_SET(slot, end, tt__ticks());
    atomic_store_explicit(&slot->state, (uint16_t)state, memory_order_release);
}

/* One list or two. */
typedef struct tt__lists {
    const int64_t *first, *second;
    size_t firsts, seconds;
} tt__lists;

/* Keep them beside record `number`. */
void tt__record_keep_lists(tt__recorder *recorder, uint32_t number, const tt__lists *lists);

/* Mix all fields of `ran`. */
uint32_t tt__record_device_check(const tt__record_device *ran);

/* Note when a call ran on its device, if `slot` still is its record. */
void tt__record_note_device(tt__recorder *recorder, const tt__record_slot *slot, const tt__record_device *ran);

/* Publish the rank that the process waits for from now on (since: tt__ticks()), or none (since 0). One thread at a
 * time. */
void tt__recorder_wait(tt__recorder *recorder, const tt__waiting *what);

/* Name a group: `ranks` of the job, `size` of them. After TT__GROUPS_NAMED of them the oldest but the first is
 * forgotten. One thread at a time. */
void tt__recorder_name_group(tt__recorder *recorder, uint32_t id, const int *ranks, int size);

/* Publish which thread makes the group's calls: tt__thread_mark(), or 0 for any. One thread at a time. */
void tt__recorder_note_user(tt__recorder *recorder, uint32_t id, uint32_t user);

/* Write the progress of training into this recorder, and what was reported before, until tt__progress_detach(). */
void tt__progress_attach(tt__recorder *recorder);
void tt__progress_detach(const tt__recorder *recorder);

/* The same, unless another recorder has it already; returns whether `recorder` is the one. */
bool tt__progress_attach_first(tt__recorder *recorder);

/* Publish `averaging` where progress is published; its version is ignored. */
TT__EXPORT void tt__publish_averaging(const tt__averaging *averaging);

/* Return the slot of the next record, and its number. Skips slots of calls under way, since observers look for the
 * oldest of these, unless they fill half of the ring. */
static inline tt__rpc_slot *tt__rpc_record_next(tt__recorder *recorder, uint32_t *number) {
    for (;;) {
        *number = ++recorder->rpc_calls;
        tt__rpc_slot *slot = &recorder->rpc_records[(*number - 1) % TT__RPC_RECORDS];
        bool open = TT__RECORD_GET(slot, state) == TT__CALL_BEGUN;
        if (!*number || (open && recorder->rpc_open <= TT__RPC_RECORDS / 2))
            continue;
        recorder->rpc_open += !open;
        return slot;
    }
}

/* Begin the record of a call to a worker; returns its number, which is not 0. One thread at a time, also in the next
 * function. */
static inline uint32_t tt__rpc_record_begin(tt__recorder *recorder, uint8_t function, int to, uint64_t bytes) {
    uint32_t number;
    tt__rpc_slot *slot = tt__rpc_record_next(recorder, &number);
    TT__RECORD_SET(slot, state, TT__CALL_NONE);
    TT__RECORD_SET(slot, number, number);
    atomic_thread_fence(memory_order_release);
    TT__RECORD_SET(slot, to, to);
    TT__RECORD_SET(slot, bytes, bytes);
    TT__RECORD_SET(slot, function, function);
    TT__RECORD_SET(slot, end, 0);
    TT__RECORD_SET(slot, begin, tt__ticks());
    atomic_store_explicit(&slot->state, TT__CALL_BEGUN, memory_order_release);
    return number;
}

/* Note its end: DONE or FAILED; `end`: ticks of a look at the clock since then, which saves one here; else 0. */
static inline void tt__rpc_record_done(tt__recorder *recorder, uint32_t number, tt__call_state state, uint64_t end) {
    tt__rpc_slot *slot = &recorder->rpc_records[(number - 1) % TT__RPC_RECORDS];
    if (TT__RECORD_GET(slot, number) != number)
        return;
    recorder->rpc_open -= TT__RECORD_GET(slot, state) == TT__CALL_BEGUN;
    TT__RECORD_SET(slot, end, end > TT__RECORD_GET(slot, begin) ? end : tt__ticks());
    atomic_store_explicit(&slot->state, (uint16_t)state, memory_order_release);
}

/* Name the function with an index; those beyond the table have index 0. */
void tt__rpc_record_name(tt__recorder *recorder, int function, const char *name);

/* Publish `now`; its version, at_ns and base_... are ignored, and set here. One thread at a time. */
void tt__rpc_publish(tt__recorder *recorder, const tt__rpc_shown *now);

/* Hand the recorder, which lies at `offset` in `memory_fd`, to the launcher that started this process, if there is one:
 * `tutti top` finds it there, and it outlives this process. Returns a socket to be closed when the memory ends, or -1:
 * no launcher. Never waits long. */
int tt__recorder_publish(const tt__recorder *recorder, int memory_fd, size_t offset);

/* ---- reading, by any process */

/* Copy a recorder that another process wrote, checked: names are text without control characters, times can be added
 * and subtracted, records and lists are whole or missing. False: `theirs` is no recorder of this version. */
bool tt__recorder_copy(tt__recorder *copy, const tt__recorder *theirs);

/* Copy record `number`; false if it is not there any more, or not yet. */
bool tt__record_read(const tt__recorder *recorder, uint32_t number, tt__call_record *copy);

/* Put such a copy, or a copy of lists, into another recorder, which nobody else uses. */
void tt__record_put(tt__recorder *recorder, const tt__call_record *record);
void tt__record_put_list(tt__recorder *recorder, const tt__record_list *list);

/* Copy the lists kept beside record `number`; false: there are none, or not any more. */
bool tt__record_read_list(const tt__recorder *recorder, uint32_t number, tt__record_list *copy);

/* Copy when call `number` ran on its device; false: it is not known, or not any more. Times can be added and
 * subtracted. */
bool tt__record_read_device(const tt__recorder *recorder, uint32_t number, tt__record_device *copy);

/* Put such a copy into another recorder, which nobody else uses. */
void tt__record_put_device(tt__recorder *recorder, const tt__record_device *ran);

/* Copy what the process waits for; false: nothing. */
bool tt__recorder_waiting(const tt__recorder *recorder, tt__waiting *copy);

/* Copy the progress of training; false: none was reported. */
bool tt__recorder_progress(const tt__recorder *recorder, tt__progress *copy);

/* Copy what is known of averaging; false: nothing. */
bool tt__recorder_averaging(const tt__recorder *recorder, tt__averaging *copy);

/* Copy record `number` of a call to a worker; false if it is not there any more, or not yet. Put such a copy into
 * another recorder, which nobody else uses. */
bool tt__rpc_record_read(const tt__recorder *recorder, uint32_t number, tt__rpc_record *copy);
void tt__rpc_record_put(tt__recorder *recorder, const tt__rpc_record *record);

/* Copy what is known of this process as a worker; false: it is none. Names are text without control characters. */
bool tt__rpc_shown_read(const tt__recorder *recorder, tt__rpc_shown *copy);

/* Return the calls a second, made and served, of the last seconds. */
void tt__rpc_shown_rates(const tt__rpc_shown *shown, double *made, double *served);

/* Return the samples a second of the last seconds, at `now_ns` (CLOCK_MONOTONIC) of its host; 0: not known. Falls while
 * no call comes. */
double tt__progress_rate(const tt__progress *progress, int64_t now_ns);

/* Return the payload bytes of a call, as algorithm bandwidth counts them: those of one rank's own buffer. */
uint64_t tt__record_bytes(const tt__call_record *record);

/* Write the text of a record: "all_reduce(f32 x 512, sum) at train.c:88". Returns `text`. */
const char *tt__record_text(const tt__recorder *recorder, const tt__call_record *record, char *text, size_t size);

/* Return what tt__recorder_note_user() published; 0 if the group is not known. */
uint32_t tt__recorder_group_user(const tt__recorder *recorder, uint32_t id);

/* "0-3, 8" of the group; "?" if it is not known. */
const char *tt__recorder_group_ranks(const tt__recorder *recorder, uint32_t id);

/* Write the lists kept beside a record, as " with counts 3, 4, 3"; "" if there are none. Returns `text`. */
const char *tt__record_lists_text(const tt__recorder *recorder, const tt__call_record *record, char *text, size_t size);

#endif
