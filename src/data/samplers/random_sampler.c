/* Random orders, with PyTorch's draws: torch.utils.data.RandomSampler and SubsetRandomSampler under a DataLoader.
 *
 * At the start of an epoch a DataLoader draws a base seed for its workers, from the generator that it was given or else
 * from the default one; nothing uses it here. Then its sampler draws. RandomSampler without a generator draws the seed
 * of one, from the default generator; with one it permutes with that itself, a second time at the epoch's end (for the
 * part of an epoch longer than the data set, here none). */
#include "data/samplers/sampler.h"

#include "base/args.h"
#include "base/error.h"
#include "tensor/random/generator.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* torch's random_() of an int64 */
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
