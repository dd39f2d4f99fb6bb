/* Random orders, with PyTorch's draws: RandomSampler, SubsetRandomSampler and WeightedRandomSampler of torch.utils.data
 * under a DataLoader.
 *
 * At the start of an epoch a DataLoader draws a base seed for its workers, from the generator that it was given or else
 * from the default one; nothing uses it here. Then its sampler draws. RandomSampler without a generator draws a seed
 * for a new one from the default generator. With a generator it permutes by that one, and again at the epoch's end, for
 * an epoch longer than the data set (here never). */
#include "base/args.h"
#include "base/error.h"
#include "data/samplers/sampler.h"
#include "tensor/random/generator.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Draw as torch's random_() of an int64 does. */
static uint64_t draw_seed(tt_generator *g) { return tt_generator_random64(g) & INT64_MAX; }

static tt_generator *generator_or_default(tt_generator *g) { return g ? g : tt_default_generator(); }

/* ---- all examples ---- */

typedef struct shuffle {
    int64_t dataset_size, size;
    bool replacement;
    tt_generator *generator; /* or NULL */
    int64_t *rest; /* (dataset_size) a permutation of which only the front is used; NULL where none is needed */
} shuffle;

static int64_t shuffle_size(void *user) { return ((const shuffle *)user)->size; }

static void draw_permutations(const shuffle *s, int64_t *indices, int64_t n, tt_generator *g) {
    int64_t whole = n / s->dataset_size * s->dataset_size;
    for (int64_t at = 0; at < whole; at += s->dataset_size)
        tt_randperm(indices + at, s->dataset_size, g);
    if (!s->rest)
        return;
    tt_randperm(s->rest, s->dataset_size, g);
    memcpy(indices + whole, s->rest, (size_t)(n - whole) * sizeof *indices);
}

static tt_status shuffle_order(void *user, int64_t epoch, int64_t *indices, int64_t n) {
    const shuffle *s = user;
    tt_generator fresh, *g = s->generator;
    (void)epoch;
    draw_seed(generator_or_default(g));
    if (!g) {
        tt__generator_init(&fresh, draw_seed(tt_default_generator()));
        g = &fresh;
    }
    if (s->replacement)
        tt__generator_randint(g, indices, n, 0, (uint64_t)s->dataset_size);
    else
        draw_permutations(s, indices, n, g);
    return TT_OK;
}

static void shuffle_destroy(void *user) {
    shuffle *s = user;
    free(s->rest);
    free(s);
}

tt_sampler *tt_random_sampler_with(const tt_random_sampler_args *args, size_t size) {
    static const char who[] = "tt_random_sampler";
    static const tt_sampler_class cls = {
        .name = "a random sampler", .size = shuffle_size, .order = shuffle_order, .destroy = shuffle_destroy};
    tt_random_sampler_args a;
    TT__ARGS_COPY(a, args, size);
    if (tt__check_dataset_size(who, a.dataset_size))
        return NULL;
    if (a.num_samples < 0)
        return tt__fail_null(TT_ERR_INVALID, "%s: num_samples: expected at least 1, got %" PRId64, who, a.num_samples);
    shuffle *s = calloc(1, sizeof *s);
    if (!s)
        return tt__fail_null(TT_ERR_MEMORY, "%s: out of memory", who);
    *s = (shuffle){a.dataset_size, a.num_samples ? a.num_samples : a.dataset_size, a.replacement, a.generator, NULL};
    if (!a.replacement && (a.generator || s->size != a.dataset_size)) {
        s->rest = tt__indices_new(who, a.dataset_size);
        if (!s->rest) {
            shuffle_destroy(s);
            return NULL;
        }
    }
    tt_sampler *sampler = tt__sampler_new(who, &cls, s, a.dataset_size);
    if (sampler)
        sampler->generator = a.generator;
    return sampler;
}

/* ---- some examples ---- */

typedef struct choice {
    tt_generator *generator; /* or NULL */
    int64_t n;
    int64_t chosen[];
} choice;

static int64_t choice_size(void *user) { return ((const choice *)user)->n; }

static tt_status choice_order(void *user, int64_t epoch, int64_t *indices, int64_t n) {
    const choice *c = user;
    (void)epoch;
    draw_seed(tt_default_generator());
    tt_randperm(indices, n, generator_or_default(c->generator));
    for (int64_t i = 0; i < n; i++)
        indices[i] = c->chosen[indices[i]];
    return TT_OK;
}

static tt_status check_choice(const char *who, const tt_subset_random_sampler_args *a) {
    TT__TRY(tt__check_dataset_size(who, a->dataset_size));
    if (a->n < 0 || a->n > INT64_MAX / 16 || (a->n && !a->indices))
        return tt__fail(TT_ERR_INVALID, "%s: expected an array of at least 0 indices, got %" PRId64 "%s", who, a->n,
                        a->indices ? "" : " at NULL");
    for (int64_t i = 0; i < a->n; i++)
        if (a->indices[i] < 0 || a->indices[i] >= a->dataset_size)
            return tt__fail(TT_ERR_INVALID,
                            "%s: expected indices from 0 to %" PRId64 ", got %" PRId64 " in position %" PRId64, who,
                            a->dataset_size - 1, a->indices[i], i);
    return TT_OK;
}

tt_sampler *tt_subset_random_sampler_with(const tt_subset_random_sampler_args *args, size_t size) {
    static const char who[] = "tt_subset_random_sampler";
    static const tt_sampler_class cls = {
        .name = "a subset random sampler", .size = choice_size, .order = choice_order, .destroy = free};
    tt_subset_random_sampler_args a;
    TT__ARGS_COPY(a, args, size);
    if (check_choice(who, &a))
        return NULL;
    choice *c = malloc(sizeof *c + (size_t)a.n * sizeof *c->chosen);
    if (!c)
        return tt__fail_null(TT_ERR_MEMORY, "%s: out of memory", who);
    c->generator = a.generator;
    c->n = a.n;
    if (a.n)
        memcpy(c->chosen, a.indices, (size_t)a.n * sizeof *c->chosen);
    tt_sampler *sampler = tt__sampler_new(who, &cls, c, a.dataset_size);
    if (sampler)
        sampler->generator = a.generator;
    return sampler;
}

/* ---- by weight: the draws of torch.multinomial() on the CPU ----
 * With replacement: each draw is a uniform number in 0 .. 1, looked up in the weights' running sum. Without: each
 * example gets an exponential number q, and those with the largest weight / q come, largest first (Efraimidis and
 * Spirakis, "Weighted random sampling with a reservoir", 2006). */

typedef struct keyed {
    double key;
    int64_t index;
} keyed;

typedef struct lottery {
    int64_t n, draws;
    tt_generator *generator; /* or NULL */
    double *weight;          /* (n); with replacement: running sums, divided by the total */
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
    tt_generator *g = generator_or_default(l->generator);
    (void)epoch;
    draw_seed(tt_default_generator());
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

/* ---- by weight: making ---- */

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

/* Replace the weights by their running sums, divided by the total; the last one is 1. */
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
