/* tutti/backend.h: how another communication engine carries out a group's calls. For authors of back ends; programs need it not.
 *
 * A back end is a shared object that exports `const tt_backend *tutti_backend(void)`. tt_init_process_group(.backend = "mpi") loads
 * libtutti-backend-mpi.so, from $TT_BACKEND_PATH (a list with ":") or from where libtutti lies; a name with a slash in it is a path. Tutti checks
 * arguments, keeps the order of a group's calls, gives each a deadline and each failure a text; a back end moves bytes.
 *
 * Threads: calls on one engine come one at a time, but not always from the same thread; abort() alone may come at any time. Buffers stay
 * valid until the request is done. */
#ifndef TUTTI_BACKEND_H
#define TUTTI_BACKEND_H

#include <tutti/comm.h>

TT_BEGIN_DECLS

#define TT_BACKEND_ABI 1

/* What a rank can ask for. */
typedef enum tt_op {
    TT_OP_BARRIER,
    TT_OP_ALL_REDUCE,
    TT_OP_REDUCE,
    TT_OP_REDUCE_SCATTER,
    TT_OP_BROADCAST,
    TT_OP_ALL_GATHER,
    TT_OP_ALL_GATHER_V,
    TT_OP_GATHER,
    TT_OP_SCATTER,
    TT_OP_ALL_TO_ALL,
    TT_OP_ALL_TO_ALL_V,
    TT_OP_SEND,
    TT_OP_RECV,
    /* Those below are made of the ones above where a back end is not the native one. */
    TT_OP_ALL_REDUCE_COALESCED,
    TT_OP_BATCH_ISEND_IRECV,
    TT_OP_MONITORED_BARRIER,
    TT_OP_NEW_GROUP,
    TT_OP_SPLIT,
    TT_OP_ALLOC,
    TT_OP_FREE,
    TT_OPS,
    TT_BACKEND_OPS = TT_OP_RECV + 1
} tt_op;

/* "all_reduce"; "?" outside the enum. */
TT_API const char *tt_op_name(tt_op op);

/* One call of this rank, arguments checked. Buffers are as tutti/comm.h says of the op; one that works in place on `buf` has it as send and recv. */
typedef struct tt_call {
    tt_op op;
    tt_dtype dtype;
    tt_reduce_op reduce_op;
    int root; /* root; peer of a send or receive (TT_ANY_SOURCE); 0 where there is none */
    int tag;
    double factor; /* of TT_PREMUL_SUM */
    uint64_t
        count; /* elements: as in comm.h; of uneven ones this rank's own; bytes of an allocation; serial number of what is freed */
    const void *send;
    void *recv;
    const size_t *send_counts,
        *send_offsets; /* (world_size) elements; of all_to_all_v. Never NULL where the op has them */
    const size_t *recv_counts, *recv_offsets; /* (world_size) elements; of all_to_all_v and all_gather_v */
    void *const *bufs;                        /* of all_reduce_coalesced, with recv_counts: (buffers) */
    size_t buffers;
    int64_t timeout_ms; /* > 0 */
    const char *file;
    int line;
} tt_call;

/* What a back end is told when a group begins. */
typedef struct tt_backend_member {
    int rank, world_size;
    tt_store *
        store; /* to meet through, under a prefix of its own; NULL: an engine that finds its ranks itself (.finds_ranks), or a world of one */
    int64_t timeout_ms; /* of joining */
} tt_backend_member;

typedef struct tt_backend {
    uint32_t abi; /* TT_BACKEND_ABI */
    const char *name;

    /* ---- mandatory */

    /* Join. Success: *engine is ended by close(). Errors are recorded by tt_backend_fail(). */
    tt_status (*open)(void **engine, const tt_backend_member *member);
    void (*close)(void *engine);

    /* Begin a call: returns soon, without waiting for peers. begin[op] == NULL: TT_ERR_UNSUPPORTED, "back end gloo has no all_to_all".
     * *request is handed to test() until it says done or fails; then it is gone. */
    tt_status (*begin[TT_BACKEND_OPS])(void *engine, const tt_call *call, void **request);

    /* Advance; *done := whether the request is complete. *source: of a receive, who sent. An error ends the request, and the group. */
    tt_status (*test)(void *engine, void *request, bool *done, int *source);

    /* ---- optional */

    /* The engine takes this element type, with this reduce op where `op` reduces. NULL: whatever comm.h allows. */
    bool (*supports)(tt_op op, tt_dtype dtype, tt_reduce_op reduce_op);

    /* A group of `count` ranks of `engine`, in this order; collective over the engine. Ranks outside get *sub = NULL. NULL: Tutti opens a second
     * engine through the store instead; without a store tt_new_group() is TT_ERR_UNSUPPORTED. */
    tt_status (*new_group)(void **sub, void *engine, const int *ranks, size_t count);

    /* Wait for progress, at most `ms`, instead of being polled. NULL: Tutti yields, then sleeps ever longer, up to 1 ms. */
    void (*wait)(void *engine, void *request, int64_t ms);

    /* Make every call that is under way fail soon. NULL: they are given up where they are. */
    void (*abort)(void *engine);

    bool finds_ranks; /* open() may be called without store, and sets rank and world size by itself: */
    tt_status (*ranks)(int *rank, int *world_size);
} tt_backend;

/* For back ends: record an error of the calling thread, as the library does, and return `status`. Thread-safe. */
TT_API tt_status tt_backend_fail(tt_status status, const char *format, ...) TT_PRINTF(2, 3);

TT_END_DECLS
#endif
