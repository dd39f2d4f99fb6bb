// Reduce ops for gloo, which takes them as functions. Integers wrap; of floats NaN wins.
#include "plugin.h"

#include <type_traits>

namespace tutti {
namespace {

template <typename T, typename Op> Join each(Op op) {
    return [op](void *out, const void *a, const void *b, size_t n) {
        auto z = static_cast<T *>(out);
        auto x = static_cast<const T *>(a), y = static_cast<const T *>(b);
        for (size_t i = 0; i < n; i++)
            z[i] = op(x[i], y[i]);
    };
}

// What T is computed in: unsigned arithmetic is defined when it overflows.
template <typename T, bool is_float = std::is_floating_point<T>::value> struct wide { using type = T; };
template <typename T> struct wide<T, false> {
    using type = typename std::conditional<(sizeof(T) < 4), uint32_t, typename std::make_unsigned<T>::type>::type;
};

template <typename T> Join arithmetic(tt_reduce_op op) {
    using U = typename wide<T>::type;
    switch (op) {
    case TT_SUM:
        return each<T>([](T x, T y) { return T(U(x) + U(y)); });
    case TT_PRODUCT:
        return each<T>([](T x, T y) { return T(U(x) * U(y)); });
    case TT_MIN:
        return each<T>([](T x, T y) { return x != x || x < y ? x : y; });
    case TT_MAX:
        return each<T>([](T x, T y) { return x != x || x > y ? x : y; });
    default:
        return nullptr;
    }
}

template <typename T> Join bitwise(tt_reduce_op op) {
    switch (op) {
    case TT_BAND:
        return each<T>([](T x, T y) { return T(x & y); });
    case TT_BOR:
        return each<T>([](T x, T y) { return T(x | y); });
    case TT_BXOR:
        return each<T>([](T x, T y) { return T(x ^ y); });
    default:
        return nullptr;
    }
}

} // namespace

Join join(tt_dtype dtype, tt_reduce_op op) {
    Join found;
    with_type(dtype, [&](auto zero) {
        using T = decltype(zero);
        found = arithmetic<T>(op);
        if constexpr (std::is_integral<T>::value)
            if (!found)
                found = bitwise<T>(op);
    });
    return found;
}

} // namespace tutti
