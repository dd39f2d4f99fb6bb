/* tutti/cpp/rpc.hpp: functions of this program that other workers call, and references to values that stay with a
 * worker.
 *
 *   static const tutti::rpc_function add("add", [](int a, int b) { return a + b; });
 *
 *   tutti::rpc self = tutti::rpc_init("worker0", world);
 *   int sum = self.sync<int>("worker1", "add", {2, 3});
 *   self.shutdown();
 *
 * Values are bool, integers, float and double, std::string, bytes (vectors of std::uint8_t or std::byte), rref, and
 * std::optional, std::vector, std::tuple and maps of these; rpc_value is any of them. rpc_training.hpp adds tensors. */
#ifndef TUTTI_CPP_RPC_HPP
#define TUTTI_CPP_RPC_HPP

#include <tutti/cpp/comm.hpp>
#include <tutti/cpp/rpc_values.hpp>
#include <tutti/rpc.h>

namespace tutti {

/* ---- futures */

/* A value that a call or the program will give later. It can be moved; share() makes another object for the same
 * future.
 * PyTorch: torch.futures.Future. */
class future {
  public:
    future() = default;
    explicit future(tt_future *owned) : future_(check(owned)) {}
    tt_future *get() const noexcept { return future_.get(); }
    explicit operator bool() const noexcept { return bool(future_); }
    future share() const { return future(tt_future_share(get())); }

    bool is_done() const { return tt_future_is_done(get()); }
    void wait(std::int64_t timeout_ms = 0) const { check(tt_future_wait(get(), timeout_ms)); }

    /* Wait until the future is done, and copy its value: value<int>(). Throws the error of the call. */
    template <class T = rpc_value> T value(std::int64_t timeout_ms = 0) const {
        wait(timeout_ms);
        const tt_rpc_value *v = check(tt_future_value(get()));
        return detail::rpc_result_of<T>(rpc_value::copy_of(*v));
    }

    /* End a future of future_new(), with a value that is copied, or with an error. */
    void set_value(const rpc_arg &value) {
        tt_rpc_value v = value.get();
        v.owned = false;
        check(tt_future_set_value(get(), v));
    }
    void set_error(tt_status status, const std::string &text) {
        tt_ignore(tt_fail(status, "%s", text.c_str()));
        check(tt_future_set_error(get()));
    }

    /* Have f(future &) called when the future is done, by the thread that ends it. It must not wait. What it throws is
     * dropped. */
    template <class F> void add_done_callback(F f) {
        std::unique_ptr<F> kept(new F(std::move(f)));
        tt_future_fn call = [](tt_future *done, void *user) noexcept {
            std::unique_ptr<F> mine(static_cast<F *>(user));
            try {
                future self(tt_future_share(done));
                (*mine)(self);
            } catch (...) {
            }
        };
        check(tt_future_add_callback(get(), call, kept.get()));
        (void)kept.release();
    }

    /* Make a future whose value f makes from this one's: then([](int x) { return 2 * x; }). f must not wait. If this
     * one has an error, or f throws, that is the new future's error. */
    template <class F> future then(F f) {
        std::unique_ptr<F> kept(new F(std::move(f)));
        tt_future *made = nullptr;
        check(tt_future_then(&made, get(), run_then<F>, kept.get()));
        (void)kept.release();
        return future(made);
    }

  private:
    template <class F> static tt_status run_then(tt_future *done, tt_rpc_value *out, void *user) {
        using result = typename detail::callable_of<F>::result;
        using params = typename detail::callable_of<F>::params;
        static_assert(std::tuple_size_v<params> == 1, "expected a function of the value");
        std::unique_ptr<F> mine(static_cast<F *>(user));
        return detail::guarded_apart([&] {
            using given = std::decay_t<typename std::tuple_element_t<0, params>::type>;
            rpc_value v = rpc_value::copy_of(*check(tt_future_value(done)));
            if constexpr (std::is_void_v<result>)
                (*mine)(std::move(v).template as<given>());
            else
                *out = rpc_value(rpc_arg((*mine)(std::move(v).template as<given>()))).release();
        });
    }
    detail::handle<tt_future, tt_future_free> future_;
};

/* Make a future that this program ends itself. */
inline future future_new() { return future(tt_future_new()); }

/* Make a future of the list of all values: collect_all({first, second}). PyTorch: torch.futures.collect_all. */
inline future collect_all(const std::vector<std::reference_wrapper<const future>> &futures) {
    std::vector<tt_future *> all;
    for (const future &one : futures)
        all.push_back(one.get());
    tt_future *made = nullptr;
    check(tt_future_collect_all(&made, detail::data_or_null(all), std::int64_t(all.size())));
    return future(made);
}
inline future collect_all(std::vector<future> &futures) {
    return collect_all(std::vector<std::reference_wrapper<const future>>(futures.begin(), futures.end()));
}

/* ---- calls */

struct rpc_call_options {
    std::int64_t timeout_ms = 0;
};

namespace detail {

inline tt_rpc_sync_args rpc_sync_args(const std::string &function, const rpc_args &args, const rpc_call_options &o) {
    tt_rpc_sync_args a = TT_RPC_SYNC_ARGS_INIT;
    a.function = function.c_str(), a.args = args.get(), a.timeout_ms = o.timeout_ms;
    return a;
}

/* The three ways to call, where `call` is given the C function's last arguments. */
template <class R, class Call> R rpc_sync(tt_rpc_sync_args a, Call call) {
    tt_rpc_value raw = tt_rpc_none();
    a.result = std::is_void_v<R> ? nullptr : &raw;
    check(call(&a, offsetof(tt_rpc_sync_args, tt_end)));
    return rpc_result_of<R>(rpc_value(raw));
}
template <class Call> future rpc_async(tt_rpc_sync_args a, Call call) {
    auto kept = std::make_shared<std::vector<rpc_value>>(); /* what the caller has lent may end before the call does */
    std::vector<tt_rpc_value> lent;
    bool plain = true;
    for (std::int64_t i = 0; i < a.args.count; i++) {
        kept->push_back(rpc_value::copy_of(a.args.values[i]));
        lent.push_back(kept->back().get());
        plain = plain && !lent.back().owned;
        lent.back().owned = false;
    }
    tt_future *made = nullptr;
    a.args.values = data_or_null(lent);
    check(call(&made, &a, offsetof(tt_rpc_sync_args, tt_end)));
    future result(made);
    try {
        if (!plain)
            result.add_done_callback([kept](future &) {});
    } catch (...) { /* no memory */
        tt_ignore(tt_future_wait(made, 0));
        throw;
    }
    return result;
}

} // namespace detail

/* A reference to a value that stays with its owner. It can be moved; share() makes another object for the same value.
 * A call by it gets the reference as the first argument. */
class rref {
  public:
    rref() = default;
    explicit rref(tt_rref *owned) : rref_(check(owned)) {}
    tt_rref *get() const noexcept { return rref_.get(); }
    explicit operator bool() const noexcept { return bool(rref_); }
    rref share() const { return rref(tt_rref_share(get())); }
    int owner() const { return tt_rref_owner(get()); }
    bool is_owner() const { return tt_rref_is_owner(get()); }

    /* Fetch a copy of the value. */
    template <class T = rpc_value> T to_here(std::int64_t timeout_ms = 0) const {
        tt_rpc_value raw = tt_rpc_none();
        check(tt_rref_get(get(), &raw, timeout_ms));
        return detail::rpc_result_of<T>(rpc_value(raw));
    }

    /* The value on its owner; of rpc_value::object() the object itself: local<counter>().add(1). Tensors are lent. */
    template <class T> decltype(auto) local() const {
        const tt_rpc_value &v = *check(tt_rref_local(get()));
        if constexpr (detail::has_rpc_type<T>::value)
            return T(rpc_type<T>::read(v));
        else
            return object_of<T>(v);
    }

    template <class R = rpc_value>
    R sync(const std::string &function, const rpc_args &args = {}, const rpc_call_options &o = {}) const {
        return detail::rpc_sync<R>(detail::rpc_sync_args(function, args, o),
                                   [this](auto... rest) { return tt_rref_sync_with(get(), rest...); });
    }
    future async(const std::string &function, const rpc_args &args = {}, const rpc_call_options &o = {}) const {
        return detail::rpc_async(detail::rpc_sync_args(function, args, o),
                                 [this](auto out, auto... rest) { return tt_rref_async_with(out, get(), rest...); });
    }
    rref remote(const std::string &function, const rpc_args &args = {}, const rpc_call_options &o = {}) const {
        tt_rref *made = nullptr;
        tt_rpc_sync_args a = detail::rpc_sync_args(function, args, o);
        check(tt_rref_remote_with(&made, get(), &a, offsetof(tt_rpc_sync_args, tt_end)));
        return rref(made);
    }

  private:
    template <class T> static T &object_of(const tt_rpc_value &v) {
        detail::expect_rpc_kind(v, TT_RPC_OBJECT);
        if (std::strcmp(v.object.type, typeid(T).name()) != 0)
            check(
                tt_fail(TT_ERR_INVALID, "expected an object of the type %s, got %s", typeid(T).name(), v.object.type));
        return *static_cast<T *>(v.object.at);
    }
    detail::handle<tt_rref, tt_rref_free> rref_;
};

template <> struct rpc_type<rref> {
    static std::string name() { return "rref"; }
    static tt_rpc_value lend(const rref &x, rpc_lists &) { return tt_rpc_rref(x.get()); }
    static rref read(const tt_rpc_value &v) {
        detail::expect_rpc_kind(v, TT_RPC_RREF);
        return rref(tt_rref_share(v.rref));
    }
};

/* ---- workers */

/* A worker, by its name or its id. */
class rpc_to {
  public:
    rpc_to(const char *name) : name_(name) {}
    rpc_to(const std::string &name) : name_(name) {}
    rpc_to(int id) : id_(id), by_id_(true) {}
    void set(tt_rpc_sync_args &a) const { a.to = by_id_ ? nullptr : name_.c_str(), a.to_id = id_; }

  private:
    std::string name_;
    int id_ = 0;
    bool by_id_ = false;
};

/* This process as a worker. shutdown() waits for the others, as PyTorch's rpc.shutdown() does. An object that is
 * destroyed without it, as by an exception, does not wait: calls that are under way fail. */
class rpc {
  public:
    rpc() = default;
    explicit rpc(tt_rpc *owned) : owned_(check(owned)), rpc_(owned) {}
    /* Make an object that does not own `r`. */
    static rpc lent(tt_rpc *r) {
        rpc made;
        made.rpc_ = r;
        return made;
    }
    rpc(rpc &&other) noexcept { *this = std::move(other); }
    rpc &operator=(rpc &&other) noexcept {
        owned_ = std::move(other.owned_);
        rpc_ = std::exchange(other.rpc_, nullptr);
        return *this;
    }
    tt_rpc *get() const noexcept { return rpc_; }
    explicit operator bool() const noexcept { return rpc_; }

    void shutdown(bool at_once = false, std::int64_t timeout_ms = 0) {
        tt_rpc_shutdown_args a = TT_RPC_SHUTDOWN_ARGS_INIT;
        a.rpc = owned_.release(), a.at_once = at_once, a.timeout_ms = timeout_ms;
        rpc_ = nullptr;
        check(detail::call(tt_rpc_shutdown_with, a));
    }

    int id() const { return tt_rpc_id(get()); }
    std::string name() const { return tt_rpc_name(get()); }
    int find_worker(const std::string &name) const {
        int found = -1;
        check(tt_rpc_find_worker(get(), name.c_str(), &found));
        return found;
    }
    std::string worker_name(int id) const {
        char text[128];
        check(tt_rpc_worker_name(get(), id, text, sizeof text));
        return text;
    }
    std::vector<int> workers() const {
        std::vector<int> ids(std::size_t(tt_rpc_workers(get(), nullptr, 0)));
        std::size_t now = std::size_t(tt_rpc_workers(get(), ids.data(), std::int64_t(ids.size())));
        ids.resize(now < ids.size() ? now : ids.size()); /* some may have come or gone */
        return ids;
    }
    tt_rpc_counts counts() const {
        tt_rpc_counts now = {};
        check(tt_rpc_get_counts(get(), &now));
        return now;
    }

    /* Call a function and wait for its result: sync<int>("worker1", "add", {2, 3}). sync<void>() drops the result. */
    template <class R = rpc_value>
    R sync(const rpc_to &to, const std::string &function, const rpc_args &args = {},
           const rpc_call_options &o = {}) const {
        return detail::rpc_sync<R>(aimed(to, function, args, o), tt_rpc_sync_with);
    }
    /* Call a function without waiting for it. Arguments are copied; tensors in them are shared, and must stay unchanged
     * until the future is done. */
    future async(const rpc_to &to, const std::string &function, const rpc_args &args = {},
                 const rpc_call_options &o = {}) const {
        return detail::rpc_async(aimed(to, function, args, o), tt_rpc_async_with);
    }
    rref remote(const rpc_to &to, const std::string &function, const rpc_args &args = {},
                const rpc_call_options &o = {}) const {
        tt_rref *made = nullptr;
        tt_rpc_sync_args a = aimed(to, function, args, o);
        check(tt_rpc_remote_with(&made, &a, offsetof(tt_rpc_sync_args, tt_end)));
        return rref(made);
    }

  private:
    tt_rpc_sync_args aimed(const rpc_to &to, const std::string &function, const rpc_args &args,
                           const rpc_call_options &o) const {
        tt_rpc_sync_args a = detail::rpc_sync_args(function, args, o);
        a.rpc = get();
        to.set(a);
        return a;
    }
    static void end(tt_rpc *r) noexcept {
        tt_rpc_shutdown_args a = TT_RPC_SHUTDOWN_ARGS_INIT;
        a.rpc = r, a.at_once = true;
        tt_ignore(detail::call(tt_rpc_shutdown_with, a));
    }
    detail::handle<tt_rpc, end> owned_;
    tt_rpc *rpc_ = nullptr;
};

/* Make a reference to a value of this process: rref_new(self, 5), rref_new(self,
 * rpc_value::object(std::move(counter))). */
inline rref rref_new(const rpc &self, rpc_value value) { return rref(tt_rref_new(self.get(), value.release())); }
inline rref rref_new(const rpc &self, const rpc_arg &value) { return rref_new(self, rpc_value(value)); }

struct rpc_init_options {
    const char *prefix = nullptr; /* of the keys in a store */
    int id = -1;                  /* with a store; -1: the next free one */
    int threads = 0, max_threads = 0;
    std::int64_t timeout_ms = 0, join_timeout_ms = 0, heartbeat_ms = 0;
    std::size_t max_memory = 0;
    bool other_functions = false;
};

namespace detail {

inline rpc rpc_init(const std::string &name, tt_group *g, tt_store *s, const rpc_init_options &o) {
    tt_rpc *made = nullptr;
    tt_rpc_init_args a = TT_RPC_INIT_ARGS_INIT;
    a.out = &made, a.name = name.c_str(), a.group = g, a.store = s, a.prefix = o.prefix;
    a.id = o.id < 0 ? 0 : o.id, a.has_id = o.id >= 0, a.threads = o.threads, a.max_threads = o.max_threads;
    a.timeout_ms = o.timeout_ms, a.join_timeout_ms = o.join_timeout_ms, a.heartbeat_ms = o.heartbeat_ms;
    a.max_memory = o.max_memory, a.other_functions = o.other_functions;
    check(call(tt_rpc_init_with, a));
    return rpc(made);
}

} // namespace detail

/* Become a worker: one of the ranks of a group, which all call this together, or one of those that meet through a
 * store, which must outlive the worker. PyTorch: rpc.init_rpc. */
inline rpc rpc_init(const std::string &name, const group &g, const rpc_init_options &o = {}) {
    return detail::rpc_init(name, g.get(), nullptr, o);
}
inline rpc rpc_init(const std::string &name, const store &s, const rpc_init_options &o = {}) {
    return detail::rpc_init(name, nullptr, s.get(), o);
}
rpc rpc_init(const std::string &name, store &&, const rpc_init_options & = {}) = delete;

/* ---- functions */

/* The call that a function serves. A function gets it if its first parameter is a `rpc_call &`. */
class rpc_call {
  public:
    explicit rpc_call(tt_rpc_call *borrowed) : call_(borrowed) {}
    tt_rpc_call *get() const noexcept { return call_; }
    int caller() const { return tt_rpc_caller(call_); }
    rpc worker() const { return rpc::lent(tt_rpc_of_call(call_)); }
    std::int64_t arg_count() const { return tt_rpc_arg_count(call_); }
    template <class T> T arg(std::int64_t index) const {
        const tt_rpc_value *v = tt_rpc_arg(call_, index);
        if (!v)
            check(tt_fail(TT_ERR_INVALID, "expected an argument %lld", static_cast<long long>(index)));
        return rpc_type<T>::read(*v);
    }
    rpc_value take_arg(std::int64_t index) {
        tt_rpc_value taken = tt_rpc_none();
        check(tt_rpc_take_arg(call_, index, &taken));
        return rpc_value(taken);
    }

  private:
    tt_rpc_call *call_;
};

namespace detail {

/* Convert an argument to a parameter of type P. A parameter `T &` is an object: the argument is a reference to it. */
template <class P, class = void> struct rpc_param {
    static constexpr bool is_call = false;
    static std::string name() { return rpc_type<std::decay_t<P>>::name(); }
    static std::decay_t<P> get(rpc_call &call, std::int64_t i) { return call.arg<std::decay_t<P>>(i); }
};
template <> struct rpc_param<rpc_call &> {
    static constexpr bool is_call = true;
    static std::string name() { return ""; }
    static rpc_call &get(rpc_call &call, std::int64_t) { return call; }
};
template <class T>
struct rpc_param<T &,
                 std::enable_if_t<!std::is_const_v<T> && !std::is_same_v<T, rpc_call> && !has_rpc_type<T>::value>> {
    static constexpr bool is_call = false;
    static std::string name() { return "rref"; }
    static T &get(rpc_call &call, std::int64_t i) { return call.arg<rref>(i).template local<T>(); }
};

/* Give a result of type R. */
template <class R> struct rpc_result {
    static std::string name() { return " -> " + rpc_type<R>::name(); }
    static void give(rpc_call &call, const R &x) {
        rpc_lists lists;
        check(tt_rpc_return(call.get(), rpc_type<R>::lend(x, lists)));
    }
};
template <> struct rpc_result<void> {
    static std::string name() { return ""; }
};
template <> struct rpc_result<rpc_value> {
    static std::string name() { return " -> any"; }
    static void give(rpc_call &call, rpc_value x) { check(tt_rpc_return(call.get(), x.release())); }
};
template <> struct rpc_result<future> {
    static std::string name() { return " -> any"; }
    static void give(rpc_call &call, const future &x) { check(tt_rpc_return_future(call.get(), x.get())); }
};
template <class T> struct rpc_result<std::unique_ptr<T>> {
    static std::string name() { return " -> object"; }
    static void give(rpc_call &call, std::unique_ptr<T> x) {
        rpc_result<rpc_value>::give(call, rpc_value::object(std::move(x)));
    }
};

/* A C function for a callable. C passes it no pointer of the program's, so it finds the callable by its type, which no
 * other callable has. */
template <class F> struct rpc_served {
    using result = typename callable_of<F>::result;
    using params = typename callable_of<F>::params;
    struct kept {
        F fn;
        std::string name, signature;
    };
    static inline kept *it = nullptr; /* lives as long as the process */

    template <std::size_t i> using param = rpc_param<typename std::tuple_element_t<i, params>::type>;

    template <std::size_t... i> static std::string signature_of(std::index_sequence<i...>) {
        std::string all;
        ((all += all.empty() ? param<i>::name() : ", " + param<i>::name()), ...);
        return "(" + all + ")" + rpc_result<result>::name();
    }
    template <std::size_t... i> static void call(rpc_call &served, std::index_sequence<i...>) {
        std::int64_t calls = 0; /* a rpc_call takes no argument */
        ((calls += param<i>::is_call), ...);
        if constexpr (std::is_void_v<result>)
            it->fn(param<i>::get(served, std::int64_t(i) - calls)...);
        else
            rpc_result<result>::give(served, it->fn(param<i>::get(served, std::int64_t(i) - calls)...));
    }
    static tt_status run(tt_rpc_call *raw) {
        return guarded_apart([&] {
            in_scope_of_c inside;
            rpc_call served(raw);
            call(served, std::make_index_sequence<std::tuple_size_v<params>>());
        });
    }
    static const kept &keep(const std::string &name, F &&fn, const std::string &signature) {
        static_assert(!std::is_pointer_v<F>, "expected a class or a lambda: rpc_register<function>(\"name\")");
        if (it)
            check(tt_fail(TT_ERR_STATE, "the callable of %s is registered already, as %s", name.c_str(),
                          it->name.c_str()));
        it = new kept{std::move(fn), name, signature};
        if (signature.empty())
            it->signature = signature_of(std::make_index_sequence<std::tuple_size_v<params>>());
        return *it;
    }
};

/* A type of its own for a plain function. */
template <auto fn> struct rpc_plain {
    template <class... A> decltype(auto) operator()(A &&...args) const { return fn(std::forward<A>(args)...); }
};
template <auto fn> struct callable_of<rpc_plain<fn>> : callable_of<decltype(fn)> {};

} // namespace detail

/* Register a lambda, or another callable of a type of its own, before rpc_init():
 *   rpc_register("add", [](int a, int b) { return a + b; })
 * It lives as long as the process, and may be called by several threads at once. Its parameters are types of values.
 * The first one may be a `rpc_call &`. A parameter `T &` of another class is an object, and the caller gives a
 * reference to it. It returns a value, nothing, a std::unique_ptr (an object, for remote()), or a future, whose value
 * is the result as soon as it is done. What it throws is the caller's error. `signature` is for workers that have the
 * function in C: names of parameters are a part of it. */
template <class F> void rpc_register(const std::string &name, F fn, const std::string &signature = "") {
    using served = detail::rpc_served<F>;
    const auto &kept = served::keep(name, std::move(fn), signature);
    check(tt_rpc_register(kept.name.c_str(), kept.signature.c_str(), served::run));
}
/* Register a plain function: rpc_register<add>("add"). */
template <auto fn> void rpc_register(const std::string &name, const std::string &signature = "") {
    rpc_register(name, detail::rpc_plain<fn>(), signature);
}

/* Register a function when the program is loaded, by an object at namespace scope. If that fails, rpc_init() throws the
 * error:
 *   static const tutti::rpc_function add("add", [](int a, int b) { return a + b; }); */
class rpc_function {
  public:
    template <class F> rpc_function(const std::string &name, F fn, const std::string &signature = "") {
        using served = detail::rpc_served<F>;
        const auto &kept = served::keep(name, std::move(fn), signature);
        tt_rpc_register_at_load(kept.name.c_str(), kept.signature.c_str(), served::run);
    }
    rpc_function(const rpc_function &) = delete;
    rpc_function &operator=(const rpc_function &) = delete;
};

} // namespace tutti

#endif
