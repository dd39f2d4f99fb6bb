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

/* All that 16 bits can say, decoded once. The last is NaN. */
static const double *decoded(tt_dtype dtype) {
    static double tables[2][1 << 16];
    double *table = tables[dtype == TT_F16];
    for (int bits = 0; table[0xffff] == 0 && bits < 1 << 16; bits++)
        table[bits] = decode((uint16_t)bits, dtype == TT_F16 ? F16 : BF16);
    return table;
}

static double get_float(const void *buf, size_t i, tt_dtype dtype) {
    switch (dtype) {
    case TT_F32:
        return ((const float *)buf)[i];
    case TT_F64:
        return ((const double *)buf)[i];
    default:
        return decoded(dtype)[((const uint16_t *)buf)[i]];
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

/* x (count) := elements from `at` on */
static void get_floats(double *x, const void *buf, size_t at, size_t count, tt_dtype dtype) {
    for (size_t i = 0; i < count; i++)
        x[i] = get_float(buf, at + i, dtype);
}

static void get_ints(int64_t *x, const void *buf, size_t at, size_t count, tt_dtype dtype) {
    for (size_t i = 0; i < count; i++)
        x[i] = get_int(buf, at + i, dtype);
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

/* One in 128 is a zero of either sign, one in 256 NaN. */
static double float_value(uint32_t x, tt_reduce_op op) {
    double value = ((double)(x >> 15) - 65536.0) * 2.5e-5;
    if (op == TT_PRODUCT)
        value += value < 0 ? -0.5 : 0.5;
    else if ((x & 127) == 1)
        value = x & 1024 ? 0.0 : -0.0;
    return (x & 255) == 2 ? NAN : value;
}

void fill(void *buf, size_t from, size_t count, tt_dtype dtype, tt_reduce_op op, int r, unsigned seed) {
    for (size_t i = from; i < from + count; i++) {
        uint32_t x = noise(i, r, seed);
        if (is_float(dtype))
            put(buf, i, dtype, float_value(x, op), 0);
        else if (dtype == TT_BOOL)
            put(buf, i, dtype, 0, x % 3 != 0);
        else
            put(buf, i, dtype, 0, (int64_t)((uint64_t)x << 32 | noise(i, r, seed + 1)));
    }
}

void fill_bytes(void *buf, size_t bytes, int r, unsigned seed) {
    for (size_t i = 0; i < bytes; i += 4) {
        uint32_t x = noise(i / 4, r, seed);
        memcpy((unsigned char *)buf + i, &x, bytes - i < 4 ? bytes - i : 4);
    }
}

double factor_of(int r) { return 0.25 + 0.375 * r; }

bool is_allowed(tt_dtype dtype, tt_reduce_op op) {
    if (op == TT_AVG)
        return dtype != TT_BOOL;
    if (op == TT_PREMUL_SUM)
        return is_float(dtype);
    return op < TT_BAND || !is_float(dtype);
}

/* ---- reductions in the documented order: the first 2 (n - p) ranks in adjacent pairs, then a balanced tree over p */

static double scale_of(tt_reduce_op op, int n, int r) {
    return op == TT_AVG ? 1.0 / n : op == TT_PREMUL_SUM ? factor_of(r) : 1;
}

/* Partial sums of f64 are doubles, all others floats. */
static double rounded(double x, tt_dtype dtype) { return dtype == TT_F64 ? x : (double)(float)x; }

/* Elements are reduced BLOCK at a time: each step is one loop over a block. */
enum { BLOCK = 256 };

/* What is compared: the elements from `at` on of the ranks' inputs. */
typedef struct reduction {
    unsigned char *const *inputs;
    int n; /* ranks */
    size_t at, count;
    tt_dtype dtype;
    tt_reduce_op op;
} reduction;

static void leaf(double *x, const reduction *d, int r) {
    bool scaled = d->op == TT_AVG || d->op == TT_PREMUL_SUM;
    double scale = rounded(scale_of(d->op, d->n, r), d->dtype);
    get_floats(x, d->inputs[r], d->at, d->count, d->dtype);
    for (size_t i = 0; i < d->count && scaled; i++)
        x[i] = rounded(x[i] * scale, d->dtype);
}

static double smaller(double x, double y) { return isnan(x) ? x : isnan(y) ? y : x < y ? x : y; }
static double larger(double x, double y) { return isnan(x) ? x : isnan(y) ? y : x > y ? x : y; }

/* x := x joined with y */
static void join(double *x, const double *y, const reduction *d) {
    for (size_t i = 0; i < d->count; i++) {
        if (d->op == TT_PRODUCT)
            x[i] = rounded(x[i] * y[i], d->dtype);
        else if (d->op == TT_MIN)
            x[i] = smaller(x[i], y[i]);
        else if (d->op == TT_MAX)
            x[i] = larger(x[i], y[i]);
        else
            x[i] = rounded(x[i] + y[i], d->dtype);
    }
}

/* x := ranks lo..hi-1 of those that are left when the first 2 `folded` ranks have been joined in pairs. */
static void tree(double *x, const reduction *d, int lo, int hi, int folded) {
    double y[BLOCK];
    if (hi - lo > 1) {
        int middle = lo + (hi - lo) / 2;
        tree(x, d, lo, middle, folded);
        tree(y, d, middle, hi, folded);
    } else if (lo < folded) {
        leaf(x, d, 2 * lo);
        leaf(y, d, 2 * lo + 1);
    } else {
        leaf(x, d, lo + folded);
        return;
    }
    join(x, y, d);
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

static void reduce_ints(int64_t *x, const reduction *d) {
    get_ints(x, d->inputs[0], d->at, d->count, d->dtype);
    for (int r = 1; r < d->n; r++) {
        int64_t y[BLOCK], narrow[BLOCK];
        get_ints(y, d->inputs[r], d->at, d->count, d->dtype);
        for (size_t i = 0; i < d->count; i++) {
            uint64_t joined = join_ints((uint64_t)x[i], (uint64_t)y[i], x[i] < y[i], d->dtype == TT_BOOL, d->op);
            put(narrow, i, d->dtype, 0, (int64_t)joined); /* wraps as elements of the type do */
        }
        get_ints(x, narrow, 0, d->count, d->dtype);
    }
    for (size_t i = 0; i < d->count && d->op == TT_AVG; i++)
        x[i] /= d->n; /* C rounds towards zero */
}

/* ---- comparing */

/* Element i of `got` is x. */
static bool same_bits(const void *got, size_t i, tt_dtype dtype, double x, double want) {
    unsigned char bits[8];
    size_t size = tt_dtype_size(dtype);
    put(bits, 0, dtype, want, 0);
    return isnan(x) && isnan(want) ? true : !memcmp((const unsigned char *)got + i * size, bits, size);
}

bool rounds_each_step;

/* Any order of summation: |got - exact| <= (n - 1) u sum |x|, with u the unit roundoff of what is summed in, to first
 * order; scaling adds two roundings, storing one more. */
static bool within_bound(double got, const reduction *d, size_t i, const double *scale) {
    long double exact = d->op == TT_PRODUCT ? 1 : 0, size = exact;
    for (int r = 0; r < d->n; r++) {
        long double x = (long double)get_float(d->inputs[r], d->at + i, d->dtype) * scale[r];
        exact = d->op == TT_PRODUCT ? exact * x : exact + x;
        size = d->op == TT_PRODUCT ? size * fabsl(x) : size + fabsl(x);
    }
    if (isnan(exact))
        return isnan(got);
    long double u = d->dtype == TT_F64 ? DBL_EPSILON : FLT_EPSILON;
    long double store = d->dtype == TT_F16 ? 0x1p-10L : d->dtype == TT_BF16 ? 0x1p-7L : u;
    u = rounds_each_step ? store : u;
    return fabsl(got - exact) <= 2 * (d->n + 2) * u * size + store * fabsl(exact) + (d->dtype == TT_F16 ? 0x1p-24L : 0);
}

/* The first element of got (count) that is wrong, or count. */
static size_t first_wrong_float(const void *got, const reduction *d, bool exact) {
    double want[BLOCK], x[BLOCK], scale[MAX_RANKS];
    bool any_order = !exact && d->op != TT_MIN && d->op != TT_MAX;
    int p = 1;
    while (2 * p <= d->n)
        p *= 2;
    for (int r = 0; r < d->n; r++)
        scale[r] = scale_of(d->op, d->n, r);
    get_floats(x, got, 0, d->count, d->dtype);
    if (!any_order)
        tree(want, d, 0, p, d->n - p);
    for (size_t i = 0; i < d->count; i++) {
        bool ok = exact       ? same_bits(got, i, d->dtype, x[i], want[i])
                  : any_order ? within_bound(x[i], d, i, scale)
                              : x[i] == want[i] || (isnan(x[i]) && isnan(want[i])); /* of zeros, either */
        if (!ok)
            return i;
    }
    return d->count;
}

static size_t first_wrong_int(const void *got, const reduction *d) {
    int64_t want[BLOCK];
    reduce_ints(want, d);
    for (size_t i = 0; i < d->count; i++)
        if (get_int(got, i, d->dtype) != want[i] || (d->dtype == TT_BOOL && ((const uint8_t *)got)[i] > 1))
            return i;
    return d->count;
}

static void print_element(const void *buf, size_t i, tt_dtype dtype) {
    if (is_float(dtype))
        fprintf(stderr, " %.17g", get_float(buf, i, dtype));
    else
        fprintf(stderr, " %lld", (long long)get_int(buf, i, dtype));
}

bool matches(const void *got, unsigned char *const *inputs, int n, size_t at, size_t count, tt_dtype dtype,
             tt_reduce_op op, bool exact) {
    for (size_t done = 0; done < count; done += BLOCK) {
        reduction d = {inputs, n, at + done, count - done < BLOCK ? count - done : BLOCK, dtype, op};
        const unsigned char *block = (const unsigned char *)got + done * tt_dtype_size(dtype);
        size_t i = is_float(dtype) ? first_wrong_float(block, &d, exact) : first_wrong_int(block, &d);
        if (i == d.count)
            continue;
        fprintf(stderr, "element %zu of %zu, %s %s over %d ranks is wrong:", done + i, count, tt_dtype_name(dtype),
                tt_reduce_op_name(op), n);
        for (int r = 0; r < n; r++)
            print_element(inputs[r], d.at + i, dtype);
        fprintf(stderr, " gave");
        print_element(block, i, dtype);
        fprintf(stderr, "\n");
        return false;
    }
    return true;
}
