/* tutti/comm.h: process groups and collectives on raw buffers: a pointer, a count, an element type. Knows no tensors.
 *
 * A group is a set of processes, each with a rank in 0..world_size-1. Every rank must make the same sequence of
 * collective calls on it; that is checked on every call, and a rank that differs is named (TT_ERR_MISMATCH) instead of
 * hanging the others. A rank that dies, freezes, leaves or aborts ends every wait on all the others (TT_ERR_PEER names
 * it). After any error of a call the group is unusable, buffers are undefined, and tt_destroy_process_group() is the
 * only call that still succeeds. Three kinds of errors leave the group as it was: arguments that are refused before
 * anything is sent (TT_ERR_INVALID, TT_ERR_UNSUPPORTED), an allocation that fails on all ranks (TT_ERR_MEMORY), and a
 * monitored barrier's timeout on its root.
 *
 * Results of reductions depend on ranks, count and dtype alone, and are bitwise the same on every rank, over every
 * transport. With p the largest power of two not above N, the first 2(N-p) ranks fold in adjacent pairs, then a
 * balanced tree by distance doubling. f16 and bf16 are summed in f32 and rounded once.
 *
 * Threads. A group's calls have an order, so they must not overlap: one thread at a time makes them, any thread.
 * Different threads may use different groups. A call made while another thread waits in a synchronous call on the group
 * is refused (TT_ERR_STATE) if it would disturb that call. In the first moment of the synchronous call this may go
 * unnoticed; then ranks differ, or data are wrong. The rule does not hold for works: any thread may wait for a work,
 * test it, add a callback or free it, also several threads at once, and while another makes calls on the group.
 * tt_group_abort() may come from any thread at any time; tt_destroy_process_group() when no other thread is within a
 * call on the group or on one of its works.
 *
 * Ranks that call groups in different orders may wait for each other for ever. Their calls fail then (TT_ERR_MISMATCH
 * names which rank waits for which, in which calls), unless another thread might still make the missing call. That is
 * assumed if another thread than the waiting one made the last call on that group; if no call was made on it yet and
 * the process has other threads, OpenMP's included; and if a thread waits for a work of a group that another thread
 * uses. Then the calls' timeouts end the wait.
 *
 * A forked child is no rank: calls on groups that it inherited, and waits for works of theirs, fail (TT_ERR_STATE),
 * tt_group_abort() does nothing, and tt_destroy_process_group() and tt_work_free() end the child's copy alone. It may
 * make groups of its own. */
#ifndef TUTTI_COMM_H
#define TUTTI_COMM_H

#include <tutti/base.h>
#include <tutti/store.h>

TT_BEGIN_DECLS

typedef struct tt_group tt_group;

/* An asynchronous call. See tt_work_wait(). */
typedef struct tt_work tt_work;

typedef enum tt_reduce_op {
    TT_SUM,       /* integers wrap; of bools: or, as PyTorch's NCCL back end */
    TT_AVG,       /* each rank's element times (float)(1/N), then summed, as PyTorch's DDP averages; of integers: their
                     sum, which wraps, divided by N towards zero, as PyTorch's NCCL back end; none of bools */
    TT_PRODUCT,   /* in the same order as a sum; integers wrap; of bools: and */
    TT_MIN,       /* NaN wins; of bools: and */
    TT_MAX,       /* NaN wins; of bools: or */
    TT_BAND,      /* bitwise, integers and bools */
    TT_BOR,       /* bitwise, integers and bools */
    TT_BXOR,      /* bitwise, integers and bools */
    TT_PREMUL_SUM /* floats only: each rank's element times its own .factor, then summed. PyTorch:
                     _make_nccl_premul_sum */
} tt_reduce_op;

/* "sum", "avg", ...; "?" outside the enum. */
TT_API const char *tt_reduce_op_name(tt_reduce_op op);

/* ---- groups */

typedef struct tt_init_process_group_args {
    tt_group **out; /* required: receives the group */
    TT_OPTIONS;

    /* NULL or "native"; "mpi", "gloo", "nccl"; or the path of a plug-in, with a slash in it: tutti/backend.h. */
    const char *backend;

    /* How the ranks meet: NULL = TT_INIT_METHOD, or "env://"; "tcp://host:port", or "file:///path" (a file that all
     * ranks see), with .rank and .world_size or "?rank=R&world_size=N". With tcp:// rank 0 serves the store at that
     * address, unless TORCHELASTIC_USE_AGENT_STORE is "True" (then the launcher serves it, torchrun too, in either
     * dialect). env:// reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as `tutti run` and torchrun set them; where
     * RANK and WORLD_SIZE are not both set, what srun or the mpirun of Open MPI, MPICH or Intel MPI sets. These need no
     * MASTER_ADDR, except for an mpirun on several hosts outside of Slurm: docs/launch.md.
     * "etcd://host:port/job", or etcds:// for TLS, is a store in etcd (tt_etcd_store()) below a name of the job's own;
     * ranks that neither the program nor the address numbers are numbered as by env://. */
    const char *init_method;
    tt_store *store;    /* meet through this store instead; borrowed for the life of the group */
    int rank;           /* used if world_size is not 0; they override the environment's */
    int world_size;     /* 0 = from init_method */
    int64_t timeout_ms; /* of the rendezvous and of every later call; 0 or less = TT_DEFAULT_TIMEOUT_MS */
    /* A frozen rank or a cut link is named within this time; 0 = 5000. A rank that froze before it joined is named
     * within it only if `tutti run` started it; else at the end of timeout_ms, with the other missing ranks. A rank
     * that is stopped for less than half of this time, however often, is not taken for frozen. */
    int64_t heartbeat_ms;

    /* Native: NULL or "auto" (shared memory inside a host, TCP between hosts), "shm" (ranks on several hosts are an
     * error), "tcp" (also inside a host). NULL looks at TT_TRANSPORT first. */
    const char *transport;

    /* Native: which algorithm serves which call, "all_reduce=ring,broadcast=binomial"; NULL = what rank 0's table says
     * (docs/collectives.md). NULL looks at TT_ALGORITHMS first. Rank 0's choice holds for all. */
    const char *algorithms;

    /* The device that this process uses, for back ends that need to know it when they join. nccl needs it. The native
     * one can do without: if all ranks give it, tt_tensor_all_reduce() adds up tensors of several CUDA devices where
     * they lie (docs/gpu.md). gloo and mpi take none. PyTorch: device_id. */
    tt_device_type device;
    int device_index;

    /* env://: if no launcher has set any variable, make a world of one instead of failing with TT_ERR_INVALID. */
    bool or_alone;
    char tt_end; /* not an option: see base.h */
} tt_init_process_group_args;

/* Join the group of all ranks. Blocks until all came. PyTorch: torch.distributed.init_process_group.
 *   tt_init_process_group(&world, .timeout_ms = 60000)
 * Ranks share memory if they run on one host: same boot and same network name space, or the same TT_HOST_ID. Ranks of
 * different hosts are joined by TCP: all addresses of a host are tried, those of a common subnet first, and the first
 * that answers is taken (logged at TT_LOG_INFO). TT_SOCKET_IFNAME restricts the interfaces, as a list with commas:
 * "eth" those whose names begin so, "=eth0" that one, "^docker" all except those whose names begin so, "^=eth1" all
 * except that one. Set it alike on all hosts. If a job secret is set (TT_SECRET, TT_SECRET_FILE; `tutti run` makes one)
 * every connection proves it both ways.
 * Success: *out is the caller's, end it with tt_destroy_process_group(). Failure: *out is NULL.
 * Errors: TT_ERR_INVALID one missing or malformed variable or option, by name; TT_ERR_TIMEOUT names the missing ranks;
 * TT_ERR_NET no process serves the store, the port is in use, or two hosts can't reach each other; TT_ERR_UNSUPPORTED
 * unknown back end, ranks that can't share memory although .transport asks for it, or more than 64 ranks on one host or
 * 1024 in all; TT_ERR_MISMATCH ranks passed different world sizes; TT_ERR_AUTH a rank has another job secret, or none
 * (reported at once if srun or mpirun started ranks on several hosts); without a secret, a rank claims another host
 * although LOCAL_WORLD_SIZE and WORLD_SIZE tell of one; or other users may write to the file of a back end. */
TT_API TT_NODISCARD tt_status tt_init_process_group_with(const tt_init_process_group_args *args, size_t size);
#ifndef __cplusplus
#define tt_init_process_group(...) tt_init_process_group_with(TT_ARGS(tt_init_process_group_args, .out = __VA_ARGS__))
#endif

/* Leave the group and release it, with the memory of tt_group_alloc(). Not collective. It waits only for calls on
 * devices that have returned TT_OK and whose results a stream still waits for; a failure of these is logged
 * (TT_LOG_WARNING). Peers that still call learn "rank R left the group after call N", and this thread's last error, if
 * there is one. Reducers and DDP wrappers made on it may be freed before or after; their memory stays until then, but
 * every other call on them or on the group fails (TT_ERR_STATE). Groups made from it by tt_new_group() live on; the
 * process leaves the job when its last group is destroyed. Works that are not done end with TT_ERR_STATE; callbacks of
 * its works have run when this returns. From within a callback it does nothing but log a warning. NULL is allowed. */
TT_API void tt_destroy_process_group(tt_group *group);

/* End the group now: every call that waits on it, here and on its other ranks, returns TT_ERR_ABORTED ("rank R aborted
 * the group: reason"). From any thread, at any time before tt_destroy_process_group() is called. `reason` may be NULL.
 * PyTorch: ProcessGroup.abort. */
TT_API void tt_group_abort(tt_group *group, const char *reason);

/* This process's number among those that its launcher started on this host, to choose a device; also before joining.
 * `fallback` if no launcher tells it, or the variable makes no sense. Reads the environment (LOCAL_RANK, or what srun
 * and mpirun set) at each call; from any thread while no other changes it. PyTorch:
 * get_node_local_rank(fallback_rank). */
TT_API int tt_get_node_local_rank(int fallback);

/* This process's rank, and the number of ranks; -1 for NULL. PyTorch: get_rank, get_world_size. */
TT_API int tt_get_rank(const tt_group *group);
TT_API int tt_get_world_size(const tt_group *group);

/* The rank in the job (that of the first group, which tt_init_process_group() made) of rank `group_rank` of `group`,
 * and back; -1 if there is none. PyTorch: get_global_rank, get_group_rank. */
TT_API int tt_get_global_rank(const tt_group *group, int group_rank);
TT_API int tt_get_group_rank(const tt_group *group, int global_rank);

/* "native", "mpi", ...: which back end runs the group's calls; "?" for NULL. The text lives as long as the group. */
TT_API const char *tt_get_backend(const tt_group *group);

/* The group's timeout of a call, in ms; -1 for NULL. Set it alike on all ranks; 0 or less = TT_DEFAULT_TIMEOUT_MS. It
 * holds for calls that begin later. */
TT_API int64_t tt_group_timeout_ms(const tt_group *group);
TT_API void tt_group_set_timeout_ms(tt_group *group, int64_t timeout_ms);

/* Options of every call below, after its required arguments:
 *   tt_all_reduce(group, buf, n, TT_F32, TT_SUM, .work = &work, .timeout_ms = 500)
 * file, line: the call site, which errors name; the macros fill it in. With line 0, `file` says in words what the call
 * is part of. */
#define TT_CALL_OPTIONS                                                                                         \
    tt_work **work;     /* not NULL: asynchronous. Receives the work; buffers stay borrowed until it is done */ \
    int64_t timeout_ms; /* of this call, from its beginning; 0 or less = the group's */                         \
    const char *file;                                                                                           \
    int line;                                                                                                   \
    char tt_end /* not an option: see base.h */

/* Further options of calls on buffers: where all of a call's buffers lie. By default in the host's memory.
 *   tt_all_reduce(group, buf, n, TT_F32, TT_SUM, .device = TT_DEVICE_CUDA, .device_index = 1, .stream = stream)
 *
 * Each back end takes certain devices; the native one, gloo and mpi take the cpu alone. A device that it lacks is
 * TT_ERR_UNSUPPORTED before anything is sent. On a device the stream waits, not the host: the call reads and writes its
 * buffers after all work that the stream held when the call was made. Without .work the call returns when all ranks
 * have come to it, and work put on the stream from then on runs after its result; the group's next call returns a later
 * failure. (A thread watches such calls: if one fails or times out, the stream goes on, and what it computes from the
 * result is worthless.) With .work the stream goes on beside the call, until tt_work_wait() makes it wait for the
 * result. Buffers stay borrowed until the result is there, so free or reuse them only by work behind it on the stream.
 * PyTorch: a collective of its NCCL back end, and Work.wait(). */
#define TT_DEVICE_OPTIONS                                               \
    tt_device_type device;                                              \
    int device_index; /* which of these devices; ignored for the cpu */ \
    void *stream      /* a queue of the device (cudaStream_t); NULL: its default one. NULL for the cpu */

typedef struct tt_new_group_args {
    tt_group **out;
    tt_group *group; /* whose ranks these are */
    const int *ranks;
    int64_t count; /* at least 1 */
    TT_OPTIONS;
    TT_CALL_OPTIONS; /* .work must be NULL. timeout_ms also becomes the new group's; 0 = as `group`'s */
} tt_new_group_args;

/* Make a group of `count` different ranks of `group`, which are numbered in the order given. Collective over `group`:
 * all its ranks call it with the same list, also those that are not in it; they get *out = NULL. PyTorch:
 * torch.distributed.new_group.
 * Success: *out is the caller's. Errors: those of a collective; TT_ERR_INVALID ranks that are out of range or appear
 * twice. */
TT_API TT_NODISCARD tt_status tt_new_group_with(const tt_new_group_args *args, size_t size);

typedef struct tt_group_split_args {
    tt_group **out;
    tt_group *group;
    int color; /* ranks of the same color make a group; < 0: none */
    int key;   /* ranks are numbered by key, then by their rank in `group` */
    TT_OPTIONS;
    TT_CALL_OPTIONS; /* as for tt_new_group */
} tt_group_split_args;

/* Divide `group`: one new group for each color. Collective. *out: this rank's group, the caller's; NULL if color < 0.
 * As MPI_Comm_split. */
TT_API TT_NODISCARD tt_status tt_group_split_with(const tt_group_split_args *args, size_t size);

typedef struct tt_group_alloc_args {
    void **out;
    tt_group *group;
    size_t bytes;
    TT_OPTIONS;
    TT_CALL_OPTIONS; /* .work must be NULL */
} tt_group_alloc_args;

/* Symmetric memory: `bytes` in every rank's shared heap, zeroed, 64-byte aligned. Collectives on it, of any group these
 * ranks have in common, need no copy inside a host; on any other ("plain") memory they stage. Collective: all ranks
 * must pass the same size. Also usable as ordinary memory. In a group without shared memory (TCP only, back ends other
 * than native) it is ordinary memory.
 * Success: *out lives until tt_group_free() or the end of the group. bytes == 0 gives a valid unique pointer. The
 * memory is whole pages. The heap may grow to the machine's memory, to the limits of `ulimit -v` and `-f`, or to
 * TT_SYMMETRIC_HEAP (bytes, or with K, M, G, T).
 * Errors: TT_ERR_MEMORY (on all ranks if on one), and those of a collective. */
TT_API TT_NODISCARD tt_status tt_group_alloc_with(const tt_group_alloc_args *args, size_t size);

typedef struct tt_group_free_args {
    tt_group *group;
    void *ptr;
    TT_OPTIONS;
    TT_CALL_OPTIONS; /* .work must be NULL */
} tt_group_free_args;

/* Free symmetric memory. Collective: all ranks free the same allocations in the same order. NULL is allowed (on all
 * ranks). */
TT_API TT_NODISCARD tt_status tt_group_free_with(const tt_group_free_args *args, size_t size);

/* ---- works
 *
 * Asynchronous calls of a group are carried out in the order in which they were made, like synchronous ones; a
 * synchronous call first completes those before it. Sends and receives alone overtake each other. Inside a host a work
 * advances in whatever call of Tutti comes next, on the same or another group; between hosts a thread advances it. A
 * work completes exactly once: done, failed, or timed out. The functions below may be called from any thread; a work
 * that was freed must not be used. */

/* Wait until the work is done, at most until the call's deadline; returns its status. May be called again: a work that
 * is done stays so. For a call on a device's memory it returns when the call's stream is set to wait for the result;
 * the work is done when the result is there. PyTorch: Work.wait. */
TT_API TT_NODISCARD tt_status tt_work_wait(tt_work *work);

/* Wait at most `timeout_ms`, for a program that also does other things meanwhile. *done: whether the work is done; if
 * not, returns TT_OK, and the call goes on until its own deadline. PyTorch: Work.wait(timeout). */
TT_API TT_NODISCARD tt_status tt_work_wait_for(tt_work *work, int64_t timeout_ms, bool *done);

/* Wait for all works; returns the first failure. NULLs among them are skipped. */
TT_API TT_NODISCARD tt_status tt_work_wait_all(tt_work *const *works, int64_t count);

/* Advance works without waiting; returns whether this one is done, for a call on a device: whether its result is there.
 * PyTorch: Work.is_completed. */
TT_API bool tt_work_is_completed(tt_work *work);

/* After a receive is done: the rank (in the group) that sent; -1 for other calls and before. PyTorch:
 * Work.source_rank. */
TT_API int tt_work_source_rank(const tt_work *work);

/* `status`: the work's; of a failure tt_last_error() has the text, until the callback returns. `source`: as
 * tt_work_source_rank(). */
typedef void (*tt_work_fn)(tt_status status, int source, void *user);

/* Have `fn` called when the work is done, failed, aborted, or its group is destroyed: exactly once, even if the work is
 * freed before. Callbacks that were added before the work was done come in the order in which they were added; a
 * callback that is added later is called before this returns (from within a callback: after that one has returned),
 * perhaps before or beside earlier ones that another thread is about to call. PyTorch: Future.add_done_callback.
 * The thread that advances the work calls it, with no lock held: any thread within a call of Tutti; between hosts also
 * the thread that serves the connections; for a call on a device the thread that watches it. Several callbacks may run
 * at once in different threads. tt_work_wait() may return before the callback was called, tt_destroy_process_group()
 * doesn't. A callback must not wait: synchronous calls, waits for works that are not done, and making groups are
 * refused in it (TT_ERR_STATE). It may make calls with .work, by the rule on threads; on its work's group only while no
 * thread of the program is within a call on that group, except tt_work_wait(). It should be short: until it returns,
 * its thread advances nothing. A forked child inherits no callbacks; a child that a callback forks must end by _exit()
 * or exec, not return from it.
 * Errors: TT_ERR_INVALID no work or no function; TT_ERR_MEMORY; TT_ERR_STATE in a forked child. After an error it is
 * never called. */
TT_API TT_NODISCARD tt_status tt_work_add_done_callback(tt_work *work, tt_work_fn fn, void *user);

/* Free the work. If it is not done the call goes on, so its buffers must stay, and its callbacks are still called.
 * Freeing after the group was destroyed is allowed. NULL is allowed. */
TT_API void tt_work_free(tt_work *work);

/* ---- collectives
 *
 * `buf`, `send`, `recv`: elements of `dtype`, borrowed until the call returns, or its work is done; symmetric and plain
 * buffers may be mixed between ranks. All ranks must pass the same count, dtype, op and root. count may be 0. `send`
 * and `recv` don't overlap, except as documented. A call blocks at most for the timeout, and waits only for the ranks
 * that it needs: it may return on one rank before others have come to it.
 * Errors: TT_ERR_INVALID, TT_ERR_MISMATCH, TT_ERR_PEER, TT_ERR_ABORTED, TT_ERR_TIMEOUT (names the ranks that did not
 * come); TT_ERR_UNSUPPORTED for a reduce op that the element type does not have, or for anything that another back end
 * lacks. */

/* buf (count) := op over all ranks, on every rank. */
typedef struct tt_all_reduce_args {
    tt_group *group;
    void *buf;
    int64_t count;
    tt_dtype dtype;
    tt_reduce_op op;
    TT_OPTIONS;
    double factor; /* this rank's, of TT_PREMUL_SUM */
    TT_DEVICE_OPTIONS;
    TT_CALL_OPTIONS;
} tt_all_reduce_args;
TT_API TT_NODISCARD tt_status tt_all_reduce_with(const tt_all_reduce_args *args, size_t size);

/* The same for `buffers` arrays of one type in one call: bufs[i] (counts[i]). One agreement, one work. PyTorch:
 * all_reduce_coalesced. The two arrays are copied. */
typedef struct tt_all_reduce_coalesced_args {
    tt_group *group;
    void *const *bufs;
    const int64_t *counts;
    int64_t buffers;
    tt_dtype dtype;
    tt_reduce_op op;
    TT_OPTIONS;
    double factor;
    TT_DEVICE_OPTIONS;
    TT_CALL_OPTIONS;
} tt_all_reduce_coalesced_args;
TT_API TT_NODISCARD tt_status tt_all_reduce_coalesced_with(const tt_all_reduce_coalesced_args *args, size_t size);

/* buf (count) on `root` := op over all ranks; the others' buffers are left as they were. */
typedef struct tt_reduce_args {
    tt_group *group;
    void *buf;
    int64_t count;
    tt_dtype dtype;
    tt_reduce_op op;
    int root;
    TT_OPTIONS;
    double factor;
    TT_DEVICE_OPTIONS;
    TT_CALL_OPTIONS;
} tt_reduce_args;
TT_API TT_NODISCARD tt_status tt_reduce_with(const tt_reduce_args *args, size_t size);

/* recv (count) on rank r := op over part r of all ranks' send (world_size, count). `recv` may be send + rank * count
 * elements (in place). PyTorch: reduce_scatter_tensor. Apart from that part `send` is left as it was. */
typedef struct tt_reduce_scatter_args {
    tt_group *group;
    const void *send;
    void *recv;
    int64_t count; /* of one rank's part */
    tt_dtype dtype;
    tt_reduce_op op;
    TT_OPTIONS;
    double factor;
    TT_DEVICE_OPTIONS;
    TT_CALL_OPTIONS;
} tt_reduce_scatter_args;
TT_API TT_NODISCARD tt_status tt_reduce_scatter_with(const tt_reduce_scatter_args *args, size_t size);

/* buf (count) := rank `root`'s buf. */
typedef struct tt_broadcast_args {
    tt_group *group;
    void *buf;
    int64_t count;
    tt_dtype dtype;
    int root;
    TT_OPTIONS;
    TT_DEVICE_OPTIONS;
    TT_CALL_OPTIONS;
} tt_broadcast_args;
TT_API TT_NODISCARD tt_status tt_broadcast_with(const tt_broadcast_args *args, size_t size);

/* recv (world_size, count): recv[r] := rank r's send (count), on every rank. `send` may be recv + rank * count elements
 * (in place). PyTorch: all_gather_into_tensor. */
typedef struct tt_all_gather_args {
    tt_group *group;
    const void *send;
    void *recv;
    int64_t count;
    tt_dtype dtype;
    TT_OPTIONS;
    TT_DEVICE_OPTIONS;
    TT_CALL_OPTIONS;
} tt_all_gather_args;
TT_API TT_NODISCARD tt_status tt_all_gather_with(const tt_all_gather_args *args, size_t size);

/* Uneven sizes: rank r's send has counts[r] elements, which go to recv + offsets[r] elements on every rank. counts:
 * (world_size), the same on all ranks. offsets: NULL = one after the other. Both arrays are copied. In place: send ==
 * recv + offsets[rank]. PyTorch: all_gather of tensors of different sizes. */
typedef struct tt_all_gather_v_args {
    tt_group *group;
    const void *send;
    void *recv;
    const int64_t *counts, *offsets;
    tt_dtype dtype;
    TT_OPTIONS;
    TT_DEVICE_OPTIONS;
    TT_CALL_OPTIONS;
} tt_all_gather_v_args;
TT_API TT_NODISCARD tt_status tt_all_gather_v_with(const tt_all_gather_v_args *args, size_t size);

/* On `root`: recv (world_size, count), recv[r] := rank r's send (count). Elsewhere recv is not used and may be NULL. In
 * place on the root: send == recv + root * count elements. */
typedef struct tt_gather_args {
    tt_group *group;
    const void *send;
    void *recv;
    int64_t count;
    tt_dtype dtype;
    int root;
    TT_OPTIONS;
    TT_DEVICE_OPTIONS;
    TT_CALL_OPTIONS;
} tt_gather_args;
TT_API TT_NODISCARD tt_status tt_gather_with(const tt_gather_args *args, size_t size);

/* recv (count) := part r of the root's send (world_size, count). Elsewhere send is not used and may be NULL. In place
 * on the root: recv == send + root * count elements. */
typedef struct tt_scatter_args {
    tt_group *group;
    const void *send;
    void *recv;
    int64_t count;
    tt_dtype dtype;
    int root;
    TT_OPTIONS;
    TT_DEVICE_OPTIONS;
    TT_CALL_OPTIONS;
} tt_scatter_args;
TT_API TT_NODISCARD tt_status tt_scatter_with(const tt_scatter_args *args, size_t size);

/* recv (world_size, count): recv[r] := part `rank` of rank r's send (world_size, count). PyTorch: all_to_all_single. */
typedef struct tt_all_to_all_args {
    tt_group *group;
    const void *send;
    void *recv;
    int64_t count; /* of one part */
    tt_dtype dtype;
    TT_OPTIONS;
    TT_DEVICE_OPTIONS;
    TT_CALL_OPTIONS;
} tt_all_to_all_args;
TT_API TT_NODISCARD tt_status tt_all_to_all_with(const tt_all_to_all_args *args, size_t size);

/* Uneven sizes: send_counts[r] elements from send + send_offsets[r] go to rank r; recv_counts[r] from rank r arrive at
 * recv + recv_offsets[r]. Rank a's send_counts[b] must be rank b's recv_counts[a] (TT_ERR_MISMATCH names the pair).
 * Offsets NULL: one after the other. The four arrays (world_size) are copied. PyTorch: all_to_all_single with split
 * sizes. */
typedef struct tt_all_to_all_v_args {
    tt_group *group;
    const void *send;
    const int64_t *send_counts, *send_offsets;
    void *recv;
    const int64_t *recv_counts, *recv_offsets;
    tt_dtype dtype;
    TT_OPTIONS;
    TT_DEVICE_OPTIONS;
    TT_CALL_OPTIONS;
} tt_all_to_all_v_args;
TT_API TT_NODISCARD tt_status tt_all_to_all_v_with(const tt_all_to_all_v_args *args, size_t size);

/* Return when all ranks have called this. */
typedef struct tt_barrier_args {
    tt_group *group;
    TT_OPTIONS;
    TT_DEVICE_OPTIONS;
    TT_CALL_OPTIONS;
} tt_barrier_args;
TT_API TT_NODISCARD tt_status tt_barrier_with(const tt_barrier_args *args, size_t size);

/* A barrier that names all ranks that did not come within the timeout: rank 0 finds them (TT_ERR_TIMEOUT there), and
 * tells the others. PyTorch: monitored_barrier with wait_all_ranks. .work must be NULL. */
TT_API TT_NODISCARD tt_status tt_monitored_barrier_with(const tt_barrier_args *args, size_t size);

/* ---- point to point
 *
 * Messages between two ranks with the same tag arrive in the order in which they were sent; a receive takes the first
 * that fits its source and tag. A message of another size or type than the receive asks for is TT_ERR_MISMATCH on the
 * receiver. A send is done when its buffer may be used again, whether or not it was received. Messages may overtake
 * collectives of the same group. A rank may send to itself (asynchronously). */

#define TT_ANY_SOURCE (-1)

/* Send buf (count) to rank `peer`. */
typedef struct tt_send_args {
    tt_group *group;
    const void *buf;
    int64_t count;
    tt_dtype dtype;
    int peer;
    TT_OPTIONS;
    int tag; /* >= 0 */
    TT_DEVICE_OPTIONS;
    TT_CALL_OPTIONS;
} tt_send_args;
TT_API TT_NODISCARD tt_status tt_send_with(const tt_send_args *args, size_t size);

/* Receive buf (count) from rank `peer` or from TT_ANY_SOURCE. */
typedef struct tt_recv_args {
    tt_group *group;
    void *buf;
    int64_t count;
    tt_dtype dtype;
    int peer;
    TT_OPTIONS;
    int tag;     /* >= 0 */
    int *source; /* without .work: receives the sender's rank */
    TT_DEVICE_OPTIONS;
    TT_CALL_OPTIONS;
} tt_recv_args;
TT_API TT_NODISCARD tt_status tt_recv_with(const tt_recv_args *args, size_t size);

/* One of a batch. In C tt_send_op() and tt_recv_op() make them. */
typedef struct tt_p2p_op {
    bool is_recv;     /* receive into `recv`; else send `send` */
    const void *send; /* (count) */
    void *recv;       /* (count) */
    int64_t count;
    tt_dtype dtype;
    int peer; /* of a receive also TT_ANY_SOURCE */
    int tag;
} tt_p2p_op;

/* Begin all operations before waiting for any. Without .work wait for all; with it one work stands for all. `ops` is
 * copied. PyTorch: batch_isend_irecv.
 *   tt_p2p_op ops[] = {tt_send_op(x, n, TT_F32, right), tt_recv_op(y, n, TT_F32, left)};
 *   tt_batch_isend_irecv(group, ops, 2) */
typedef struct tt_batch_isend_irecv_args {
    tt_group *group;
    const tt_p2p_op *ops;
    int64_t count;
    TT_OPTIONS;
    TT_DEVICE_OPTIONS;
    TT_CALL_OPTIONS;
} tt_batch_isend_irecv_args;
TT_API TT_NODISCARD tt_status tt_batch_isend_irecv_with(const tt_batch_isend_irecv_args *args, size_t size);

/* The macros, and PyTorch's names for asynchronous sends and receives, which store their work at the first argument:
 *   tt_isend(&work, group, buf, count, dtype, peer, .tag = 7) */
#ifndef __cplusplus
#define tt_new_group(out_, group_, ranks_, ...)                                                        \
    tt_new_group_with(TT_CALL(tt_new_group_args, .out = TT_PLACE(tt_group *, out_), .group = (group_), \
                              .ranks = (ranks_), .count = __VA_ARGS__))
#define tt_group_split(out_, group_, color_, ...)                                                          \
    tt_group_split_with(TT_CALL(tt_group_split_args, .out = TT_PLACE(tt_group *, out_), .group = (group_), \
                                .color = (color_), .key = __VA_ARGS__))
#define tt_group_alloc(out_, group_, ...) \
    tt_group_alloc_with(                  \
        TT_CALL(tt_group_alloc_args, .out = TT_PLACE(void *, out_), .group = (group_), .bytes = __VA_ARGS__))
#define tt_group_free(group_, ...) \
    tt_group_free_with(TT_CALL(tt_group_free_args, .group = (group_), .ptr = __VA_ARGS__))
#define tt_all_reduce(group_, buf_, count_, dtype_, ...)                                                         \
    tt_all_reduce_with(TT_CALL(tt_all_reduce_args, .group = (group_), .buf = TT_BUFFER(buf_), .count = (count_), \
                               .dtype = (dtype_), .op = __VA_ARGS__))
#define tt_all_reduce_coalesced(group_, bufs_, counts_, buffers_, dtype_, ...)                                       \
    tt_all_reduce_coalesced_with(TT_CALL(tt_all_reduce_coalesced_args, .group = (group_), .bufs = TT_BUFFERS(bufs_), \
                                         .counts = (counts_), .buffers = (buffers_), .dtype = (dtype_),              \
                                         .op = __VA_ARGS__))
#define tt_reduce(group_, buf_, count_, dtype_, op_, ...)                                                \
    tt_reduce_with(TT_CALL(tt_reduce_args, .group = (group_), .buf = TT_BUFFER(buf_), .count = (count_), \
                           .dtype = (dtype_), .op = (op_), .root = __VA_ARGS__))
#define tt_reduce_scatter(group_, send_, recv_, count_, dtype_, ...)                                    \
    tt_reduce_scatter_with(TT_CALL(tt_reduce_scatter_args, .group = (group_), .send = TT_BUFFER(send_), \
                                   .recv = TT_BUFFER(recv_), .count = (count_), .dtype = (dtype_), .op = __VA_ARGS__))
#define tt_broadcast(group_, buf_, count_, dtype_, ...)                                                        \
    tt_broadcast_with(TT_CALL(tt_broadcast_args, .group = (group_), .buf = TT_BUFFER(buf_), .count = (count_), \
                              .dtype = (dtype_), .root = __VA_ARGS__))
#define tt_all_gather(group_, send_, recv_, count_, ...)                                        \
    tt_all_gather_with(TT_CALL(tt_all_gather_args, .group = (group_), .send = TT_BUFFER(send_), \
                               .recv = TT_BUFFER(recv_), .count = (count_), .dtype = __VA_ARGS__))
#define tt_all_gather_v(group_, send_, recv_, counts_, offsets_, ...)                                  \
    tt_all_gather_v_with(TT_CALL(tt_all_gather_v_args, .group = (group_), .send = TT_BUFFER(send_),    \
                                 .recv = TT_BUFFER(recv_), .counts = (counts_), .offsets = (offsets_), \
                                 .dtype = __VA_ARGS__))
#define tt_gather(group_, send_, recv_, count_, dtype_, ...)                                                      \
    tt_gather_with(TT_CALL(tt_gather_args, .group = (group_), .send = TT_BUFFER(send_), .recv = TT_BUFFER(recv_), \
                           .count = (count_), .dtype = (dtype_), .root = __VA_ARGS__))
#define tt_scatter(group_, send_, recv_, count_, dtype_, ...)                                                       \
    tt_scatter_with(TT_CALL(tt_scatter_args, .group = (group_), .send = TT_BUFFER(send_), .recv = TT_BUFFER(recv_), \
                            .count = (count_), .dtype = (dtype_), .root = __VA_ARGS__))
#define tt_all_to_all(group_, send_, recv_, count_, ...)                                        \
    tt_all_to_all_with(TT_CALL(tt_all_to_all_args, .group = (group_), .send = TT_BUFFER(send_), \
                               .recv = TT_BUFFER(recv_), .count = (count_), .dtype = __VA_ARGS__))
#define tt_all_to_all_v(group_, send_, send_counts_, send_offsets_, recv_, recv_counts_, recv_offsets_, ...) \
    tt_all_to_all_v_with(TT_CALL(tt_all_to_all_v_args, .group = (group_), .send = TT_BUFFER(send_),          \
                                 .send_counts = (send_counts_), .send_offsets = (send_offsets_),             \
                                 .recv = TT_BUFFER(recv_), .recv_counts = (recv_counts_),                    \
                                 .recv_offsets = (recv_offsets_), .dtype = __VA_ARGS__))
#define tt_barrier(...) tt_barrier_with(TT_CALL(tt_barrier_args, .group = __VA_ARGS__))
#define tt_monitored_barrier(...) tt_monitored_barrier_with(TT_CALL(tt_barrier_args, .group = __VA_ARGS__))
#define tt_send(group_, buf_, count_, dtype_, ...)                                                   \
    tt_send_with(TT_CALL(tt_send_args, .group = (group_), .buf = TT_BUFFER(buf_), .count = (count_), \
                         .dtype = (dtype_), .peer = __VA_ARGS__))
#define tt_recv(group_, buf_, count_, dtype_, ...)                                                   \
    tt_recv_with(TT_CALL(tt_recv_args, .group = (group_), .buf = TT_BUFFER(buf_), .count = (count_), \
                         .dtype = (dtype_), .peer = __VA_ARGS__))
#define tt_batch_isend_irecv(group_, ops_, ...) \
    tt_batch_isend_irecv_with(                  \
        TT_CALL(tt_batch_isend_irecv_args, .group = (group_), .ops = (ops_), .count = __VA_ARGS__))
#define tt_isend(out_, group_, buf_, count_, dtype_, ...)                                            \
    tt_send_with(TT_CALL(tt_send_args, .group = (group_), .buf = TT_BUFFER(buf_), .count = (count_), \
                         .dtype = (dtype_), .peer = __VA_ARGS__, .work = TT_PLACE(tt_work *, out_)))
#define tt_irecv(out_, group_, buf_, count_, dtype_, ...)                                            \
    tt_recv_with(TT_CALL(tt_recv_args, .group = (group_), .buf = TT_BUFFER(buf_), .count = (count_), \
                         .dtype = (dtype_), .peer = __VA_ARGS__, .work = TT_PLACE(tt_work *, out_)))
#define tt_send_op(buf_, count_, dtype_, ...) \
    ((tt_p2p_op){.send = TT_BUFFER(buf_), .count = (count_), .dtype = (dtype_), .peer = __VA_ARGS__})
#define tt_recv_op(buf_, count_, dtype_, ...) \
    ((tt_p2p_op){.is_recv = true, .recv = TT_BUFFER(buf_), .count = (count_), .dtype = (dtype_), .peer = __VA_ARGS__})
#endif

/* Zeros to begin with where the functions are called themselves: base.h. */
#define TT_INIT_PROCESS_GROUP_ARGS_INIT TT_ARGS_INIT
#define TT_NEW_GROUP_ARGS_INIT TT_ARGS_INIT
#define TT_GROUP_SPLIT_ARGS_INIT TT_ARGS_INIT
#define TT_GROUP_ALLOC_ARGS_INIT TT_ARGS_INIT
#define TT_GROUP_FREE_ARGS_INIT TT_ARGS_INIT
#define TT_ALL_REDUCE_ARGS_INIT TT_ARGS_INIT
#define TT_ALL_REDUCE_COALESCED_ARGS_INIT TT_ARGS_INIT
#define TT_REDUCE_ARGS_INIT TT_ARGS_INIT
#define TT_REDUCE_SCATTER_ARGS_INIT TT_ARGS_INIT
#define TT_BROADCAST_ARGS_INIT TT_ARGS_INIT
#define TT_ALL_GATHER_ARGS_INIT TT_ARGS_INIT
#define TT_ALL_GATHER_V_ARGS_INIT TT_ARGS_INIT
#define TT_GATHER_ARGS_INIT TT_ARGS_INIT
#define TT_SCATTER_ARGS_INIT TT_ARGS_INIT
#define TT_ALL_TO_ALL_ARGS_INIT TT_ARGS_INIT
#define TT_ALL_TO_ALL_V_ARGS_INIT TT_ARGS_INIT
#define TT_BARRIER_ARGS_INIT TT_ARGS_INIT
#define TT_SEND_ARGS_INIT TT_ARGS_INIT
#define TT_RECV_ARGS_INIT TT_ARGS_INIT
#define TT_BATCH_ISEND_IRECV_ARGS_INIT TT_ARGS_INIT

TT_END_DECLS
#endif
