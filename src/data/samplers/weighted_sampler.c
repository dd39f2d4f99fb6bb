/* Examples drawn by weight: torch.utils.data.WeightedRandomSampler, with the draws of torch.multinomial() on the CPU.
 *
 * With replacement: each draw is an even number in 0 .. 1, looked up in the weights' running sum. Without:
 * each example gets an exponential number q, and those with the largest weight / q come, largest first
 * (Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006). */
#include "data/samplers/sampler.h"

#include "base/args.h"
#include "base/error.h"
#include "tensor/random/generator.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

typedef struct keyed {
    double key;
    int64_t index;
} keyed;

typedef struct lottery {
    int64_t n, draws;
    tt_generator *generator; /* or NULL */
    double *weight;          /* (n); with replacement the running sum's share, the last one 1 */
    keyed *keys;             /* (n) without replacement */
} lottery;

static int64_t lottery_size(void *user) { return ((const lottery *)user)->draws; }

static double draw_even(tt_generator *g) {
    double u;
    tt__generator_uniform_f64(g, &u, 1, 0, 1);
    return u;
}

/* Return the first place whose running sum reaches u. */
static int64_t lottery_find(const lottery *l, double u) {
    int64_t low = 0, high = l->n;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (l->weight[middle] < u)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int compare_keys(const void *a, const void *b) {
    const keyed *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? 1 : -1;
    return (x->index > y->index) - (x->index < y->index);
}

static void draw_by_keys(const lottery *l, tt_generator *g, int64_t *indices, int64_t n) {
    for (int64_t i = 0; i < l->n; i++)
        l->keys[i] = (keyed){l->weight[i] / -log1p(-draw_even(g)), i};
    qsort(l->keys, (size_t)l->n, sizeof *l->keys, compare_keys);
    for (int64_t i = 0; i < n; i++)
        indices[i] = l->keys[i].index;
}

static tt_status lottery_order(void *user, int64_t epoch, int64_t *indices, int64_t n) {
    const lottery *l = user;
    tt_generator *g = l->generator ? l->generator : tt_default_generator();
    (void)epoch;
    tt_generator_random64(tt_default_generator()); /* the DataLoader's base seed, which nothing uses here */
    if (l->keys)
        draw_by_keys(l, g, indices, n);
    else
        for (int64_t i = 0; i < n; i++)
            indices[i] = lottery_find(l, draw_even(g));
    return TT_OK;
}

static void lottery_destroy(void *user) {
    lottery *l = user;
    free(l->weight);
    free(l->keys);
    free(l);
}

/* ---- making ---- */

static tt_status check_weights(const char *who, const tt_weighted_random_sampler_args *a) {
    int64_t positive = 0;
    double sum = 0;
    TT__TRY(tt__check_dataset_size(who, a->dataset_size));
    if (!a->weights)
        return tt__fail(TT_ERR_INVALID, "%s: expected a weight for each example, got NULL", who);
    for (int64_t i = 0; i < a->dataset_size; i++) {
        if (!(a->weights[i] >= 0) || !isfinite(a->weights[i]))
            return tt__fail(TT_ERR_INVALID, "%s: expected finite weights of at least 0, got %g in position %" PRId64,
                            who, a->weights[i], i);
        sum += a->weights[i];
        positive += a->weights[i] > 0;
    }
    if (!(sum > 0) || !isfinite(sum))
        return tt__fail(TT_ERR_INVALID, "%s: expected weights with a finite sum above 0, got %g", who, sum);
    if (a->num_samples < 1 || a->num_samples > INT64_MAX / 16)
        return tt__fail(TT_ERR_INVALID, "%s: num_samples: expected at least 1, got %" PRId64, who, a->num_samples);
    if (a->no_replacement && a->num_samples > positive)
        return tt__fail(TT_ERR_INVALID,
                        "%s: num_samples: expected at most %" PRId64
                        ", as many as have a weight above 0, without replacement, got %" PRId64,
                        who, positive, a->num_samples);
    return TT_OK;
}

/* Replace the weights by their running sum's share. */
static void sum_weights(lottery *l) {
    double sum = 0;
    for (int64_t i = 0; i < l->n; i++)
        l->weight[i] = sum += l->weight[i];
    for (int64_t i = 0; i < l->n; i++)
        l->weight[i] /= sum;
    l->weight[l->n - 1] = 1;
}

static lottery *lottery_new(const tt_weighted_random_sampler_args *a) {
    bool by_keys = a->no_replacement;
    lottery *l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    *l = (lottery){.n = a->dataset_size, .draws = a->num_samples, .generator = a->generator};
    l->weight = malloc((size_t)l->n * sizeof *l->weight);
    l->keys = by_keys ? malloc((size_t)l->n * sizeof *l->keys) : NULL;
    if (!l->weight || (by_keys && !l->keys)) {
        lottery_destroy(l);
        return NULL;
    }
    for (int64_t i = 0; i < l->n; i++)
        l->weight[i] = a->weights[i];
    if (!by_keys)
        sum_weights(l);
    return l;
}

tt_sampler *tt_weighted_random_sampler_with(const tt_weighted_random_sampler_args *args, size_t size) {
    static const char who[] = "tt_weighted_random_sampler";
    static const tt_sampler_class cls = {
        .name = "a weighted sampler", .size = lottery_size, .order = lottery_order, .destroy = lottery_destroy};
    tt_weighted_random_sampler_args a;
    TT__ARGS_COPY(a, args, size);
    if (check_weights(who, &a))
        return NULL;
    lottery *l = lottery_new(&a);
    if (!l)
        return tt__fail_null(TT_ERR_MEMORY, "%s: out of memory", who);
    tt_sampler *sampler = tt__sampler_new(who, &cls, l, a.dataset_size);
    if (sampler)
        sampler->generator = a.generator;
    return sampler;
}
