/* tutti/backend.h: how another communication engine carries out a group's calls. For authors of back ends; programs
 * don't need it.
 *
 * A back end is a shared object that exports
 *
 *   const tt_backend *tutti_backend(const tt_backend_host *host)
 *
 * and does not link Tutti: `host` has the functions that it needs. tt_init_process_group(.backend = "mpi") loads
 * libtutti-backend-mpi.so, from $TT_BACKEND_PATH (a list with ":", of paths from the root on) or from where libtutti
 * lies; a name with a slash in it is a path. It is loaded once and stays. The file and each folder above it must belong
 * to root, to this user or to libtutti's owner, and no other user may write to them: else TT_ERR_AUTH, which names the
 * problem. docs/backends.md shows how to write one; examples/backend_plugin is an example.
 *
 * Tutti checks arguments, keeps the order of a group's calls, gives each a deadline and each failure a text, scales for
 * TT_AVG and TT_PREMUL_SUM, sums 16-bit floats in f32, and composes the operations that tt_op marks so; a back end
 * moves and adds.
 *
 * Threads: Tutti makes calls on one engine one at a time, but not always from the same thread, and calls on several
 * engines at once; abort() alone may come at any time. Buffers stay valid until the request is done.
 *
 * Devices: a call says where its buffers lie. A back end lists in `devices` those it takes; Tutti refuses calls on
 * others without asking it. A back end that lists none gets host memory alone. Tutti never touches memory of a device:
 * a call that would need a conversion, scaling or copy by Tutti is TT_ERR_UNSUPPORTED there, unless supports() takes
 * it. The host doesn't wait for calls on a device: see stream_mark() and stream_wait().
 *
 * Structs may grow at their ends without a new TT_BACKEND_ABI: each table has its size, and tt_backend_host has the
 * sizes of the structs that Tutti passes. */
#ifndef TUTTI_BACKEND_H
#define TUTTI_BACKEND_H

#include <tutti/comm.h>

TT_BEGIN_DECLS

#define TT_BACKEND_ABI 2

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
    /* Except for the native back end, Tutti composes the operations below of those above. */
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

/* When a call ran on its device, as the device measured it: from when all that came before it on its stream was done
 * until its result was there. */
typedef struct tt_call_times {
    int64_t begin_ns;    /* CLOCK_MONOTONIC, as well as the back end can tell; 0, as passed: not known */
    int64_t duration_ns; /* >= 0 */
} tt_call_times;

/* One call of this rank, arguments checked. Buffers are as tutti/comm.h says of the op; one that works in place on
 * `buf` has it as send and recv. On the host a reduce_scatter's recv does not overlap its send. */
typedef struct tt_call {
    tt_op op;
    tt_dtype dtype;
    tt_reduce_op reduce_op;
    int root; /* root; peer of a send or receive (TT_ANY_SOURCE); 0 where there is none */
    int tag;  /* of a send or receive: >= 0 the program's; < 0 Tutti's own, which never meet those of the program */
    double factor; /* of TT_PREMUL_SUM */

    /* Elements, as in comm.h; of an uneven call this rank's own. Of an allocation: its bytes. Of a release: the
     * allocation's serial number. */
    int64_t count;
    const void *send;
    void *recv;

    /* (world_size) elements each. all_to_all_v has all four, all_gather_v the last two; these are never NULL. */
    const int64_t *send_counts, *send_offsets;
    const int64_t *recv_counts, *recv_offsets;
    void *const *bufs;    /* of all_reduce_coalesced, with recv_counts: (buffers) */
    const tt_p2p_op *ops; /* of batch_isend_irecv: (buffers) */
    int64_t buffers;
    int64_t timeout_ms; /* > 0 */
    const char *file;
    int line;

    /* Where send and recv lie; lists always lie on the host. For the cpu the next three fields are 0 and NULL. */
    tt_device_type device;
    int device_index; /* >= 0 */
    void *stream;     /* as the program gave it; NULL: the device's default one */
    void *mark;       /* what stream_mark() gave for this call */

    /* Of a call on a device that the flight recorder holds: where the back end may write when it ran, before test()
     * says that it is done. If measuring fails, the call goes on. NULL: nobody asks. */
    tt_call_times *times;
} tt_call;

/* What Tutti offers. Functions are those of the same name in tutti/base.h and tutti/store.h; thread-safe. */
typedef struct tt_backend_host {
    uint32_t abi;                        /* TT_BACKEND_ABI */
    size_t size, call_size, member_size; /* of this struct, tt_call and tt_backend_member in this library */

    /* Record an error of the calling thread, as the library does, and return `status`: what was expected, what came,
     * what to do. */
    tt_status (*fail)(tt_status status, const char *format, ...) TT_PRINTF(2, 3);
    void (*log)(tt_log_level level, const char *format, ...) TT_PRINTF(2, 3);
    const char *(*last_error)(void);

    size_t (*dtype_size)(tt_dtype dtype);
    const char *(*dtype_name)(tt_dtype dtype);
    const char *(*reduce_op_name)(tt_reduce_op op);
    const char *(*op_name)(tt_op op);

    tt_status (*store_set)(tt_store *store, const char *key, const void *value, size_t size);
    tt_status (*store_get)(tt_store *store, const char *key, tt_store_value *value);
    tt_status (*store_add)(tt_store *store, const char *key, int64_t delta, int64_t *result);
    tt_status (*store_check)(tt_store *store, const char *const *keys, int64_t n, bool *all);
    tt_status (*store_wait)(tt_store *store, const char *const *keys, int64_t n, int64_t timeout_ms);
    void (*store_value_free)(tt_store_value *value);
} tt_backend_host;

/* The arguments of open(). */
typedef struct tt_backend_member {
    int rank, world_size;

    /* A store to meet through, under a prefix of the group's own, until open() returns. NULL: the engine itself finds
     * its ranks (.finds_ranks), or the world has one rank. */
    tt_store *store;
    int64_t timeout_ms; /* of joining */

    /* The device that the process uses, by the program's option; of a subgroup, the device of its group. cpu: not
     * given; calls name their device then. */
    tt_device_type device;
    int device_index;

    /* Has another rank failed or ended? Then TT_ERR_PEER, recorded, which names it. To be called regularly, with
     * `watcher`, while open(), or new_group() on this engine, waits for the others. NULL: not available. */
    tt_status (*watch)(void *watcher);
    void *watcher;
} tt_backend_member;

#define TT_DEVICE_BIT(type) (1U << (type))

typedef struct tt_backend {
    uint32_t abi;     /* TT_BACKEND_ABI */
    size_t size;      /* sizeof(tt_backend) */
    const char *name; /* what tt_get_backend() says */

    /* ---- mandatory */

    /* Join; may wait for the other ranks. Success: *engine is ended by close(). Errors are recorded by host->fail(). */
    tt_status (*open)(void **engine, const tt_backend_member *member);

    /* Leave, and release the engine. Never waits for peers; requests that are under way are given up. */
    void (*close)(void *engine);

    /* Begin a call: returns soon, without waiting for peers. begin[op] == NULL: TT_ERR_UNSUPPORTED, "back end gloo has
     * no all_to_all"; a barrier and an all-reduce are mandatory. *request is handed to test() until it says done or
     * fails; then it is gone. `call` and its arrays are gone when begin() returns, buffers stay until the request is.
     * Only uneven calls and messages may have counts of 0. Collectives are begun in the same order on all ranks, and
     * one after the other if `serial`; sends and receives at any time. A barrier may name the cpu whatever `devices`
     * says: it makes the host wait. */
    tt_status (*begin[TT_BACKEND_OPS])(void *engine, const tt_call *call, void **request);

    /* Advance; *done := whether the request is complete, on a device: whether the result is there. *source: of a
     * receive, who sent. An error ends the request, and the group. */
    tt_status (*test)(void *engine, void *request, bool *done, int *source);

    /* ---- optional */

    /* Whether the engine itself takes this element type, with this reduce op where `op` reduces, in memory of this kind
     * (one of `devices`). NULL: f32, f64, i8, u8, i16, i32 and i64; of the reduce ops SUM, PRODUCT, MIN, MAX, and BAND,
     * BOR, BXOR of integers; data that are only moved may have any type. On the host Tutti converts all others to
     * these, if the engine has them (bools to u8, 0 or 1); else they are TT_ERR_UNSUPPORTED. */
    bool (*supports)(tt_op op, tt_dtype dtype, tt_reduce_op reduce_op, tt_device_type device);

    /* A group of `count` ranks of `engine`, in this order. Collective over the engine: all ranks call it at the same
     * time (Tutti sees to that), so it may wait for them. All ranks of one new group pass the same list, and lists of
     * different groups share no rank; a rank that is in none passes an empty list and gets *sub = NULL. NULL: Tutti
     * opens a second engine through the store instead; without a store tt_new_group() is TT_ERR_UNSUPPORTED. */
    tt_status (*new_group)(void **sub, void *engine, const int *ranks, int64_t count, int64_t timeout_ms);

    /* Wait for progress, at most `ms`, instead of being polled. NULL: Tutti yields, then sleeps ever longer, up to 1
     * ms. */
    void (*wait)(void *engine, void *request, int64_t ms);

    /* Make every call under way fail soon, which test() reports. NULL: Tutti gives the calls up, and after close() the
     * engine may not touch their buffers. */
    void (*abort)(void *engine);

    /* Advance transfers that have no request any more, such as a message already sent. Called repeatedly while this
     * rank waits for others to come to a call. NULL: not needed. */
    void (*progress)(void *engine);

    /* The kinds of memory that calls may name: TT_DEVICE_BIT(TT_DEVICE_CPU) | ... 0: cpu alone. An engine without cpu
     * can't carry Tutti's own messages. Ranks then agree by the control group, the counts of an all_to_all_v are not
     * compared, and without a control group there are no subgroups. */
    unsigned devices;

    /* For calls on a device; mandatory if `devices` has any. Neither may wait, for peers or for the device.
     * stream_mark: remember what call->stream holds, now that the call is made (record an event). begin() follows when
     * all ranks have come to the call, with *mark as call->mark, and lets the engine's work wait for the mark
     * (cudaStreamWaitEvent). begin() takes the mark over, also when it fails; one that is never begun is close()'s to
     * release.
     * stream_wait: make all work put on `stream` from now on run after the request's result; *enqueued := false: not
     * possible yet, Tutti calls again. It may be called more than once, or never. */
    tt_status (*stream_mark)(void *engine, const tt_call *call, void **mark);
    tt_status (*stream_wait)(void *engine, void *request, void *stream, bool *enqueued);

    bool serial;      /* at most one collective at a time, begun when the one before is done */
    bool finds_ranks; /* open() may be called without store; then ranks() is mandatory: it says who this process is */
    tt_status (*ranks)(int *rank, int *world_size);

    /* Called at once on an engine that new_group() made: gives it the `watch` and `watcher` of tt_backend_member, to be
     * used while new_group() on it waits. Not called if there is none. NULL: not wanted. */
    void (*set_watch)(void *engine, tt_status (*watch)(void *watcher), void *watcher);

    /* Memory of the group's device that its collectives move faster than other memory (NCCL's windows). Both or
     * neither.
     * window_make: collective as new_group() is, with the same size on all ranks. *memory := `bytes`, whose contents
     * are not set, until window_free(); NULL: there is none, on any rank. agree(user, mine, &least) gives the least of
     * all ranks' `mine`, so that the engine learns whether all could; all ranks call it the same number of times. An
     * error, also of agree(), ends the group. Not called if ranks have no means to agree.
     * window_free: by this rank alone, when nothing uses the memory any more. false: `memory` is no window. It may come
     * after abort(). */
    tt_status (*window_make)(void *engine, size_t bytes, int64_t timeout_ms,
                             tt_status (*agree)(void *user, int mine, int *least), void *user, void **memory);
    bool (*window_free)(void *engine, void *memory);
} tt_backend;

/* The one symbol that a back end exports. Returns NULL if it can't work here; host->fail() recorded why. */
typedef const tt_backend *tt_backend_entry(const tt_backend_host *host);
TT_EXTERN TT_API tt_backend_entry tutti_backend;

TT_END_DECLS
#endif
