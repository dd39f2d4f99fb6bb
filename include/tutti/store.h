/* tutti/store.h: the key-value store that ranks meet through.
 *
 * TCPStore, HashStore, FileStore and the store in etcd below have the same calls; what is said of connections is
 * TCPStore's alone.
 * Wire and semantics are torch.distributed.TCPStore's (both the 1.13 and the 2.x dialect); where PyTorch's classic and
 * libuv daemons differ, as libuv's: compare_set releases waiters. Keys are C strings; as sent, with all prefixes and
 * one slash more, they have at most TT_STORE_MAX_KEY bytes. Values are any bytes, at most TT_STORE_MAX_VALUE.
 *
 * Every call on a `tt_store` blocks until answered, at most the store's timeout. A store may be used from several
 * threads; calls are then served one after the other, and waiting for one's turn counts towards the timeout. After
 * TT_ERR_NET, TT_ERR_PROTOCOL, or a timeout in the middle of an answer the connection is closed and every later call
 * fails with TT_ERR_STATE; after a timeout of tt_store_wait in the 2.x dialect the store stays usable. */
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

/* Admission to a served store. A Tutti client proves the job secret, where it has one, before it sends anything else. A
 * client in PyTorch's own dialect can prove nothing:
 *   LOCAL      it is served if it connects from this machine and its process is of the server's user, or root's (as the
 *              kernel says)
 *   REQUIRED   it is refused; the server needs a secret (or TLS with certificates)
 *   NONE       it is served wherever it connects from: for networks without strangers. The log has a warning when
 *              that happens first
 * A client that has another secret, or none where the server has one, is refused and logged, and so is one that takes
 * too long to prove. */
typedef enum tt_store_auth { TT_STORE_AUTH_LOCAL, TT_STORE_AUTH_REQUIRED, TT_STORE_AUTH_NONE } tt_store_auth;

typedef struct tt_store_server_new_args {
    tt_store_server **out; /* required: receives the server, the caller's to end with tt_store_server_free() */
    const char *host; /* required: name or address to bind; NULL = "127.0.0.1". "0.0.0.0" and "::" are all there are */
    int port;         /* required: 0 = any free one */
    TT_OPTIONS;
    tt_store_auth auth;
    const char *secret;       /* the job secret; NULL = TT_SECRET, TT_SECRET_FILE or that of `tutti run`, "" = none */
    int64_t proof_timeout_ms; /* how long a new connection may take to prove; 0 = 10 s */
    /* bytes: values may take three quarters, unread replies and unfinished requests the rest; who goes beyond is closed
     * and logged. At least TT_STORE_MIN_MEMORY; 0 = an eighth of the machine's, or of what the process's cgroup allows,
     * and at least 256 MiB */
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

/* The port served; 0 for NULL. */
TT_API int tt_store_server_port(const tt_store_server *server);

/* Stop: close every connection, join the thread, forget all keys. NULL is allowed. */
TT_API void tt_store_server_free(tt_store_server *server);

/* Which of PyTorch's wire dialects a client speaks. */
typedef enum tt_store_dialect {
    TT_STORE_TORCH_2,
    TT_STORE_TORCH_1_13,
    /* Found out: 2.x's, or 1.13's if the server ends a connection that begins in 2.x's and answers in 1.13's. With a
     * secret to prove it is 2.x's. */
    TT_STORE_TORCH_ANY
} tt_store_dialect;

typedef struct tt_tcp_store_args {
    tt_store **out;   /* required: receives the store, the caller's to free */
    const char *host; /* required: server's name or address */
    int port;         /* required: 1..65535, or 0 with .is_server: any */
    TT_OPTIONS;
    bool is_server;           /* serve here too (the server lives and dies with this store) */
    int world_size;           /* > 0: count this client under "init/"; 0: don't, as PyTorch without world_size */
    bool no_wait_for_workers; /* with world_size: the server's side does not wait until all clients came */
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
    bool fresh;         /* forget what an earlier job left in the file, unless somebody with .fresh uses it right now */
    int64_t timeout_ms; /* of each call; 0 = 300000 */
    char tt_end;        /* not an option: see base.h */
} tt_file_store_args;

/* A store in a file, for processes that share a file system but no network. PyTorch: FileStore, whose format it is, so
 * that both can use one file at a time. A waiting call reads the file every few ms. A file that an earlier job left
 * behind still has its keys, unless all ask for .fresh. Errors: TT_ERR_INVALID, TT_ERR_IO (the text names the file),
 * TT_ERR_TIMEOUT somebody holds the file's lock, TT_ERR_MEMORY. Its calls also fail with TT_ERR_PROTOCOL when the file
 * is not a store's. */
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
    const char *prefix; /* the keys lie below "prefix/" in etcd: one for each job; NULL = "tutti" */
    int64_t timeout_ms; /* for connecting and for each call; 0 = 300000 */
    /* Who asks, where etcd wants to know; NULL = TT_ETCD_USER, TT_ETCD_PASSWORD, or TT_ETCD_TOKEN instead of both; "" =
     * nobody. */
    const char *user, *password, *token;
    /* For https, files of PEM: who has signed the servers' certificates, and what this client proves; NULL =
     * TT_ETCD_CA_FILE (else the system's authorities), TT_ETCD_CERT_FILE, TT_ETCD_KEY_FILE. */
    const char *ca_file, *cert_file, *key_file;
    char tt_end; /* not an option: see base.h */
} tt_etcd_store_args;

/* A store in etcd, 3.4 or later, which runs already and outlives any node of the job. Its v3 API is spoken by the JSON
 * gateway that etcd serves at the port for clients. PyTorch: nothing of this kind; torchrun's etcd back ends take the
 * place of a rendezvous, of which one speaks the v2 API, which servers since 3.6 no longer have.
 *   tt_etcd_store(&store, "etcd-0:2379,etcd-1:2379,etcd-2:2379", .prefix = "jobs/17")
 *
 * Other clients see the values as they are, under "prefix/key". Values have at most 1 MiB, since etcd's requests are
 * limited to 1.5 MiB. tt_store_multi_set() is one transaction up to 100 keys and 1 MiB together, several beyond. A call
 * that meets a dead server goes on with another, and with the same one when it is back, within its timeout; what it
 * writes is written once, even where an answer was lost. For that each store that writes has a key of its own, hidden
 * from these calls, which tt_store_free() removes, or else etcd a day later. tt_store_free() may take a second for it.
 * After a failure the store stays usable; after TT_ERR_TIMEOUT a write may still happen. Keys stay when the store is
 * freed. Waiting is by watches, one for each call that waits. Plain http:// protects neither values nor passwords.
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

/* A view of `base` whose keys all start with "prefix/". PyTorch: PrefixStore. `base` is borrowed and must outlive
 * it. */
TT_API TT_NODISCARD tt_status tt_prefix_store(tt_store **out, const char *prefix, tt_store *base);

/* Disconnect (and stop the server it owns). NULL is allowed. */
TT_API void tt_store_free(tt_store *store);

/* The port this store is connected to (of the base, for a prefix store; 0 for one that has none, and for NULL). */
TT_API int tt_store_port(const tt_store *store);

/* The store's timeout of a call, in ms. */
TT_API int64_t tt_store_timeout_ms(const tt_store *store);

/* Set it, for calls that begin later; 0 and less change nothing. */
TT_API void tt_store_set_timeout_ms(tt_store *store, int64_t timeout_ms);

/* A value received: `data` is the caller's, release it with tt_store_value_free(); it is followed by a NUL byte that is
 * not counted in `size`, so that text can be used as a C string. */
typedef struct tt_store_value {
    void *data;
    size_t size;
} tt_store_value;

/* Release a value's data; `value` itself is the caller's, and is zeroed. NULL is allowed. */
TT_API void tt_store_value_free(tt_store_value *value);

/* ---- calls
 *
 * Keys, values and lists are borrowed for the call. Errors of all of them: TT_ERR_INVALID a NULL, a negative number or
 * timeout, a key, value or list above its limit; TT_ERR_TIMEOUT no answer in time, or another thread's call took all of
 * it; TT_ERR_NET the connection failed; TT_ERR_PROTOCOL the server answers what no store would; TT_ERR_STATE the
 * connection was closed by an earlier error; TT_ERR_IO a FileStore's file can't be read or written; TT_ERR_MEMORY.
 * After a failure no value is to be released, and other results are undefined. */

/* key := value (`size` bytes). */
TT_API TT_NODISCARD tt_status tt_store_set(tt_store *store, const char *key, const void *value, size_t size);

/* Wait until `key` exists, then read it. TT_ERR_TIMEOUT, if it does not, names it. */
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

/* Remove `key`; *deleted (may be NULL) says whether it was there. */
TT_API TT_NODISCARD tt_status tt_store_delete_key(tt_store *store, const char *key, bool *deleted);

/* *count := number of keys in the whole store, "init/" included; a prefix store counts the base's keys too, as
 * PyTorch. */
TT_API TT_NODISCARD tt_status tt_store_num_keys(tt_store *store, int64_t *count);

/* Append to the value under `key` (missing counts as empty). This call and the four below are of the 2.x dialect:
 * TT_ERR_UNSUPPORTED in that of 1.13. */
TT_API TT_NODISCARD tt_status tt_store_append(tt_store *store, const char *key, const void *value, size_t size);

/* Wait until `n` keys exist, then read them; values[i] are the caller's. On failure none is. TT_ERR_TIMEOUT, if one
 * does not come, names those that are missing. */
TT_API TT_NODISCARD tt_status tt_store_multi_get(tt_store *store, const char *const *keys, int64_t n,
                                                 tt_store_value *values);

/* Set `n` keys in one request. */
TT_API TT_NODISCARD tt_status tt_store_multi_set(tt_store *store, const char *const *keys, const void *const *values,
                                                 const size_t *sizes, int64_t n);

/* The keys under this store's prefix, without it (for a TCPStore: all but "init/"). *keys is one block, an array of *n
 * strings and their text: release it with free(). */
TT_API TT_NODISCARD tt_status tt_store_list_keys(tt_store *store, char ***keys, int64_t *n);

/* Wait until `world_size` clients called barrier with this key, at most timeout_ms (0 = the store's). A key's barrier
 * opens once and then stays open, so each barrier takes a key of its own. TT_ERR_TIMEOUT: not all came; this client has
 * been counted all the same. */
TT_API TT_NODISCARD tt_status tt_store_barrier(tt_store *store, const char *key, int64_t world_size,
                                               int64_t timeout_ms);

/* ---- a store of your own
 *
 * What every other call here works on as well, tt_init_process_group(.store = ) included: for ranks that meet through
 * something that this library does not know. bindings/torch hands over PyTorch's stores so. */

/* Each does what the call of its name above says, waits at most as long as it is told (without a timeout, as long as
 * its store is used to), and fails by tt_fail(). Arguments have been checked; results are never NULL. They may be
 * called from any thread, several at once.
 * tt_store_multi_get(), tt_store_multi_set() and tt_store_barrier() are made of them, the latter with the keys "key"
 * and "key/open"; tt_store_list_keys() is TT_ERR_UNSUPPORTED. Fields may be added at the end. */
typedef struct tt_store_class {
    const char *name; /* for errors, "PyTorch's store"; borrowed for the store's life; NULL = "a store" */

    /* required */
    tt_status (*set)(void *user, const char *key, const void *value, size_t size);
    tt_status (*get)(void *user, const char *key, int64_t timeout_ms, tt_store_value *value);
    tt_status (*add)(void *user, const char *key, int64_t delta, int64_t *result);
    tt_status (*wait)(void *user, const char *const *keys, int64_t n, int64_t timeout_ms);
    tt_status (*check)(void *user, const char *const *keys, int64_t n, bool *all);

    /* NULL: the call is TT_ERR_UNSUPPORTED. tt_init_process_group() can do without them; by compare_set a rank that
     * gives up joining tells the others at once. */
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

/* A store of this class: tt_store_new(&store, &consul_class, consul, .timeout_ms = 60000). `user` is destroyed on
 * failure, too, unless the class itself is NULL. Errors: TT_ERR_INVALID a NULL, a class that lacks what is required (by
 * name), a timeout below 0; TT_ERR_MEMORY. PyTorch: a class that derives from Store. */
TT_API TT_NODISCARD tt_status tt_store_new_with(const tt_store_new_args *args, size_t size);
#ifndef __cplusplus
#define tt_store_new(out_, cls_, ...)                                                              \
    tt_store_new_with(TT_ARGS(tt_store_new_args, .out = TT_PLACE(tt_store *, out_), .cls = (cls_), \
                              .cls_size = sizeof *(cls_), .user = __VA_ARGS__))
#endif
#define TT_STORE_NEW_ARGS_INIT TT_ARGS_INIT

TT_END_DECLS
#endif
