/* tutti/cpp/base.hpp: errors, callbacks, buffers. */
#ifndef TUTTI_CPP_BASE_HPP
#define TUTTI_CPP_BASE_HPP

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tutti/base.h>

struct tt_tensor;

namespace tutti {

/* ---- errors */

/* A failed call: its status, and as what() the text of the thread's last error. */
class error final : public std::runtime_error {
  public:
    error(tt_status status, const std::string &text) : std::runtime_error(text), status_(status) {}
    tt_status status() const noexcept { return status_; }
    const char *name() const noexcept { return tt_status_name(status_); }
    const char *summary() const noexcept { return tt_status_text(status_); }

  private:
    tt_status status_;
};

namespace detail {

/* What a callback threw, until the call that ran it has returned. */
struct thrown {
    std::exception_ptr exception;
    tt_status status = TT_OK;
    std::string text; /* as it was recorded for C */
};
inline thread_local thrown last_thrown;

/* The exception that a failed call goes on as: the callback's own, if that is why the call failed. */
[[noreturn]] inline void raise(tt_status status) {
    thrown last = std::exchange(last_thrown, thrown());
    if (last.exception && last.status == status && std::strstr(tt_last_error(), last.text.c_str()))
        std::rethrow_exception(last.exception);
    throw error(status, tt_last_error());
}

} // namespace detail

/* Throw if a C call failed: check(tt_barrier_with(...)). Where a callback of the program's own made it fail, what that
 * threw is thrown again; report() still tells which call it was. */
inline void check(tt_status status) {
    if (status != TT_OK)
        detail::raise(status);
}

/* The same for a C call that returns an object, which it gives back. */
template <class T> T *check(T *object) {
    if (!object)
        check(tt_last_status() == TT_OK ? tt_fail(TT_ERR_INVALID, "expected an object, got none") : tt_last_status());
    return object;
}

/* tt_report(): print the last error, also for the launcher. */
inline void report() { tt_report(); }

inline const char *last_error() { return tt_last_error(); }
inline void clear_error() { tt_clear_error(); }
inline const char *version() { return tt_version(); }

namespace detail {

template <auto free_function> struct freed_by {
    template <class T> void operator()(T *object) const noexcept { free_function(object); }
};
template <class T, auto free_function> using handle = std::unique_ptr<T, freed_by<free_function>>;

/* In C++ the options of every call end where its struct does. */
template <class Args, class Call> auto call(Call function, const Args &args) {
    return function(&args, offsetof(Args, tt_end));
}

/* Record what is being caught for C, and keep it for the call in C++ that will fail because of it. */
inline tt_status keep_thrown(tt_status status, const char *format, const char *text) noexcept {
    tt_ignore(tt_fail(status, format, text));
    try {
        last_thrown = {std::current_exception(), status, tt_last_error()};
    } catch (...) { /* no memory to keep it: the text is recorded */
        last_thrown.exception = nullptr;
    }
    return status;
}

/* Run a function of the program's that C calls. No exception crosses C: it becomes the thread's last error. */
template <class F> tt_status guarded(F &&body) noexcept {
    try {
        body();
        return TT_OK;
    } catch (const error &e) {
        return tt_fail(e.status(), "%s", e.what());
    } catch (const std::bad_alloc &) {
        return keep_thrown(TT_ERR_MEMORY, "an exception: %s", "out of memory");
    } catch (const std::exception &e) {
        return keep_thrown(TT_ERR_INVALID, "an exception: %s", e.what());
    } catch (...) {
        return keep_thrown(TT_ERR_INVALID, "an exception %s", "of an unknown type");
    }
}

/* The same where the caller is another process, or a thread that is done with it: it gets the text, no exception. */
template <class F> tt_status guarded_apart(F &&body) noexcept {
    thrown before = std::exchange(last_thrown, thrown());
    tt_status status = guarded(body);
    last_thrown = std::move(before);
    return status;
}

/* Around a call whose callbacks can't fail in C: what one threw is thrown when the call is through. */
template <class F> void then_rethrow(F &&call) {
    thrown before = std::exchange(last_thrown, thrown());
    call();
    thrown now = std::exchange(last_thrown, std::move(before));
    if (now.exception)
        std::rethrow_exception(now.exception);
}

/* How many scopes of tensors the thread is in: tensor.hpp. */
inline thread_local int open_scopes = 0;

/* Around a callback that C runs in a scope of its own. */
class in_scope_of_c {
  public:
    in_scope_of_c() : before_(open_scopes++) {}
    ~in_scope_of_c() { open_scopes = before_; }
    in_scope_of_c(const in_scope_of_c &) = delete;
    in_scope_of_c &operator=(const in_scope_of_c &) = delete;

  private:
    int before_;
};

/* The release of what was given to C by `new`. */
template <class T> void destroy(void *user) { delete static_cast<T *>(user); }

inline std::vector<const char *> c_strings(const std::vector<std::string> &texts) {
    std::vector<const char *> all;
    for (const std::string &text : texts)
        all.push_back(text.c_str());
    return all;
}

/* NULL for an empty list: "all", or "one after the other". */
template <class T> const T *data_or_null(const std::vector<T> &list) { return list.empty() ? nullptr : list.data(); }

} // namespace detail

/* Log lines go to `write`, from any thread; none: nowhere. What it throws is dropped. Set it before the first other
 * call. */
inline void set_log(std::function<void(tt_log_level level, const char *line)> write) {
    using log = std::function<void(tt_log_level level, const char *line)>;
    static log *current; /* lives on at the program's end, when other threads may still log */
    log *next = write ? new log(std::move(write)) : nullptr;
    tt_log_fn call = [](tt_log_level level, const char *line, void *user) {
        try {
            (*static_cast<log *>(user))(level, line);
        } catch (...) {
        }
    };
    tt_set_log(next ? call : nullptr, next);
    delete std::exchange(current, next);
}

/* The call site, which errors name; filled in where a call is written. */
struct site {
    const char *file;
    int line;
    static constexpr site here(const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
        return {file, line};
    }
};

/* ---- element types */

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

inline std::size_t dtype_size(tt_dtype dtype) { return tt_dtype_size(dtype); }
inline const char *dtype_name(tt_dtype dtype) { return tt_dtype_name(dtype); }
inline const char *device_type_name(tt_device_type type) { return tt_device_type_name(type); }

/* ---- buffers */

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

namespace detail {
inline const_buffer as_const(const buffer &b) { return const_buffer(b.data, b.count, b.dtype); }
} // namespace detail

} // namespace tutti

#endif
