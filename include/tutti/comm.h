/* tutti/comm.h: process groups and collectives on raw buffers: a pointer, a count, an element type. Knows no tensors.
 *
 * A group is a set of processes, each with a rank in 0..world_size-1. Every rank must make the same sequence of calls on it;
 * that is checked on every call, and a rank that differs is named (TT_ERR_MISMATCH) instead of hanging the others. A rank that
 * dies, freezes or leaves ends every wait on all the others (TT_ERR_PEER names it). After any error of a collective the group
 * is unusable, buffers are undefined, and tt_destroy_process_group() is the only call that still succeeds. Two kinds of errors
 * leave the group as it was: arguments that are refused before anything is sent (TT_ERR_INVALID, TT_ERR_UNSUPPORTED), and
 * an allocation that fails on all ranks (TT_ERR_MEMORY).
 *
 * Results of reductions depend on ranks, count and dtype alone, and are bitwise the same on every rank. With p the largest
 * power of two not above N, the first 2(N-p) ranks fold in adjacent pairs, then a balanced tree by distance doubling.
 *
 * Calls on one group must not overlap: one thread at a time. Different threads may use different groups. */
#ifndef TUTTI_COMM_H
#define TUTTI_COMM_H

#include <tutti/base.h>
#include <tutti/store.h>

TT_BEGIN_DECLS

typedef struct tt_group tt_group;

typedef enum tt_reduce_op {
    TT_SUM,     /* integers wrap */
    TT_AVG,     /* floats only: each rank's element times (float)(1/N), then summed, as PyTorch's DDP averages */
    TT_PRODUCT, /* in the same order as a sum */
    TT_MIN,     /* NaN wins */
    TT_MAX      /* NaN wins */
} tt_reduce_op;

/* "sum", "avg", ...; "?" outside the enum. */
TT_API const char *tt_reduce_op_name(tt_reduce_op op);

typedef struct tt_init_process_group_args {
    tt_group **out;          /* required: receives the group */
    const char *backend;     /* NULL or "native" */
    const char *init_method; /* NULL = "env://" (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT); or "tcp://host:port", with
                                .rank and .world_size or "?rank=R&world_size=N". Rank 0 serves the store at that address,
                                unless TORCHELASTIC_USE_AGENT_STORE is "True" (then the launcher serves it) */
    tt_store *store;         /* meet through this store instead; borrowed for the life of the group */
    int rank;                /* used if world_size is not 0; they override the environment's */
    int world_size;          /* 0 = from init_method */
    int64_t timeout_ms;      /* of the rendezvous and of every later call; 0 = TT_DEFAULT_TIMEOUT_MS */
    int64_t heartbeat_ms;    /* a frozen rank is named within this time; 0 = 5000 */
    char tt_end;             /* not an option: see base.h */
} tt_init_process_group_args;

/* Join the group of all ranks. Blocks until all came. PyTorch: torch.distributed.init_process_group.
 *   tt_init_process_group(&world, .timeout_ms = 60000)
 * Ranks share memory if they run on one host: same boot and same network name space, or the same TT_HOST_ID.
 * Success: *out is the caller's, end it with tt_destroy_process_group(). Failure: *out is NULL.
 * Errors: TT_ERR_INVALID one missing or malformed variable or option, by name; TT_ERR_TIMEOUT names the missing ranks; TT_ERR_NET
 * nobody serves the store, or the port is in use; TT_ERR_UNSUPPORTED unknown back end, or ranks that can't share memory (both
 * hosts are named), or more than 64 ranks; TT_ERR_MISMATCH ranks passed different world sizes. */
TT_API tt_status tt_init_process_group_with(const tt_init_process_group_args *args, size_t size);
#ifndef __cplusplus
#define tt_init_process_group(...) tt_init_process_group_with(TT_ARGS(tt_init_process_group_args, __VA_ARGS__))
#endif

/* Leave the group and release it, with the memory tt_group_alloc() gave. Not collective and never waits: peers that still call
 * learn "rank R left the group after call N". Reducers and DDP wrappers made on it may be freed before or after; their memory stays until
 * then, but every other call on them or on the group fails (TT_ERR_STATE).
 * NULL is allowed. */
TT_API void tt_destroy_process_group(tt_group *group);

/* This process's rank, and the number of ranks; -1 for NULL. PyTorch: get_rank, get_world_size. */
TT_API int tt_get_rank(const tt_group *group);
TT_API int tt_get_world_size(const tt_group *group);

/* The group's timeout of a call, in ms. Set it alike on all ranks. */
TT_API int64_t tt_group_timeout_ms(const tt_group *group);
TT_API void tt_group_set_timeout_ms(tt_group *group, int64_t timeout_ms);

/* Symmetric memory: `bytes` at the same place of every rank's heap, zeroed, 64-byte aligned. Collectives on it need no copy; on any
 * other ("plain") memory they stage. Collective: all ranks must pass the same size. Also usable as ordinary memory.
 * Success: *out lives until tt_group_free() or the end of the group. bytes == 0 gives a valid unique pointer.
 * What is given is whole pages. The heap may grow to the machine's memory, to what `ulimit -v` leaves of
 * it, or to TT_SYMMETRIC_HEAP (bytes, or with K, M, G, T).
 * Errors: TT_ERR_MEMORY (on all ranks if on one), and those of a collective. */
TT_API tt_status tt_group_alloc_at(tt_group *group, size_t bytes, void **out, const char *file, int line);

/* Give it back. Collective: all ranks free the same allocations in the same order. NULL is allowed (on all ranks). */
TT_API tt_status tt_group_free_at(tt_group *group, void *ptr, const char *file, int line);

/* Collectives. `buf`, `send`, `recv`: elements of `dtype`, borrowed until the call returns; symmetric and plain buffers may be
 * mixed between ranks. All ranks must pass the same count, dtype, op and root. count may be 0. `file`, `line`: the call site,
 * which errors name; the macros below pass it. With line 0 `file` says in words what the call is part of. All block at most the group's timeout and wait for all ranks.
 * Errors: TT_ERR_INVALID, TT_ERR_MISMATCH, TT_ERR_PEER, TT_ERR_TIMEOUT (names the ranks that did not come);
 * TT_ERR_UNSUPPORTED for TT_AVG of integers. */

/* buf (count) := op over all ranks, on every rank. */
TT_API tt_status tt_all_reduce_at(tt_group *group, void *buf, size_t count, tt_dtype dtype, tt_reduce_op op,
                                  const char *file, int line);

/* buf (count) := rank `root`'s buf. */
TT_API tt_status tt_broadcast_at(tt_group *group, void *buf, size_t count, tt_dtype dtype, int root, const char *file,
                                 int line);

/* buf (count) on `root` := op over all ranks; the others' buffers are left as they were. */
TT_API tt_status tt_reduce_at(tt_group *group, void *buf, size_t count, tt_dtype dtype, tt_reduce_op op, int root,
                              const char *file, int line);

/* recv (world_size, count): recv[r] := rank r's send (count), on every rank. `send` may be recv + rank * count elements
 * (in place); other overlaps are not allowed. PyTorch: all_gather_into_tensor. */
TT_API tt_status tt_all_gather_at(tt_group *group, const void *send, void *recv, size_t count, tt_dtype dtype,
                                  const char *file, int line);

/* Return when all ranks have called it. */
TT_API tt_status tt_barrier_at(tt_group *group, const char *file, int line);

#define tt_group_alloc(group, bytes, out) tt_group_alloc_at(group, bytes, out, __FILE__, __LINE__)
#define tt_group_free(group, ptr) tt_group_free_at(group, ptr, __FILE__, __LINE__)
#define tt_all_reduce(group, buf, count, dtype, op) tt_all_reduce_at(group, buf, count, dtype, op, __FILE__, __LINE__)
#define tt_broadcast(group, buf, count, dtype, root) tt_broadcast_at(group, buf, count, dtype, root, __FILE__, __LINE__)
#define tt_reduce(group, buf, count, dtype, op, root) \
    tt_reduce_at(group, buf, count, dtype, op, root, __FILE__, __LINE__)
#define tt_all_gather(group, send, recv, count, dtype) \
    tt_all_gather_at(group, send, recv, count, dtype, __FILE__, __LINE__)
#define tt_barrier(group) tt_barrier_at(group, __FILE__, __LINE__)

TT_END_DECLS
#endif
