/* Shared memory between the ranks of one host.
 *
 * Every rank owns one memfd, which all ranks map whole. It holds, in this order:
 *   control   what the rank tells its peers: its current call, how far it is, whether it left, its doorbell
 *   slots     two inline slots, used in turn: arrival word and small data of a call in the same cache lines
 *   staging   parts of buffers that are not themselves shared ("plain"), passed piece by piece
 *   heap      the symmetric heap: what tt_group_alloc() gives, at the same offset in every rank
 * Only its owner writes control and slots; peers read. The one exception is the doorbell, which peers ring.
 * Lines that different ranks write are 128 bytes apart, since CPUs fetch cache lines in pairs. */
#ifndef TT_COMM_TRANSPORT_SHM_H
#define TT_COMM_TRANSPORT_SHM_H

#include <tutti/base.h>

#include <stdatomic.h>
#include <sys/types.h>

enum {
    TT__MAX_WORLD = 64,          /* ranks of a group in shared memory */
    TT__INLINE_MAX = 4096,       /* bytes that travel with the arrival word */
    TT__STAGE_BYTES = 256 << 10, /* one piece of a staged buffer */
    TT__STAGE_DEPTH = 3,         /* pieces on their way at a time */
    TT__PAGE = 4096,
    TT__CPU_MASK_WORDS = 16 /* the first 1024 CPUs */
};

/* One call, as its rank describes it to the others. */
typedef struct tt__record {
    uint32_t seq;
    uint8_t op, dtype, reduce_op; /* op: tt__op */
    int32_t root;
    int32_t line;
    uint64_t count;
    const char *file_ptr; /* of the owner's address space: tells it whether `file` must be copied anew */
    char file[88];
} tt__record;

/* The arrival of one call. `word`: low 32 bits sequence number, bit 32 "symmetric", upper 31 bits hash of the signature. What precedes it in
 * the program is visible to whoever reads it. */
typedef struct tt__slot {
    _Atomic uint64_t word;
    uint64_t offset;        /* of the buffer in the heap, if symmetric */
    unsigned char near[48]; /* data that fits here travels in the word's own cache line */
    unsigned char far[TT__INLINE_MAX];
    unsigned char pad[64];
} tt__slot;

/* What became of the rank as a member of the group. */
enum { TT__MEMBER, TT__LEFT, TT__FAILED };

typedef struct tt__control {
    uint64_t magic;
    uint64_t cpu_mask[TT__CPU_MASK_WORDS]; /* CPUs the rank may run on */
    uint32_t cpu_quota;                    /* CPUs' worth of time it may use */
    int32_t rank;

    _Alignas(128) _Atomic uint32_t doorbell; /* futex; rung by the rank that is waited for */
    _Atomic uint32_t waits_for;              /* 0, or 1 + the rank whose news the owner sleeps for */

    _Alignas(128) _Atomic uint32_t step; /* pieces of work finished since the group began: see tt__plan_steps() */

    _Alignas(128) _Atomic uint32_t state; /* TT__MEMBER, ... */
    uint32_t left_seq;                    /* calls made when it left or failed */
    tt_status failure;                    /* if TT__FAILED */
    char failure_text[760];

    _Alignas(128) tt__record records[2];
    _Alignas(4096) tt__slot slots[2];
} tt__control;

/* Offsets in a rank's memory. */
#define TT__ALIGN_UP(n, to) (((n) + ((size_t)(to)-1)) & ~((size_t)(to)-1))
#define TT__STAGE_IN_AT TT__ALIGN_UP(sizeof(tt__control), TT__PAGE)
#define TT__STAGE_OUT_AT (TT__STAGE_IN_AT + (size_t)TT__STAGE_DEPTH * TT__STAGE_BYTES)
#define TT__HEAP_AT TT__ALIGN_UP(TT__STAGE_OUT_AT + (size_t)TT__STAGE_DEPTH * (TT__STAGE_BYTES / 2), (size_t)2 << 20)

/* A rank's memory, mapped here. */
typedef struct tt__shm {
    unsigned char *base; /* NULL: not mapped */
    size_t size;
} tt__shm;

/* Make this rank's memory with room for a heap of `heap_bytes`, map it, and write the control page. *fd is the caller's to close; it is
 * sealed against shrinking and growing, so that no peer can make another fault. */
tt_status tt__shm_create(tt__shm *shm, int *fd, int rank, size_t heap_bytes);

/* Map a peer's memory, checking that it is what it should be. The descriptor stays the caller's. */
tt_status tt__shm_map_peer(tt__shm *shm, int fd, int rank);

void tt__shm_unmap(tt__shm *shm);

/* How large each of `world` heaps may become: $TT_SYMMETRIC_HEAP (bytes, or with suffix K, M, G, T), else the memory of this machine. */
tt_status tt__shm_heap_bytes(int world, size_t *bytes);

/* Has the machine `bytes` free for each of `world` ranks? Asked of large allocations only. */
tt_status tt__shm_check_free(size_t bytes, int world);

/* Commit pages of the own memory, or give them back; the range is whole pages. tt__shm_commit() fails with TT_ERR_MEMORY rather than
 * let a later access fault. */
tt_status tt__shm_commit(const tt__shm *shm, int fd, size_t offset, size_t bytes);
void tt__shm_release(const tt__shm *shm, size_t offset, size_t bytes);

static inline tt__control *tt__shm_control(const tt__shm *shm) { return (tt__control *)(void *)shm->base; }

#endif
