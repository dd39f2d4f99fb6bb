/* tutti/store.h: the key-value store by which ranks meet.
 *
 * TCPStore, HashStore, FileStore and the store in etcd have the same calls; what is said of connections is true of
 * TCPStore alone. Its wire and semantics are those of torch.distributed.TCPStore, in the dialects of 1.13 and of 2.x.
 * PyTorch's two servers differ in whether compare_set releases waiters; here it does, as with the libuv one. Keys are C
 * strings; as sent, with all prefixes and one more slash, they have at most TT_STORE_MAX_KEY bytes. Values are any
 * bytes, at most TT_STORE_MAX_VALUE.
 *
 * Every call on a `tt_store` blocks until it is answered, at most for the store's timeout. A store may be used from
 * several threads: calls are served one after the other, and waiting for its turn counts towards a call's timeout.
 * After TT_ERR_NET, TT_ERR_PROTOCOL, or a timeout within an answer, the connection is closed, and every later call
 * fails with TT_ERR_STATE. After a timeout of tt_store_wait() in the 2.x dialect the store stays usable. */
#ifndef TUTTI_STORE_H
#define TUTTI_STORE_H

#include <tutti/base.h>

TT_BEGIN_DECLS

typedef struct tt_store tt_store;
typedef struct tt_store_server tt_store_server;

#define TT_STORE_DEFAULT_PORT 29500
#define TT_STORE_MAX_KEY ((size_t)8192)
#define TT_STORE_MAX_VALUE ((size_t)64 << 20)
#define TT_STORE_MIN_MEMORY ((size_t)1 << 20)

/* Who may use a served store. A Tutti client that has the job secret proves it before it sends anything else. A client
 * in PyTorch's own dialect can prove nothing:
 *   LOCAL      it is served if it connects from this machine, and the kernel says that its process is the server's
 *              user's or root's
 *   REQUIRED   it is refused; the server needs a secret (or TLS with certificates)
 *   NONE       it is served from anywhere, for networks without strangers. The first time is logged as a warning
 * These are refused and logged: a client with another secret, one without a secret if the server has one, and one that
 * takes too long to prove it. */
typedef enum tt_store_auth { TT_STORE_AUTH_LOCAL, TT_STORE_AUTH_REQUIRED, TT_STORE_AUTH_NONE } tt_store_auth;

typedef struct tt_store_server_new_args {
    tt_store_server **out; /* required: receives the server, the caller's to end with tt_store_server_free() */
    const char *host; /* required: name or address to bind; NULL = "127.0.0.1"; "0.0.0.0" or "::" = all addresses */
    int port;         /* required: 0 = any free one */
    TT_OPTIONS;
    tt_store_auth auth;
    const char *secret;       /* the job secret; NULL = TT_SECRET, TT_SECRET_FILE or that of `tutti run`, "" = none */
    int64_t proof_timeout_ms; /* how long a new connection may take to prove; 0 = 10 s */
    /* bytes: values may take three quarters, unread replies and unfinished requests the rest; a client that needs more
     * is closed and logged. At least TT_STORE_MIN_MEMORY; 0 = an eighth of the machine's memory, or of what the
     * process's cgroup allows, and at least 256 MiB */
    size_t max_memory;
    char tt_end; /* not an option: see base.h */
} tt_store_server_new_args;

/* Serve a store from a thread of this process, for both dialects, told apart on first contact.
 *   tt_store_server_new(&server, "0.0.0.0", 29500, .auth = TT_STORE_AUTH_REQUIRED)
 * With TT_TLS=1 in the environment, Tutti clients must encrypt their connections (docs/security.md).
 * Errors: TT_ERR_INVALID bad port or secret, no secret where one is required; TT_ERR_NET the address can't be bound
 * (the text names it, and says so when the port is in use); TT_ERR_MEMORY, TT_ERR_SYSTEM; TT_ERR_IO a file of secret or
 * certificates. */
TT_API TT_NODISCARD tt_status tt_store_server_new_with(const tt_store_server_new_args *args, size_t size);
#ifndef __cplusplus
#define tt_store_server_new(out_, host_, ...)                                                            \
    tt_store_server_new_with(TT_ARGS(tt_store_server_new_args, .out = TT_PLACE(tt_store_server *, out_), \
                                     .host = (host_), .port = __VA_ARGS__))
#endif
#define TT_STORE_SERVER_NEW_ARGS_INIT TT_ARGS_INIT

/* Return the port served; 0 for NULL. */
TT_API int tt_store_server_port(const tt_store_server *server);

/* Stop: close every connection, join the thread, forget all keys. NULL is allowed. */
TT_API void tt_store_server_free(tt_store_server *server);

/* Which of PyTorch's wire dialects a client speaks. */
typedef enum tt_store_dialect {
    TT_STORE_TORCH_2,
    TT_STORE_TORCH_1_13,
    /* 2.x's, or 1.13's if the server ends a connection that begins in 2.x's dialect and answers one in 1.13's. With a
     * secret to prove, always 2.x's. */
    TT_STORE_TORCH_ANY
} tt_store_dialect;

typedef struct tt_tcp_store_args {
    tt_store **out;   /* required: receives the store, the caller's to free */
    const char *host; /* required: server's name or address */
    int port;         /* required: 1..65535, or 0 with .is_server: any */
    TT_OPTIONS;
    bool is_server;           /* serve here too (the server lives and dies with this store) */
    int world_size;           /* > 0: count this client under "init/"; 0: don't, as PyTorch without world_size */
    bool no_wait_for_workers; /* with world_size: the server's side does not wait for the other clients */
    int64_t timeout_ms;       /* for connecting and for each call; 0 = 300000 (300 s), as PyTorch */
    tt_store_dialect dialect;
    /* the job secret to prove; NULL = TT_SECRET, TT_SECRET_FILE or that of `tutti run`, "" = none */
    const char *secret;
    bool torch_server;  /* the server is PyTorch's, which knows no proofs: prove nothing, encrypt nothing */
    tt_store_auth auth; /* with is_server: who may use it */
    char tt_end;        /* not an option: see base.h */
} tt_tcp_store_args;

/* Connect to a TCPStore, retrying until the timeout while nobody listens. PyTorch: torch.distributed.TCPStore.
 *   tt_tcp_store(&store, "localhost", 29500, .is_server = rank == 0)
 * Errors: TT_ERR_INVALID, TT_ERR_TIMEOUT (the text names host and port, and how many of world_size clients came),
 * TT_ERR_NET, TT_ERR_PROTOCOL (whoever listens there is no store), TT_ERR_AUTH (the two sides have different secrets,
 * or only one has any). */
TT_API TT_NODISCARD tt_status tt_tcp_store_with(const tt_tcp_store_args *args, size_t size);
#ifndef __cplusplus
#define tt_tcp_store(out_, host_, ...) \
    tt_tcp_store_with(                 \
        TT_ARGS(tt_tcp_store_args, .out = TT_PLACE(tt_store *, out_), .host = (host_), .port = __VA_ARGS__))
#endif
#define TT_TCP_STORE_ARGS_INIT TT_ARGS_INIT

/* A store in this process's memory, for its threads. PyTorch: HashStore. timeout_ms: of each call, 0 = 300000. */
TT_API TT_NODISCARD tt_status tt_hash_store(tt_store **out, int64_t timeout_ms);

typedef struct tt_file_store_args {
    tt_store **out;   /* required: receives the store, the caller's to free */
    const char *path; /* required: a file that all users see, on a file system with flock(); made if it is missing */
    TT_OPTIONS;
    int world_size;     /* > 0: the last of so many stores to be freed removes the file; 0: nobody does */
    bool fresh;         /* forget what an earlier job left in the file, unless a store with .fresh uses it right now */
    int64_t timeout_ms; /* of each call; 0 = 300000 */
    char tt_end;        /* not an option: see base.h */
} tt_file_store_args;

/* A store in a file, for processes that share a file system but no network. PyTorch: FileStore; the format is the same,
 * and both can use one file together. A waiting call reads the file every few ms. A file that an earlier job left still
 * has its keys, unless all users ask for .fresh. Errors: TT_ERR_INVALID, TT_ERR_IO (the text names the file),
 * TT_ERR_TIMEOUT another process holds the file's lock, TT_ERR_MEMORY. Calls on it also fail with TT_ERR_PROTOCOL if
 * the file is no store's. */
TT_API TT_NODISCARD tt_status tt_file_store_with(const tt_file_store_args *args, size_t size);
#ifndef __cplusplus
#define tt_file_store(out_, ...) \
    tt_file_store_with(TT_ARGS(tt_file_store_args, .out = TT_PLACE(tt_store *, out_), .path = __VA_ARGS__))
#endif
#define TT_FILE_STORE_ARGS_INIT TT_ARGS_INIT

typedef struct tt_etcd_store_args {
    tt_store **out;        /* required: receives the store, the caller's to free */
    const char *endpoints; /* required: "host:2379", or "https://host:2379"; a cluster's members separated by commas */
    TT_OPTIONS;
    const char *prefix; /* the keys are below "prefix/" in etcd; each job needs its own; NULL = "tutti" */
    int64_t timeout_ms; /* for connecting and for each call; 0 = 300000 */
    /* The user, if etcd has users; NULL = TT_ETCD_USER, TT_ETCD_PASSWORD, or TT_ETCD_TOKEN instead of both; "" =
     * nobody. */
    const char *user, *password, *token;
    /* For https, PEM files: the CA of the servers' certificates, and this client's certificate and key; NULL =
     * TT_ETCD_CA_FILE (else the system's authorities), TT_ETCD_CERT_FILE, TT_ETCD_KEY_FILE. */
    const char *ca_file, *cert_file, *key_file;
    char tt_end; /* not an option: see base.h */
} tt_etcd_store_args;

/* A store in etcd, 3.4 or later, which runs already and outlives any node of the job. The v3 API is used, by the JSON
 * gateway that etcd serves at its port for clients. PyTorch has no such store: torchrun's etcd back ends are for
 * rendezvous.
 *   tt_etcd_store(&store, "etcd-0:2379,etcd-1:2379,etcd-2:2379", .prefix = "jobs/17")
 *
 * Other clients see the values as they are, under "prefix/key". Values have at most 1 MiB, since etcd's requests are
 * limited to 1.5 MiB. tt_store_multi_set() is one transaction up to 100 keys and 1 MiB together; more are set in
 * several. Within its timeout, a call that meets a dead server goes on with another one, or with the same one when it
 * is back. Each write happens once, even if an answer is lost. For that each store that writes has a key of its own,
 * hidden from these calls. tt_store_free() removes it, which may take a second, or else etcd does a day later. After a
 * failure the store stays usable; after TT_ERR_TIMEOUT a write may still happen. Keys stay when the store is freed.
 * Each call that waits uses a watch. Plain http:// protects neither values nor passwords.
 * Errors: TT_ERR_INVALID bad addresses or options; TT_ERR_TIMEOUT nobody answered (the text names the servers and says
 * what came last); TT_ERR_AUTH a wrong password, an unknown certificate, or keys that this user may not use;
 * TT_ERR_UNSUPPORTED there is no libcurl, the server has no v3 API, or its gateway is off; TT_ERR_PROTOCOL whoever
 * listens there is no etcd; TT_ERR_NET etcd refuses, in its own words; TT_ERR_MEMORY. */
TT_API TT_NODISCARD tt_status tt_etcd_store_with(const tt_etcd_store_args *args, size_t size);
#ifndef __cplusplus
#define tt_etcd_store(out_, ...) \
    tt_etcd_store_with(TT_ARGS(tt_etcd_store_args, .out = TT_PLACE(tt_store *, out_), .endpoints = __VA_ARGS__))
#endif
#define TT_ETCD_STORE_ARGS_INIT TT_ARGS_INIT

/* A store whose key k is "prefix/k" of `base`, which is borrowed and must outlive it. PyTorch: PrefixStore. */
TT_API TT_NODISCARD tt_status tt_prefix_store(tt_store **out, const char *prefix, tt_store *base);

/* Disconnect (and stop the server it owns). NULL is allowed. */
TT_API void tt_store_free(tt_store *store);

/* Return the port that this store, or the base of a prefix store, is connected to; 0: it has none, or is NULL. */
TT_API int tt_store_port(const tt_store *store);

/* Return the store's timeout of a call, in ms. */
TT_API int64_t tt_store_timeout_ms(const tt_store *store);

/* Set that timeout, for calls that begin later; 0 and less change nothing. */
TT_API void tt_store_set_timeout_ms(tt_store *store, int64_t timeout_ms);

/* A value received. `data` is the caller's, to be released by tt_store_value_free(). A NUL byte, not counted in `size`,
 * follows it, so text is a C string. */
typedef struct tt_store_value {
    void *data;
    size_t size;
} tt_store_value;

/* Release a value's data; `value` itself is the caller's, and is zeroed. NULL is allowed. */
TT_API void tt_store_value_free(tt_store_value *value);

/* ---- calls
 *
 * Keys, values and lists are borrowed for the call. Errors of all calls: TT_ERR_INVALID a NULL, a negative number or
 * timeout, a key, value or list above its limit; TT_ERR_TIMEOUT no answer in time, or another thread's call took all
 * the time; TT_ERR_NET the connection failed; TT_ERR_PROTOCOL the answer is none of a store; TT_ERR_STATE an earlier
 * error has closed the connection; TT_ERR_IO a FileStore's file can't be read or written; TT_ERR_MEMORY. After a
 * failure there is no value to release, and other results are undefined. */

/* key := value (`size` bytes). */
TT_API TT_NODISCARD tt_status tt_store_set(tt_store *store, const char *key, const void *value, size_t size);

/* Wait until `key` exists, then read it. TT_ERR_TIMEOUT names the key if it is missing. */
TT_API TT_NODISCARD tt_status tt_store_get(tt_store *store, const char *key, tt_store_value *value);

/* Add `delta` to the decimal number under `key` (missing counts as 0); *result (may be NULL) is the new number. A value
 * that is no number is TT_ERR_PROTOCOL; a TCPStore's connection is closed then. */
TT_API TT_NODISCARD tt_status tt_store_add(tt_store *store, const char *key, int64_t delta, int64_t *result);

/* If `key` holds `expected`, or is missing and `expected` is empty: store `desired`. *value (may be NULL) is what the
 * key holds then, or `expected` if the key is missing. */
TT_API TT_NODISCARD tt_status tt_store_compare_set(tt_store *store, const char *key, const void *expected,
                                                   size_t expected_size, const void *desired, size_t desired_size,
                                                   tt_store_value *value);

/* Wait until all `n` keys exist; at most timeout_ms, 0 = the store's. TT_ERR_TIMEOUT names the keys that are
 * missing. */
TT_API TT_NODISCARD tt_status tt_store_wait(tt_store *store, const char *const *keys, int64_t n, int64_t timeout_ms);

/* *all := do all `n` keys exist now? Does not wait for them. */
TT_API TT_NODISCARD tt_status tt_store_check(tt_store *store, const char *const *keys, int64_t n, bool *all);

/* Remove `key`; *deleted (may be NULL) tells whether it was there. */
TT_API TT_NODISCARD tt_status tt_store_delete_key(tt_store *store, const char *key, bool *deleted);

/* *count := number of keys in the whole store, "init/" included; a prefix store counts the base's keys too, as
 * PyTorch. */
TT_API TT_NODISCARD tt_status tt_store_num_keys(tt_store *store, int64_t *count);

/* Append to the value under `key` (missing counts as empty). This call and the four below are of the 2.x dialect:
 * TT_ERR_UNSUPPORTED in that of 1.13. */
TT_API TT_NODISCARD tt_status tt_store_append(tt_store *store, const char *key, const void *value, size_t size);

/* Wait until `n` keys exist, then read them; values[i] are the caller's, unless the call fails. TT_ERR_TIMEOUT names
 * the keys that are missing. */
TT_API TT_NODISCARD tt_status tt_store_multi_get(tt_store *store, const char *const *keys, int64_t n,
                                                 tt_store_value *values);

/* Set `n` keys in one request. */
TT_API TT_NODISCARD tt_status tt_store_multi_set(tt_store *store, const char *const *keys, const void *const *values,
                                                 const size_t *sizes, int64_t n);

/* List the keys under this store's prefix, without it (of a TCPStore: all except "init/"). *keys is one block, an array
 * of *n strings and their text, for the caller to free(). */
TT_API TT_NODISCARD tt_status tt_store_list_keys(tt_store *store, char ***keys, int64_t *n);

/* Wait until `world_size` clients have called this with the same key, at most timeout_ms (0 = the store's). A barrier
 * stays open once it has opened, so each one needs a key of its own. TT_ERR_TIMEOUT: not all came; this client stays
 * counted. */
TT_API TT_NODISCARD tt_status tt_store_barrier(tt_store *store, const char *key, int64_t world_size,
                                               int64_t timeout_ms);

/* ---- a store of your own
 *
 * For ranks that meet through something that this library does not know. All calls above work on such a store, and
 * tt_init_process_group(.store = ) takes it. bindings/torch makes one of a store of PyTorch's. */

/* Each function does what the call of its name above says, and fails by tt_fail(). It waits at most `timeout_ms`; a
 * function without this argument waits as long as its store usually does. Arguments have been checked; places for
 * results are never NULL. Functions may be called from any thread, several at once.
 * tt_store_multi_get(), tt_store_multi_set() and tt_store_barrier() call these functions, the last one with the keys
 * "key" and "key/open"; tt_store_list_keys() is TT_ERR_UNSUPPORTED. Fields may be added at the end. */
typedef struct tt_store_class {
    const char *name; /* for errors, "PyTorch's store"; borrowed for the store's life; NULL = "a store" */

    /* required */
    tt_status (*set)(void *user, const char *key, const void *value, size_t size);
    tt_status (*get)(void *user, const char *key, int64_t timeout_ms, tt_store_value *value);
    tt_status (*add)(void *user, const char *key, int64_t delta, int64_t *result);
    tt_status (*wait)(void *user, const char *const *keys, int64_t n, int64_t timeout_ms);
    tt_status (*check)(void *user, const char *const *keys, int64_t n, bool *all);

    /* NULL: the call is TT_ERR_UNSUPPORTED. tt_init_process_group() needs none of them; if there is compare_set, a rank
     * that gives up joining tells the others at once. */
    tt_status (*compare_set)(void *user, const char *key, const void *expected, size_t expected_size,
                             const void *desired, size_t desired_size, tt_store_value *value);
    tt_status (*delete_key)(void *user, const char *key, bool *deleted);
    tt_status (*num_keys)(void *user, int64_t *count);
    tt_status (*append)(void *user, const char *key, const void *value, size_t size);

    void (*destroy)(void *user); /* release `user`, when the store is freed; NULL = nothing */
} tt_store_class;

typedef struct tt_store_new_args {
    tt_store **out;            /* required: receives the store, the caller's to free */
    const tt_store_class *cls; /* required; copied */
    size_t cls_size;           /* required: sizeof(tt_store_class), which the macro fills in */
    void *user;                /* required: handed to the functions; taken over if the class has `destroy` */
    TT_OPTIONS;
    int64_t timeout_ms; /* of each call; 0 = 300000 */
    char tt_end;        /* not an option: see base.h */
} tt_store_new_args;

/* Make a store of this class: tt_store_new(&store, &consul_class, consul, .timeout_ms = 60000). After a failure `user`
 * is destroyed, too, unless the class itself is NULL. Errors: TT_ERR_INVALID a NULL, a timeout below 0, or a class
 * without a required function, which the text names; TT_ERR_MEMORY. PyTorch: a class that derives from Store. */
TT_API TT_NODISCARD tt_status tt_store_new_with(const tt_store_new_args *args, size_t size);
#ifndef __cplusplus
#define tt_store_new(out_, cls_, ...)                                                              \
    tt_store_new_with(TT_ARGS(tt_store_new_args, .out = TT_PLACE(tt_store *, out_), .cls = (cls_), \
                              .cls_size = sizeof *(cls_), .user = __VA_ARGS__))
#endif
#define TT_STORE_NEW_ARGS_INIT TT_ARGS_INIT

TT_END_DECLS
#endif
