/* PyTorch's CPU generator on raw arrays, for random.c, samplers and tests.
 *
 * mt19937 with the seed's low 32 bits. Distributions follow torch's AVX2 build to the bit: which draws are made, in
 * which order, and where products are fused. `g` may be NULL everywhere: the thread's default generator. */
#ifndef TT_TENSOR_GENERATOR_H
#define TT_TENSOR_GENERATOR_H

#include "base/machine/cpu.h"

#include <tutti/tensor.h>

#include <stddef.h>
#include <stdint.h>

enum { TT__MT_WORDS = 624 };

struct tt_generator {
    uint32_t mt[TT__MT_WORDS];
    int next;             /* first word of mt not handed out yet; TT__MT_WORDS = all are used */
    bool has_cached;      /* the serial normal makes two values at a time and keeps the second here, unscaled */
    double cached_normal; /* as torch: it survives other draws, until seeding */
};

/* Seed memory of the caller's (a generator on the stack). */
void tt__generator_init(tt_generator *g, uint64_t seed);

/* out[0..n) := uniform in [low, high); low, high already rounded to the type. */
void tt__generator_uniform_f32(tt_generator *g, float *out, int64_t n, float low, float high);
void tt__generator_uniform_f64(tt_generator *g, double *out, int64_t n, double low, double high);

/* out[0..n) := normal: torch's normal_ on a contiguous tensor of n elements. n < 16 is drawn one by one, in double. */
void tt__generator_normal_f32(tt_generator *g, float *out, int64_t n, double mean, double std);
void tt__generator_normal_f64(tt_generator *g, double *out, int64_t n, double mean, double std);

/* Draw values one by one, whatever n: normal_ on a tensor that is not contiguous calls this for each element, in memory
 * order. */
double tt__generator_normal(tt_generator *g, double mean, double std);

/* out[0..n) := integers in [low, low + range), range >= 1. */
void tt__generator_randint(tt_generator *g, int64_t *out, int64_t n, int64_t low, uint64_t range);

/* Do what tt_randperm() does with 200 million numbers and more, where torch draws 64 bits a step. Tests call it with
 * few numbers. */
void tt__generator_randperm_large(tt_generator *g, int64_t *out, int64_t n);

/* The loops that are worth vectorising, one table per instruction-set level. */
typedef struct tt__random_kernels {
    /* Replace all 624 words of the state by the next 624. */
    void (*refill)(uint32_t *mt);
    /* out[i] := the output that belongs to state word mt[i]. */
    void (*temper)(uint32_t *out, const uint32_t *mt, size_t n);
    /* out[i] := low + width * uniform, from one word / from a pair of words (high half first) an element. */
    void (*uniform_f32)(float *out, const uint32_t *bits, size_t n, float low, float width);
    void (*uniform_f64)(double *out, const uint32_t *bits, size_t n, double low, double width);
    /* Box-Muller in place over 16 uniforms: d[j], d[j+8] give normals at j, j+8. */
    void (*normal16_f32)(float *d, float mean, float std);
} tt__random_kernels;

TT__LEVEL_DECLARE(tt__random_kernels, tt__random_kernels);

#endif
