/* tutti/rpc.h: named functions that other workers call, and references to values that stay with a worker.
 *
 *   static tt_status add(tt_rpc_call *call) {
 *       return tt_rpc_return(call, tt_rpc_int(tt_rpc_arg_int(call, 0) + tt_rpc_arg_int(call, 1)));
 *   }
 *   TT_RPC_FUNCTION(add, "(int a, int b) -> int");
 *
 *   tt_rpc *rpc;
 *   tt_rpc_value sum;
 *   tt_rpc_init(&rpc, "worker0", .group = world);
 *   tt_rpc_sync(rpc, "worker1", "add", .args = TT_RPC_ARGS(tt_rpc_int(2), tt_rpc_int(3)), .result = &sum);
 *   tt_rpc_shutdown(rpc);
 *
 * Functions. A worker runs nothing that its own program did not register by name, with a signature. Workers compare
 * their functions when they join, so that one that lacks a function is named before anything is called.
 *
 * Errors. A call fails with the status and the text that the function failed with: "worker1 (id 1), add(): TEXT"; the
 * text of a nested call names the whole path. Calls to a worker that dies, freezes or leaves fail with TT_ERR_PEER,
 * whose text names it. A call has no timeout unless one is given: it waits as long as the other worker provably lives.
 *
 * Threads. Every function here may be called from several threads at once, on one `tt_rpc`, unless it says otherwise.
 * Functions that wait must not be called in a callback of a future or of a work (TT_ERR_STATE). Functions that other
 * workers call run in a pool of threads, which grows when all of them wait in Tutti's own waits.
 *
 * PyTorch: torch.distributed.rpc. Tensors as values, distributed autograd and optimizers: tutti/rpc_training.h. */
#ifndef TUTTI_RPC_H
#define TUTTI_RPC_H

#include <tutti/comm.h>
#include <tutti/store.h>

TT_BEGIN_DECLS

typedef struct tt_rpc tt_rpc;           /* this process as a worker */
typedef struct tt_rpc_call tt_rpc_call; /* a call that a function of this process is serving */
typedef struct tt_rref tt_rref;         /* a reference to a value that stays with its owner */
typedef struct tt_future tt_future;     /* a value that is not there yet */
struct tt_tensor;

/* ---- values */

typedef enum tt_rpc_kind {
    TT_RPC_NONE,
    TT_RPC_BOOL,
    TT_RPC_INT,   /* 64 bits */
    TT_RPC_FLOAT, /* 64 bits */
    TT_RPC_TEXT,  /* UTF-8 */
    TT_RPC_BYTES,
    TT_RPC_TENSOR, /* of libtutti */
    TT_RPC_RREF,
    TT_RPC_LIST,
    TT_RPC_MAP,   /* keys and values, in the order in which they were given */
    TT_RPC_OBJECT /* a pointer of the program's own; a reference may have it, and no call carries it */
} tt_rpc_kind;

enum { TT_RPC_DEPTH = 32 /* how deep lists and maps of a value may be nested */ };

/* What a text, bytes, a list, a map and an object are, in a value. */
struct tt_rpc_run {
    const void *data; /* of a received text, a byte 0 follows */
    size_t size;
};
struct tt_rpc_items {
    struct tt_rpc_value *items;
    int64_t count; /* of a map: keys and values, which take turns */
};
struct tt_rpc_pointer {
    void *at;
    void (*free)(void *at); /* may be NULL */
    const char *type;       /* what it is, for error texts; a literal */
};

/* A value. The functions below make values that borrow what they are made of; it must stay until the call that they are
 * given to has returned, or, if that is asynchronous, until its future is done. Values that a call has received are
 * `owned`. */
typedef struct tt_rpc_value {
    tt_rpc_kind kind;
    bool owned;  /* what it points to is its own: tt_rpc_value_free() releases it */
    bool landed; /* the library's own: how it does that */
    union {
        bool boolean;
        int64_t integer;
        double number;
        struct tt_rpc_run bytes; /* also of a text */
        struct tt_tensor *tensor;
        tt_rref *rref;
        struct tt_rpc_items list; /* also of a map */
        struct tt_rpc_pointer object;
    };
} tt_rpc_value;

/* Make a value of nothing, a number, a text (which ends in a byte 0; NULL gives none) or `size` bytes. They never fail.
 * Texts and bytes are borrowed. */
static inline tt_rpc_value tt_rpc_none(void) {
    tt_rpc_value value = {TT_RPC_NONE, false, false, {false}};
    return value;
}
static inline tt_rpc_value tt_rpc_bool(bool boolean) {
    tt_rpc_value value = tt_rpc_none();
    value.kind = TT_RPC_BOOL;
    value.boolean = boolean;
    return value;
}
static inline tt_rpc_value tt_rpc_int(int64_t integer) {
    tt_rpc_value value = tt_rpc_none();
    value.kind = TT_RPC_INT;
    value.integer = integer;
    return value;
}
static inline tt_rpc_value tt_rpc_float(double number) {
    tt_rpc_value value = tt_rpc_none();
    value.kind = TT_RPC_FLOAT;
    value.number = number;
    return value;
}
static inline tt_rpc_value tt_rpc_bytes(const void *data, size_t size) {
    tt_rpc_value value = tt_rpc_none();
    value.kind = TT_RPC_BYTES;
    value.bytes.data = data;
    value.bytes.size = size;
    return value;
}
TT_API tt_rpc_value tt_rpc_text(const char *text);

/* Make a value of a reference, which is borrowed. NULL gives none. */
TT_API tt_rpc_value tt_rpc_rref(tt_rref *rref);

/* Make a list, or a map, of the `count` values at `items`, which are borrowed. In a map keys (texts or numbers) and
 * values take turns, so `count` is even. */
TT_API tt_rpc_value tt_rpc_list(const tt_rpc_value *items, int64_t count);
TT_API tt_rpc_value tt_rpc_map(const tt_rpc_value *items, int64_t count);

/* Make a value of a pointer of the program's own, for tt_rref_new() or as a result that a reference keeps. The value
 * owns it: `free` (may be NULL) is called once, by any thread, when the last reference to it is gone. `type` is a
 * literal that error texts show. */
TT_API tt_rpc_value tt_rpc_object(void *at, void (*free)(void *at), const char *type);

/* Copy a value, with all that it points to; tensors and references are shared. *out is the caller's to free. Errors:
 * TT_ERR_MEMORY; TT_ERR_INVALID an object, or lists nested deeper than TT_RPC_DEPTH. */
TT_API TT_NODISCARD tt_status tt_rpc_value_copy(tt_rpc_value *out, const tt_rpc_value *value);

/* Release what an owned value points to, and make it none. NULL, and values that own nothing, are allowed. */
TT_API void tt_rpc_value_free(tt_rpc_value *value);

/* Return the value that a map has for a key that is a text; it belongs to the map. NULL: there is none, or it is no
 * map. */
TT_API const tt_rpc_value *tt_rpc_map_get(const tt_rpc_value *map, const char *key);

/* Return "int", "tensor" and the like; "?" for a value outside of the enum. */
TT_API const char *tt_rpc_kind_name(tt_rpc_kind kind);

/* The arguments of a call, written in place: .args = TT_RPC_ARGS(tt_rpc_int(1), tt_rpc_text("a")). */
typedef struct tt_rpc_values {
    const tt_rpc_value *values;
    int64_t count;
} tt_rpc_values;
#ifndef __cplusplus
#define TT_RPC_ARGS(...)                                  \
    ((tt_rpc_values){(const tt_rpc_value[]){__VA_ARGS__}, \
                     (int64_t)(sizeof((const tt_rpc_value[]){__VA_ARGS__}) / sizeof(tt_rpc_value))})
#endif

/* ---- functions */

/* A function that workers call. It reads its arguments and gives its result by tt_rpc_return(). If it returns another
 * status than TT_OK, the call fails with it and with this thread's last error. Several threads may run it at once. */
typedef tt_status (*tt_rpc_fn)(tt_rpc_call *call);

/* Register a function under a name (letters, digits, `_`, `.`, `:`; below 64 bytes; "tutti." is reserved), with a
 * signature: "(int count, tensor? mask, float... rates) -> list". Types are none, bool, int, float (which takes an int,
 * too), text, bytes, tensor, rref, list, map, object (a result that a reference keeps) and any. `?` behind a type means
 * that it may be none; `...` behind the last one, that any number of them may follow. Without an arrow the result is
 * none. `name` and `signature` must live as long as the process. Call it before tt_rpc_init(). Errors: TT_ERR_INVALID a
 * name or signature that can't be; TT_ERR_STATE another function has this name, or a tt_rpc exists already. */
TT_API TT_NODISCARD tt_status tt_rpc_register(const char *name, const char *signature, tt_rpc_fn fn);

/* Register a function when the program is loaded: TT_RPC_FUNCTION(add, "(int a, int b) -> int"); registers add() as
 * "add". If that fails, tt_rpc_init() fails with the error. */
#define TT_RPC_FUNCTION(fn, signature) TT_RPC_FUNCTION_NAMED(fn, #fn, signature)
#define TT_RPC_FUNCTION_NAMED(fn, name, signature)                        \
    __attribute__((constructor)) static void tt_rpc_register_##fn(void) { \
        tt_rpc_register_at_load(name, signature, fn);                     \
    }                                                                     \
    struct tt_rpc_function_needs_a_semicolon
TT_API void tt_rpc_register_at_load(const char *name, const char *signature, tt_rpc_fn fn);

/* Return how many arguments a call has, and one of them; they fit the signature. They belong to the call: they are
 * valid until the function has returned, or, if it replies later, until it has replied. An index out of range, or an
 * argument of another kind, gives NULL, false or 0. Texts end in a byte 0. */
TT_API int64_t tt_rpc_arg_count(const tt_rpc_call *call);
TT_API const tt_rpc_value *tt_rpc_arg(const tt_rpc_call *call, int64_t index);
TT_API bool tt_rpc_arg_bool(const tt_rpc_call *call, int64_t index);
TT_API int64_t tt_rpc_arg_int(const tt_rpc_call *call, int64_t index);
TT_API double tt_rpc_arg_float(const tt_rpc_call *call, int64_t index);
TT_API const char *tt_rpc_arg_text(const tt_rpc_call *call, int64_t index);
TT_API tt_rref *tt_rpc_arg_rref(const tt_rpc_call *call, int64_t index);

/* Take an argument out of the call, which has none in its place then. *out is the caller's to free. Errors:
 * TT_ERR_INVALID an index out of range. */
TT_API TT_NODISCARD tt_status tt_rpc_take_arg(tt_rpc_call *call, int64_t index, tt_rpc_value *out);

/* Give the result of a call, once. The call takes what an owned value owns, also on failure; what another value borrows
 * is copied or sent before this returns. Errors: TT_ERR_INVALID it does not fit the signature; TT_ERR_STATE there is
 * one already. */
TT_API TT_NODISCARD tt_status tt_rpc_return(tt_rpc_call *call, tt_rpc_value value);

/* Reply later, with the value or the error of `future` when that is done: one of tt_future_new(), tt_future_then() or
 * an asynchronous call. The call takes a share of it. The function returns at once, and its thread serves other calls.
 * Errors: TT_ERR_STATE the call has a result already. PyTorch: rpc.functions.async_execution. */
TT_API TT_NODISCARD tt_status tt_rpc_return_future(tt_rpc_call *call, tt_future *future);

/* Return the id of the worker that calls, and this process as a worker, which is borrowed. */
TT_API int tt_rpc_caller(const tt_rpc_call *call);
TT_API tt_rpc *tt_rpc_of_call(const tt_rpc_call *call);

/* ---- workers */

typedef struct tt_rpc_init_args {
    tt_rpc **out;     /* required: receives this process's membership */
    const char *name; /* required: letters, digits, `_`, `-`, `:`, `.`, below 128 bytes; differs from all others' */
    TT_OPTIONS;

    /* The workers are the ranks of this group, with its links and memory, and a worker's id is its rank: all of them
     * call tt_rpc_init() together. The group may be destroyed before tt_rpc_shutdown(). It must be a native group
     * with all ranks of the job, and has one tt_rpc at a time. */
    tt_group *group;

    /* Or workers come and go, and meet through this store, which is borrowed until tt_rpc_shutdown() has returned. They
     * connect to each other by TCP when they first call. */
    tt_store *store;
    const char *prefix; /* of the store's keys; NULL = "rpc" */
    int id;             /* this worker's id, with has_id; without it the next free one */
    bool has_id;

    int threads;             /* that run functions while none of them waits; 0 = 16 */
    int max_threads;         /* with those that wait; 0 = 4096 */
    int64_t timeout_ms;      /* of calls that give none; 0 = none: they wait as long as the other worker lives */
    int64_t join_timeout_ms; /* of meeting the other workers; 0 = TT_DEFAULT_TIMEOUT_MS */
    int64_t heartbeat_ms;    /* with .store: a frozen worker or a cut link is named within this time; 0 = 5000 */
    size_t max_memory;       /* bytes of received calls that have not begun; above it callers wait; 0 = a quarter of the
                                machine's memory */
    bool other_functions;    /* don't compare functions: workers may have different ones */
    char tt_end;             /* not an option: see base.h */
} tt_rpc_init_args;

/* Become a worker. Blocks until all ranks have come (.group), or until the workers that are there know of this one
 * (.store), at most .join_timeout_ms. *out is the caller's, to end by tt_rpc_shutdown().
 *   tt_rpc_init(&rpc, "ps", .group = world)
 * Errors: TT_ERR_INVALID a name, option or registered function that can't be; TT_ERR_STATE the process is a worker of
 * this group already; TT_ERR_MISMATCH two workers of one name, or one lacks a function that another has (both are
 * named); TT_ERR_UNSUPPORTED a group that is not native or has not all ranks; those of a collective, or of a store.
 * PyTorch: rpc.init_rpc. */
TT_API TT_NODISCARD tt_status tt_rpc_init_with(const tt_rpc_init_args *args, size_t size);
#ifndef __cplusplus
#define tt_rpc_init(out_, ...) \
    tt_rpc_init_with(TT_ARGS(tt_rpc_init_args, .out = TT_PLACE(tt_rpc *, out_), .name = __VA_ARGS__))
#endif
#define TT_RPC_INIT_ARGS_INIT TT_ARGS_INIT

typedef struct tt_rpc_shutdown_args {
    tt_rpc *rpc; /* required */
    TT_OPTIONS;
    bool at_once;       /* wait for nothing: calls under way fail, here and on other workers. PyTorch: graceful=False */
    int64_t timeout_ms; /* of waiting; 0 = none: it waits as long as the workers that it waits for live */
    char tt_end;        /* not an option: see base.h */
} tt_rpc_shutdown_args;

/* Stop being a worker. Workers of a group wait until all have called it and no call is under way anywhere, and serve
 * calls meanwhile; a worker of a store waits for its own calls and those that it serves. Then, also on failure, `rpc`
 * is freed, futures that are not done fail, and other workers lose their references to values of this process. No other
 * thread may use `rpc` any more. A function that still runs gets until the timeout, and a second at least (without a
 * timeout: one second with .at_once, else any time); what it uses stays until the process ends if it takes longer.
 * Errors: TT_ERR_TIMEOUT, which names whom it waited for, or the functions that run; TT_ERR_STATE in a function that
 * serves a call, or `rpc` was shut down before; TT_ERR_PEER, of workers of a group, one of them was lost: its name, and
 * how. NULL does nothing. PyTorch: rpc.shutdown. */
TT_API TT_NODISCARD tt_status tt_rpc_shutdown_with(const tt_rpc_shutdown_args *args, size_t size);
#ifndef __cplusplus
#define tt_rpc_shutdown(...) tt_rpc_shutdown_with(TT_ARGS(tt_rpc_shutdown_args, .rpc = __VA_ARGS__))
#endif
#define TT_RPC_SHUTDOWN_ARGS_INIT TT_ARGS_INIT

/* Return this worker's id and name; -1 and "" for NULL. The name belongs to `rpc`. */
TT_API int tt_rpc_id(const tt_rpc *rpc);
TT_API const char *tt_rpc_name(const tt_rpc *rpc);

/* Write the id of the worker of this name to *id. With .store it may ask the store, and so block. Errors:
 * TT_ERR_NOT_FOUND no such worker (the text lists the names). PyTorch: rpc.get_worker_info. */
TT_API TT_NODISCARD tt_status tt_rpc_find_worker(tt_rpc *rpc, const char *name, int *id);

/* Write the name of a worker to `name`, of `size` bytes; 128 are enough. Errors: TT_ERR_NOT_FOUND no such worker. */
TT_API TT_NODISCARD tt_status tt_rpc_worker_name(tt_rpc *rpc, int id, char *name, size_t size);

/* Write the ids of the workers that are there, this one included, in rising order, to `ids`, which has room for `room`
 * (NULL: none). Returns how many there are. */
TT_API int64_t tt_rpc_workers(tt_rpc *rpc, int *ids, int64_t room);

/* Numbers of what this worker has under way. PyTorch: rpc.api._get_debug_info. */
typedef struct tt_rpc_counts {
    int64_t threads, idle;     /* of the pool; of those, idle ones */
    int64_t calls, calls_made; /* that this worker made: not yet done; so far */
    int64_t serving, served;   /* that this worker received: without a reply yet; replied to so far */
    int64_t owned, held;       /* references: to values of this worker; of this worker, to values of others */
    int64_t bytes;             /* of received calls that have not begun */
} tt_rpc_counts;
/* Write the numbers as they are now to *out. Errors: TT_ERR_INVALID an argument is NULL. */
TT_API TT_NODISCARD tt_status tt_rpc_get_counts(tt_rpc *rpc, tt_rpc_counts *out);

/* ---- calls */

typedef struct tt_rpc_sync_args {
    tt_rpc *rpc;          /* required, as are the next two */
    const char *to;       /* a worker's name; NULL: .to_id is its id */
    const char *function; /* a function's name */
    TT_OPTIONS;
    int to_id;
    tt_rpc_values args;
    tt_rpc_value *result; /* of tt_rpc_sync(): receives the result, which is the caller's to free; NULL = drop it */
    int64_t timeout_ms;   /* 0 = that of tt_rpc_init(); below 0 = none */
    char tt_end;          /* not an option: see base.h */
} tt_rpc_sync_args;

/* Call a function of a worker, which may be this one, and wait for its result. The arguments are borrowed.
 *   tt_rpc_sync(rpc, "worker1", "add", .args = TT_RPC_ARGS(tt_rpc_int(2), tt_rpc_int(3)), .result = &sum)
 * Errors: TT_ERR_NOT_FOUND no such worker, or it has no such function (the text lists what there is); TT_ERR_INVALID
 * arguments that don't fit its signature, which is found before anything is sent; what the function failed with;
 * TT_ERR_TIMEOUT (the function may still run); TT_ERR_PEER the worker died, froze or left, by name; TT_ERR_STATE after
 * tt_rpc_shutdown(), or in a callback. PyTorch: rpc.rpc_sync. */
TT_API TT_NODISCARD tt_status tt_rpc_sync_with(const tt_rpc_sync_args *args, size_t size);

/* Call a function without waiting for it: *out receives a future of its result, which is the caller's to free. Large
 * bytes and tensors are read while they are sent, so arguments must stay as they are until the future is done. Blocks
 * only while too many bytes wait to be sent. Errors: as tt_rpc_sync(), some of them from the future. PyTorch:
 * rpc.rpc_async. */
TT_API TT_NODISCARD tt_status tt_rpc_async_with(tt_future **out, const tt_rpc_sync_args *args, size_t size);

/* Call a function without waiting for it, and let the result stay with the worker that makes it: *out receives a
 * reference to it, which is the caller's to free. Bytes of the arguments are copied; a large tensor must stay as it is
 * until the reference's value has been made. If the function fails, whoever uses the reference gets the error. PyTorch:
 * rpc.remote. */
TT_API TT_NODISCARD tt_status tt_rpc_remote_with(tt_rref **out, const tt_rpc_sync_args *args, size_t size);
#ifndef __cplusplus
#define tt_rpc_sync(rpc_, to_, ...) \
    tt_rpc_sync_with(TT_ARGS(tt_rpc_sync_args, .rpc = (rpc_), .to = (to_), .function = __VA_ARGS__))
#define tt_rpc_async(out_, rpc_, to_, ...)         \
    tt_rpc_async_with(TT_PLACE(tt_future *, out_), \
                      TT_ARGS(tt_rpc_sync_args, .rpc = (rpc_), .to = (to_), .function = __VA_ARGS__))
#define tt_rpc_remote(out_, rpc_, to_, ...)       \
    tt_rpc_remote_with(TT_PLACE(tt_rref *, out_), \
                       TT_ARGS(tt_rpc_sync_args, .rpc = (rpc_), .to = (to_), .function = __VA_ARGS__))
#endif
#define TT_RPC_SYNC_ARGS_INIT TT_ARGS_INIT

/* ---- futures */

/* Called once, when the future is done, by the thread that ended it, which holds no lock. It must not wait. */
typedef void (*tt_future_fn)(tt_future *future, void *user);

/* Make the value of the new future from one that is done, with a value or an error. *out is owned, or borrows what
 * lives on. An error that it returns is the new future's. It must not wait. */
typedef tt_status (*tt_future_then_fn)(tt_future *future, tt_rpc_value *out, void *user);

/* Make a future that the program ends itself; it is the caller's to free. NULL, recorded: no memory. PyTorch:
 * torch.futures.Future. */
TT_API tt_future *tt_future_new(void);

/* End a future with a value, or with this thread's last error. It takes what an owned value owns, also on failure;
 * another value is copied. Errors: TT_ERR_STATE it is done already; TT_ERR_MEMORY. */
TT_API TT_NODISCARD tt_status tt_future_set_value(tt_future *future, tt_rpc_value value);
TT_API TT_NODISCARD tt_status tt_future_set_error(tt_future *future);

/* Wait until a future is done, at most `timeout_ms` if that is above 0. Errors: the future's own, recorded in this
 * thread; TT_ERR_TIMEOUT it is not done yet, and goes on; TT_ERR_STATE it is not done, and this is a callback. PyTorch:
 * Future.wait. */
TT_API TT_NODISCARD tt_status tt_future_wait(tt_future *future, int64_t timeout_ms);

/* Return whether a future is done. It never blocks. PyTorch: Future.done. */
TT_API bool tt_future_is_done(tt_future *future);

/* Return the value of a future that is done; it belongs to the future. NULL, recorded: TT_ERR_STATE it is not done; its
 * own error. PyTorch: Future.value. */
TT_API const tt_rpc_value *tt_future_value(tt_future *future);

/* Call `fn` with `user` when the future is done; at once if it is. Errors: TT_ERR_MEMORY. PyTorch:
 * Future.add_done_callback. */
TT_API TT_NODISCARD tt_status tt_future_add_callback(tt_future *future, tt_future_fn fn, void *user);

/* Make a future of what `fn` makes of this one when that is done. *out is the caller's to free. Errors: TT_ERR_MEMORY.
 * PyTorch: Future.then. */
TT_API TT_NODISCARD tt_status tt_future_then(tt_future **out, tt_future *future, tt_future_then_fn fn, void *user);

/* Make a future of several. It is done when all of them are, also where one has failed: with a list of their values, or
 * else with the error of the first in the list that failed. PyTorch: torch.futures.collect_all. */
TT_API TT_NODISCARD tt_status tt_future_collect_all(tt_future **out, tt_future *const *futures, int64_t count);

/* Let a share of a future go, or take one more, which is returned. The call that it stands for goes on. NULL is
 * allowed. */
TT_API void tt_future_free(tt_future *future);
TT_API tt_future *tt_future_share(tt_future *future);

/* ---- references */

/* Make a reference to a value of this process; it is the caller's to free. It takes what an owned value owns, also on
 * failure; another value is copied. NULL, recorded: no memory, or what tt_rpc_value_copy() fails with. PyTorch:
 * RRef(). */
TT_API tt_rref *tt_rref_new(tt_rpc *rpc, tt_rpc_value value);

/* Return the id of the worker that has the value (-1 for NULL), and whether that is this one. PyTorch: RRef.owner,
 * RRef.is_owner. */
TT_API int tt_rref_owner(const tt_rref *rref);
TT_API bool tt_rref_is_owner(const tt_rref *rref);

/* Fetch a copy of the value, which is the caller's to free. Waits until it has been made, at most `timeout_ms` if that
 * is above 0. Errors: what the function that was to make it failed with; TT_ERR_PEER its owner was lost, by name;
 * TT_ERR_INVALID it is an object, or NULL; those of a call. PyTorch: RRef.to_here. */
TT_API TT_NODISCARD tt_status tt_rref_get(tt_rref *rref, tt_rpc_value *out, int64_t timeout_ms);

/* Return the value itself, on its owner. It is valid as long as the caller has the reference. Waits until it has been
 * made. NULL, recorded: TT_ERR_STATE this is another worker; what the function that was to make it failed with.
 * PyTorch: RRef.local_value. */
TT_API const tt_rpc_value *tt_rref_local(tt_rref *rref);

/* Call a function on the value's owner, with the reference as its first argument, before .args.
 *   tt_rref_sync(counter, "add_to", .args = TT_RPC_ARGS(tt_rpc_int(1)), .result = &count)
 * All else is as with tt_rpc_sync(), tt_rpc_async() and tt_rpc_remote(). PyTorch: RRef.rpc_sync().method(). */
TT_API TT_NODISCARD tt_status tt_rref_sync_with(tt_rref *rref, const tt_rpc_sync_args *args, size_t size);
TT_API TT_NODISCARD tt_status tt_rref_async_with(tt_future **out, tt_rref *rref, const tt_rpc_sync_args *args,
                                                 size_t size);
TT_API TT_NODISCARD tt_status tt_rref_remote_with(tt_rref **out, tt_rref *rref, const tt_rpc_sync_args *args,
                                                  size_t size);
#ifndef __cplusplus
#define tt_rref_sync(rref_, ...) tt_rref_sync_with((rref_), TT_ARGS(tt_rpc_sync_args, .function = __VA_ARGS__))
#define tt_rref_async(out_, rref_, ...) \
    tt_rref_async_with(TT_PLACE(tt_future *, out_), (rref_), TT_ARGS(tt_rpc_sync_args, .function = __VA_ARGS__))
#define tt_rref_remote(out_, rref_, ...) \
    tt_rref_remote_with(TT_PLACE(tt_rref *, out_), (rref_), TT_ARGS(tt_rpc_sync_args, .function = __VA_ARGS__))
#endif

/* Take one more share of a reference, which is returned, or let one go. When the last share of all workers is gone, the
 * value is freed. After tt_rpc_shutdown() shares may still be let go; every other use fails. Like free(), this does not
 * tell who uses a reference whose last share of this process is gone. NULL is allowed. */
TT_API tt_rref *tt_rref_share(tt_rref *rref);
TT_API void tt_rref_free(tt_rref *rref);

TT_END_DECLS
#endif
