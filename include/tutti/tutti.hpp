/* tutti/tutti.hpp: the same library in C++17: the names of the C headers in namespace tutti, without their tt_.
 *
 * An object owns what it stands for and gives it back when it is destroyed; objects can be moved, not copied. What they
 * do is explained by the C functions of the same names; get() gives the C object for calls that have no wrapper here.
 *
 * A call that fails throws tutti::error, which has the status and the text of tt_last_error(). Destructors never throw.
 *
 * Options stand in a struct behind the required arguments: in C++20 sgd(params, 0.1, {.momentum = 0.9}), in C++17 a
 * struct that is filled before. Its fields have the names, meanings and defaults of the C struct's options.
 *
 * Buffers are typed: a std::vector, std::array or C array, or {pointer, count}. The element type follows from them, and
 * a tensor is no buffer: calls on tensors are overloads of the same names.
 *
 * Threads: as in C. */
#ifndef TUTTI_TUTTI_HPP
#define TUTTI_TUTTI_HPP

#include <array>
#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tutti/tutti.h>

namespace tutti {

/* ---- errors */

/* A failed call: its status, and as what() the text of the thread's last error. */
class error : public std::runtime_error {
  public:
    error(tt_status status, const std::string &text) : std::runtime_error(text), status_(status) {}
    tt_status status() const noexcept { return status_; }
    const char *name() const noexcept { return tt_status_name(status_); }

  private:
    tt_status status_;
};

/* Throw if a C call failed: check(tt_barrier_with(...)). */
inline void check(tt_status status) {
    if (status != TT_OK)
        throw error(status, tt_last_error());
}

/* The same for a C call that returns an object, which it gives back. */
template <class T> T *check(T *object) {
    if (!object)
        check(tt_last_status() == TT_OK ? tt_fail(TT_ERR_INVALID, "expected an object, got none") : tt_last_status());
    return object;
}

/* tt_report(): print the last error, also for the launcher. */
inline void report() { tt_report(); }

namespace detail {

template <auto free_function> struct freed_by {
    template <class T> void operator()(T *object) const noexcept { free_function(object); }
};
template <class T, auto free_function> using handle = std::unique_ptr<T, freed_by<free_function>>;

/* In C++ the options of every call end where its struct does. */
template <class Args, class Call> auto call(Call function, const Args &args) {
    return function(&args, offsetof(Args, tt_end));
}

/* Functions of the program's that C calls: an exception becomes the thread's last error. */
template <class F> tt_status guarded(F &&body) noexcept {
    try {
        body();
        return TT_OK;
    } catch (const error &e) {
        return tt_fail(e.status(), "%s", e.what());
    } catch (const std::exception &e) {
        return tt_fail(TT_ERR_INVALID, "an exception: %s", e.what());
    } catch (...) {
        return tt_fail(TT_ERR_INVALID, "an exception of an unknown type");
    }
}

} // namespace detail

/* The call site, which errors name; filled in where a call is written. */
struct site {
    const char *file;
    int line;
    static constexpr site here(const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
        return {file, line};
    }
};

/* ---- buffers */

/* The element type of T: dtype_of<float>() is TT_F32. */
template <class T> constexpr tt_dtype dtype_of() {
    using E = std::remove_cv_t<T>;
    if constexpr (std::is_same_v<E, float>)
        return TT_F32;
    else if constexpr (std::is_same_v<E, double>)
        return TT_F64;
    else if constexpr (std::is_same_v<E, bool>)
        return TT_BOOL;
    else if constexpr (std::is_same_v<E, std::uint8_t>)
        return TT_U8;
    else {
        static_assert(std::is_integral_v<E> && std::is_signed_v<E>, "expected an element type that Tutti has");
        return sizeof(E) == 1 ? TT_I8 : sizeof(E) == 2 ? TT_I16 : sizeof(E) == 4 ? TT_I32 : TT_I64;
    }
}

class tensor;

/* Elements that are borrowed for a call. Void is `void` for what is written, `const void` for what is only read.
 * f16 and bf16, which C++17 has no types for, are given with their dtype. */
template <class Void> struct basic_buffer {
    Void *data = nullptr;
    std::int64_t count = 0;
    tt_dtype dtype = TT_F32;

    constexpr basic_buffer() = default;
    basic_buffer(std::nullptr_t) {}
    template <class T, class = std::enable_if_t<std::is_convertible_v<T *, Void *>>>
    basic_buffer(T *first, std::int64_t n) : data(first), count(n), dtype(dtype_of<T>()) {}
    basic_buffer(Void *first, std::int64_t n, tt_dtype type) : data(first), count(n), dtype(type) {}
    template <class T, std::size_t n, class = std::enable_if_t<std::is_convertible_v<T *, Void *>>>
    basic_buffer(T (&all)[n]) : basic_buffer(all, std::int64_t(n)) {}
    template <
        class C, class T = decltype(std::data(std::declval<C &>())),
        class = std::enable_if_t<std::is_convertible_v<T, Void *> && !std::is_array_v<std::remove_reference_t<C>> &&
                                 std::is_convertible_v<decltype(std::declval<C &>().size()), std::size_t>>>
    basic_buffer(C &&all) : basic_buffer(std::data(all), std::int64_t(all.size())) {}

    /* A tensor is no buffer. Calls on tensors are overloads of the same names. */
    basic_buffer(const tensor &) = delete;
    basic_buffer(tt_tensor *) = delete;
    basic_buffer(const tt_tensor *) = delete;
    basic_buffer(tt_tensor *, std::int64_t) = delete;
    basic_buffer(const tt_tensor *, std::int64_t) = delete;
    basic_buffer(const tt_tensor *, std::int64_t, tt_dtype) = delete;
};
using buffer = basic_buffer<void>;
using const_buffer = basic_buffer<const void>;

/* ---- stores */

struct tcp_store_options {
    bool is_server = false;
    int world_size = 0;
    bool no_wait_for_workers = false;
    std::int64_t timeout_ms = 0;
    tt_store_dialect dialect = TT_STORE_TORCH_2;
    const char *secret = nullptr;
    bool torch_server = false;
    tt_store_auth auth = TT_STORE_AUTH_LOCAL;
};

struct file_store_options {
    int world_size = 0;
    bool fresh = false;
    std::int64_t timeout_ms = 0;
};

class store {
  public:
    explicit store(tt_store *owned) : store_(check(owned)) {}
    tt_store *get() const noexcept { return store_.get(); }
    int port() const { return tt_store_port(get()); }
    void set_timeout_ms(std::int64_t ms) { tt_store_set_timeout_ms(get(), ms); }

    void set(const std::string &key, const std::string &value) {
        check(tt_store_set(get(), key.c_str(), value.data(), value.size()));
    }
    std::string get(const std::string &key) {
        tt_store_value value = {};
        check(tt_store_get(get(), key.c_str(), &value));
        return taken(value);
    }
    std::int64_t add(const std::string &key, std::int64_t delta) {
        std::int64_t result = 0;
        check(tt_store_add(get(), key.c_str(), delta, &result));
        return result;
    }
    std::string compare_set(const std::string &key, const std::string &expected, const std::string &desired) {
        tt_store_value value = {};
        check(tt_store_compare_set(get(), key.c_str(), expected.data(), expected.size(), desired.data(), desired.size(),
                                   &value));
        return taken(value);
    }
    void append(const std::string &key, const std::string &value) {
        check(tt_store_append(get(), key.c_str(), value.data(), value.size()));
    }
    void wait(const std::vector<std::string> &keys, std::int64_t timeout_ms = 0) {
        std::vector<const char *> texts = c_strings(keys);
        check(tt_store_wait(get(), texts.data(), std::int64_t(texts.size()), timeout_ms));
    }
    bool check_keys(const std::vector<std::string> &keys) {
        std::vector<const char *> texts = c_strings(keys);
        bool all = false;
        check(tt_store_check(get(), texts.data(), std::int64_t(texts.size()), &all));
        return all;
    }
    bool delete_key(const std::string &key) {
        bool deleted = false;
        check(tt_store_delete_key(get(), key.c_str(), &deleted));
        return deleted;
    }
    std::int64_t num_keys() {
        std::int64_t count = 0;
        check(tt_store_num_keys(get(), &count));
        return count;
    }

  private:
    static std::vector<const char *> c_strings(const std::vector<std::string> &keys) {
        std::vector<const char *> texts;
        for (const std::string &key : keys)
            texts.push_back(key.c_str());
        return texts;
    }
    static std::string taken(tt_store_value &value) {
        std::unique_ptr<tt_store_value, detail::freed_by<tt_store_value_free>> guard(&value);
        return std::string(static_cast<const char *>(value.data), value.size);
    }
    detail::handle<tt_store, tt_store_free> store_;
};

inline store tcp_store(const std::string &host, int port, const tcp_store_options &o = {}) {
    tt_store *made = nullptr;
    tt_tcp_store_args a = TT_TCP_STORE_ARGS_INIT;
    a.out = &made, a.host = host.c_str(), a.port = port, a.is_server = o.is_server, a.world_size = o.world_size;
    a.no_wait_for_workers = o.no_wait_for_workers, a.timeout_ms = o.timeout_ms, a.dialect = o.dialect;
    a.secret = o.secret, a.torch_server = o.torch_server, a.auth = o.auth;
    check(detail::call(tt_tcp_store_with, a));
    return store(made);
}

inline store file_store(const std::string &path, const file_store_options &o = {}) {
    tt_store *made = nullptr;
    tt_file_store_args a = TT_FILE_STORE_ARGS_INIT;
    a.out = &made, a.path = path.c_str(), a.world_size = o.world_size, a.fresh = o.fresh, a.timeout_ms = o.timeout_ms;
    check(detail::call(tt_file_store_with, a));
    return store(made);
}

inline store hash_store(std::int64_t timeout_ms = 0) {
    tt_store *made = nullptr;
    check(tt_hash_store(&made, timeout_ms));
    return store(made);
}

/* A view of `base`, which must outlive it. */
inline store prefix_store(const std::string &prefix, store &base) {
    tt_store *made = nullptr;
    check(tt_prefix_store(&made, prefix.c_str(), base.get()));
    return store(made);
}

/* ---- groups and works */

/* An asynchronous call. Buffers stay borrowed until it is done, so the destructor waits for it, at most until the
 * call's deadline. An error that only the destructor sees is dropped: call wait(). */
class work {
  public:
    work() = default;
    explicit work(tt_work *owned) : work_(owned) {}
    tt_work *get() const noexcept { return work_.get(); }
    void wait() { check(tt_work_wait(get())); }
    bool is_completed() const { return tt_work_is_completed(get()); }
    int source_rank() const { return tt_work_source_rank(get()); }

    /* f(tt_status, int source) is called exactly once, by whichever thread; it must neither wait nor throw. */
    template <class F> void add_done_callback(F f) {
        std::unique_ptr<F> kept(new F(std::move(f)));
        tt_work_fn call = [](tt_status status, int source, void *user) noexcept {
            std::unique_ptr<F> mine(static_cast<F *>(user));
            (*mine)(status, source);
        };
        check(tt_work_add_done_callback(get(), call, kept.get()));
        kept.release();
    }

  private:
    static void end(tt_work *work) noexcept {
        tt_ignore(tt_work_wait(work));
        tt_work_free(work);
    }
    detail::handle<tt_work, end> work_;
};

/* What every call on a group takes as options. */
struct call_options {
    std::int64_t timeout_ms = 0;
    tutti::work *work = nullptr; /* not NULL: asynchronous; receives the work */
    double factor = 0;           /* this rank's, of TT_PREMUL_SUM */
    int tag = 0;                 /* of sends and receives */
    int *source = nullptr;       /* of receives without .work: receives the sender's rank */
};

struct init_process_group_options {
    const char *backend = nullptr;
    const char *init_method = nullptr;
    tt_store *store = nullptr;
    int rank = 0;
    int world_size = 0;
    std::int64_t timeout_ms = 0;
    std::int64_t heartbeat_ms = 0;
    const char *transport = nullptr;
    const char *algorithms = nullptr;
};

/* A process group; leaves it when destroyed. An empty one (a rank that new_group() gave no group) is false. */
class group {
  public:
    group() = default;
    explicit group(tt_group *owned) : group_(owned) {}
    tt_group *get() const noexcept { return group_.get(); }
    explicit operator bool() const noexcept { return bool(group_); }
    int rank() const { return tt_get_rank(get()); }
    int world_size() const { return tt_get_world_size(get()); }
    int global_rank(int group_rank) const { return tt_get_global_rank(get(), group_rank); }
    int group_rank(int global_rank) const { return tt_get_group_rank(get(), global_rank); }
    std::string backend() const { return tt_get_backend(get()); }
    std::int64_t timeout_ms() const { return tt_group_timeout_ms(get()); }
    void set_timeout_ms(std::int64_t ms) { tt_group_set_timeout_ms(get(), ms); }
    void abort(const std::string &reason) { tt_group_abort(get(), reason.c_str()); }

  private:
    detail::handle<tt_group, tt_destroy_process_group> group_;
};

inline group init_process_group(const init_process_group_options &o = {}) {
    tt_group *made = nullptr;
    tt_init_process_group_args a = TT_INIT_PROCESS_GROUP_ARGS_INIT;
    a.out = &made, a.backend = o.backend, a.init_method = o.init_method, a.store = o.store, a.rank = o.rank;
    a.world_size = o.world_size, a.timeout_ms = o.timeout_ms, a.heartbeat_ms = o.heartbeat_ms;
    a.transport = o.transport, a.algorithms = o.algorithms;
    check(detail::call(tt_init_process_group_with, a));
    return group(made);
}

namespace detail {

/* A call on a group: `fill` sets what the operation needs beyond what all share. */
template <class Args, class Call, class Fill>
void on_group(Call function, const group &g, const call_options &o, site where, Fill fill) {
    tt_work *made = nullptr;
    Args a = {};
    a.group = g.get(), a.timeout_ms = o.timeout_ms, a.file = where.file, a.line = where.line;
    a.work = o.work ? &made : nullptr;
    fill(a);
    check(call(function, a));
    if (o.work)
        *o.work = work(made);
}

/* `all` has world_size times the elements of `part`, of the same type. Where a root alone needs `all`, others may pass
 * none. */
inline void check_parts(const char *name, const group &g, const const_buffer &part, const const_buffer &all) {
    if (part.dtype != all.dtype)
        check(tt_fail(TT_ERR_DTYPE, "%s: expected buffers of one type, got %s and %s", name, tt_dtype_name(part.dtype),
                      tt_dtype_name(all.dtype)));
    if (all.count != part.count * g.world_size())
        check(tt_fail(TT_ERR_SHAPE, "%s: expected a buffer of %d times %lld elements, got %lld", name, g.world_size(),
                      static_cast<long long>(part.count), static_cast<long long>(all.count)));
}

inline const_buffer as_const(const buffer &b) { return const_buffer(b.data, b.count, b.dtype); }

} // namespace detail

inline group new_group(const group &g, const std::vector<int> &ranks, const call_options &o = {},
                       site where = site::here()) {
    tt_group *made = nullptr;
    detail::on_group<tt_new_group_args>(tt_new_group_with, g, o, where, [&](tt_new_group_args &a) {
        a.out = &made, a.ranks = ranks.data(), a.count = std::int64_t(ranks.size());
    });
    return group(made);
}

inline group group_split(const group &g, int color, int key, const call_options &o = {}, site where = site::here()) {
    tt_group *made = nullptr;
    detail::on_group<tt_group_split_args>(tt_group_split_with, g, o, where,
                                          [&](tt_group_split_args &a) { a.out = &made, a.color = color, a.key = key; });
    return group(made);
}

/* ---- collectives on buffers; those on tensors are below */

inline void all_reduce(const group &g, buffer b, tt_reduce_op op, const call_options &o = {},
                       site where = site::here()) {
    detail::on_group<tt_all_reduce_args>(tt_all_reduce_with, g, o, where, [&](tt_all_reduce_args &a) {
        a.buf = b.data, a.count = b.count, a.dtype = b.dtype, a.op = op, a.factor = o.factor;
    });
}

inline void reduce(const group &g, buffer b, tt_reduce_op op, int root, const call_options &o = {},
                   site where = site::here()) {
    detail::on_group<tt_reduce_args>(tt_reduce_with, g, o, where, [&](tt_reduce_args &a) {
        a.buf = b.data, a.count = b.count, a.dtype = b.dtype, a.op = op, a.root = root, a.factor = o.factor;
    });
}

inline void broadcast(const group &g, buffer b, int root, const call_options &o = {}, site where = site::here()) {
    detail::on_group<tt_broadcast_args>(tt_broadcast_with, g, o, where, [&](tt_broadcast_args &a) {
        a.buf = b.data, a.count = b.count, a.dtype = b.dtype, a.root = root;
    });
}

inline void all_gather(const group &g, const_buffer send, buffer recv, const call_options &o = {},
                       site where = site::here()) {
    detail::check_parts("all_gather", g, send, detail::as_const(recv));
    detail::on_group<tt_all_gather_args>(tt_all_gather_with, g, o, where, [&](tt_all_gather_args &a) {
        a.send = send.data, a.recv = recv.data, a.dtype = send.dtype, a.count = send.count;
    });
}

inline void gather(const group &g, const_buffer send, buffer recv, int root, const call_options &o = {},
                   site where = site::here()) {
    if (g.rank() == root)
        detail::check_parts("gather", g, send, detail::as_const(recv));
    detail::on_group<tt_gather_args>(tt_gather_with, g, o, where, [&](tt_gather_args &a) {
        a.send = send.data, a.recv = recv.data, a.dtype = send.dtype, a.count = send.count, a.root = root;
    });
}

inline void scatter(const group &g, const_buffer send, buffer recv, int root, const call_options &o = {},
                    site where = site::here()) {
    if (g.rank() == root)
        detail::check_parts("scatter", g, detail::as_const(recv), send);
    detail::on_group<tt_scatter_args>(tt_scatter_with, g, o, where, [&](tt_scatter_args &a) {
        a.send = send.data, a.recv = recv.data, a.dtype = recv.dtype, a.count = recv.count, a.root = root;
    });
}

inline void reduce_scatter(const group &g, const_buffer send, buffer recv, tt_reduce_op op, const call_options &o = {},
                           site where = site::here()) {
    detail::check_parts("reduce_scatter", g, detail::as_const(recv), send);
    detail::on_group<tt_reduce_scatter_args>(tt_reduce_scatter_with, g, o, where, [&](tt_reduce_scatter_args &a) {
        a.send = send.data, a.recv = recv.data, a.dtype = recv.dtype, a.count = recv.count, a.op = op,
        a.factor = o.factor;
    });
}

/* Part r of `send` to rank r; both have world_size parts. */
inline void all_to_all(const group &g, const_buffer send, buffer recv, const call_options &o = {},
                       site where = site::here()) {
    std::int64_t part = send.count / g.world_size();
    detail::check_parts("all_to_all", g, const_buffer(send.data, part, send.dtype), detail::as_const(recv));
    detail::check_parts("all_to_all", g, const_buffer(send.data, part, send.dtype), send);
    detail::on_group<tt_all_to_all_args>(tt_all_to_all_with, g, o, where, [&](tt_all_to_all_args &a) {
        a.send = send.data, a.recv = recv.data, a.dtype = send.dtype, a.count = part;
    });
}

inline void barrier(const group &g, const call_options &o = {}, site where = site::here()) {
    detail::on_group<tt_barrier_args>(tt_barrier_with, g, o, where, [](tt_barrier_args &) {});
}
inline void monitored_barrier(const group &g, const call_options &o = {}, site where = site::here()) {
    detail::on_group<tt_barrier_args>(tt_monitored_barrier_with, g, o, where, [](tt_barrier_args &) {});
}

inline void send(const group &g, const_buffer b, int peer, const call_options &o = {}, site where = site::here()) {
    detail::on_group<tt_send_args>(tt_send_with, g, o, where, [&](tt_send_args &a) {
        a.buf = b.data, a.count = b.count, a.dtype = b.dtype, a.peer = peer, a.tag = o.tag;
    });
}

inline void recv(const group &g, buffer b, int peer, const call_options &o = {}, site where = site::here()) {
    detail::on_group<tt_recv_args>(tt_recv_with, g, o, where, [&](tt_recv_args &a) {
        a.buf = b.data, a.count = b.count, a.dtype = b.dtype, a.peer = peer, a.tag = o.tag, a.source = o.source;
    });
}

inline work isend(const group &g, const_buffer b, int peer, call_options o = {}, site where = site::here()) {
    work made;
    o.work = &made;
    send(g, b, peer, o, where);
    return made;
}
inline work irecv(const group &g, buffer b, int peer, call_options o = {}, site where = site::here()) {
    work made;
    o.work = &made;
    recv(g, b, peer, o, where);
    return made;
}

/* ---- reducer */

struct reducer_param {
    std::string name;
    std::int64_t count;
    tt_dtype dtype = TT_F32;
};

/* Must be freed on all ranks alike, as tt_reducer_free(). */
class reducer {
  public:
    reducer(const group &g, const std::vector<reducer_param> &params, std::size_t bucket_cap_bytes = 0) {
        std::vector<tt_reducer_param> list;
        for (const reducer_param &param : params)
            list.push_back({param.name.c_str(), param.count, param.dtype});
        tt_reducer *made = nullptr;
        tt_reducer_new_args a = TT_REDUCER_NEW_ARGS_INIT;
        a.out = &made, a.group = g.get(), a.params = list.data(), a.count = std::int64_t(list.size());
        a.bucket_cap_bytes = bucket_cap_bytes;
        check(detail::call(tt_reducer_new_with, a));
        reducer_.reset(made);
    }
    tt_reducer *get() const noexcept { return reducer_.get(); }
    template <class T = float> T *gradient(std::int64_t i) {
        return static_cast<T *>(check(tt_reducer_gradient(get(), i)));
    }
    void mark_ready(std::int64_t i) { check(tt_reducer_mark_ready(get(), i)); }
    void finish() { check(tt_reducer_finish(get())); }
    std::int64_t bucket_count() const { return tt_reducer_bucket_count(get()); }

  private:
    detail::handle<tt_reducer, tt_reducer_free> reducer_;
};

/* ---- tensors */

/* TT_SHAPE(20, 10) is shape(20, 10); shape() is a scalar's. */
template <class... N> constexpr tt_shape shape(N... sizes) {
    static_assert(sizeof...(N) <= TT_MAX_DIMS, "expected at most TT_MAX_DIMS dimensions");
    return tt_shape{int(sizeof...(N)), {std::int64_t(sizes)...}};
}

namespace detail {
inline thread_local int open_scopes = 0;
} // namespace detail

/* What this thread makes in the enclosing block is recycled when the block is left, as with TT_AUTO_SCOPE; a tensor
 * that shall live longer is kept by tensor::keep(). */
class scope {
  public:
    scope() : id_(tt_scope_begin()) {
        if (!id_)
            check(tt_last_status());
        detail::open_scopes++;
    }
    ~scope() {
        tt_scope_end(id_);
        detail::open_scopes--;
    }
    scope(const scope &) = delete;
    scope &operator=(const scope &) = delete;

  private:
    int id_;
};

/* Nothing is recorded in this thread until the enclosing block is left, as with TT_NO_GRAD. */
class no_grad {
  public:
    no_grad() : before_(tt_no_grad_begin()) {}
    ~no_grad() { tt_no_grad_end(before_); }
    no_grad(const no_grad &) = delete;
    no_grad &operator=(const no_grad &) = delete;

  private:
    bool before_;
};

struct backward_options {
    const tensor *gradient = nullptr;
    bool retain_graph = false;
};

/* A tensor. It is freed with its last use; inside a scope the scope owns it; one that belongs to a module, a data set
 * or a loader is only lent. What a module makes on its way to a result belongs to the open scope alone, so a training
 * loop has a scope in each step. */
class tensor {
  public:
    tensor() = default;

    /* What a C call made just now. */
    explicit tensor(tt_tensor *made) : x_(check(made)) {
        if (!detail::open_scopes)
            owned_.reset(tt_keep(x_));
    }
    /* What belongs to something else. */
    static tensor lent(tt_tensor *x) {
        tensor made;
        made.x_ = x;
        return made;
    }

    template <class T> static tensor from_data(const std::vector<T> &data, tt_shape shape) {
        const_buffer all(data);
        std::int64_t wanted = 1;
        for (int d = 0; d < shape.ndim; d++)
            wanted *= shape.dim[d];
        if (wanted != all.count)
            check(tt_fail(TT_ERR_SHAPE, "from_data: the shape has %lld elements, but %lld were given",
                          static_cast<long long>(wanted), static_cast<long long>(all.count)));
        return tensor(tt_from_data(all.data, shape, all.dtype));
    }

    tt_tensor *get() const noexcept { return x_; }
    explicit operator bool() const noexcept { return x_; }

    /* Take it out of its scope. */
    tensor &keep() {
        if (x_ && !owned_)
            owned_.reset(tt_keep(x_));
        return *this;
    }
    /* Give it to a C call that takes it over. */
    tt_tensor *release() noexcept {
        owned_.release();
        return std::exchange(x_, nullptr);
    }

    tt_dtype dtype() const { return tt_tensor_dtype(x_); }
    int dim() const { return tt_tensor_dim(x_); }
    std::int64_t size(int d) const { return tt_tensor_size(x_, d); }
    std::int64_t numel() const { return tt_tensor_numel(x_); }
    tt_shape shape() const { return tt_tensor_shape(x_); }

    /* First element; for a contiguous tensor all, in row-major order. */
    template <class T> T *data() const {
        if (dtype_of<T>() != dtype())
            check(tt_fail(TT_ERR_DTYPE, "data: expected %s elements, but the tensor is %s",
                          tt_dtype_name(dtype_of<T>()), tt_dtype_name(dtype())));
        return static_cast<T *>(check(tt_tensor_data(x_)));
    }
    double item() const {
        double value = 0;
        check(tt_item(x_, &value));
        return value;
    }

    tensor &requires_grad_(bool requires_grad = true) {
        check(tt_requires_grad_(x_, requires_grad));
        return *this;
    }
    bool requires_grad() const { return tt_requires_grad(x_); }
    tensor grad() const { return lent(tt_grad(x_)); } /* empty: none was computed */
    void zero_grad() { tt_zero_grad(x_); }

    void backward(const backward_options &o = {}) const {
        tt_backward_args a = TT_BACKWARD_ARGS_INIT;
        a.y = x_, a.gradient = o.gradient ? o.gradient->x_ : nullptr, a.retain_graph = o.retain_graph;
        check(detail::call(tt_backward_with, a));
    }

    tensor view(tt_shape shape) const { return tensor(tt_view(x_, shape)); }
    tensor reshape(tt_shape shape) const { return made_from(tt_reshape(x_, shape)); }
    tensor flatten(int start_dim = 0) const { return made_from(tt_flatten(x_, start_dim)); }
    tensor transpose(int a, int b) const { return made_from(tt_transpose(x_, a, b)); }
    tensor narrow(int dim, std::int64_t start, std::int64_t length) const {
        return made_from(tt_narrow(x_, dim, start, length));
    }
    tensor contiguous() const { return made_from(tt_contiguous(x_)); }
    tensor to(tt_dtype dtype) const { return made_from(tt_to(x_, dtype)); }
    tensor to(const tt_device *device) const { return made_from(tt_to_device(x_, device)); }
    tensor clone() const { return tensor(tt_clone(x_)); }
    tensor detach() const { return made_from(tt_detach(x_)); }
    tensor argmax(int dim) const { return tensor(tt_argmax(x_, dim)); }
    void copy_(const tensor &from) { check(tt_copy(x_, from.x_)); }

  private:
    /* Some calls give x itself where there is nothing to do: then a view of it, so that each object owns its own. */
    tensor made_from(tt_tensor *made) const {
        return tensor(made == x_ && made ? tt_view(x_, tt_tensor_shape(x_)) : made);
    }

    detail::handle<tt_tensor, tt_tensor_free> owned_;
    tt_tensor *x_ = nullptr;

  public:
    tensor(tensor &&other) noexcept : owned_(std::move(other.owned_)), x_(std::exchange(other.x_, nullptr)) {}
    tensor &operator=(tensor &&other) noexcept {
        owned_ = std::move(other.owned_);
        x_ = std::exchange(other.x_, nullptr);
        return *this;
    }
};

template <class T> tensor from_data(const std::vector<T> &data, tt_shape shape) {
    return tensor::from_data(data, shape);
}
inline tensor empty(tt_shape shape, tt_dtype dtype = TT_F32) { return tensor(tt_empty(shape, dtype)); }
inline tensor zeros(tt_shape shape, tt_dtype dtype = TT_F32) { return tensor(tt_zeros(shape, dtype)); }
inline tensor ones(tt_shape shape, tt_dtype dtype = TT_F32) { return tensor(tt_ones(shape, dtype)); }
inline tensor full(tt_shape shape, double value, tt_dtype dtype = TT_F32) {
    return tensor(tt_full(shape, dtype, value));
}
inline tensor arange(std::int64_t n) { return tensor(tt_arange(n)); }
inline tensor rand(tt_shape shape, tt_generator *generator = nullptr) { return tensor(tt_rand(shape, generator)); }
inline tensor randn(tt_shape shape, tt_generator *generator = nullptr) { return tensor(tt_randn(shape, generator)); }
inline bool equal(const tensor &a, const tensor &b) { return tt_equal(a.get(), b.get()); }
inline void manual_seed(std::uint64_t seed) { tt_manual_seed(seed); }
inline void set_num_threads(int threads) { check(tt_set_num_threads(threads)); }

inline tensor add(const tensor &a, const tensor &b) { return tensor(tt_add(a.get(), b.get())); }
inline tensor sub(const tensor &a, const tensor &b) { return tensor(tt_sub(a.get(), b.get())); }
inline tensor mul(const tensor &a, const tensor &b) { return tensor(tt_mul(a.get(), b.get())); }
inline tensor scale(const tensor &x, double factor) { return tensor(tt_scale(x.get(), factor)); }
inline tensor operator+(const tensor &a, const tensor &b) { return add(a, b); }
inline tensor operator-(const tensor &a, const tensor &b) { return sub(a, b); }
inline tensor operator*(const tensor &a, const tensor &b) { return mul(a, b); }
inline tensor operator*(const tensor &x, double factor) { return scale(x, factor); }
inline tensor operator*(double factor, const tensor &x) { return scale(x, factor); }
inline tensor mean(const tensor &x) { return tensor(tt_mean(x.get())); }
inline tensor sum(const tensor &x) { return tensor(tt_sum(x.get())); }
inline tensor matmul(const tensor &a, const tensor &b) { return tensor(tt_matmul(a.get(), b.get())); }
inline tensor relu(const tensor &x) { return tensor(tt_relu(x.get())); }
inline tensor log_softmax(const tensor &x, int dim) { return tensor(tt_log_softmax(x.get(), dim)); }
inline tensor linear(const tensor &x, const tensor &weight) {
    return tensor(tt_linear(x.get(), weight.get(), nullptr));
}
inline tensor linear(const tensor &x, const tensor &weight, const tensor &bias) {
    return tensor(tt_linear(x.get(), weight.get(), bias.get()));
}
inline tensor nll_loss(const tensor &log_prob, const tensor &target) {
    return tensor(tt_nll_loss(log_prob.get(), target.get()));
}
inline tensor cross_entropy(const tensor &logits, const tensor &target) {
    return tensor(tt_cross_entropy(logits.get(), target.get()));
}
inline tensor mse_loss(const tensor &input, const tensor &target) {
    return tensor(tt_mse_loss(input.get(), target.get()));
}
inline void backward(const tensor &y, const backward_options &o = {}) { y.backward(o); }

/* ---- collectives on tensors */

inline void all_reduce(const group &g, tensor &x, tt_reduce_op op, const call_options &o = {},
                       site where = site::here()) {
    detail::on_group<tt_tensor_all_reduce_args>(
        tt_tensor_all_reduce_with, g, o, where,
        [&](tt_tensor_all_reduce_args &a) { a.x = x.get(), a.op = op, a.factor = o.factor; });
}

inline void reduce(const group &g, tensor &x, tt_reduce_op op, int root, const call_options &o = {},
                   site where = site::here()) {
    detail::on_group<tt_tensor_reduce_args>(tt_tensor_reduce_with, g, o, where, [&](tt_tensor_reduce_args &a) {
        a.x = x.get(), a.op = op, a.root = root, a.factor = o.factor;
    });
}

inline void broadcast(const group &g, tensor &x, int root, const call_options &o = {}, site where = site::here()) {
    detail::on_group<tt_tensor_broadcast_args>(tt_tensor_broadcast_with, g, o, where,
                                               [&](tt_tensor_broadcast_args &a) { a.x = x.get(), a.root = root; });
}

inline void all_gather(const group &g, const tensor &x, tensor &out, const call_options &o = {},
                       site where = site::here()) {
    detail::on_group<tt_tensor_all_gather_args>(
        tt_tensor_all_gather_with, g, o, where,
        [&](tt_tensor_all_gather_args &a) { a.x = x.get(), a.out = out.get(); });
}

inline void gather(const group &g, const tensor &x, tensor &out, int root, const call_options &o = {},
                   site where = site::here()) {
    detail::on_group<tt_tensor_gather_args>(tt_tensor_gather_with, g, o, where, [&](tt_tensor_gather_args &a) {
        a.x = x.get(), a.out = out.get(), a.root = root;
    });
}

inline void scatter(const group &g, const tensor &x, tensor &out, int root, const call_options &o = {},
                    site where = site::here()) {
    detail::on_group<tt_tensor_scatter_args>(tt_tensor_scatter_with, g, o, where, [&](tt_tensor_scatter_args &a) {
        a.x = x.get(), a.out = out.get(), a.root = root;
    });
}

inline void reduce_scatter(const group &g, const tensor &x, tensor &out, tt_reduce_op op, const call_options &o = {},
                           site where = site::here()) {
    detail::on_group<tt_tensor_reduce_scatter_args>(
        tt_tensor_reduce_scatter_with, g, o, where,
        [&](tt_tensor_reduce_scatter_args &a) { a.x = x.get(), a.out = out.get(), a.op = op, a.factor = o.factor; });
}

inline void all_to_all(const group &g, const tensor &x, tensor &out, const call_options &o = {},
                       site where = site::here()) {
    detail::on_group<tt_tensor_all_to_all_args>(
        tt_tensor_all_to_all_with, g, o, where,
        [&](tt_tensor_all_to_all_args &a) { a.x = x.get(), a.out = out.get(); });
}

inline void send(const group &g, const tensor &x, int peer, const call_options &o = {}, site where = site::here()) {
    detail::on_group<tt_tensor_send_args>(tt_tensor_send_with, g, o, where,
                                          [&](tt_tensor_send_args &a) { a.x = x.get(), a.peer = peer, a.tag = o.tag; });
}

inline void recv(const group &g, tensor &x, int peer, const call_options &o = {}, site where = site::here()) {
    detail::on_group<tt_tensor_recv_args>(tt_tensor_recv_with, g, o, where, [&](tt_tensor_recv_args &a) {
        a.x = x.get(), a.peer = peer, a.tag = o.tag, a.source = o.source;
    });
}

/* ---- modules */

struct linear_options {
    bool no_bias = false;
    tt_generator *generator = nullptr;
    tt_dtype dtype = TT_F32;
};

struct ddp_options {
    std::size_t bucket_cap_bytes = 0;
    bool no_broadcast_buffers = false;
};

/* A module; the root of a tree frees it. A module that was given to sequential() or add_module() belongs to its
 * parent. */
class module {
  public:
    explicit module(tt_module *owned) : module_(check(owned)) {}
    tt_module *get() const noexcept { return module_.get(); }
    tt_module *release() noexcept { return module_.release(); }

    tensor operator()(const tensor &x) const { return forward(x); }
    tensor forward(const tensor &x) const { return tensor(tt_module_forward(get(), x.get())); }

    /* Borrowed, until the tree changes. */
    const tt_named_tensors *parameters() const { return check(tt_module_parameters(get())); }
    const tt_named_tensors *buffers() const { return check(tt_module_buffers(get())); }
    const tt_named_tensors *state_dict() const { return check(tt_module_state_dict(get())); }
    void load_state_dict(const tt_named_tensors *state) { check(tt_module_load_state_dict(get(), state)); }

    void add_module(const std::string &name, module child) {
        check(tt_module_add_module(get(), name.c_str(), child.release()));
    }
    void train() { tt_module_train(get()); }
    void eval() { tt_module_eval(get()); }
    void requires_grad_(bool requires_grad) { check(tt_module_requires_grad_(get(), requires_grad)); }
    void to(tt_dtype dtype) { check(tt_module_to(get(), dtype)); }

  private:
    detail::handle<tt_module, tt_module_free> module_;
};

namespace nn {

inline module linear(std::int64_t in_features, std::int64_t out_features, const linear_options &o = {}) {
    tt_nn_linear_args a = TT_NN_LINEAR_ARGS_INIT;
    a.in_features = in_features, a.out_features = out_features;
    a.no_bias = o.no_bias, a.generator = o.generator, a.dtype = o.dtype;
    return module(detail::call(tt_nn_linear_with, a));
}
inline module relu() { return module(tt_nn_relu()); }
inline module flatten() { return module(tt_nn_flatten()); }

/* nn::sequential{nn::linear(784, 512), nn::relu(), nn::linear(512, 10)}: in braces, which evaluate from left to right.
 * So initial weights are drawn in that order, as in C; parentheses, whose order is the compiler's, don't compile. */
class sequential : public module {
  public:
    class child {
      public:
        child(module &&given) : given_(std::move(given)) {}
        tt_module *release() const noexcept { return given_.release(); }

      private:
        mutable module given_;
    };
    sequential(std::initializer_list<child> children) : module(made_of(children)) {}

  private:
    static tt_module *made_of(std::initializer_list<child> children) {
        std::vector<tt_module *> list(children.size());
        std::size_t n = 0;
        for (const child &one : children)
            list[n++] = one.release();
        tt_nn_sequential_args a = TT_NN_SEQUENTIAL_ARGS_INIT;
        a.children = list.data(), a.count = std::int64_t(n);
        return detail::call(tt_nn_sequential_with, a);
    }
};

} // namespace nn

/* Wrapper and wrapped are freed in any order, on all ranks alike. */
inline module ddp(module &wrapped, const group &g, const ddp_options &o = {}) {
    tt_ddp_args a = TT_DDP_ARGS_INIT;
    a.module = wrapped.get(), a.group = g.get();
    a.bucket_cap_bytes = o.bucket_cap_bytes, a.no_broadcast_buffers = o.no_broadcast_buffers;
    return module(detail::call(tt_ddp_with, a));
}

/* ---- optimizers */

struct sgd_options {
    double momentum = 0;
    double dampening = 0;
    double weight_decay = 0;
    bool nesterov = false;
};

struct adam_options {
    double beta1 = 0.9;
    double beta2 = 0.999;
    double eps = 1e-8;
    double weight_decay = 0; /* not of adamw, where it is an argument */
    bool amsgrad = false;
};

class optimizer {
  public:
    explicit optimizer(tt_optimizer *owned) : optimizer_(check(owned)) {}
    tt_optimizer *get() const noexcept { return optimizer_.get(); }
    void step() { check(tt_optimizer_step(get())); }
    void zero_grad() { tt_optimizer_zero_grad(get()); }
    double option(const std::string &name, std::int64_t group = 0) const {
        double value = 0;
        check(tt_optimizer_get_option(get(), group, name.c_str(), &value));
        return value;
    }
    void set_option(const std::string &name, double value, std::int64_t group = TT_ALL_GROUPS) {
        check(tt_optimizer_set_option(get(), group, name.c_str(), value));
    }
    const tt_named_tensors *state_dict() { return check(tt_optimizer_state_dict(get())); }
    void load_state_dict(const tt_named_tensors *state) { check(tt_optimizer_load_state_dict(get(), state)); }

  private:
    detail::handle<tt_optimizer, tt_optimizer_free> optimizer_;
};

inline optimizer sgd(const tt_named_tensors *params, double lr, const sgd_options &o = {}) {
    tt_sgd_args a = TT_SGD_ARGS_INIT;
    a.params = params, a.lr = lr, a.momentum = o.momentum, a.dampening = o.dampening;
    a.weight_decay = o.weight_decay, a.nesterov = o.nesterov;
    return optimizer(detail::call(tt_sgd_with, a));
}

namespace detail {
template <class Args, class Make>
optimizer adam_kind(Make make, const tt_named_tensors *params, double lr, double weight_decay, const adam_options &o) {
    Args a = {};
    a.params = params, a.lr = lr, a.beta1 = o.beta1, a.beta2 = o.beta2, a.eps = o.eps;
    a.weight_decay = weight_decay, a.amsgrad = o.amsgrad;
    return optimizer(call(make, a));
}
} // namespace detail

inline optimizer adam(const tt_named_tensors *params, double lr, const adam_options &o = {}) {
    return detail::adam_kind<tt_adam_args>(tt_adam_with, params, lr, o.weight_decay, o);
}
inline optimizer adamw(const tt_named_tensors *params, double lr, double weight_decay, const adam_options &o = {}) {
    return detail::adam_kind<tt_adamw_args>(tt_adamw_with, params, lr, weight_decay, o);
}

/* ---- data */

class dataset {
  public:
    explicit dataset(tt_dataset *owned) : dataset_(check(owned)) {}
    tt_dataset *get() const noexcept { return dataset_.get(); }
    std::int64_t size() const { return tt_dataset_size(get()); }
    void normalize(double mean, double std) { check(tt_dataset_normalize(get(), mean, std)); }

  private:
    detail::handle<tt_dataset, tt_dataset_free> dataset_;
};

inline dataset digits(std::int64_t n, std::uint64_t seed) { return dataset(tt_digits(n, seed)); }
inline dataset mnist(const std::string &dir, bool train) { return dataset(tt_mnist(dir.c_str(), train)); }
inline dataset image_dataset(const std::string &images_path, const std::string &labels_path) {
    return dataset(tt_image_dataset(images_path.c_str(), labels_path.c_str()));
}
inline dataset tensor_dataset(tensor inputs, tensor targets) {
    inputs.keep(), targets.keep();
    return dataset(tt_tensor_dataset(inputs.release(), targets.release()));
}
inline dataset subset(dataset &base, std::int64_t begin, std::int64_t end) {
    return dataset(tt_subset(base.get(), begin, end));
}
dataset subset(dataset &&base, std::int64_t begin, std::int64_t end) = delete; /* `base` must outlive the subset */

/* A data set by callback: get(index, x, y) writes one example, and throws what goes wrong. */
using dataset_get = std::function<void(std::int64_t index, void *x, void *y)>;
inline dataset dataset_from(std::int64_t size, dataset_get get, tt_tensor_spec x, tt_tensor_spec y = {}) {
    struct source {
        std::int64_t size;
        dataset_get get;
    };
    tt_dataset_class cls = {};
    cls.size = [](void *user) { return static_cast<source *>(user)->size; };
    cls.get = [](void *user, std::int64_t index, void *to_x, void *to_y) {
        return detail::guarded([&] { static_cast<source *>(user)->get(index, to_x, to_y); });
    };
    cls.destroy = [](void *user) { delete static_cast<source *>(user); };
    tt_dataset_new_args a = TT_DATASET_NEW_ARGS_INIT;
    a.cls = &cls, a.cls_size = sizeof cls, a.user = new source{size, std::move(get)}, a.x = x, a.y = y;
    return dataset(detail::call(tt_dataset_new_with, a));
}

struct distributed_sampler_options {
    bool no_shuffle = false;
    std::uint64_t seed = 0;
    bool drop_last = false;
};

struct random_sampler_options {
    bool replacement = false;
    std::int64_t num_samples = 0;
    tt_generator *generator = nullptr;
};

class sampler {
  public:
    explicit sampler(tt_sampler *owned) : sampler_(check(owned)) {}
    tt_sampler *get() const noexcept { return sampler_.get(); }
    void set_epoch(std::int64_t epoch) { tt_sampler_set_epoch(get(), epoch); }
    std::int64_t size() const { return tt_sampler_size(get()); }
    std::vector<std::int64_t> indices() const {
        const std::int64_t *all = check(tt_sampler_indices(get()));
        return {all, all + size()};
    }

  private:
    detail::handle<tt_sampler, tt_sampler_free> sampler_;
};

inline sampler distributed_sampler(std::int64_t dataset_size, int num_replicas, int rank,
                                   const distributed_sampler_options &o = {}) {
    tt_distributed_sampler_args a = TT_DISTRIBUTED_SAMPLER_ARGS_INIT;
    a.dataset_size = dataset_size, a.num_replicas = num_replicas, a.rank = rank;
    a.no_shuffle = o.no_shuffle, a.seed = o.seed, a.drop_last = o.drop_last;
    return sampler(detail::call(tt_distributed_sampler_with, a));
}
inline sampler random_sampler(std::int64_t dataset_size, const random_sampler_options &o = {}) {
    tt_random_sampler_args a = TT_RANDOM_SAMPLER_ARGS_INIT;
    a.dataset_size = dataset_size, a.replacement = o.replacement, a.num_samples = o.num_samples;
    a.generator = o.generator;
    return sampler(detail::call(tt_random_sampler_with, a));
}
inline sampler sequential_sampler(std::int64_t dataset_size) { return sampler(tt_sequential_sampler(dataset_size)); }
inline sampler in_order() { return sampler(tt_in_order()); }
inline sampler shuffled() { return sampler(tt_shuffled()); }

/* Lent by the loader until the next one; tensor::keep() makes x or y the program's. */
struct batch {
    tensor x, y;
    std::int64_t size = 0;
    const std::int64_t *indices = nullptr;
};

struct loader_options {
    bool drop_last = false;
};

/* for (tutti::batch &batch : loader): one epoch. Each loop begins an epoch of its own. */
class loader {
  public:
    loader(dataset &set, std::int64_t batch_size, sampler &order, const loader_options &o = {}) {
        tt_loader_new_args a = TT_LOADER_NEW_ARGS_INIT;
        a.dataset = set.get(), a.batch_size = batch_size, a.sampler = order.get(), a.drop_last = o.drop_last;
        loader_.reset(check(detail::call(tt_loader_new_with, a)));
    }
    /* The loader keeps a sampler that it is given as a temporary. */
    loader(dataset &set, std::int64_t batch_size, sampler &&order, const loader_options &o = {})
        : loader(set, batch_size, order, o) {
        own_.emplace_back(std::move(order));
    }
    loader(dataset &&, std::int64_t, sampler &, const loader_options & = {}) = delete; /* the set must outlive it */
    loader(dataset &&, std::int64_t, sampler &&, const loader_options & = {}) = delete;

    tt_loader *get() const noexcept { return loader_.get(); }
    std::int64_t batches() const { return tt_loader_batches(get()); }

    /* The next batch of the epoch; nullptr at its end. */
    batch *next() {
        tt_batch raw = {};
        int found = tt_loader_next(get(), &raw);
        if (found < 0)
            check(tt_last_status());
        batch_ = batch{tensor::lent(raw.x), tensor::lent(raw.y), raw.size, raw.indices};
        return found ? &batch_ : nullptr;
    }

    class iterator {
      public:
        using iterator_category = std::input_iterator_tag;
        using value_type = batch;
        using difference_type = std::ptrdiff_t;
        using pointer = batch *;
        using reference = batch &;
        explicit iterator(loader *from = nullptr) : from_(from), at_(from ? from->next() : nullptr) {}
        batch &operator*() const { return *at_; }
        batch *operator->() const { return at_; }
        iterator &operator++() {
            at_ = from_->next();
            return *this;
        }
        bool operator==(const iterator &other) const { return at_ == other.at_; }
        bool operator!=(const iterator &other) const { return at_ != other.at_; }

      private:
        loader *from_;
        batch *at_;
    };
    iterator begin() {
        tt_loader_restart(get());
        return iterator(this);
    }
    iterator end() { return iterator(); }

  private:
    std::vector<sampler> own_; /* none or one; freed after the loader */
    batch batch_;
    detail::handle<tt_loader, tt_loader_free> loader_;
};

/* ---- checkpoints */

inline void checkpoint_save(const std::string &path, module &model, optimizer &opt, const tt_progress &progress) {
    check(tt_checkpoint_save(path.c_str(), model.get(), opt.get(), &progress));
}
inline tt_progress checkpoint_load(const std::string &path, module &model, optimizer &opt) {
    tt_progress progress = TT_PROGRESS_INIT;
    check(tt_checkpoint_load(path.c_str(), model.get(), opt.get(), &progress));
    return progress;
}

} // namespace tutti

#endif
