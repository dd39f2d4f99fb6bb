/* The flight recorder: what this process called lately, in shared memory that its peers and the launcher can read, also when it hangs or is dead.
 *
 * One ring a process, for all its groups. The record of a call is written once, before the arrival word; the agreement check, error texts,
 * `tutti top` and `tutti trace` all read this one. Times are ticks of tt__ticks(), which a published calibration turns into the clock that all processes
 * of a host share. */
#ifndef TT_COMM_RECORD_H
#define TT_COMM_RECORD_H

#include <tutti/backend.h>

#include <stdatomic.h>

enum { TT__RECORDS = 1024, TT__FILES = 256, TT__FILE_SIZE = 48, TT__GROUPS_NAMED = 64 };

/* What became of a call. */
typedef enum tt__call_state {
    TT__CALL_NONE,   /* never used */
    TT__CALL_QUEUED, /* asynchronous, not yet told to others */
    TT__CALL_BEGUN,
    TT__CALL_DONE,
    TT__CALL_FAILED
} tt__call_state;

/* One call; a cache line. Its owner writes; `state` last, with release. A reader checks that `number` is the same before and after. */
typedef struct tt__record {
    _Alignas(64) _Atomic uint32_t
        number;     /* calls of this process before this one, plus 1: its index is (number - 1) % TT__RECORDS */
    uint32_t seq;   /* in its group */
    uint32_t group; /* id */
    uint8_t op, dtype, reduce_op, flags; /* tt_op, tt_dtype, tt_reduce_op, TT__RECORD_... */
    int32_t root;                        /* or peer */
    int32_t line;
    uint64_t count;
    uint64_t begin, end; /* ticks; end 0: not done, or done so fast that nobody looked (see tt__record_done()) */
    uint8_t algorithm;   /* number in the table of algorithms, 0 = none */
    uint8_t file;        /* index in files[] */
    _Atomic uint16_t state;
    int32_t tag;
} tt__record;

enum { TT__RECORD_SYMMETRIC = 1, TT__RECORD_ASYNC = 2, TT__RECORD_CHILD = 4 /* part of another call */ };

/* Whom the process waits for, for longer than a moment. `since` 0: for nobody. Read as a whole when `version` is even and unchanged. */
typedef struct tt__waiting {
    _Atomic uint32_t version;
    uint32_t group, seq; /* which call; seq 0: a receive */
    int32_t whom;        /* the first rank of the job that has not come; -1: any */
    uint64_t since;      /* ticks */
    uint32_t record;     /* number of the call's record */
} tt__waiting;

typedef struct tt__recorder {
    _Alignas(128) _Atomic uint32_t calls; /* records written so far */
    uint32_t files_used;
    int32_t rank, world;
    int64_t pid;
    uint64_t ticks_0; /* tt__ticks() and CLOCK_MONOTONIC at the same moment, and ns of one tick */
    int64_t monotonic_0_ns;
    double ns_per_tick;
    int64_t realtime_0_ns;     /* CLOCK_REALTIME then: hosts are put on one clock by it and by the offset below */
    _Atomic int64_t offset_ns; /* this host's realtime minus that of rank 0's host, measured over the connection */
    tt__waiting waiting;
    char program[64], hostname[64];
    struct {
        uint32_t id;
        int32_t size;
        char ranks[56]; /* "0-3" */
    } groups[TT__GROUPS_NAMED];
    char files[TT__FILES][TT__FILE_SIZE];
    tt__record records[TT__RECORDS];
} tt__recorder;

/* A clock that costs a few ns: the time stamp counter where it is constant, else CLOCK_MONOTONIC in ns. */
uint64_t tt__ticks(void);

/* Calibrate, name the process. The memory is zeroed. */
void tt__recorder_init(tt__recorder *recorder, int rank, int world);

/* Begin a record: number, times and file are set, the rest is the caller's to fill in. Threads that use different groups may
 * call it at once. */
tt__record *tt__record_begin(tt__recorder *recorder, const char *file, int line);

/* Text of a record: "all_reduce(f32 x 512, sum) at train.c:88". */
void tt__record_text(const tt__recorder *recorder, const tt__record *record, char *text, size_t size);

#endif
