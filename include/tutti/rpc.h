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
 * text of a nested call names the whole path. Calls to a worker that dies, freezes or leaves fail with TT_ERR_PEER, and
 * the text names the worker. A call has no timeout unless one is given: it waits as long as the other worker lives.
 * Calls that wait for each other, so that none can go on, fail with TT_ERR_MISMATCH, and the text says who waits for
 * whom.
 *
 * Threads. Every function here may be called from several threads at once, on one `tt_rpc`, unless it says otherwise.
 * Functions that wait must not be called in a callback of a future or of a work (TT_ERR_STATE). Functions that other
 * workers call run in a pool of threads, which grows while all of its threads wait in functions of Tutti. Functions
 * that don't say so never block.
 *
 * PyTorch: torch.distributed.rpc. Tensors as values, distributed autograd and optimizers: tutti/rpc_training.h. */
#ifndef TUTTI_RPC_H
#define TUTTI_RPC_H

#include <tutti/comm.h>
#include <tutti/store.h>

TT_BEGIN_DECLS

typedef struct tt_rpc tt_rpc;           /* this process as a worker */
typedef struct tt_rpc_call tt_rpc_call; /* a call that a function of this process is serving */
typedef struct tt_rref tt_rref;         /* a reference to a value that stays with its owner, the worker that has it */
typedef struct tt_future tt_future;     /* a value that a call or the program will give later */
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
    TT_RPC_OBJECT /* a pointer of the program's own, to which a reference may lead; it can't be sent */
} tt_rpc_kind;

enum { TT_RPC_DEPTH = 32 /* the deepest nesting of lists and maps in a value */ };

/* The data of a text or bytes; of a list or a map; of an object. */
struct tt_rpc_run {
    const void *data; /* of a received text: a byte 0 follows the `size` bytes */
    size_t size;      /* in bytes */
};
struct tt_rpc_items {
    struct tt_rpc_value *items;
    int64_t count; /* of a map: of keys and values together, which take turns */
};
struct tt_rpc_pointer {
    void *at;
    void (*free)(void *at); /* may be NULL */
    const char *type;       /* the name of its type, for error texts; a literal */
};

/* A value. The functions below make values that borrow their data, which must stay unchanged until the call that the
 * value is given to has returned or, if the call is asynchronous, until its future is done. Results that a call
 * gives its caller are `owned`: their data belongs to them. */
typedef struct tt_rpc_value {
    union {
        /* Not to be used: it is what compilers name when something else stands in a value's place: TT_RPC_ARGS(2). */
        const struct tt_a_value_needs_tt_rpc_int_or_the_like *unmade;
        bool boolean;
        int64_t integer;
        double number;
        struct tt_rpc_run bytes; /* also of a text */
        struct tt_tensor *tensor;
        tt_rref *rref;
        struct tt_rpc_items list; /* also of a map */
        struct tt_rpc_pointer object;
    };
    tt_rpc_kind kind;
    bool owned;  /* tt_rpc_value_free() frees the data */
    bool lent;   /* the data belongs to a call or a future, which lends it: tt_rpc_return() and others copy it */
    bool landed; /* for the library: how it was allocated */
} tt_rpc_value;

/* Make a value: none, a number, `size` bytes, or a text in UTF-8 that ends in a byte 0 (NULL gives none). Bytes and
 * texts are borrowed. These never fail. */
static inline tt_rpc_value tt_rpc_none(void) {
    tt_rpc_value value = {{NULL}, TT_RPC_NONE, false, false, false};
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

/* Make a value of a reference, which is borrowed. NULL gives none. Never fails. */
TT_API tt_rpc_value tt_rpc_rref(tt_rref *rref);

/* Make a list, or a map, of the `count` values at `items`, which are borrowed. In a map keys (texts or numbers) and
 * values take turns, so `count` is even; the call that the map is given to fails otherwise. */
TT_API tt_rpc_value tt_rpc_list(const tt_rpc_value *items, int64_t count);
TT_API tt_rpc_value tt_rpc_map(const tt_rpc_value *items, int64_t count);

/* Make a value of a pointer of the program's own, for tt_rref_new(), or as the result of a function that is called by
 * tt_rpc_remote(). The value owns it: when the last reference to it is dropped, any thread calls `free` (may be NULL)
 * once. `type` is a literal that error texts show. */
TT_API tt_rpc_value tt_rpc_object(void *at, void (*free)(void *at), const char *type);

/* Copy a value and its data; tensors and references are shared. *out is the caller's, to free by tt_rpc_value_free().
 * Errors: TT_ERR_MEMORY; TT_ERR_INVALID the value is an object, or has lists nested deeper than TT_RPC_DEPTH. */
TT_API TT_NODISCARD tt_status tt_rpc_value_copy(tt_rpc_value *out, const tt_rpc_value *value);

/* Free the data of an owned value, and make the value none. NULL, and values that own nothing, are allowed. */
TT_API void tt_rpc_value_free(tt_rpc_value *value);

/* Return the value that a map has for a text as key. It belongs to the map. NULL: the map has no such key, or `map` is
 * no map. */
TT_API const tt_rpc_value *tt_rpc_map_get(const tt_rpc_value *map, const char *key);

/* Return the name of a kind: "int", "tensor", and so on; "?" for a number that is no tt_rpc_kind. */
TT_API const char *tt_rpc_kind_name(tt_rpc_kind kind);

/* The arguments of a call. TT_RPC_ARGS() writes them in place: .args = TT_RPC_ARGS(tt_rpc_int(1), tt_rpc_text("a")).
 * Each is a value: TT_RPC_ARGS(1) is not, and compilers warn of it. */
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

/* A function that workers call. It reads its arguments by tt_rpc_arg_...(), and gives its result by tt_rpc_return(). If
 * it returns an error, the call fails with that status and with this thread's last error. Several threads may run it at
 * once. */
typedef tt_status (*tt_rpc_fn)(tt_rpc_call *call);

/* Register a function under a name, so that workers can call it. Call this before tt_rpc_init().
 * name: letters, digits, `_`, `.`, `:`; below 64 bytes; names that begin with "tutti." are Tutti's own.
 * signature: the types of arguments and result, "(int count, tensor? mask, float... rates) -> list". Types are none,
 *   bool, int, float (an int fits, too), text, bytes, tensor, rref, list, map, object (only as a result, for
 *   tt_rpc_remote()) and any. `?` after a type: none fits, too. `...` after the last type: any number of such
 *   arguments. Without an arrow the result is none. At most 32 parameters.
 * `name` and `signature` must live as long as the process. Errors: TT_ERR_INVALID a bad name or signature (the text
 * says what was expected); TT_ERR_STATE another function has this name, or tt_rpc_init() was called; TT_ERR_MEMORY.
 * PyTorch has no counterpart: it pickles the names of functions. */
TT_API TT_NODISCARD tt_status tt_rpc_register(const char *name, const char *signature, tt_rpc_fn fn);

/* Register a function when the program is loaded: TT_RPC_FUNCTION(add, "(int a, int b) -> int"); registers add() as
 * "add", TT_RPC_FUNCTION_NAMED() under another name. If that fails, tt_rpc_init() fails with the error. */
#define TT_RPC_FUNCTION(fn, signature) TT_RPC_FUNCTION_NAMED(fn, #fn, signature)
#define TT_RPC_FUNCTION_NAMED(fn, name, signature)                        \
    __attribute__((constructor)) static void tt_rpc_register_##fn(void) { \
        tt_rpc_register_at_load(name, signature, fn);                     \
    }                                                                     \
    struct tt_rpc_function_needs_a_semicolon
TT_API void tt_rpc_register_at_load(const char *name, const char *signature, tt_rpc_fn fn);

/* Return how many arguments a call has, or one of them, counted from 0. Arguments fit the signature. They belong to the
 * call: they are valid until the function has returned or, if it replies later (tt_rpc_return_future()), until it has
 * replied. For an index out of range tt_rpc_arg() returns a value that is none; for that, and for an argument of
 * another kind, the others return false, 0 or NULL. tt_rpc_arg_float() converts an int. Texts end in a byte 0. */
TT_API int64_t tt_rpc_arg_count(const tt_rpc_call *call);
TT_API const tt_rpc_value *tt_rpc_arg(const tt_rpc_call *call, int64_t index);
TT_API bool tt_rpc_arg_bool(const tt_rpc_call *call, int64_t index);
TT_API int64_t tt_rpc_arg_int(const tt_rpc_call *call, int64_t index);
TT_API double tt_rpc_arg_float(const tt_rpc_call *call, int64_t index);
TT_API const char *tt_rpc_arg_text(const tt_rpc_call *call, int64_t index);
TT_API tt_rref *tt_rpc_arg_rref(const tt_rpc_call *call, int64_t index);

/* Move an argument out of the call, which has none in its place then. Texts and bytes that are in the packet are
 * copied. *out is the caller's to free. Errors: TT_ERR_INVALID the index is out of range; TT_ERR_MEMORY. */
TT_API TT_NODISCARD tt_status tt_rpc_take_arg(tt_rpc_call *call, int64_t index, tt_rpc_value *out);

/* Give the result of a call, once. The call takes an owned value, also on failure; another value is copied before this
 * returns (tensors are shared, and must stay unchanged until the caller has the result). Errors: TT_ERR_INVALID the
 * value does not fit the signature; TT_ERR_STATE the call has a result already; TT_ERR_MEMORY. */
TT_API TT_NODISCARD tt_status tt_rpc_return(tt_rpc_call *call, tt_rpc_value value);

/* Reply later: with the value or the error of `future`, as soon as that is done. The call takes a share of the future,
 * which may be one of tt_future_new(), tt_future_then() or an asynchronous call. The function returns at once, and its
 * thread serves other calls. Errors: TT_ERR_STATE the call has a result already; TT_ERR_INVALID `future` is NULL.
 * PyTorch: rpc.functions.async_execution. */
TT_API TT_NODISCARD tt_status tt_rpc_return_future(tt_rpc_call *call, tt_future *future);

/* Return the id of the worker that calls (-1 for NULL), or this process as a worker, which is borrowed. */
TT_API int tt_rpc_caller(const tt_rpc_call *call);
TT_API tt_rpc *tt_rpc_of_call(const tt_rpc_call *call);

/* ---- workers */

typedef struct tt_rpc_init_args {
    tt_rpc **out;     /* required: receives the worker that this process becomes */
    const char *name; /* required: letters, digits, `_`, `-`, `:`, `.`, below 128 bytes; no other worker may have it */
    TT_OPTIONS;

    /* Either .group or .store is required. With .group the workers are the ranks of this group, which all call
     * tt_rpc_init() together. They use its links and its shared memory, and a worker's id is its rank. It must be a
     * native group with all ranks of the job, has one tt_rpc at a time, and may be destroyed before
     * tt_rpc_shutdown(). */
    tt_group *group;

    /* With .store workers come and go. They meet through this store, which is borrowed until tt_rpc_shutdown() has
     * returned, and connect to each other by TCP at their first call. */
    tt_store *store;
    const char *prefix; /* of the keys in the store; NULL = "rpc" */
    int id;             /* this worker's id, if .has_id; else it gets the next free one */
    bool has_id;

    int threads;             /* functions that may run at once, those that wait not counted; 0 = 16 */
    int max_threads;         /* all threads of the pool, those that wait counted; 0 = 4096 */
    int64_t timeout_ms;      /* of calls that give none; 0 = none: they wait as long as the other worker lives */
    int64_t join_timeout_ms; /* for meeting the other workers; 0 = TT_DEFAULT_TIMEOUT_MS */
    int64_t heartbeat_ms;    /* with .store: a frozen worker or a cut link is noticed within this time; 0 = 5000 */
    size_t max_memory;       /* the most bytes of large arguments that are received for calls that have not begun;
                                further ones stay with their callers; 0 = a quarter of the machine's memory */
    bool other_functions;    /* don't compare functions: workers may have different ones */
    char tt_end;             /* not an option: see base.h */
} tt_rpc_init_args;

/* Become a worker: from now on other workers can call this process's functions. Blocks until all ranks have called it
 * (.group), or until this worker can be found in the store (.store), at most .join_timeout_ms. *out is the caller's, to
 * end by tt_rpc_shutdown().
 *   tt_rpc_init(&rpc, "ps", .group = world)
 * Errors: TT_ERR_INVALID a bad name, option or registered function; TT_ERR_STATE the process is a worker of this group
 * already; TT_ERR_EXISTS two workers have the same name; TT_ERR_MISMATCH two have the same id, or one lacks a function
 * that another has (both are named); TT_ERR_UNSUPPORTED the group is not native, or lacks ranks of the job; those of a
 * collective, or of a store.
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
    bool at_once;       /* don't wait: calls under way fail, here and on other workers. PyTorch: graceful=False */
    int64_t timeout_ms; /* 0 = none: it waits as long as the workers that it waits for live */
    char tt_end;        /* not an option: see base.h */
} tt_rpc_shutdown_args;

/* Stop being a worker. Blocks and serves calls meanwhile: a worker of a group until all workers have called this and no
 * call is under way on any of them, a worker of a store until no call of its own or that it serves is under way. Then,
 * also on failure, `rpc` is freed, futures that are not done fail, and other workers lose their references to values of
 * this process. No other thread may use `rpc` any more. NULL does nothing.
 *
 * A function that still runs then gets time to return: until the timeout, but at least a second; without a timeout, one
 * second with .at_once, else as long as it takes. If it does not return, the memory and threads of `rpc` stay until the
 * process ends.
 *
 * Errors: TT_ERR_TIMEOUT (the text names the workers that it waited for, or the functions that run); TT_ERR_STATE in a
 * function that serves a call, in a callback, or after `rpc` was shut down; with .group, TT_ERR_PEER a worker was lost
 * (the text names it, and says how). PyTorch: rpc.shutdown. */
TT_API TT_NODISCARD tt_status tt_rpc_shutdown_with(const tt_rpc_shutdown_args *args, size_t size);
#ifndef __cplusplus
#define tt_rpc_shutdown(...) tt_rpc_shutdown_with(TT_ARGS(tt_rpc_shutdown_args, .rpc = __VA_ARGS__))
#endif
#define TT_RPC_SHUTDOWN_ARGS_INIT TT_ARGS_INIT

/* Return this worker's id (-1 for NULL), or its name ("" for NULL), which belongs to `rpc`. PyTorch:
 * rpc.get_worker_info(). */
TT_API int tt_rpc_id(const tt_rpc *rpc);
TT_API const char *tt_rpc_name(const tt_rpc *rpc);

/* Find a worker by its name, and write its id to *id. With .store it may ask the store, and so block. Errors:
 * TT_ERR_NOT_FOUND there is no such worker (the text lists the names that are known); those of a store. PyTorch:
 * rpc.get_worker_info(name). */
TT_API TT_NODISCARD tt_status tt_rpc_find_worker(tt_rpc *rpc, const char *name, int *id);

/* Write the name of worker `id` to `name`, which has `size` bytes; 128 are enough for every name, and a longer one is
 * cut off. With .store it may ask the store, and so block. Errors: TT_ERR_NOT_FOUND there is no such worker. PyTorch:
 * rpc.get_worker_info(id).name. */
TT_API TT_NODISCARD tt_status tt_rpc_worker_name(tt_rpc *rpc, int id, char *name, size_t size);

/* Write the ids of the workers that are known here and not lost, this one included, in rising order, to `ids`, which
 * has room for `room` of them (NULL: none). With .store these are the workers that this one has had to do with; another
 * is found by its name. Returns how many there are; 0 after an error (TT_ERR_STATE, recorded, after tt_rpc_shutdown()).
 * PyTorch: the agent's get_worker_infos(). */
TT_API int64_t tt_rpc_workers(tt_rpc *rpc, int *ids, int64_t room);

/* Counts of what a worker has. */
typedef struct tt_rpc_counts {
    int64_t threads, idle;     /* threads of the pool; those of them that have nothing to do */
    int64_t calls, calls_made; /* calls that this worker made: now under way; in all */
    int64_t serving, served;   /* calls that this worker received: now without a reply; in all */
    int64_t owned, held;       /* references now: to values of this worker; from this worker to values of others */
    int64_t bytes;             /* bytes of received calls that have not begun */
} tt_rpc_counts;

/* Write this worker's counts to *out. Errors: TT_ERR_INVALID an argument is NULL; TT_ERR_STATE after tt_rpc_shutdown().
 * PyTorch: rpc.api._get_debug_info. */
TT_API TT_NODISCARD tt_status tt_rpc_get_counts(tt_rpc *rpc, tt_rpc_counts *out);

/* ---- calls */

typedef struct tt_rpc_sync_args {
    tt_rpc *rpc;          /* required */
    const char *to;       /* required: a worker's name; NULL: .to_id is its id */
    const char *function; /* required: a function's name */
    TT_OPTIONS;
    int to_id;            /* the worker's id, if .to is NULL */
    tt_rpc_values args;   /* TT_RPC_ARGS(...) */
    tt_rpc_value *result; /* only for tt_rpc_sync(): receives the result, the caller's to free; NULL = drop it */
    int64_t timeout_ms;   /* 0 = that of tt_rpc_init(); below 0 = none */
    char tt_end;          /* not an option: see base.h */
} tt_rpc_sync_args;

/* Call a function of a worker, which may be this one, and wait for its result. The arguments are borrowed until this
 * returns. After an error *result is none.
 *   tt_rpc_sync(rpc, "worker1", "add", .args = TT_RPC_ARGS(tt_rpc_int(2), tt_rpc_int(3)), .result = &sum)
 * Errors: TT_ERR_NOT_FOUND there is no such worker, or it has no such function (the text lists those there are);
 * TT_ERR_INVALID the arguments don't fit the signature (nothing was sent); the error of the function; TT_ERR_TIMEOUT
 * (the function may still run); TT_ERR_PEER the worker died, froze or left (the text names it); TT_ERR_MISMATCH the
 * call waits in a cycle of calls; TT_ERR_STATE after tt_rpc_shutdown(), or in a callback; TT_ERR_MEMORY. PyTorch:
 * rpc.rpc_sync. */
TT_API TT_NODISCARD tt_status tt_rpc_sync_with(const tt_rpc_sync_args *args, size_t size);

/* Call a function without waiting for it: *out receives a future of its result, which is the caller's to free.
 * Arguments must stay unchanged until the future is done, since large bytes and tensors are read while they are sent.
 * Blocks only while 16 MiB of earlier calls to the same worker wait to be sent. Errors: those of tt_rpc_sync(); those
 * that are found after the call was sent are the future's. PyTorch: rpc.rpc_async. */
TT_API TT_NODISCARD tt_status tt_rpc_async_with(tt_future **out, const tt_rpc_sync_args *args, size_t size);

/* Call a function without waiting for it, and leave the result with the worker that it runs on: *out receives a
 * reference to the result, which is the caller's to free. Bytes and texts of the arguments are copied; tensors must
 * stay unchanged until the function has returned, as tt_rref_get() shows. Blocks as tt_rpc_async() does. Errors: those
 * of tt_rpc_async(); if the function fails, uses of the reference fail with its error. PyTorch: rpc.remote. */
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

/* A callback, which is called once, when the future is done, by the thread that ended it, or by the one that added the
 * callback if the future was done. It must not wait (TT_ERR_STATE). */
typedef void (*tt_future_fn)(tt_future *future, void *user);

/* A callback that makes the value of a new future from `future`, which is done, with a value or an error. It writes an
 * owned value to *out, which is taken, or one that borrows, which is copied. If it returns an error, that is the new
 * future's. It must not wait (TT_ERR_STATE). */
typedef tt_status (*tt_future_then_fn)(tt_future *future, tt_rpc_value *out, void *user);

/* Make a future that the program ends itself, by tt_future_set_value() or tt_future_set_error(). It is the caller's to
 * free. NULL, recorded: no memory. PyTorch: torch.futures.Future(). */
TT_API tt_future *tt_future_new(void);

/* End a future with a value, or with this thread's last error, and run its callbacks. An owned value is taken, also on
 * failure; another one is copied. Errors: TT_ERR_STATE the future is done already; TT_ERR_MEMORY. PyTorch:
 * Future.set_result, Future.set_exception. */
TT_API TT_NODISCARD tt_status tt_future_set_value(tt_future *future, tt_rpc_value value);
TT_API TT_NODISCARD tt_status tt_future_set_error(tt_future *future);

/* Wait until a future is done, at most `timeout_ms` if that is above 0. Errors: the future's own, recorded in this
 * thread; TT_ERR_TIMEOUT it is not done yet, and its call goes on; TT_ERR_STATE it is not done, and this thread is in a
 * callback. PyTorch: Future.wait. */
TT_API TT_NODISCARD tt_status tt_future_wait(tt_future *future, int64_t timeout_ms);

/* Return whether a future is done. It never blocks. PyTorch: Future.done. */
TT_API bool tt_future_is_done(tt_future *future);

/* Return the value of a future that is done. It belongs to the future. NULL, recorded: TT_ERR_STATE the future is not
 * done; its own error. It never blocks. PyTorch: Future.value. */
TT_API const tt_rpc_value *tt_future_value(tt_future *future);

/* Have `fn` called with `user` when the future is done; at once if it is. Errors: TT_ERR_MEMORY, and `fn` is not
 * called.
 * PyTorch: Future.add_done_callback. */
TT_API TT_NODISCARD tt_status tt_future_add_callback(tt_future *future, tt_future_fn fn, void *user);

/* Make a future whose value `fn` makes from that of `future` when it is done. *out is the caller's to free. Errors:
 * TT_ERR_MEMORY, and `fn` is not called. PyTorch: Future.then. */
TT_API TT_NODISCARD tt_status tt_future_then(tt_future **out, tt_future *future, tt_future_then_fn fn, void *user);

/* Make a future that is done when all `count` futures are, also if one fails early. Its value is the list of their
 * values; if some failed, it has the error of the first of these in the list. It takes a share of each. *out is the
 * caller's to free. Errors: TT_ERR_INVALID a future is NULL; TT_ERR_MEMORY. PyTorch: torch.futures.collect_all. */
TT_API TT_NODISCARD tt_status tt_future_collect_all(tt_future **out, tt_future *const *futures, int64_t count);

/* Drop a share of a future (its call goes on), or take one more and return it. A future is freed with its last share.
 * If the program never ended it, its callbacks get TT_ERR_STATE then. NULL is allowed. */
TT_API void tt_future_free(tt_future *future);
TT_API tt_future *tt_future_share(tt_future *future);

/* ---- references */

/* Make a reference to a value of this process, which other workers can then use. It is the caller's to free. An owned
 * value is taken, also on failure; another one is copied. NULL, recorded: no memory, TT_ERR_STATE after
 * tt_rpc_shutdown(), or an error of tt_rpc_value_copy(). PyTorch: RRef(value). */
TT_API tt_rref *tt_rref_new(tt_rpc *rpc, tt_rpc_value value);

/* Return the id of the worker that has the value (-1 for NULL), or whether that is this one. PyTorch: RRef.owner,
 * RRef.is_owner. */
TT_API int tt_rref_owner(const tt_rref *rref);
TT_API bool tt_rref_is_owner(const tt_rref *rref);

/* Fetch a copy of the value; *out is the caller's to free. Blocks until the value has been made, at most `timeout_ms`
 * if that is above 0. Errors: that of the function that was to make the value; TT_ERR_PEER the owner was lost (the text
 * names it); TT_ERR_INVALID the value is an object, or `rref` is NULL; those of tt_rpc_sync(). PyTorch:
 * RRef.to_here. */
TT_API TT_NODISCARD tt_status tt_rref_get(tt_rref *rref, tt_rpc_value *out, int64_t timeout_ms);

/* Return the value itself, on its owner. It is valid as long as the caller has the reference; threads that change it
 * need a lock. Blocks until the value has been made. NULL, recorded: TT_ERR_STATE this worker is not the owner; the
 * error of the function that was to make the value. PyTorch: RRef.local_value. */
TT_API const tt_rpc_value *tt_rref_local(tt_rref *rref);

/* Call a function on the value's owner, with the reference as its first argument, before .args.
 *   tt_rref_sync(counter, "add_to", .args = TT_RPC_ARGS(tt_rpc_int(1)), .result = &count)
 * All else is as in tt_rpc_sync(), tt_rpc_async() and tt_rpc_remote(). PyTorch: RRef.rpc_sync().method(), rpc_async()
 * and remote(). */
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

/* Take one more share of a reference and return it, or drop one. When no worker has a share any more, the value is
 * freed. After tt_rpc_shutdown() shares may still be dropped; every other use fails. A reference whose last share in
 * this process was dropped must not be used, like memory after free(): that is not found. NULL is allowed. */
TT_API tt_rref *tt_rref_share(tt_rref *rref);
TT_API void tt_rref_free(tt_rref *rref);

TT_END_DECLS
#endif
