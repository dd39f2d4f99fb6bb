/* Shared memory between the ranks of one host.
 *
 * Every rank owns one memfd, which all ranks of its host map whole. It begins with the control page of the process; all
 * the rest is its heap, of which come
 *   areas        one for each group that the process is in: what it publishes to the group's other ranks, and staging
 *                memory
 *   allocations  what tt_group_alloc() gives: symmetric memory, which peers read and write in place
 * Only its owner writes its control page and its areas; peers read. The one exception is the doorbell, which peers
 * ring. Lines that different ranks write are 128 bytes apart, since CPUs fetch cache lines in pairs. */
#ifndef TT_COMM_SHARED_SHM_H
#define TT_COMM_SHARED_SHM_H

#include "comm/message/transport/ring.h"
#include "comm/record/recorder.h"

#include <tutti/base.h>

#include <stdatomic.h>
#include <sys/types.h>

enum {
    TT__MAX_HOST_RANKS = 64, /* ranks of a host, so of a group in shared memory */
    TT__INLINE_MAX = 4096,   /* bytes that travel with the arrival word, in its slot */
    TT__NEAR_MAX = 32,       /* those that do so in its own cache line */
    /* up to this many bytes of all peers, reading copies beats a second synchronisation: in general; if ranks share
     * CPUs */
    TT__RIDE_MAX = 1024,
    TT__RIDE_MAX_SHARED = 128 << 10,
    TT__CARRIED_MAX = 256 << 10, /* bytes of an all_reduce that travel with the arrival word, beside its slot */
    TT__STAGE_BYTES = 256 << 10, /* one piece of a staged buffer */
    TT__STAGE_DEPTH = 3,         /* pieces on their way at a time */
    TT__PAGE = 4096,
    TT__CPU_MASK_WORDS = 16 /* the first 1024 CPUs */
};

/* The arrival of one call. `word`: low 32 bits sequence number, bit 32 "symmetric", upper 31 bits hash of the
 * signature. A rank that reads it also sees what was written before it. */
typedef struct tt__slot {
    _Alignas(128) _Atomic uint64_t word;
    uint64_t offset; /* of the buffer in the rank's memory, if symmetric */
    double factor;   /* of TT_PREMUL_SUM */
    uint64_t unused;
    unsigned char near[TT__NEAR_MAX]; /* data that fits here travels in the word's own cache line */
    unsigned char far[TT__INLINE_MAX];
    uint32_t record; /* number of the call's record: written after the word, so not in a line that peers wait for */
} tt__slot;

/* Is the rank a member of the group, has it left, or has it failed? */
enum { TT__MEMBER, TT__LEFT, TT__FAILED };

/* A rank's part of one group. */
typedef struct tt__area {
    _Alignas(128) _Atomic uint32_t step; /* pieces of work finished since the group began: see tt__plan_steps() */
    _Alignas(128) _Atomic uint32_t
        waits_for; /* 0; 1 + the rank of the group whose news the owner sleeps for; or TT__ANYONE */
    _Alignas(128) _Atomic uint32_t state; /* TT__MEMBER, ... */
    /* id: another one shows that the group ended long ago and its place is taken */
    _Atomic uint32_t group;
    uint32_t calls_made; /* the program's calls when the rank left or failed */
    tt_status failure;   /* if TT__FAILED */
    char failure_text[760];
    tt__slot slots[2];
    _Alignas(4096) unsigned char carried[2][TT__CARRIED_MAX]; /* payloads for which the slots have no room */
    unsigned char stage[TT__STAGE_DEPTH][TT__STAGE_BYTES];
} tt__area;

#define TT__ANYONE UINT32_MAX

/* A group's id until its ranks know it. */
#define TT__FORMING UINT32_MAX

/* What a process publishes to its host's other ranks, whatever the group. */
typedef struct tt__control {
    uint64_t magic;
    uint64_t cpu_mask[TT__CPU_MASK_WORDS]; /* CPUs the rank may run on */
    uint32_t cpu_quota;                    /* CPUs' worth of time it may use */
    int32_t rank;
    char own_failure[440]; /* the error, "TT_ERR_INVALID: ...", after which the owner frees or leaves; "": none */

    _Alignas(128) _Atomic uint32_t doorbell; /* futex; rung by ranks that have news for the owner */
    _Atomic uint32_t sleepers;               /* threads of the owner that sleep on it */

    tt__ring_board rings; /* for messages between ranks of the host */
    tt__recorder recorder;
} tt__control;

/* Offsets in a rank's memory. The first group's area begins the heap. */
#define TT__ALIGN_UP(n, to) (((n) + ((size_t)(to)-1)) & ~((size_t)(to)-1))
#define TT__HEAP_AT TT__ALIGN_UP(sizeof(tt__control), (size_t)2 << 20)
#define TT__AREA_BYTES TT__ALIGN_UP(sizeof(tt__area), TT__PAGE)
/* Bytes of an area that are always committed: all but the memory for large payloads. */
#define TT__AREA_COMMITTED offsetof(tt__area, carried)

/* A rank's memory, mapped here. */
typedef struct tt__shm {
    unsigned char *base; /* NULL: not mapped */
    size_t size;
} tt__shm;

/* Make this rank's memory with room for a heap of `heap_bytes`, map it, and write the control page. *fd is the caller's
 * to close; it is sealed against shrinking and growing, so that no peer can make another's access fault. Where `ulimit
 * -v` or `ulimit -f` allows no more, there is less room; TT_ERR_MEMORY names the limit that leaves too little. */
tt_status tt__shm_create(tt__shm *shm, int *fd, int rank, int world, size_t heap_bytes);

/* Map a peer's memory, checking that it is what it should be. The descriptor stays the caller's. */
tt_status tt__shm_map_peer(tt__shm *shm, int fd, int rank);

void tt__shm_unmap(tt__shm *shm);

/* Return how large the heap may become: $TT_SYMMETRIC_HEAP (bytes, or with suffix K, M, G, T),
 * else the memory of this machine. Areas of groups come on top. */
tt_status tt__shm_heap_bytes(size_t *bytes);

/* Has the machine `bytes` free for each of `ranks` ranks? Asked of large allocations only. */
tt_status tt__shm_check_free(size_t bytes, int ranks);

/* Commit pages of this rank's memory; the range is whole pages. Fails with TT_ERR_MEMORY rather than let a later access
 * fault. */
tt_status tt__shm_commit(const tt__shm *shm, int fd, size_t offset, size_t bytes);

static inline tt__control *tt__shm_control(const tt__shm *shm) { return (tt__control *)(void *)shm->base; }

/* ---- the heap: this process's shared memory behind the control page, for group areas and symmetric allocations
 *
 * Ranges may lie elsewhere in other ranks, so ranks publish their offsets. A destroyed group's ranges are freed when no
 * peer can read them any more. */

/* A range of the heap. The list covers the heap without gaps, in order. */
typedef struct tt__extent {
    struct tt__extent *next;
    size_t offset, bytes; /* in the rank's memory */
    bool used;
} tt__extent;

/* This process's memory behind the control page. */
typedef struct tt__heap {
    const tt__shm *shm;
    tt__extent *extents;
    size_t limit, allocated; /* of what tt_group_alloc() gives */
} tt__heap;

/* Make the heap of `shm`, all of it free except for the control page; `limit` of allocations. TT_ERR_MEMORY. */
tt_status tt__heap_init(tt__heap *heap, const tt__shm *shm, size_t limit);
void tt__heap_end(tt__heap *heap);

/* Take `bytes` (whole pages) without committing them. `limited`: counts against the limit of allocations. */
tt_status tt__heap_take(tt__heap *heap, size_t bytes, bool limited, tt__extent **out);

/* Free an extent; its pages go back to the system. NULL is allowed. */
void tt__heap_give_back(tt__heap *heap, tt__extent *extent, bool limited);

/* Free the pages, but never give out the range again, since a peer may still write there. */
void tt__heap_abandon(tt__heap *heap, tt__extent *extent);

#endif
