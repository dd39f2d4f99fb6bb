/* tutti/cpp/rpc_values.hpp: arguments and results of calls (rpc.hpp) as C++ types. */
#ifndef TUTTI_CPP_RPC_VALUES_HPP
#define TUTTI_CPP_RPC_VALUES_HPP

#include <initializer_list>
#include <optional>
#include <tuple>
#include <typeinfo>

#include <tutti/cpp/base.hpp>
#include <tutti/rpc.h>

namespace tutti {

inline const char *rpc_kind_name(tt_rpc_kind kind) { return tt_rpc_kind_name(kind); }

/* ---- values of C++ types */

/* Converts a type to values and back. name() is its name in signatures. lend() makes a value that borrows from an
 * object; items of lists are added to `lists`. read() makes an object of a value. Specialise it for types of your
 * own. */
template <class T, class = void> struct rpc_type;

/* The items of lists and maps that a call borrows. */
class rpc_lists {
  public:
    tt_rpc_value *add(std::size_t count) {
        lists_.emplace_back(count, tt_rpc_none());
        return lists_.back().data();
    }

  private:
    std::vector<std::vector<tt_rpc_value>> lists_;
};

namespace detail {

inline void expect_rpc_kind(const tt_rpc_value &v, tt_rpc_kind kind) {
    if (v.kind != kind)
        check(tt_fail(TT_ERR_INVALID, "expected a value of kind %s, got %s", tt_rpc_kind_name(kind),
                      tt_rpc_kind_name(v.kind)));
}

template <class T, class = void> struct has_rpc_type : std::false_type {};
template <class T> struct has_rpc_type<T, std::void_t<decltype(sizeof(rpc_type<T>))>> : std::true_type {};

template <class T>
constexpr bool is_rpc_int = std::is_integral_v<T> && !std::is_same_v<T, bool> && sizeof(T) <= sizeof(std::int64_t);
template <class T> constexpr bool is_byte = std::is_same_v<T, std::uint8_t> || std::is_same_v<T, std::byte>;

inline tt_rpc_value rpc_run(tt_rpc_kind kind, const void *data, std::size_t size) {
    tt_rpc_value v = tt_rpc_bytes(data, size);
    v.kind = kind;
    return v;
}

} // namespace detail

template <> struct rpc_type<bool> {
    static std::string name() { return "bool"; }
    static tt_rpc_value lend(bool x, rpc_lists &) { return tt_rpc_bool(x); }
    static bool read(const tt_rpc_value &v) {
        detail::expect_rpc_kind(v, TT_RPC_BOOL);
        return v.boolean;
    }
};

template <class T> struct rpc_type<T, std::enable_if_t<detail::is_rpc_int<T>>> {
    static std::string name() { return "int"; }
    static tt_rpc_value lend(T x, rpc_lists &) {
        if (std::is_unsigned_v<T> && std::uint64_t(x) > std::uint64_t(INT64_MAX))
            check(tt_fail(TT_ERR_INVALID, "expected an integer of 64 bits with a sign, got %llu",
                          static_cast<unsigned long long>(x)));
        return tt_rpc_int(std::int64_t(x));
    }
    static T read(const tt_rpc_value &v) {
        detail::expect_rpc_kind(v, TT_RPC_INT);
        if (std::int64_t(T(v.integer)) != v.integer || (std::is_unsigned_v<T> && v.integer < 0))
            check(tt_fail(TT_ERR_INVALID, "expected an integer of %zu bits %s a sign, got %lld", 8 * sizeof(T),
                          std::is_signed_v<T> ? "with" : "without", static_cast<long long>(v.integer)));
        return T(v.integer);
    }
};

template <class T> struct rpc_type<T, std::enable_if_t<std::is_floating_point_v<T>>> {
    static std::string name() { return "float"; }
    static tt_rpc_value lend(T x, rpc_lists &) { return tt_rpc_float(double(x)); }
    static T read(const tt_rpc_value &v) {
        if (v.kind == TT_RPC_INT)
            return T(v.integer);
        detail::expect_rpc_kind(v, TT_RPC_FLOAT);
        return T(v.number);
    }
};

template <> struct rpc_type<std::string> {
    static std::string name() { return "text"; }
    static tt_rpc_value lend(const std::string &x, rpc_lists &) {
        return detail::rpc_run(TT_RPC_TEXT, x.data(), x.size());
    }
    static std::string read(const tt_rpc_value &v) {
        detail::expect_rpc_kind(v, TT_RPC_TEXT);
        return std::string(static_cast<const char *>(v.bytes.data), v.bytes.size);
    }
};

template <class T> struct rpc_type<std::vector<T>, std::enable_if_t<detail::is_byte<T>>> {
    static std::string name() { return "bytes"; }
    static tt_rpc_value lend(const std::vector<T> &x, rpc_lists &) { return tt_rpc_bytes(x.data(), x.size()); }
    static std::vector<T> read(const tt_rpc_value &v) {
        detail::expect_rpc_kind(v, TT_RPC_BYTES);
        const T *data = static_cast<const T *>(v.bytes.data);
        return std::vector<T>(data, data + v.bytes.size);
    }
};

template <class T>
struct rpc_type<std::vector<T>, std::enable_if_t<!detail::is_byte<T> && detail::has_rpc_type<T>::value>> {
    static std::string name() { return "list"; }
    static tt_rpc_value lend(const std::vector<T> &x, rpc_lists &lists) {
        tt_rpc_value *items = lists.add(x.size());
        for (std::size_t i = 0; i < x.size(); i++)
            items[i] = rpc_type<T>::lend(x[i], lists);
        return tt_rpc_list(items, std::int64_t(x.size()));
    }
    template <class V> static std::vector<T> read(V &v) {
        detail::expect_rpc_kind(v, TT_RPC_LIST);
        std::vector<T> made;
        V *items = v.list.items;
        for (std::int64_t i = 0; i < v.list.count; i++)
            made.push_back(rpc_type<T>::read(items[i]));
        return made;
    }
};

/* A list of as many values as the tuple has, each of its own type. */
template <class... T> struct rpc_type<std::tuple<T...>, std::enable_if_t<(detail::has_rpc_type<T>::value && ...)>> {
    static constexpr std::size_t count = sizeof...(T);
    static std::string name() { return "list"; }
    static tt_rpc_value lend(const std::tuple<T...> &x, rpc_lists &lists) {
        tt_rpc_value *item = lists.add(count), *items = item;
        std::apply([&](const T &...each) { ((*item++ = rpc_type<T>::lend(each, lists)), ...); }, x);
        return tt_rpc_list(items, std::int64_t(count));
    }
    template <class V> static std::tuple<T...> read(V &v) {
        detail::expect_rpc_kind(v, TT_RPC_LIST);
        if (v.list.count != std::int64_t(count))
            check(tt_fail(TT_ERR_INVALID, "expected a list of %zu values, got one of %lld", count,
                          static_cast<long long>(v.list.count)));
        V *items = v.list.items;
        return read_items(items, std::index_sequence_for<T...>());
    }

  private:
    template <class V, std::size_t... i> static std::tuple<T...> read_items(V *items, std::index_sequence<i...>) {
        return std::tuple<T...>{rpc_type<T>::read(items[i])...};
    }
};

/* std::map, std::unordered_map, and similar types. */
template <class M>
struct rpc_type<M, std::enable_if_t<detail::has_rpc_type<typename M::key_type>::value &&
                                    detail::has_rpc_type<typename M::mapped_type>::value>> {
    using key = rpc_type<typename M::key_type>;
    using mapped = rpc_type<typename M::mapped_type>;
    static std::string name() { return "map"; }
    static tt_rpc_value lend(const M &x, rpc_lists &lists) {
        tt_rpc_value *items = lists.add(2 * x.size()), *item = items;
        for (const auto &[k, v] : x)
            *item++ = key::lend(k, lists), *item++ = mapped::lend(v, lists);
        return tt_rpc_map(items, std::int64_t(2 * x.size()));
    }
    template <class V> static M read(V &v) {
        detail::expect_rpc_kind(v, TT_RPC_MAP);
        M made;
        V *items = v.list.items;
        for (std::int64_t i = 0; i + 1 < v.list.count; i += 2)
            made.emplace(key::read(items[i]), mapped::read(items[i + 1]));
        return made;
    }
};

template <class T> struct rpc_type<std::optional<T>, std::enable_if_t<detail::has_rpc_type<T>::value>> {
    static std::string name() { return rpc_type<T>::name() + "?"; }
    static tt_rpc_value lend(const std::optional<T> &x, rpc_lists &lists) {
        return x ? rpc_type<T>::lend(*x, lists) : tt_rpc_none();
    }
    template <class V> static std::optional<T> read(V &v) {
        return v.kind == TT_RPC_NONE ? std::nullopt : std::optional<T>(rpc_type<T>::read(v));
    }
};

/* ---- values of any type */

/* A value that borrows, for a call; nullptr is none. */
class rpc_arg {
  public:
    rpc_arg(std::nullptr_t) : value_(tt_rpc_none()) {}
    rpc_arg(const char *text) : value_(tt_rpc_text(text)) {}
    template <class T, class = std::enable_if_t<detail::has_rpc_type<T>::value>>
    rpc_arg(const T &x) : value_(rpc_type<T>::lend(x, lists_)) {}
    rpc_arg(const rpc_arg &) = delete;
    rpc_arg &operator=(const rpc_arg &) = delete;
    const tt_rpc_value &get() const noexcept { return value_; }

  private:
    rpc_lists lists_;
    tt_rpc_value value_;
};

/* A value that owns its data. */
class rpc_value {
  public:
    rpc_value() = default;
    explicit rpc_value(tt_rpc_value owned) noexcept : value_(owned) {}
    explicit rpc_value(const rpc_arg &x) : rpc_value(copy_of(x.get())) {}
    static rpc_value copy_of(const tt_rpc_value &x) {
        rpc_value made;
        check(tt_rpc_value_copy(&made.value_, &x));
        return made;
    }
    /* Make a value of the program's own object, for rref_new(), or as the result of a function that is called by
     * remote(). */
    template <class T> static rpc_value object(std::unique_ptr<T> x) {
        check(x.get());
        return rpc_value(tt_rpc_object(x.release(), detail::destroy<T>, typeid(T).name()));
    }
    rpc_value(rpc_value &&other) noexcept : value_(other.release()) {}
    rpc_value &operator=(rpc_value &&other) noexcept {
        if (this != &other) {
            tt_rpc_value_free(&value_);
            value_ = other.release();
        }
        return *this;
    }
    ~rpc_value() { tt_rpc_value_free(&value_); }

    const tt_rpc_value &get() const noexcept { return value_; }
    tt_rpc_value release() noexcept { return std::exchange(value_, tt_rpc_none()); } /* the caller is to free it */
    rpc_value copy() const { return copy_of(value_); }
    tt_rpc_kind kind() const noexcept { return value_.kind; }
    bool is_none() const noexcept { return value_.kind == TT_RPC_NONE; }

    /* Convert the value: as<int>(). Tensors belong to this value, and those of an rvalue, and of take(), to the caller.
     * Errors: TT_ERR_INVALID the value is of another kind, or out of the type's range. */
    template <class T> T as() const & { return rpc_type<T>::read(value_); }
    template <class T> T as() && { return rpc_type<T>::read(value_); }
    template <class T> T take() { return rpc_type<T>::read(value_); }

    /* Return how many values a list has, or how many keys a map; the value of a key, nullptr if there is none. */
    std::int64_t size() const noexcept {
        return kind() == TT_RPC_LIST ? value_.list.count : kind() == TT_RPC_MAP ? value_.list.count / 2 : 0;
    }
    const tt_rpc_value *find(const std::string &key) const { return tt_rpc_map_get(&value_, key.c_str()); }

  private:
    tt_rpc_value value_ = tt_rpc_none();
};

template <> struct rpc_type<rpc_value> {
    static std::string name() { return "any"; }
    static tt_rpc_value lend(const rpc_value &x, rpc_lists &) {
        tt_rpc_value v = x.get();
        v.owned = false;
        return v;
    }
    static rpc_value read(const tt_rpc_value &v) { return rpc_value::copy_of(v); }
    static rpc_value read(tt_rpc_value &v) {
        return v.owned ? rpc_value(std::exchange(v, tt_rpc_none())) : rpc_value::copy_of(v);
    }
};

/* The arguments of a call, which borrow: {2, "two", values}. */
class rpc_args {
  public:
    rpc_args() = default;
    rpc_args(std::initializer_list<rpc_arg> all) {
        for (const rpc_arg &x : all) {
            all_.push_back(x.get());
            all_.back().owned = false;
        }
    }
    tt_rpc_values get() const noexcept { return {detail::data_or_null(all_), std::int64_t(all_.size())}; }

  private:
    std::vector<tt_rpc_value> all_;
};

namespace detail {

/* Convert a result; R = void drops it. */
template <class R> R rpc_result_of(rpc_value v) {
    if constexpr (!std::is_void_v<R>)
        return std::move(v).template as<R>();
}

/* The types that a callable takes and returns. A tuple can't have references, so kept_type wraps them. */
template <class P> struct kept_type { using type = P; };
template <class F> struct callable_of : callable_of<decltype(&F::operator())> {};
template <class R, class... P> struct callable_of<R (*)(P...)> {
    using result = R;
    using params = std::tuple<kept_type<P>...>;
};
template <class R, class... P> struct callable_of<R (*)(P...) noexcept> : callable_of<R (*)(P...)> {};
template <class C, class R, class... P> struct callable_of<R (C::*)(P...)> : callable_of<R (*)(P...)> {};
template <class C, class R, class... P> struct callable_of<R (C::*)(P...) const> : callable_of<R (*)(P...)> {};
template <class C, class R, class... P> struct callable_of<R (C::*)(P...) noexcept> : callable_of<R (*)(P...)> {};
template <class C, class R, class... P> struct callable_of<R (C::*)(P...) const noexcept> : callable_of<R (*)(P...)> {};

} // namespace detail

} // namespace tutti

#endif
