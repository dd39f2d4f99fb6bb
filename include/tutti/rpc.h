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
 * Errors. A call fails with what the function failed with: "worker1 (id 1), add(): TEXT"; of nested calls the text
 * names the whole path. A worker that dies, freezes or leaves ends the calls to it with TT_ERR_PEER, which names it. A
 * call has no timeout unless one is given: it lasts as long as the other worker provably lives.
 *
 * Threads. Every function here may be called from several threads at once, on one `tt_rpc`, unless it says otherwise.
 * Functions that wait must not be called in a callback of a future or of a work (TT_ERR_STATE). Functions that others
 * call run in threads of their own, of which there are more when all of them wait in Tutti's own waits.
 *
 * PyTorch: torch.distributed.rpc. Tensors as values, distributed autograd and optimizers: tutti/rpc_training.h. */
#ifndef TUTTI_RPC_H
#define TUTTI_RPC_H

#include <tutti/comm.h>
#include <tutti/store.h>

TT_BEGIN_DECLS

typedef struct tt_rpc tt_rpc;           /* this process among the workers */
typedef struct tt_rpc_call tt_rpc_call; /* a call that a function of this process serves */
typedef struct tt_rref tt_rref;         /* a reference to a value that lies with its owner */
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
    TT_RPC_MAP,   /* in the order in which it was made */
    TT_RPC_OBJECT /* a pointer of the program's own: the value of a reference, which no call carries */
} tt_rpc_kind;

enum { TT_RPC_DEPTH = 32 /* lists within lists that a value may have */ };

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

/* A value. Those that the functions below make borrow what they are made of, until the call that they are given to has
 * returned (of an asynchronous call: until its future is done). Values that a call has received are `owned`. */
typedef struct tt_rpc_value {
    tt_rpc_kind kind;
    bool owned; /* what it points to is its own: tt_rpc_value_free() releases it */
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

/* Make values of numbers, texts (NULL: none) and bytes. */
static inline tt_rpc_value tt_rpc_none(void) {
    tt_rpc_value value = {TT_RPC_NONE, false, {false}};
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

/* Make a value of a reference, which stays the caller's. NULL: none. */
TT_API tt_rpc_value tt_rpc_rref(tt_rref *rref);

/* Make a list, or a map, of values that lie one behind the other; of a map keys (texts or numbers) and values take
 * turns, so that `count` is even. */
TT_API tt_rpc_value tt_rpc_list(const tt_rpc_value *items, int64_t count);
TT_API tt_rpc_value tt_rpc_map(const tt_rpc_value *items, int64_t count);

/* Make a value of a pointer of the program's own, for tt_rref_new() or as a result that a reference keeps:
 * `free` (may be NULL) is called once, when the last reference to it is gone. `type` is a literal. */
TT_API tt_rpc_value tt_rpc_object(void *at, void (*free)(void *at), const char *type);

/* Copy a value, with all that it points to (tensors and references are shared, objects can't be copied). Errors:
 * TT_ERR_MEMORY; TT_ERR_INVALID an object, or lists nested deeper than TT_RPC_DEPTH. */
TT_API TT_NODISCARD tt_status tt_rpc_value_copy(tt_rpc_value *out, const tt_rpc_value *value);

/* Release what an owned value points to, and make it none. NULL, and values that own nothing, are allowed. */
TT_API void tt_rpc_value_free(tt_rpc_value *value);

/* The value of a key that is a text, in a map; NULL if there is none. */
TT_API const tt_rpc_value *tt_rpc_map_get(const tt_rpc_value *map, const char *key);

/* "int", "tensor"; "?" for a value outside of the enum. */
TT_API const char *tt_rpc_kind_name(tt_rpc_kind kind);

/* The arguments of a call, in place: .args = TT_RPC_ARGS(tt_rpc_int(1), tt_rpc_text("a")). */
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

/* A function that workers call. It reads its arguments, and gives its result by tt_rpc_return(). What it returns else
 * than TT_OK fails the call with this thread's last error. */
typedef tt_status (*tt_rpc_fn)(tt_rpc_call *call);

/* Register a function under a name (letters, digits, `_`, `.`, `:`; below 64 bytes; "tutti." is reserved), with a
 * signature: "(int count, tensor? mask, float... rates) -> list". Types are none, bool, int, float (which takes an int,
 * too), text, bytes, tensor, rref, list, map, object (of results that a reference keeps) and any; `?`: it may be none;
 * `...`, of the last one: as many as there are. Without an arrow the result is none. `name`, `signature` and `fn` stay.
 * Before tt_rpc_init(). Errors: TT_ERR_INVALID a name or signature that can't be; TT_ERR_STATE another function has
 * this name, or a tt_rpc exists already. */
TT_API TT_NODISCARD tt_status tt_rpc_register(const char *name, const char *signature, tt_rpc_fn fn);

/* The same when the program is loaded: TT_RPC_FUNCTION(add, "(int a, int b) -> int"); registers add() as "add". What is
 * wrong with it is the error of tt_rpc_init(). */
#define TT_RPC_FUNCTION(fn, signature) TT_RPC_FUNCTION_NAMED(fn, #fn, signature)
#define TT_RPC_FUNCTION_NAMED(fn, name, signature)                        \
    __attribute__((constructor)) static void tt_rpc_register_##fn(void) { \
        tt_rpc_register_at_load(name, signature, fn);                     \
    }                                                                     \
    struct tt_rpc_function_needs_a_semicolon
TT_API void tt_rpc_register_at_load(const char *name, const char *signature, tt_rpc_fn fn);

/* What a call carries: how many arguments, and each; they fit the signature. Valid until the function has returned, and
 * for one that replies later until it has replied. An index out of range, or a kind that the argument does not have,
 * gives none, 0, NULL. Texts end in a byte 0. */
TT_API int64_t tt_rpc_arg_count(const tt_rpc_call *call);
TT_API const tt_rpc_value *tt_rpc_arg(const tt_rpc_call *call, int64_t index);
TT_API bool tt_rpc_arg_bool(const tt_rpc_call *call, int64_t index);
TT_API int64_t tt_rpc_arg_int(const tt_rpc_call *call, int64_t index);
TT_API double tt_rpc_arg_float(const tt_rpc_call *call, int64_t index);
TT_API const char *tt_rpc_arg_text(const tt_rpc_call *call, int64_t index);
TT_API tt_rref *tt_rpc_arg_rref(const tt_rpc_call *call, int64_t index);

/* Take an argument out of the call, which has none there then: the caller's to free. */
TT_API TT_NODISCARD tt_status tt_rpc_take_arg(tt_rpc_call *call, int64_t index, tt_rpc_value *out);

/* Give the result: of an owned value the call takes what it owns, also on failure; what another borrows is copied or
 * sent before this returns. Once a call. Errors: TT_ERR_INVALID it does not fit the signature; TT_ERR_STATE there is
 * one already. */
TT_API TT_NODISCARD tt_status tt_rpc_return(tt_rpc_call *call, tt_rpc_value value);

/* Reply later: when `future`, of tt_future_new(), tt_future_then() or an asynchronous call, is done, with its value or
 * its error. The call keeps a share of it; the function returns at once and its thread serves others. PyTorch:
 * rpc.functions.async_execution. */
TT_API TT_NODISCARD tt_status tt_rpc_return_future(tt_rpc_call *call, tt_future *future);

/* Who called, and this process among the workers. */
TT_API int tt_rpc_caller(const tt_rpc_call *call);
TT_API tt_rpc *tt_rpc_of_call(const tt_rpc_call *call);

/* ---- workers */

typedef struct tt_rpc_init_args {
    tt_rpc **out;     /* required: receives this process's membership */
    const char *name; /* required: letters, digits, `_`, `-`, `:`, `.`, below 128 bytes; differs from all others' */
    TT_OPTIONS;

    /* The workers are the ranks of this group, with its links and memory, and a worker's id is its rank: all of them
     * call tt_rpc_init() together. The group may be destroyed before. A native group whose ranks are all of the job's;
     * one tt_rpc at a time. */
    tt_group *group;

    /* Or workers come and go, and meet through this store, which is borrowed: they connect to each other by TCP when
     * they first call. */
    tt_store *store;
    const char *prefix; /* of the store's keys; NULL = "rpc" */
    int id;             /* with has_id: this worker's id, else the next that is free */
    bool has_id;

    int threads;             /* that run functions, while none of them waits; 0 = 16 */
    int max_threads;         /* in all; 0 = 4096 */
    int64_t timeout_ms;      /* of calls that give none; 0 = none: they last as long as the other worker lives */
    int64_t join_timeout_ms; /* of meeting the others; 0 = TT_DEFAULT_TIMEOUT_MS */
    int64_t heartbeat_ms;    /* with .store: a frozen worker or a cut link is named within this time; 0 = 5000 */
    size_t
        max_memory; /* bytes of calls that this worker has received and not yet begun, and above which it lets callers
                          wait; 0 = a quarter of the machine's */
    bool other_functions; /* workers may have other functions than this one has */
    char tt_end;          /* not an option: see base.h */
} tt_rpc_init_args;

/* Become a worker. Blocks until all have come (.group), or the others that are there know of this one (.store).
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
    bool at_once; /* wait for nothing: calls that are under way fail, here and on others. PyTorch: graceful=False */
    int64_t timeout_ms; /* of waiting; 0 = as long as those waited for live */
    char tt_end;        /* not an option: see base.h */
} tt_rpc_shutdown_args;

/* Be a worker no more. Workers of a group wait until all have called it and no call is under way anywhere, while they
 * serve what still comes; a worker of a store waits for its own calls and those that it serves. Then, also on failure,
 * everything ends: `rpc` is freed, futures that are left fail, references of this process are lost to others. No other
 * thread may use it any more, and no function of this process may call it. Errors: TT_ERR_TIMEOUT, which names whom it
 * waited for; TT_ERR_PEER, of workers of a group, one of them was lost: its name, and how. NULL does nothing. PyTorch:
 * rpc.shutdown. */
TT_API TT_NODISCARD tt_status tt_rpc_shutdown_with(const tt_rpc_shutdown_args *args, size_t size);
#ifndef __cplusplus
#define tt_rpc_shutdown(...) tt_rpc_shutdown_with(TT_ARGS(tt_rpc_shutdown_args, .rpc = __VA_ARGS__))
#endif
#define TT_RPC_SHUTDOWN_ARGS_INIT TT_ARGS_INIT

/* This worker's id and name; -1 and "" for NULL. The name lives as long as `rpc`. */
TT_API int tt_rpc_id(const tt_rpc *rpc);
TT_API const char *tt_rpc_name(const tt_rpc *rpc);

/* The id of the worker of this name. Errors: TT_ERR_NOT_FOUND, with the names that there are. With .store it may ask
 * the store. */
TT_API TT_NODISCARD tt_status tt_rpc_find_worker(tt_rpc *rpc, const char *name, int *id);

/* Write the name of a worker to `name`, of `size` bytes. Errors: TT_ERR_NOT_FOUND. */
TT_API TT_NODISCARD tt_status tt_rpc_worker_name(tt_rpc *rpc, int id, char *name, size_t size);

/* Write the ids of the workers that are there, this one included, in rising order, to `ids`, which has room for `room`;
 * returns how many there are. */
TT_API int64_t tt_rpc_workers(tt_rpc *rpc, int *ids, int64_t room);

/* What this worker has under way now. PyTorch: rpc.api._get_debug_info. */
typedef struct tt_rpc_counts {
    int64_t threads, idle;     /* that run functions; of those, that run none */
    int64_t calls, calls_made; /* of this worker to others: not yet done; so far */
    int64_t serving, served;   /* of others that this one has: not yet replied to; so far */
    int64_t owned, held;       /* references: values that lie here and are referred to; references to others' */
    int64_t bytes;             /* of calls received and not begun */
} tt_rpc_counts;
TT_API TT_NODISCARD tt_status tt_rpc_get_counts(tt_rpc *rpc, tt_rpc_counts *out);

/* ---- calls */

typedef struct tt_rpc_sync_args {
    tt_rpc *rpc;          /* required, as are the next two */
    const char *to;       /* a worker's name; NULL: .to_id is its id */
    const char *function; /* a function's name */
    TT_OPTIONS;
    int to_id;
    tt_rpc_values args;
    tt_rpc_value *result; /* of tt_rpc_sync(): receives the result, the caller's to free; NULL: it is dropped */
    int64_t timeout_ms;   /* 0 = that of tt_rpc_init(); less than 0: none */
    char tt_end;          /* not an option: see base.h */
} tt_rpc_sync_args;

/* Call a function of a worker, which may be this one, and wait for its result.
 *   tt_rpc_sync(rpc, "worker1", "add", .args = TT_RPC_ARGS(tt_rpc_int(2), tt_rpc_int(3)), .result = &sum)
 * Errors: TT_ERR_NOT_FOUND no such worker, or it has no such function (the text lists what there is); TT_ERR_INVALID
 * arguments that don't fit its signature, said before anything is sent; what the function failed with; TT_ERR_TIMEOUT
 * (the function may still run); TT_ERR_PEER the worker died, froze or left, by name; TT_ERR_STATE after
 * tt_rpc_shutdown(), or in a callback. PyTorch: rpc.rpc_sync. */
TT_API TT_NODISCARD tt_status tt_rpc_sync_with(const tt_rpc_sync_args *args, size_t size);

/* The same without waiting: *out receives a future of the result, the caller's to free. Bytes and tensors of some size
 * are read while they are sent: they stay as they are until the future is done. PyTorch: rpc.rpc_async. */
TT_API TT_NODISCARD tt_status tt_rpc_async_with(tt_future **out, const tt_rpc_sync_args *args, size_t size);

/* The same, and the result stays with the worker that made it: *out receives a reference to it, the caller's to free.
 * An error of the function is that of whoever uses the reference. PyTorch: rpc.remote. */
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

/* Called once, when the future is done: by the thread that ended it, in no lock. It must not wait. */
typedef void (*tt_future_fn)(tt_future *future, void *user);

/* What a then() makes of a future that is done, with value or error: *out becomes the value of the new one; an error is
 * that of the new one. */
typedef tt_status (*tt_future_then_fn)(tt_future *future, tt_rpc_value *out, void *user);

/* Make a future that this process ends itself. NULL, recorded: no memory. PyTorch: torch.futures.Future. */
TT_API tt_future *tt_future_new(void);

/* End it, with a value (of an owned one it takes what it owns, also on failure; another is copied) or with this
 * thread's last error and its status. Errors: TT_ERR_STATE it is done already; TT_ERR_MEMORY. */
TT_API TT_NODISCARD tt_status tt_future_set_value(tt_future *future, tt_rpc_value value);
TT_API TT_NODISCARD tt_status tt_future_set_error(tt_future *future);

/* Wait until it is done, or, with `timeout_ms` above 0, so long. Returns its error, recorded in this thread;
 * TT_ERR_TIMEOUT it is not done yet, and goes on; TT_ERR_STATE in a callback. */
TT_API TT_NODISCARD tt_status tt_future_wait(tt_future *future, int64_t timeout_ms);

/* Whether it is done. */
TT_API bool tt_future_is_done(tt_future *future);

/* Its value, which stays its own; NULL if it is not done, or failed: then the error is recorded. */
TT_API const tt_rpc_value *tt_future_value(tt_future *future);

/* Call `fn` when it is done; at once if it is. PyTorch: Future.add_done_callback. */
TT_API TT_NODISCARD tt_status tt_future_add_callback(tt_future *future, tt_future_fn fn, void *user);

/* Make a future of what `fn` makes of this one. *out is the caller's. PyTorch: Future.then. */
TT_API TT_NODISCARD tt_status tt_future_then(tt_future **out, tt_future *future, tt_future_then_fn fn, void *user);

/* Make a future of several. It is done when all of them are, also where one has failed: with a list of their values, or
 * else with the error of the first in the list that failed. PyTorch: torch.futures.collect_all. */
TT_API TT_NODISCARD tt_status tt_future_collect_all(tt_future **out, tt_future *const *futures, int64_t count);

/* Let a share of it go, or take one more. What it stands for goes on. NULL is allowed. */
TT_API void tt_future_free(tt_future *future);
TT_API tt_future *tt_future_share(tt_future *future);

/* ---- references */

/* Make a reference to a value of this process, of which it takes what an owned one owns, also on failure. NULL,
 * recorded: no memory. */
TT_API tt_rref *tt_rref_new(tt_rpc *rpc, tt_rpc_value value);

/* The worker that has the value; -1 for NULL. And whether that is this one. */
TT_API int tt_rref_owner(const tt_rref *rref);
TT_API bool tt_rref_is_owner(const tt_rref *rref);

/* Fetch the value: a copy of it, the caller's to free; waits until it has been made. Errors: what the function that was
 * to make it failed with; TT_ERR_PEER its owner was lost, by name; TT_ERR_INVALID it is an object, or NULL; those of a
 * call. PyTorch: RRef.to_here. */
TT_API TT_NODISCARD tt_status tt_rref_get(tt_rref *rref, tt_rpc_value *out, int64_t timeout_ms);

/* The value itself, on its owner: valid as long as the caller has the reference; waits until it has been made. NULL,
 * recorded: TT_ERR_STATE on another worker; what its making failed with. PyTorch: RRef.local_value. */
TT_API const tt_rpc_value *tt_rref_local(tt_rref *rref);

/* Call a function where the value lies, with the reference as its first argument, before .args.
 *   tt_rref_sync(counter, "add_to", .args = TT_RPC_ARGS(tt_rpc_int(1)), .result = &count)
 * As tt_rpc_sync(), tt_rpc_async() and tt_rpc_remote(). PyTorch: RRef.rpc_sync().method(). */
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

/* Take one more share of a reference, or let one go. With the last of all workers' its value is freed. After
 * tt_rpc_shutdown() shares may still be let go, and nothing else. NULL is allowed. */
TT_API tt_rref *tt_rref_share(tt_rref *rref);
TT_API void tt_rref_free(tt_rref *rref);

TT_END_DECLS
#endif
