/* The naive reference: numbers as long double, long long or float, one element at a time, straight from the definitions
 * in tutti/comm.h. */
#include "conformance.h"

#include <float.h>
#include <math.h>

/* ---- elements as numbers */

/* 16-bit floats by arithmetic: sign, exponent bits, mantissa bits. */
typedef struct format {
    int exponent_bits, mantissa_bits;
} format;
static const format F16 = {5, 10}, BF16 = {8, 7};

static double decode(uint16_t bits, format f) {
    int bias = (1 << (f.exponent_bits - 1)) - 1, top = (1 << f.exponent_bits) - 1;
    int exponent = bits >> f.mantissa_bits & top, mantissa = bits & ((1 << f.mantissa_bits) - 1);
    double x = exponent == top ? (mantissa ? NAN : INFINITY)
               : exponent      ? ldexp(1.0 + ldexp(mantissa, -f.mantissa_bits), exponent - bias)
                               : ldexp(mantissa, 1 - bias - f.mantissa_bits);
    return bits >> 15 ? -x : x;
}

/* Rounded to nearest, ties to even. */
static uint16_t encode(double x, format f) {
    int bias = (1 << (f.exponent_bits - 1)) - 1, top = (1 << f.exponent_bits) - 1, exponent;
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    if (isnan(x))
        return (uint16_t)(sign | top << f.mantissa_bits | 1 << (f.mantissa_bits - 1));
    x = fabs(x);
    frexp(x, &exponent); /* x in [2^(exponent-1), 2^exponent) */
    exponent = x == 0 || exponent - 1 < 1 - bias ? 1 - bias : exponent - 1;
    double steps = isinf(x) ? INFINITY : nearbyint(ldexp(x, f.mantissa_bits - exponent)); /* of the last place */
    double largest = ldexp(1, f.mantissa_bits + 1);
    if (steps >= largest) {
        steps /= 2;
        exponent++;
    }
    if (isinf(steps) || exponent > bias)
        return (uint16_t)(sign | top << f.mantissa_bits);
    /* A normal number's implicit bit, 1 << mantissa_bits, carries into the exponent. */
    return (uint16_t)(sign | (((exponent + bias - 1) << f.mantissa_bits) + (int)steps));
}

static bool is_float(tt_dtype dtype) {
    return dtype == TT_F32 || dtype == TT_F64 || dtype == TT_F16 || dtype == TT_BF16;
}

static double get_float(const void *buf, size_t i, tt_dtype dtype) {
    switch (dtype) {
    case TT_F32:
        return ((const float *)buf)[i];
    case TT_F64:
        return ((const double *)buf)[i];
    default:
        return decode(((const uint16_t *)buf)[i], dtype == TT_F16 ? F16 : BF16);
    }
}

static int64_t get_int(const void *buf, size_t i, tt_dtype dtype) {
    switch (dtype) {
    case TT_I32:
        return ((const int32_t *)buf)[i];
    case TT_I64:
        return ((const int64_t *)buf)[i];
    case TT_I16:
        return ((const int16_t *)buf)[i];
    case TT_I8:
        return ((const int8_t *)buf)[i];
    case TT_BOOL:
        return ((const uint8_t *)buf)[i] != 0;
    default:
        return ((const uint8_t *)buf)[i];
    }
}

static void put(void *buf, size_t i, tt_dtype dtype, double x, int64_t n) {
    switch (dtype) {
    case TT_F32:
        ((float *)buf)[i] = (float)x;
        break;
    case TT_F64:
        ((double *)buf)[i] = x;
        break;
    case TT_F16:
    case TT_BF16:
        ((uint16_t *)buf)[i] = encode(x, dtype == TT_F16 ? F16 : BF16);
        break;
    case TT_I32:
        ((int32_t *)buf)[i] = (int32_t)n;
        break;
    case TT_I64:
        ((int64_t *)buf)[i] = n;
        break;
    case TT_I16:
        ((int16_t *)buf)[i] = (int16_t)n;
        break;
    default:
        ((uint8_t *)buf)[i] = (uint8_t)n;
    }
}

/* ---- inputs */

static uint32_t noise(size_t i, int r, unsigned seed) {
    uint32_t x = (uint32_t)(i * 2654435761U) ^ ((uint32_t)r * 40503U + 977U) ^ seed * 2246822519U;
    x ^= x >> 15;
    x *= 2246822519U;
    x ^= x >> 13;
    x *= 3266489917U;
    return x ^ x >> 16;
}

void fill(void *buf, size_t count, tt_dtype dtype, tt_reduce_op op, int r, unsigned seed) {
    for (size_t i = 0; i < count; i++) {
        uint32_t x = noise(i, r, seed);
        double value = ((double)(x % 100000) - 50000.0) / 3e4;
        int64_t n = (int64_t)((uint64_t)x << 32 | noise(i, r, seed + 1));
        if (op == TT_PRODUCT)
            value += value < 0 ? -0.5 : 0.5;
        else if (x % 89 == 0)
            value = x & 1024 ? 0.0 : -0.0;
        if (x % 197 == 0)
            value = NAN;
        put(buf, i, dtype, value, dtype == TT_BOOL ? x % 3 != 0 : n);
    }
}

void fill_bytes(void *buf, size_t bytes, int r, unsigned seed) {
    for (size_t i = 0; i < bytes; i++)
        ((unsigned char *)buf)[i] = (unsigned char)(noise(i / 4, r, seed) >> 8 * (i % 4));
}

double factor_of(int r) { return 0.25 + 0.375 * r; }

bool is_allowed(tt_dtype dtype, tt_reduce_op op) {
    if (op == TT_AVG || op == TT_PREMUL_SUM)
        return is_float(dtype);
    return op < TT_BAND || !is_float(dtype);
}

/* ---- reductions in the documented order: the first 2 (n - p) ranks in adjacent pairs, then a balanced tree over p */

static double scale_of(tt_reduce_op op, int n, int r) {
    return op == TT_AVG ? 1.0 / n : op == TT_PREMUL_SUM ? factor_of(r) : 1;
}

/* Partial sums of f64 are doubles, all others floats. */
static double rounded(double x, tt_dtype dtype) { return dtype == TT_F64 ? x : (double)(float)x; }

static double leaf(unsigned char *const *inputs, int r, int n, size_t i, tt_dtype dtype, tt_reduce_op op) {
    double x = get_float(inputs[r], i, dtype);
    if (op != TT_AVG && op != TT_PREMUL_SUM)
        return x;
    return rounded(x * rounded(scale_of(op, n, r), dtype), dtype);
}

static double join(double x, double y, tt_dtype dtype, tt_reduce_op op) {
    switch (op) {
    case TT_PRODUCT:
        return rounded(x * y, dtype);
    case TT_MIN:
        return isnan(x) ? x : isnan(y) ? y : x < y ? x : y;
    case TT_MAX:
        return isnan(x) ? x : isnan(y) ? y : x > y ? x : y;
    default:
        return rounded(x + y, dtype);
    }
}

static double tree(unsigned char *const *inputs, int lo, int hi, int folded, int n, size_t i, tt_dtype dtype,
                   tt_reduce_op op) {
    if (hi - lo > 1) {
        int middle = lo + (hi - lo) / 2;
        return join(tree(inputs, lo, middle, folded, n, i, dtype, op),
                    tree(inputs, middle, hi, folded, n, i, dtype, op), dtype, op);
    }
    if (lo >= folded)
        return leaf(inputs, lo + folded, n, i, dtype, op);
    return join(leaf(inputs, 2 * lo, n, i, dtype, op), leaf(inputs, 2 * lo + 1, n, i, dtype, op), dtype, op);
}

static uint64_t join_ints(uint64_t x, uint64_t y, bool less, bool is_bool, tt_reduce_op op) {
    switch (op) {
    case TT_PRODUCT:
        return x * y;
    case TT_MIN:
        return less ? x : y;
    case TT_MAX:
        return less ? y : x;
    case TT_BAND:
        return x & y;
    case TT_BOR:
        return x | y;
    case TT_BXOR:
        return x ^ y;
    default:
        return is_bool ? x | y : x + y;
    }
}

static int64_t reduce_ints(unsigned char *const *inputs, int n, size_t i, tt_dtype dtype, tt_reduce_op op) {
    int64_t x = get_int(inputs[0], i, dtype);
    for (int r = 1; r < n; r++) {
        int64_t y = get_int(inputs[r], i, dtype);
        x = (int64_t)join_ints((uint64_t)x, (uint64_t)y, x < y, dtype == TT_BOOL, op);
        unsigned char narrow[8]; /* wrap as elements of the type do */
        put(narrow, 0, dtype, 0, x);
        x = get_int(narrow, 0, dtype);
    }
    return x;
}

/* ---- comparing */

static bool same_bits(const void *got, size_t i, tt_dtype dtype, double want) {
    unsigned char bits[8];
    size_t size = tt_dtype_size(dtype);
    double x = get_float(got, i, dtype);
    put(bits, 0, dtype, want, 0);
    return isnan(x) && isnan(want) ? true : !memcmp((const unsigned char *)got + i * size, bits, size);
}

/* Any order of summation: |got - exact| <= (n - 1) u sum |x|, with u the unit roundoff of what is summed in, to first
 * order; scaling adds two roundings, storing one more. */
static bool within_bound(double got, unsigned char *const *inputs, int n, size_t i, tt_dtype dtype, tt_reduce_op op) {
    long double exact = op == TT_PRODUCT ? 1 : 0, size = exact;
    for (int r = 0; r < n; r++) {
        long double x = (long double)get_float(inputs[r], i, dtype) * scale_of(op, n, r);
        exact = op == TT_PRODUCT ? exact * x : exact + x;
        size = op == TT_PRODUCT ? size * fabsl(x) : size + fabsl(x);
    }
    if (isnan(exact))
        return isnan(got);
    long double u = dtype == TT_F64 ? DBL_EPSILON : FLT_EPSILON;
    long double store = dtype == TT_F16 ? 0x1p-10L : dtype == TT_BF16 ? 0x1p-7L : u;
    return fabsl(got - exact) <= 2 * (n + 2) * u * size + store * fabsl(exact) + (dtype == TT_F16 ? 0x1p-24L : 0);
}

static bool float_matches(const void *got, unsigned char *const *inputs, int n, size_t at, size_t i, tt_dtype dtype,
                          tt_reduce_op op, bool exact) {
    int p = 1;
    while (2 * p <= n)
        p *= 2;
    double want = tree(inputs, 0, p, n - p, n, at + i, dtype, op), x = get_float(got, i, dtype);
    if (exact)
        return same_bits(got, i, dtype, want);
    if (op == TT_MIN || op == TT_MAX) /* of zeros, either */
        return isnan(want) ? isnan(x) : x == want;
    return within_bound(x, inputs, n, at + i, dtype, op);
}

static void print_element(const void *buf, size_t i, tt_dtype dtype) {
    if (is_float(dtype))
        fprintf(stderr, " %.17g", get_float(buf, i, dtype));
    else
        fprintf(stderr, " %lld", (long long)get_int(buf, i, dtype));
}

bool matches(const void *got, unsigned char *const *inputs, int n, size_t at, size_t count, tt_dtype dtype,
             tt_reduce_op op, bool exact) {
    for (size_t i = 0; i < count; i++) {
        bool ok = is_float(dtype) ? float_matches(got, inputs, n, at, i, dtype, op, exact)
                                  : get_int(got, i, dtype) == reduce_ints(inputs, n, at + i, dtype, op);
        if (ok && dtype == TT_BOOL)
            ok = ((const uint8_t *)got)[i] <= 1;
        if (!ok) {
            fprintf(stderr, "element %zu of %zu, %s %s over %d ranks is wrong:", i, count, tt_dtype_name(dtype),
                    tt_reduce_op_name(op), n);
            for (int r = 0; r < n; r++)
                print_element(inputs[r], at + i, dtype);
            fprintf(stderr, " gave");
            print_element(got, i, dtype);
            fprintf(stderr, "\n");
            return false;
        }
    }
    return true;
}
