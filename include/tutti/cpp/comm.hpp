/* tutti/cpp/comm.hpp: process groups and collectives on raw buffers. */
#ifndef TUTTI_CPP_COMM_HPP
#define TUTTI_CPP_COMM_HPP

#include <tutti/comm.h>
#include <tutti/cpp/store.hpp>

namespace tutti {

/* ---- groups and works */

/* An asynchronous call. Buffers stay borrowed until it is done, so the destructor waits for it, at most until the
 * call's deadline. An error that only the destructor sees is dropped: call wait(). */
class work {
  public:
    work() = default;
    explicit work(tt_work *owned) : work_(owned) {}
    tt_work *get() const noexcept { return work_.get(); }
    tt_work *release() noexcept { return work_.release(); }
    void wait() { check(tt_work_wait(get())); }
    bool wait_for(std::int64_t timeout_ms) { /* whether it is done */
        bool done = false;
        check(tt_work_wait_for(get(), timeout_ms, &done));
        return done;
    }
    bool is_completed() const { return tt_work_is_completed(get()); }
    int source_rank() const { return tt_work_source_rank(get()); }

    /* f(tt_status, int source) is called exactly once, by whichever thread; it must not wait. What it throws is
     * dropped: no call in C++ waits for it. */
    template <class F> void add_done_callback(F f) {
        std::unique_ptr<F> kept(new F(std::move(f)));
        tt_work_fn call = [](tt_status status, int source, void *user) noexcept {
            std::unique_ptr<F> mine(static_cast<F *>(user));
            try {
                (*mine)(status, source);
            } catch (...) {
            }
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

/* Wait for all: wait_all({first, second}). The first failure is thrown. */
inline void wait_all(const std::vector<std::reference_wrapper<work>> &works) {
    std::vector<tt_work *> all;
    for (const work &one : works)
        all.push_back(one.get());
    check(tt_work_wait_all(all.data(), std::int64_t(all.size())));
}
inline void wait_all(std::vector<work> &works) {
    wait_all(std::vector<std::reference_wrapper<work>>(works.begin(), works.end()));
}

inline const char *reduce_op_name(tt_reduce_op op) { return tt_reduce_op_name(op); }

/* What every call on a group takes as options. */
struct call_options {
    std::int64_t timeout_ms = 0;
    tutti::work *work = nullptr; /* not NULL: asynchronous; receives the work */
    double factor = 0;           /* this rank's, of TT_PREMUL_SUM */
    int tag = 0;                 /* of sends and receives */
    int *source = nullptr;       /* of receives without .work: receives the sender's rank */

    /* Of calls on buffers: where these lie (TT_DEVICE_OPTIONS). */
    tt_device_type device = TT_DEVICE_CPU;
    int device_index = 0;
    void *stream = nullptr;
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
    tt_device_type device = TT_DEVICE_CPU;
    int device_index = 0;
    bool or_alone = false;
};

/* This process's number on its host, as its launcher tells; else `fallback`. */
inline int get_node_local_rank(int fallback) { return tt_get_node_local_rank(fallback); }

/* A process group; leaves it when destroyed. An empty one (a rank that new_group() gave no group) is false. */
class group {
  public:
    group() = default;
    explicit group(tt_group *owned) : owned_(owned), group_(owned) {}
    /* What belongs to something else. */
    static group lent(tt_group *g) {
        group made;
        made.group_ = g;
        return made;
    }
    group(group &&other) noexcept { *this = std::move(other); }
    group &operator=(group &&other) noexcept {
        owned_ = std::move(other.owned_);
        group_ = std::exchange(other.group_, nullptr);
        return *this;
    }
    tt_group *get() const noexcept { return group_; }
    explicit operator bool() const noexcept { return group_; }
    int rank() const { return tt_get_rank(get()); }
    int world_size() const { return tt_get_world_size(get()); }
    int global_rank(int group_rank) const { return tt_get_global_rank(get(), group_rank); }
    int group_rank(int global_rank) const { return tt_get_group_rank(get(), global_rank); }
    std::string backend() const { return tt_get_backend(get()); }
    std::int64_t timeout_ms() const { return tt_group_timeout_ms(get()); }
    void set_timeout_ms(std::int64_t ms) { tt_group_set_timeout_ms(get(), ms); }
    void abort(const std::string &reason) { tt_group_abort(get(), reason.c_str()); }

  private:
    detail::handle<tt_group, tt_destroy_process_group> owned_;
    tt_group *group_ = nullptr;
};

inline group init_process_group(const init_process_group_options &o = {}) {
    tt_group *made = nullptr;
    tt_init_process_group_args a = TT_INIT_PROCESS_GROUP_ARGS_INIT;
    a.out = &made, a.backend = o.backend, a.init_method = o.init_method, a.store = o.store, a.rank = o.rank;
    a.world_size = o.world_size, a.timeout_ms = o.timeout_ms, a.heartbeat_ms = o.heartbeat_ms;
    a.transport = o.transport, a.algorithms = o.algorithms, a.device = o.device, a.device_index = o.device_index;
    a.or_alone = o.or_alone;
    check(detail::call(tt_init_process_group_with, a));
    return group(made);
}

namespace detail {

template <class Args, class = void> struct takes_device : std::false_type {};
template <class Args>
struct takes_device<Args, std::void_t<decltype(std::declval<Args &>().stream)>> : std::true_type {};

/* A call on a group: `fill` sets what the operation needs beyond what all share. */
template <class Args, class Call, class Fill>
void on_group(Call function, const group &g, const call_options &o, site where, Fill fill) {
    tt_work *made = nullptr;
    Args a = {};
    a.group = g.get(), a.timeout_ms = o.timeout_ms, a.file = where.file, a.line = where.line;
    a.work = o.work ? &made : nullptr;
    if constexpr (takes_device<Args>::value)
        a.device = o.device, a.device_index = o.device_index, a.stream = o.stream;
    else if (o.device != TT_DEVICE_CPU || o.stream)
        check(tt_fail(TT_ERR_INVALID, "expected neither device nor stream in a call that moves no buffer, got %s",
                      tt_device_type_name(o.device)));
    fill(a);
    check(call(function, a));
    if (o.work)
        *o.work = work(made);
}

inline void check_type(const char *name, tt_dtype a, tt_dtype b) {
    if (a != b)
        check(tt_fail(TT_ERR_DTYPE, "%s: expected buffers of one type, got %s and %s", name, tt_dtype_name(a),
                      tt_dtype_name(b)));
}

/* `all` has world_size times the elements of `part`, of the same type. Where a root alone needs `all`, others may pass
 * none. */
inline void check_parts(const char *name, const group &g, const const_buffer &part, const const_buffer &all) {
    check_type(name, part.dtype, all.dtype);
    if (all.count != part.count * g.world_size())
        check(tt_fail(TT_ERR_SHAPE, "%s: expected a buffer of %d times %lld elements, got %lld", name, g.world_size(),
                      static_cast<long long>(part.count), static_cast<long long>(all.count)));
}

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

/* `count` elements of T in each rank's symmetric memory. A view: the memory belongs to the group, and lives until
 * group_free() or the end of the group. It is a buffer, too. */
template <class T> class symmetric {
  public:
    symmetric() = default;
    symmetric(T *first, std::size_t count) : first_(first), count_(count) {}
    T *data() const noexcept { return first_; }
    std::size_t size() const noexcept { return count_; }
    T *begin() const noexcept { return first_; }
    T *end() const noexcept { return first_ + count_; }
    T &operator[](std::size_t i) const { return first_[i]; }

  private:
    T *first_ = nullptr;
    std::size_t count_ = 0;
};

/* group_alloc<float>(world, 1024): zeros. Collective. */
template <class T>
symmetric<T> group_alloc(const group &g, std::int64_t count, const call_options &o = {}, site where = site::here()) {
    if (count < 0 || std::uint64_t(count) > SIZE_MAX / sizeof(T))
        check(tt_fail(TT_ERR_INVALID, "group_alloc: expected a number of elements, got %lld",
                      static_cast<long long>(count)));
    void *made = nullptr;
    detail::on_group<tt_group_alloc_args>(tt_group_alloc_with, g, o, where, [&](tt_group_alloc_args &a) {
        a.out = &made, a.bytes = std::size_t(count) * sizeof(T);
    });
    return symmetric<T>(static_cast<T *>(made), std::size_t(count));
}

/* Give it back, and leave an empty view. Collective. */
template <class T>
void group_free(const group &g, symmetric<T> &memory, const call_options &o = {}, site where = site::here()) {
    detail::on_group<tt_group_free_args>(tt_group_free_with, g, o, where,
                                         [&](tt_group_free_args &a) { a.ptr = memory.data(); });
    memory = symmetric<T>();
}

/* ---- collectives on buffers; parallel.hpp has those on tensors */

inline void all_reduce(const group &g, buffer b, tt_reduce_op op, const call_options &o = {},
                       site where = site::here()) {
    detail::on_group<tt_all_reduce_args>(tt_all_reduce_with, g, o, where, [&](tt_all_reduce_args &a) {
        a.buf = b.data, a.count = b.count, a.dtype = b.dtype, a.op = op, a.factor = o.factor;
    });
}

/* Several buffers of one type in one call: all_reduce_coalesced(world, {x, y}, TT_SUM). */
inline void all_reduce_coalesced(const group &g, const std::vector<buffer> &buffers, tt_reduce_op op,
                                 const call_options &o = {}, site where = site::here()) {
    std::vector<void *> bufs;
    std::vector<std::int64_t> counts;
    const tt_dtype dtype = buffers.empty() ? TT_F32 : buffers[0].dtype;
    for (const buffer &b : buffers) {
        detail::check_type("all_reduce_coalesced", dtype, b.dtype);
        bufs.push_back(b.data), counts.push_back(b.count);
    }
    detail::on_group<tt_all_reduce_coalesced_args>(
        tt_all_reduce_coalesced_with, g, o, where, [&](tt_all_reduce_coalesced_args &a) {
            a.bufs = bufs.data(), a.counts = counts.data(), a.buffers = std::int64_t(bufs.size()), a.dtype = dtype;
            a.op = op, a.factor = o.factor;
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

/* How a buffer is divided among the ranks: counts[r] elements from offsets[r]; no offsets: one after the other. */
struct split {
    std::vector<std::int64_t> counts, offsets;
    split(std::initializer_list<std::int64_t> counts_) : counts(counts_) {}
    split(std::vector<std::int64_t> counts_, std::vector<std::int64_t> offsets_ = {})
        : counts(std::move(counts_)), offsets(std::move(offsets_)) {}
};

namespace detail {

/* A count for each rank, and all of it within the buffer. */
inline void check_split(const char *name, const group &g, const split &s, const const_buffer &b) {
    const std::size_t ranks = std::size_t(g.world_size());
    if (s.counts.size() != ranks || (!s.offsets.empty() && s.offsets.size() != ranks))
        check(tt_fail(TT_ERR_INVALID, "%s: expected %zu counts, and as many offsets or none, got %zu and %zu", name,
                      ranks, s.counts.size(), s.offsets.size()));
    for (std::size_t r = 0, at = 0; r < ranks; r++) {
        const std::uint64_t first = s.offsets.empty() ? at : std::uint64_t(s.offsets[r]);
        const std::uint64_t room = std::uint64_t(b.count);
        if (s.counts[r] < 0 || first > room || std::uint64_t(s.counts[r]) > room - first)
            check(tt_fail(TT_ERR_SHAPE, "%s: rank %zu's %lld elements from %lld don't fit a buffer of %lld", name, r,
                          static_cast<long long>(s.counts[r]), static_cast<long long>(first),
                          static_cast<long long>(b.count)));
        at += std::size_t(s.counts[r]);
    }
}

} // namespace detail

/* Uneven parts: all_gather_v(world, mine, all, {3, 1}). */
inline void all_gather_v(const group &g, const_buffer send, buffer recv, const split &parts, const call_options &o = {},
                         site where = site::here()) {
    detail::check_type("all_gather_v", send.dtype, recv.dtype);
    detail::check_split("all_gather_v", g, parts, detail::as_const(recv));
    if (send.count != parts.counts[std::size_t(g.rank())])
        check(tt_fail(TT_ERR_SHAPE, "all_gather_v: expected to send %lld elements, got a buffer of %lld",
                      static_cast<long long>(parts.counts[std::size_t(g.rank())]), static_cast<long long>(send.count)));
    detail::on_group<tt_all_gather_v_args>(tt_all_gather_v_with, g, o, where, [&](tt_all_gather_v_args &a) {
        a.send = send.data, a.recv = recv.data, a.counts = parts.counts.data();
        a.offsets = detail::data_or_null(parts.offsets), a.dtype = send.dtype;
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

/* Uneven parts: all_to_all_v(world, x, {1, 2}, y, {1, 1}). */
inline void all_to_all_v(const group &g, const_buffer send, const split &send_parts, buffer recv,
                         const split &recv_parts, const call_options &o = {}, site where = site::here()) {
    detail::check_type("all_to_all_v", send.dtype, recv.dtype);
    detail::check_split("all_to_all_v", g, send_parts, send);
    detail::check_split("all_to_all_v", g, recv_parts, detail::as_const(recv));
    detail::on_group<tt_all_to_all_v_args>(tt_all_to_all_v_with, g, o, where, [&](tt_all_to_all_v_args &a) {
        a.send = send.data, a.recv = recv.data, a.dtype = send.dtype;
        a.send_counts = send_parts.counts.data(), a.send_offsets = detail::data_or_null(send_parts.offsets);
        a.recv_counts = recv_parts.counts.data(), a.recv_offsets = detail::data_or_null(recv_parts.offsets);
    });
}

inline void barrier(const group &g, const call_options &o = {}, site where = site::here()) {
    detail::on_group<tt_barrier_args>(tt_barrier_with, g, o, where, [](tt_barrier_args &) {});
}
inline void monitored_barrier(const group &g, const call_options &o = {}, site where = site::here()) {
    detail::on_group<tt_barrier_args>(tt_monitored_barrier_with, g, o, where, [](tt_barrier_args &) {});
}

/* ---- point to point */

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

/* One of a batch; its buffer is borrowed until the batch is done. */
inline tt_p2p_op send_op(const_buffer b, int peer, int tag = 0) {
    tt_p2p_op op = {};
    op.send = b.data, op.count = b.count, op.dtype = b.dtype, op.peer = peer, op.tag = tag;
    return op;
}
inline tt_p2p_op recv_op(buffer b, int peer, int tag = 0) {
    tt_p2p_op op = {};
    op.is_recv = true, op.recv = b.data, op.count = b.count, op.dtype = b.dtype, op.peer = peer, op.tag = tag;
    return op;
}

/* batch_isend_irecv(world, {send_op(x, right), recv_op(y, left)}) */
inline void batch_isend_irecv(const group &g, const std::vector<tt_p2p_op> &ops, const call_options &o = {},
                              site where = site::here()) {
    detail::on_group<tt_batch_isend_irecv_args>(
        tt_batch_isend_irecv_with, g, o, where,
        [&](tt_batch_isend_irecv_args &a) { a.ops = ops.data(), a.count = std::int64_t(ops.size()); });
}

} // namespace tutti

#endif
