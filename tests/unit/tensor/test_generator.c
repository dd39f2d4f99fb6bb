/* The generator against what torch 1.13, 2.6 and 2.14 draw for the same seeds (tests/vectors/torch-rng.json). */
#include "tensor/random/generator.h"
#include "unit/base/sha256.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

static json_t *vectors;

static int load_vectors(void **state) {
    (void)state;
    char path[4096];
    const char *source = getenv("TT_SOURCE");
    snprintf(path, sizeof path, "%s/tests/vectors/torch-rng.json", source ? source : ".");
    json_error_t error;
    vectors = json_load_file(path, 0, &error);
    if (!vectors)
        print_error("%s: %s\n", path, error.text);
    return vectors ? 0 : -1;
}

static int free_vectors(void **state) {
    (void)state;
    json_decref(vectors);
    return 0;
}

/* ---- one vector: a name says what to draw ---- */

/* A drawn array: n elements of `type`, 'f' f32, 'd' f64, 'i' i64. */
typedef struct drawn {
    char type;
    size_t n;
    void *data;
} drawn;

static size_t element_size(char type) { return type == 'f' ? 4 : 8; }

static drawn make(char type, size_t n) {
    drawn d = {type, n, calloc(n, element_size(type))};
    assert_non_null(d.data);
    return d;
}

static drawn uniform(tt_generator *g, char type, size_t n, double low, double high) {
    drawn d = make(type, n);
    if (type == 'f')
        tt__generator_uniform_f32(g, d.data, (int64_t)n, (float)low, (float)high);
    else
        tt__generator_uniform_f64(g, d.data, (int64_t)n, low, high);
    return d;
}

static drawn normal(tt_generator *g, char type, size_t n, double mean, double std) {
    drawn d = make(type, n);
    if (type == 'f')
        tt__generator_normal_f32(g, d.data, (int64_t)n, mean, std);
    else
        tt__generator_normal_f64(g, d.data, (int64_t)n, mean, std);
    return d;
}

static drawn randint(tt_generator *g, size_t n, uint64_t range) {
    drawn d = make('i', n);
    tt__generator_randint(g, d.data, (int64_t)n, 0, range);
    return d;
}

static drawn randperm(tt_generator *g, size_t n) {
    drawn d = make('i', n);
    tt_randperm(d.data, (int64_t)n, g);
    return d;
}

/* A layer's initial weight, or the bias drawn after it. */
static drawn layer(tt_generator *g, size_t weights, size_t biases, double fan_in, bool bias) {
    double bound = 1 / sqrt(fan_in);
    drawn w = uniform(g, 'f', weights, -bound, bound);
    if (!bias)
        return w;
    free(w.data);
    return uniform(g, 'f', biases, -bound, bound);
}

static drawn raw_words(tt_generator *g) {
    drawn d = make('i', 1001);
    for (size_t i = 0; i < d.n; i++)
        ((int64_t *)d.data)[i] = tt_generator_random(g);
    return d;
}

static drawn random_i64(tt_generator *g) {
    drawn d = make('i', 2);
    for (size_t i = 0; i < d.n; i++)
        ((int64_t *)d.data)[i] = (int64_t)(tt_generator_random64(g) & INT64_MAX);
    return d;
}

/* Each epoch takes a base seed and the sampler's seed from the global generator. */
static drawn loader_order(tt_generator *g) {
    drawn d = make('i', 46);
    for (int epoch = 0; epoch < 2; epoch++) {
        tt_generator sampler;
        tt_generator_random64(g);
        tt__generator_init(&sampler, tt_generator_random64(g) & INT64_MAX);
        tt_randperm((int64_t *)d.data + 23 * epoch, 23, &sampler);
    }
    return d;
}

static bool is(const char *name, const char *prefix) { return !strncmp(name, prefix, strlen(prefix)); }

static drawn draw(tt_generator *g, const char *name, size_t n) {
    bool bias = strstr(name, ".bias") != NULL;
    if (is(name, "mt19937 raw"))
        return raw_words(g);
    if (is(name, "rand f"))
        return uniform(g, is(name, "rand f32") ? 'f' : 'd', n, 0, 1);
    if (is(name, "uniform_(-0.037,0.21) f32"))
        return uniform(g, 'f', n, -.037, .21);
    if (is(name, "randn f"))
        return normal(g, is(name, "randn f32") ? 'f' : 'd', n, 0, 1);
    if (is(name, "normal_(0.3,1.7) f32"))
        return normal(g, 'f', n, .3, 1.7);
    if (is(name, "randint(0,10)"))
        return randint(g, n, 10);
    if (is(name, "randint(0,2**33)"))
        return randint(g, n, UINT64_C(1) << 33);
    if (is(name, "random_() int64"))
        return random_i64(g);
    if (is(name, "randperm"))
        return randperm(g, n);
    if (is(name, "Linear(10,10)"))
        return layer(g, 100, 10, 10, bias);
    if (is(name, "Linear(784,512)"))
        return layer(g, 784 * 512, 512, 784, bias);
    if (is(name, "Conv2d(3,8,(3,5))"))
        return layer(g, 8 * 45, 8, 45, bias);
    if (is(name, "DataLoader(23 items"))
        return loader_order(g);
    fail_msg("no way to draw \"%s\"", name);
    return (drawn){0};
}

/* Vectors of what the library has no function for yet. */
static bool is_elsewhere(const char *name) { return is(name, "bernoulli_") || is(name, "dropout"); }

static void check_element(const char *name, const drawn *d, size_t i, json_t *want) {
    char text[32];
    if (d->type == 'i') {
        assert_int_equal(((int64_t *)d->data)[i], json_integer_value(want));
        return;
    }
    uint64_t bits = 0;
    memcpy(&bits, (char *)d->data + i * element_size(d->type), element_size(d->type));
    snprintf(text, sizeof text, d->type == 'f' ? "%08llx" : "%016llx", (unsigned long long)bits);
    if (strcmp(text, json_string_value(want)))
        fail_msg("%s, element %zu: expected %s, got %s", name, i, json_string_value(want), text);
}

static void check(json_t *vector) {
    const char *name = json_string_value(json_object_get(vector, "name"));
    const char *digest = json_string_value(json_object_get(vector, "sha256"));
    tt_generator g;
    tt__generator_init(&g, (uint64_t)json_integer_value(json_object_get(vector, "seed")));
    drawn d = draw(&g, name, (size_t)json_integer_value(json_object_get(vector, "n")));
    json_t *first = json_object_get(vector, "first"), *last = json_object_get(vector, "last");
    for (size_t i = 0; i < json_array_size(first); i++)
        check_element(name, &d, i, json_array_get(first, i));
    for (size_t i = 0; i < json_array_size(last); i++)
        check_element(name, &d, d.n - json_array_size(last) + i, json_array_get(last, i));
    char hex[65];
    if (digest)
        assert_string_equal(sha256_hex(hex, d.data, d.n * element_size(d.type)), digest);
    free(d.data);
}

static void draws_are_torchs(void **state) {
    (void)state;
    json_t *cases = json_object_get(vectors, "cases");
    size_t checked = 0;
    for (size_t i = 0; i < json_array_size(cases); i++) {
        json_t *vector = json_array_get(cases, i);
        if (is_elsewhere(json_string_value(json_object_get(vector, "name"))))
            continue;
        check(vector);
        checked++;
    }
    assert_int_equal(checked, 66);
}

/* ---- what the vectors do not show ---- */

static void cached_normal_survives_other_draws(void **state) {
    (void)state;
    tt_generator a, b;
    float whole[8], parts[8], noise[16];
    tt__generator_init(&a, 7);
    tt__generator_init(&b, 7);
    tt__generator_normal_f32(&a, whole, 6, 0, 1);
    tt__generator_normal_f32(&b, parts, 5, 0, 1); /* leaves one in the cache */
    tt__generator_normal_f32(&b, noise, 16, 0, 1);
    tt__generator_uniform_f32(&b, noise, 3, 0, 1);
    tt__generator_normal_f32(&b, parts + 5, 1, 0, 1);
    assert_memory_equal(whole, parts, 6 * sizeof *whole);
    tt__generator_normal_f32(&b, noise, 1, 0, 1);
    tt__generator_init(&b, 7); /* seeding empties the cache */
    tt__generator_normal_f32(&b, parts, 1, 0, 1);
    assert_memory_equal(whole, parts, sizeof *whole);
}

static void draws_do_not_depend_on_how_they_are_split(void **state) {
    (void)state;
    enum { N = 3000 };
    tt_generator a, b;
    double whole[N], parts[N];
    tt__generator_init(&a, 1);
    tt__generator_init(&b, 1);
    tt_generator_random(&a); /* odd offset: pairs of words straddle the refill */
    tt_generator_random(&b);
    tt__generator_uniform_f64(&a, whole, N, -1, 1);
    for (int i = 0, step = 1; i < N; i += step, step = step * 3 % 701 + 1)
        tt__generator_uniform_f64(&b, parts + i, i + step < N ? step : N - i, -1, 1);
    assert_memory_equal(whole, parts, sizeof whole);
}

static void large_randperm_is_a_permutation(void **state) {
    (void)state;
    enum { N = 1000 };
    tt_generator g, same;
    int64_t out[N], want[N];
    bool seen[N] = {false};
    tt__generator_init(&g, 3);
    tt__generator_init(&same, 3);
    tt__generator_randperm_large(&g, out, N);
    for (int64_t i = 0; i < N; i++) { /* insert i at a random place of what is there, by swapping */
        int64_t z = (int64_t)(tt_generator_random64(&same) % (uint64_t)(i + 1));
        want[i] = i;
        int64_t moved = want[z];
        want[z] = want[i];
        want[i] = moved;
    }
    assert_memory_equal(out, want, sizeof out);
    for (int i = 0; i < N; i++) {
        assert_false(seen[out[i]]);
        seen[out[i]] = true;
    }
}

static void default_generator_is_seeded_by_the_system_or_by_hand(void **state) {
    (void)state;
    uint64_t first = tt_generator_random64(NULL);
    assert_ptr_equal(tt_default_generator(), tt_default_generator());
    tt_manual_seed(0);
    uint64_t seeded = tt_generator_random64(NULL);
    assert_true(first != seeded);
    assert_int_equal(seeded >> 32, 2357136044u);
    tt_generator_seed(NULL, (UINT64_C(1) << 32)); /* only the low 32 bits count */
    assert_true(tt_generator_random64(tt_default_generator()) == seeded);
    tt_generator_free(tt_default_generator()); /* belongs to the thread: nothing happens */
    tt_generator *own = tt_generator_new(0);
    assert_true(tt_generator_random64(own) == seeded);
    tt_generator_seed(own, 0);
    assert_true(tt_generator_random64(own) == seeded);
    tt_generator_free(own);
    tt_generator_free(NULL);
}

static void empty_draws_draw_nothing(void **state) {
    (void)state;
    tt_generator a, b;
    tt__generator_init(&a, 5);
    tt__generator_init(&b, 5);
    tt__generator_uniform_f32(&a, NULL, 0, 0, 1);
    tt__generator_normal_f64(&a, NULL, 0, 0, 1);
    tt_randperm(NULL, 0, &a);
    int64_t one = 9;
    tt_randperm(&one, 1, &a);
    assert_int_equal(one, 0);
    assert_true(tt_generator_random64(&a) == tt_generator_random64(&b));
}

/* The plain build of the kernels is the reference for the widest one that this machine has. */
static void every_instruction_set_gives_the_same_bits(void **state) {
    (void)state;
    enum { N = 1200 };
    const tt__random_kernels *plain = &tt__random_kernels_base, *best = TT__LEVEL_CHOOSE(tt__random_kernels);
    static uint32_t a[N], b[N], c[N];
    static float x[N], y[N];
    static double v[N / 2], w[N / 2];
    tt_generator g, h;
    tt__generator_init(&g, 11);
    h = g;
    plain->refill(g.mt);
    best->refill(h.mt);
    assert_memory_equal(g.mt, h.mt, sizeof g.mt);
    for (int i = 0; i < N; i++)
        a[i] = tt_generator_random(&g);
    for (int n = 0; n < 40; n++) {
        plain->temper(b, a, (size_t)n);
        best->temper(c, a, (size_t)n);
        assert_memory_equal(b, c, (size_t)n * sizeof *b);
    }
    plain->uniform_f32(x, a, N, -3, 0.7f);
    best->uniform_f32(y, a, N, -3, 0.7f);
    assert_memory_equal(x, y, sizeof x);
    plain->uniform_f64(v, a, N / 2, -3, 0.7);
    best->uniform_f64(w, a, N / 2, -3, 0.7);
    assert_memory_equal(v, w, sizeof v);
    plain->uniform_f32(x, a, N, 0, 1);
    memcpy(y, x, sizeof x);
    for (int i = 0; i + 16 <= N; i += 16) {
        plain->normal16_f32(x + i, 0.1f, 2.3f);
        best->normal16_f32(y + i, 0.1f, 2.3f);
    }
    assert_memory_equal(x, y, sizeof x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_are_torchs),
        cmocka_unit_test(every_instruction_set_gives_the_same_bits),
        cmocka_unit_test(cached_normal_survives_other_draws),
        cmocka_unit_test(draws_do_not_depend_on_how_they_are_split),
        cmocka_unit_test(large_randperm_is_a_permutation),
        cmocka_unit_test(default_generator_is_seeded_by_the_system_or_by_hand),
        cmocka_unit_test(empty_draws_draw_nothing),
    };
    return cmocka_run_group_tests(tests, load_vectors, free_vectors);
}
