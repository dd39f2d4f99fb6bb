#include "tensor/random/generator.h"

#include "base/error.h"
#include "base/machine/clock.h"
#include "base/quarantine.h"
#include "base/random_bytes.h"
#include "tensor/core/tensor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 512 }; /* words drawn at a time: even, so that a pair never straddles two chunks */

/* ---- state ---- */

static _Thread_local struct {
    tt_generator generator;
    bool seeded;
} thread_default;

void tt__generator_init(tt_generator *g, uint64_t seed) {
    uint32_t word = (uint32_t)seed;
    for (uint32_t i = 0; i < TT__MT_WORDS; i++) {
        g->mt[i] = word;
        word = UINT32_C(1812433253) * (word ^ word >> 30) + i + 1;
    }
    g->next = TT__MT_WORDS;
    g->has_cached = false;
    g->cached_normal = 0;
}

static uint64_t random_seed(void) {
    uint64_t seed;
    tt__random_seed(&seed, sizeof seed);
    return seed;
}

tt_generator *tt_default_generator(void) {
    if (!thread_default.seeded)
        tt_manual_seed(random_seed());
    return &thread_default.generator;
}

void tt_manual_seed(uint64_t seed) {
    tt__generator_init(&thread_default.generator, seed);
    thread_default.seeded = true;
}

tt_generator *tt_generator_new(uint64_t seed) {
    tt_generator *g = malloc(sizeof *g);
    if (!g)
        return tt__fail_null(TT_ERR_MEMORY, "tt_generator_new: out of memory");
    tt__generator_init(g, seed);
    return g;
}

void tt_generator_free(tt_generator *generator) {
    if (generator && generator != &thread_default.generator && !tt__freed_before("tt_generator_free", generator))
        tt__quarantine(generator, sizeof *generator, free);
}

void tt_generator_seed(tt_generator *generator, uint64_t seed) {
    if (generator)
        tt__generator_init(generator, seed);
    else
        tt_manual_seed(seed);
}

static tt_generator *or_default(tt_generator *g) { return g ? g : tt_default_generator(); }

/* ---- raw draws ---- */

static const tt__random_kernels *generator_kernels(void) { return TT__LEVEL_CHOOSE(tt__random_kernels); }

static void generator_draw(tt_generator *g, uint32_t *out, size_t n) {
    const tt__random_kernels *k = generator_kernels();
    while (n) {
        if (g->next == TT__MT_WORDS) {
            k->refill(g->mt);
            g->next = 0;
        }
        size_t left = (size_t)(TT__MT_WORDS - g->next), take = n < left ? n : left;
        k->temper(out, g->mt + g->next, take);
        g->next += (int)take;
        out += take;
        n -= take;
    }
}

uint32_t tt_generator_random(tt_generator *generator) {
    uint32_t word;
    generator_draw(or_default(generator), &word, 1);
    return word;
}

uint64_t tt_generator_random64(tt_generator *generator) {
    uint32_t words[2];
    generator_draw(or_default(generator), words, 2);
    return (uint64_t)words[0] << 32 | words[1];
}

/* ---- uniform ---- */

void tt__generator_uniform_f32(tt_generator *g, float *out, int64_t n, float low, float high) {
    uint32_t bits[CHUNK];
    g = or_default(g);
    for (int64_t i = 0; i < n; i += CHUNK) {
        size_t take = n - i < CHUNK ? (size_t)(n - i) : CHUNK;
        generator_draw(g, bits, take);
        generator_kernels()->uniform_f32(out + i, bits, take, low, high - low);
    }
}

void tt__generator_uniform_f64(tt_generator *g, double *out, int64_t n, double low, double high) {
    uint32_t bits[CHUNK];
    g = or_default(g);
    for (int64_t i = 0; i < n; i += CHUNK / 2) {
        size_t take = n - i < CHUNK / 2 ? (size_t)(n - i) : CHUNK / 2;
        generator_draw(g, bits, 2 * take);
        generator_kernels()->uniform_f64(out + i, bits, take, low, high - low);
    }
}

/* ---- normal ---- */

#define TWO_PI (2.0 * 3.14159265358979323846)

/* Draw one normal value. log1p as in torch 2; 1.13 had log(1 - u), which differs in the last bit of one in thirty
 * f64. */
double tt__generator_normal(tt_generator *g, double mean, double std) {
    g = or_default(g);
    if (g->has_cached) {
        g->has_cached = false;
        return fma(g->cached_normal, std, mean);
    }
    double u[2];
    tt__generator_uniform_f64(g, u, 2, 0, 1);
    double radius = sqrt(-2.0 * log1p(-u[1])), angle = TWO_PI * u[0];
    g->cached_normal = radius * sin(angle);
    g->has_cached = true;
    return fma(radius * cos(angle), std, mean);
}

static void normal16_f64(double *d, double mean, double std) {
    for (int j = 0; j < 8; j++) {
        double radius = sqrt(-2.0 * log(1.0 - d[j])), angle = TWO_PI * d[j + 8];
        d[j] = fma(radius * cos(angle), std, mean);
        d[j + 8] = fma(radius * sin(angle), std, mean);
    }
}

/* Draw normal values, sixteen from sixteen uniforms. A remainder at the end is drawn again, as the last sixteen. */
void tt__generator_normal_f32(tt_generator *g, float *out, int64_t n, double mean, double std) {
    g = or_default(g);
    if (n < 16) {
        for (int64_t i = 0; i < n; i++)
            out[i] = (float)tt__generator_normal(g, mean, std);
        return;
    }
    tt__generator_uniform_f32(g, out, n, 0, 1);
    for (int64_t i = 0; i + 16 <= n; i += 16)
        generator_kernels()->normal16_f32(out + i, (float)mean, (float)std);
    if (n % 16) {
        tt__generator_uniform_f32(g, out + n - 16, 16, 0, 1);
        generator_kernels()->normal16_f32(out + n - 16, (float)mean, (float)std);
    }
}

void tt__generator_normal_f64(tt_generator *g, double *out, int64_t n, double mean, double std) {
    g = or_default(g);
    if (n < 16) {
        for (int64_t i = 0; i < n; i++)
            out[i] = tt__generator_normal(g, mean, std);
        return;
    }
    tt__generator_uniform_f64(g, out, n, 0, 1);
    for (int64_t i = 0; i + 16 <= n; i += 16)
        normal16_f64(out + i, mean, std);
    if (n % 16) {
        tt__generator_uniform_f64(g, out + n - 16, 16, 0, 1);
        normal16_f64(out + n - 16, mean, std);
    }
}

/* ---- integers ---- */

void tt__generator_randint(tt_generator *g, int64_t *out, int64_t n, int64_t low, uint64_t range) {
    g = or_default(g);
    for (int64_t i = 0; i < n; i++) {
        uint64_t r = range > UINT32_MAX ? tt_generator_random64(g) : tt_generator_random(g);
        out[i] = (int64_t)((uint64_t)low + r % range);
    }
}

/* From here on torch draws 64 bits a step of a permutation, below 32. */
static const int64_t RANDPERM_LARGE = INT64_C(0xffffffff) / 20;

static void randperm_small(tt_generator *g, int64_t *out, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        out[i] = i;
    for (int64_t i = 0; i < n - 1; i++) {
        int64_t z = (int64_t)(tt_generator_random(g) % (uint64_t)(n - i)), at = out[i];
        out[i] = out[i + z];
        out[i + z] = at;
    }
}

void tt__generator_randperm_large(tt_generator *g, int64_t *out, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        int64_t z = (int64_t)(tt_generator_random64(g) % (uint64_t)(i + 1));
        if (z != i)
            out[i] = out[z];
        out[z] = i;
    }
}

void tt_randperm(int64_t *out, int64_t n, tt_generator *generator) {
    generator = or_default(generator);
    if (!out)
        return;
    if (n < RANDPERM_LARGE)
        randperm_small(generator, out, n);
    else
        tt__generator_randperm_large(generator, out, n);
}

/* ---- the state as a tensor: its words, the next one, and the normal value that waits ---- */

enum { NEXT = TT__MT_WORDS, HAS_CACHED, CACHED, STATE_SIZE };

static tt_generator *state_owner(tt_generator *g) { return g ? g : tt_default_generator(); }

tt_tensor *tt_generator_get_state(tt_generator *generator) {
    const tt_generator *g = state_owner(generator);
    tt_tensor *x = g ? tt__tensor_new("tt_generator_get_state", TT_SHAPE(STATE_SIZE), TT_I64) : NULL;
    if (!x)
        return NULL;
    int64_t *state = tt_tensor_data(x);
    for (int i = 0; i < TT__MT_WORDS; i++)
        state[i] = g->mt[i];
    state[NEXT] = g->next;
    state[HAS_CACHED] = g->has_cached;
    memcpy(&state[CACHED], &g->cached_normal, sizeof g->cached_normal);
    return x;
}

static tt_status generator_state_check(const tt_tensor *x) {
    static const char who[] = "tt_generator_set_state";
    if (!x)
        return tt__fail_argument("%s: the state is NULL", who);
    if (x->dtype != TT_I64)
        return tt__fail(TT_ERR_DTYPE, "%s: expected i64, got %s", who, TT__DESCRIBE(x));
    if (x->shape.ndim != 1 || x->numel != STATE_SIZE)
        return tt__fail(TT_ERR_SHAPE, "%s: expected %d numbers, got %s", who, STATE_SIZE, TT__DESCRIBE(x));
    if (!x->contiguous || !tt__device_is_host(tt__device_of(x)))
        return tt__fail(TT_ERR_INVALID, "%s: expected a contiguous tensor of the host, got %s", who, TT__DESCRIBE(x));
    const int64_t *state = x->data;
    for (int i = 0; i < TT__MT_WORDS; i++)
        if (state[i] < 0 || state[i] > UINT32_MAX)
            return tt__fail(TT_ERR_INVALID, "%s: word %d is no number of 32 bits", who, i);
    if (state[NEXT] < 0 || state[NEXT] > TT__MT_WORDS || (state[HAS_CACHED] | 1) != 1)
        return tt__fail(TT_ERR_INVALID, "%s: this is no generator's state", who);
    return TT_OK;
}

tt_status tt_generator_set_state(tt_generator *generator, const tt_tensor *state) {
    TT__TRY(generator_state_check(state));
    tt_generator *g = state_owner(generator);
    const int64_t *from = state->data;
    if (!g)
        return tt_last_status();
    for (int i = 0; i < TT__MT_WORDS; i++)
        g->mt[i] = (uint32_t)from[i];
    g->next = (int)from[NEXT];
    g->has_cached = from[HAS_CACHED] != 0;
    memcpy(&g->cached_normal, &from[CACHED], sizeof g->cached_normal);
    return TT_OK;
}
