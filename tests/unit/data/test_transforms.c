/* Transforms: torchvision's results where nothing is random; the right distributions where something is; the same
 * draws for the same example, whoever reads it and when. */
#include "data/transforms/transform.h"
#include "unit/alloc_fail.h"
#include "unit/data/data_cases.h"
#include "unit/expect.h"
#include "unit/vectors.h"

#include <tutti/transforms.h>

#include <math.h>

/* ---- torchvision's results ---- */

static tt_shape shape_of(const json_t *list) {
    tt_shape shape = {.ndim = (int)json_array_size(list)};
    for (int i = 0; i < shape.ndim; i++)
        shape.dim[i] = (int64_t)vectors_number(list, (size_t)i);
    return shape;
}

static tt_transform *transform_of(const char *name, const json_t *numbers, int64_t channels) {
    double v[8] = {0};
    for (size_t i = 0; i < json_array_size(numbers) && i < 8; i++)
        v[i] = json_is_boolean(json_array_get(numbers, i)) ? json_is_true(json_array_get(numbers, i))
                                                           : vectors_number(numbers, i);
    if (!strcmp(name, "center_crop"))
        return tt_center_crop((int64_t)v[0], (int64_t)v[1]);
    if (!strcmp(name, "resize"))
        return tt_resize_image((int64_t)v[0], (int64_t)v[1], .nearest = v[2] != 0);
    if (!strcmp(name, "hflip"))
        return tt_random_horizontal_flip(1);
    if (!strcmp(name, "vflip"))
        return tt_random_vertical_flip(1);
    if (!strcmp(name, "rotate"))
        return tt_random_rotation(v[0], v[0], .bilinear = v[1] != 0, .fill = v[2]);
    if (!strcmp(name, "affine"))
        return tt_random_affine(v[0], v[0], .scale = {v[3], v[3]}, .shear = {v[4], v[4], v[5], v[5]},
                                .bilinear = v[6] != 0, .fill = v[7]);
    const double one = v[0] == 0 ? 1e-300 : v[0]; /* 0 and 0 stand for no change */
    if (!strcmp(name, "brightness"))
        return tt_color_jitter(.brightness = {one, one});
    if (!strcmp(name, "contrast"))
        return tt_color_jitter(.contrast = {one, one});
    if (!strcmp(name, "saturation"))
        return tt_color_jitter(.saturation = {one, one});
    if (!strcmp(name, "hue"))
        return tt_color_jitter(.hue = {v[0], v[0]});
    if (!strcmp(name, "to_tensor"))
        return tt_to_tensor();
    assert_string_equal(name, "normalize");
    return tt_normalize_channels((double[]){0.1, 0.2, 0.3}, (double[]){0.5, 0.25, 0.3}, channels);
}

/* One image: element i is (37 i + 11) % 251, or that / 251. */
static tt_dataset *image_of(tt_shape shape, tt_dtype dtype) {
    tt_shape one = {.ndim = shape.ndim + 1, .dim = {1}};
    memcpy(one.dim + 1, shape.dim, (size_t)shape.ndim * sizeof *shape.dim);
    tt_tensor *x = tt_empty(one, dtype);
    for (int64_t i = 0; i < tt_tensor_numel(x); i++)
        if (dtype == TT_U8)
            ((uint8_t *)tt_tensor_data(x))[i] = (uint8_t)((37 * i + 11) % 251);
        else
            tt_tensor_f32(x)[i] = (float)((37 * i + 11) % 251) / 251;
    return tt_tensor_dataset(x, NULL);
}

static double element(const void *x, tt_dtype dtype, size_t i) {
    return dtype == TT_U8 ? ((const uint8_t *)x)[i] : (double)((const float *)x)[i];
}

static void check_case(const json_t *c) {
    const char *name = json_string_value(json_object_get(c, "name"));
    const json_t *want = json_object_get(c, "values");
    const tt_shape shape = shape_of(json_object_get(c, "shape")), result = shape_of(json_object_get(c, "result"));
    bool bytes = !strcmp(json_string_value(json_object_get(c, "dtype")), "u8");
    tt_dataset *one = image_of(shape, bytes ? TT_U8 : TT_F32);
    tt_dataset *d = tt_dataset_transform(one, transform_of(name, json_object_get(c, "numbers"), shape.dim[0]));
    if (!d)
        fail_msg("%s: %s", name, tt_last_error());
    static float x[4096];
    tt_tensor_spec spec = tt_dataset_x(d);
    assert_int_equal(spec.shape.ndim, result.ndim);
    assert_memory_equal(spec.shape.dim, result.dim, (size_t)result.ndim * sizeof *result.dim);
    assert_int_equal(tt_dataset_get(d, 0, (void *)x, NULL), TT_OK);
    for (size_t i = 0; i < json_array_size(want); i++) {
        double got = element(x, spec.dtype, i), expected = vectors_number(want, i);
        if (fabs(got - expected) > (spec.dtype == TT_U8 ? 0 : 1e-6 * fmax(1, fabs(expected))))
            fail_msg("%s %s %s: element %zu: expected %.9g, got %.9g", name, tt_dtype_name(spec.dtype),
                     json_dumps(json_object_get(c, "numbers"), 0), i, expected, got);
    }
    tt_dataset_free(d);
    tt_dataset_free(one);
}

static void results_are_torchvisions(void **state) {
    (void)state;
    json_t *vectors = vectors_load("torch-transforms.json"), *cases = json_object_get(vectors, "cases");
    assert_true(json_array_size(cases) > 100);
    for (size_t i = 0; i < json_array_size(cases); i++)
        check_case(json_array_get(cases, i));
    json_decref(vectors);
}

/* ---- what is random ---- */

/* An image whose elements tell their place: element (y, x) is 16 y + x. */
static tt_dataset *places(int64_t n) {
    tt_tensor *x = tt_empty(TT_SHAPE(n, 1, 8, 10), TT_U8);
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < 80; k++)
            ((uint8_t *)tt_tensor_data(x))[i * 80 + k] = (uint8_t)(16 * (k / 10) + k % 10);
    return tt_tensor_dataset(x, tt_arange(n));
}

static void crops_are_even_over_all_places(void **state) {
    (void)state;
    enum { N = 12000 };
    tt_dataset *base = places(N), *d = tt_dataset_transform(base, tt_random_crop(6, 8, .padding = 1, .fill = 255));
    int seen[5][5] = {{0}};
    for (int64_t i = 0; i < N; i++) {
        uint8_t x[48];
        int64_t y;
        assert_int_equal(tt_dataset_get(d, i, x, &y), TT_OK);
        assert_int_equal(y, i);
        int top = x[9] / 16 - 1, left = x[9] % 16 - 1; /* element (1, 1) never is padding */
        seen[top + 1][left + 1]++;
        for (int k = 0; k < 48; k++) {
            int row = top + k / 8, column = left + k % 8;
            bool inside = row >= 0 && row < 8 && column >= 0 && column < 10;
            assert_int_equal(x[k], inside ? 16 * row + column : 255);
        }
    }
    double chi = 0;
    for (int top = 0; top < 5; top++)
        for (int left = 0; left < 5; left++)
            chi += pow(seen[top][left] - N / 25.0, 2) / (N / 25.0);
    assert_true(chi < 60); /* 24 degrees of freedom: p < 1e-4 beyond 60 */
    tt_dataset_free(d);
    tt_dataset_free(base);
}

static void flips_come_with_their_probability(void **state) {
    (void)state;
    enum { N = 10000 };
    tt_dataset *base = places(N);
    tt_dataset *d = tt_dataset_transform(
        base, tt_compose(tt_random_horizontal_flip(0.3), tt_compose(tt_random_vertical_flip(0.8))), .seed = 3);
    int across = 0, down = 0, both = 0;
    for (int64_t i = 0; i < N; i++) {
        uint8_t x[80];
        assert_int_equal(tt_dataset_get(d, i, x, &(int64_t){0}), TT_OK);
        bool h = x[0] % 16 == 9, v = x[0] / 16 == 7;
        across += h, down += v, both += h && v;
    }
    assert_true(abs(across - 3000) < 230 && abs(down - 8000) < 200 && abs(both - 2400) < 215);
    tt_dataset_free(d);
    tt_dataset_free(base);
}

/* A transform that shows its draws. */
static tt_status show_draws(void *user, const void *from, void *to, tt_draws *draws) {
    (void)user, (void)from;
    float *x = to;
    x[0] = (float)tt_draws_uniform(draws, -2, 3);
    x[1] = (float)tt_draws_integer(draws, 7);
    return x[1] >= 0 && x[1] < 7 && x[0] >= -2 && x[0] < 3 ? TT_OK : tt_fail(TT_ERR_STATE, "out of range");
}

static tt_dataset *draws_of(tt_dataset *base, uint64_t seed) {
    return tt_dataset_transform(
        base, tt_transform_from(tt_spec(TT_U8, TT_SHAPE(1, 8, 10)), show_draws, .to = tt_spec(TT_F32, TT_SHAPE(2))),
        .seed = seed);
}

static void draws_depend_on_seed_epoch_and_example(void **state) {
    (void)state;
    tt_dataset *base = places(30), *d = draws_of(base, 5), *other = draws_of(base, 6);
    float first[2], again[2];
    int64_t y;
    for (int64_t i = 0; i < 30; i++) {
        assert_int_equal(tt_dataset_get(d, i, (void *)first, &y), TT_OK);
        assert_int_equal(tt_dataset_get(d, i, (void *)again, &y), TT_OK);
        assert_memory_equal(first, again, sizeof first);
        assert_int_equal(tt_dataset_get(d, (i + 1) % 30, (void *)again, &y), TT_OK);
        assert_true(first[0] != again[0]);
        assert_int_equal(tt_dataset_get(other, i, (void *)again, &y), TT_OK);
        assert_true(first[0] != again[0]);
    }
    tt_dataset_free(d);
    tt_dataset_free(other);
    tt_dataset_free(base);
}

/* Three epochs of a loader, by example: seen[epoch][example]. */
static void read_epochs(tt_dataset *d, tt_sampler *sampler, int workers, float seen[3][30][2]) {
    tt_loader *loader = tt_loader_new(d, 4, sampler, .workers = workers);
    tt_batch b;
    for (int epoch = 0; epoch < 3; epoch++)
        while (tt_loader_next(loader, &b) == 1)
            for (int64_t i = 0; i < b.size; i++)
                memcpy(seen[epoch][b.indices[i]], tt_tensor_f32(b.x) + 2 * i, sizeof(float[2]));
    tt_loader_free(loader);
}

static void neither_order_nor_workers_nor_ranks_change_an_example(void **state) {
    (void)state;
    float want[3][30][2], got[3][30][2];
    tt_dataset *base = places(30), *d = draws_of(base, 5);
    read_epochs(d, tt_in_order(), 0, want);
    assert_true(want[0][3][0] != want[1][3][0] && want[1][3][0] != want[2][3][0]);
    for (int workers = 0; workers <= 3; workers++) {
        memset(got, 0, sizeof got);
        read_epochs(d, tt_shuffled(), workers, got);
        assert_memory_equal(want, got, sizeof want);
        memset(got, 0, sizeof got);
        for (int rank = 0; rank < 3; rank++) {
            tt_sampler *share = tt_distributed_sampler(30, 3, rank, .seed = 1);
            read_epochs(d, share, workers, got);
            tt_sampler_free(share);
        }
        assert_memory_equal(want, got, sizeof want);
    }
    tt_sampler *s = tt_sequential_sampler(30); /* which is told that it is in epoch 1 */
    tt_sampler_set_epoch(s, 1);
    read_epochs(d, s, 2, got);
    assert_memory_equal(want[1], got[0], sizeof want[1]);
    assert_memory_equal(want[1], got[2], sizeof want[1]);
    tt_sampler_free(s);
    tt_dataset_free(d);
    tt_dataset_free(base);
}

static void resized_crops_keep_their_ranges(void **state) {
    (void)state;
    enum { N = 500 };
    tt_tensor *x = tt_empty(TT_SHAPE(N, 2, 40, 50), TT_F32); /* plane 0 is y, plane 1 is x */
    for (int64_t i = 0; i < tt_tensor_numel(x); i++)
        tt_tensor_f32(x)[i] = (float)(i / 2000 % 2 ? i % 50 : i / 50 % 40);
    tt_dataset *base = tt_tensor_dataset(x, NULL), *d = tt_dataset_transform(base, tt_random_resized_crop(64, 64));
    double area = 0;
    for (int64_t i = 0; i < N; i++) {
        static float out[2][64][64];
        assert_int_equal(tt_dataset_get(d, i, (void *)out, NULL), TT_OK);
        double height = out[0][63][0] - out[0][0][0] + 1, width = out[1][0][63] - out[1][0][0] + 1;
        assert_true(out[0][0][0] >= 0 && out[0][63][0] <= 39 && out[1][0][0] >= 0 && out[1][0][63] <= 49);
        assert_true(width / height > 0.7 && width / height < 1.45);
        assert_true(width * height > 0.07 * 2000 && width * height <= 2000.1);
        area += width * height / 2000 / N;
    }
    assert_true(fabs(area - 0.54) < 0.1); /* a little less, as the largest do not fit */
    tt_dataset_free(d);
    tt_dataset_free(base);
}

/* Factors are even in their range, and orders as frequent as each other. */
static void colours_change_in_any_order(void **state) {
    (void)state;
    enum { N = 4000 };
    tt_tensor *x = tt_zeros(TT_SHAPE(N, 1, 1, 2), TT_F32);
    for (int64_t i = 0; i < N; i++)
        tt_tensor_f32(x)[2 * i] = 0.25f;
    tt_dataset *base = tt_tensor_dataset(x, NULL);
    tt_dataset *d = tt_dataset_transform(
        base,
        tt_color_jitter(.brightness = {0.5, 1.5}, .contrast = {0.5, 0.5}, .saturation = {0, 2}, .hue = {-0.5, 0.5}),
        .seed = 5);
    double least = 9, most = 0, sum = 0;
    for (int64_t i = 0; i < N; i++) {
        float y[2];
        assert_int_equal(tt_dataset_get(d, i, y, NULL), TT_OK);
        /* contrast 0.5 moves both halfway to their mean of 0.125, whenever it comes: 0.1875 and 0.0625, times b */
        double b = (double)y[0] / 0.1875;
        assert_true(fabs((double)y[1] - 0.0625 * b) < 1e-6);
        least = fmin(least, b), most = fmax(most, b), sum += b;
    }
    assert_true(least >= 0.5 - 1e-6 && least < 0.51 && most <= 1.5 + 1e-6 && most > 1.49 && fabs(sum / N - 1) < 0.02);
    tt_dataset_free(d);
    /* 0.25 and 0, eight times as bright, which is cut to 1 and 0, and made their mean: 0.5; the other way round: 1 */
    d = tt_dataset_transform(base, tt_color_jitter(.brightness = {8, 8}, .contrast = {1e-9, 1e-9}));
    int dark_first = 0;
    for (int64_t i = 0; i < N; i++) {
        float y[2];
        assert_int_equal(tt_dataset_get(d, i, y, NULL), TT_OK);
        assert_true(fabsf(y[0] - 0.5f) < 1e-6f || fabsf(y[0] - 1) < 1e-6f);
        dark_first += y[0] > 0.75f;
    }
    assert_true(abs(dark_first - N / 2) < 200); /* 6 standard deviations */
    tt_dataset_free(d);
    tt_dataset_free(base);
}

static void moves_are_whole_elements_in_range(void **state) {
    (void)state;
    tt_dataset *base = places(600);
    tt_dataset *d = tt_dataset_transform(base, tt_random_affine(0, 0, .translate = {0.2, 0.125}, .fill = 255));
    int seen[3][5] = {{0}};
    for (int64_t i = 0; i < 600; i++) {
        uint8_t x[80];
        assert_int_equal(tt_dataset_get(d, i, x, &(int64_t){0}), TT_OK);
        int dy = 4 - x[45] / 16, dx = 5 - x[45] % 16;
        assert_true(dy >= -1 && dy <= 1 && dx >= -2 && dx <= 2);
        seen[dy + 1][dx + 2]++;
        for (int k = 0; k < 80; k++) {
            int row = k / 10 - dy, column = k % 10 - dx;
            bool inside = row >= 0 && row < 8 && column >= 0 && column < 10;
            assert_int_equal(x[k], inside ? 16 * row + column : 255);
        }
    }
    for (int k = 0; k < 15; k++)
        assert_true(seen[k / 5][k % 5] > 0);
    tt_dataset_free(d);
    tt_dataset_free(base);
}

/* ---- together with the rest ---- */

static void u8_results_are_normalised_by_the_loader(void **state) {
    (void)state;
    tt_dataset *base = places(4), *d = tt_dataset_transform(base, tt_center_crop(4, 4));
    assert_int_equal(tt_dataset_normalize(base, 0.5, 0.25), TT_OK);
    tt_dataset_free(base);
    tt_loader *loader = tt_loader_new(d, 4, tt_in_order(), .workers = 1);
    tt_batch b;
    assert_int_equal(tt_loader_next(loader, &b), 1);
    volatile float pixel = (float)(16 * 2 + 3) / 255.0f, centred = pixel - 0.5f;
    assert_true(tt_tensor_f32(b.x)[0] == centred / 0.25f);
    assert_int_equal(tt_tensor_i64(b.y)[3], 3);
    tt_loader_free(loader);
    tt_dataset_free(d);
}

static tt_transform *everything(void) {
    return tt_compose(tt_color_jitter(.brightness = {0.5, 1.5}, .contrast = {0.5, 1}),
                      tt_random_crop(8, 8, .padding = 1), tt_random_affine(-5, 5, .bilinear = true),
                      tt_random_rotation(-3, 3), tt_random_resized_crop(7, 7), tt_random_horizontal_flip(0.5),
                      tt_resize_image(9, 5), tt_to_tensor(), tt_normalize_channels((double[]){0.5}, (double[]){2}, 1));
}

static void an_example_allocates_nothing(void **state) {
    (void)state;
    if (!alloc_count_works)
        skip();
    tt_dataset *base = places(24), *d = tt_dataset_transform(base, everything());
    tt_loader *loader = tt_loader_new(d, 8, tt_shuffled());
    tt_batch b;
    long before = 0;
    for (int epoch = 0; epoch < 3; epoch++) {
        before = epoch == 1 ? alloc_count : before;
        while (tt_loader_next(loader, &b) == 1)
            continue;
    }
    assert_int_equal(alloc_count - before, 0);
    tt_loader_free(loader);
    tt_dataset_free(d);
    tt_dataset_free(base);
}

static tt_status make_and_read(void *user) {
    float x[45];
    int64_t y;
    tt_dataset *d = tt_dataset_transform(user, everything());
    tt_status status = d ? tt_dataset_get(d, 1, (void *)x, &y) : tt_last_status();
    tt_dataset_free(d);
    return status;
}

static void memory_that_runs_out_is_an_error(void **state) {
    (void)state;
    if (!alloc_count_works)
        skip();
    tt_dataset *base = places(3);
    assert_true(alloc_fail_each(make_and_read, base, ALLOC_ENDS) > 10);
    tt_dataset_free(base);
}

static tt_status fails(void *user, const void *from, void *to, tt_draws *draws) {
    (void)user, (void)from, (void)to, (void)draws;
    return tt_fail(TT_ERR_FORMAT, "no");
}

static void mistakes_are_named(void **state) {
    (void)state;
    tt_dataset *u8 = places(3), *flat = numbered(3);
    const double zero[] = {0}, one[] = {1};
    tt_clear_error();
    const struct {
        tt_transform *made;
        const char *what;
    } refused[] = {{tt_center_crop(0, 3), NULL},
                   {tt_resize_image(3, -1), NULL},
                   {tt_random_crop(3, 3, .padding = -1), NULL},
                   {tt_random_horizontal_flip(1.5), NULL},
                   {tt_random_vertical_flip(NAN), NULL},
                   {tt_normalize_channels(zero, zero, 1), NULL},
                   {tt_normalize_channels(zero, one, 0), NULL},
                   {tt_normalize_channels(NULL, one, 1), NULL},
                   {tt_random_affine(3, -3), NULL},
                   {tt_random_affine(0, 0, .scale = {-1, 1}), NULL},
                   {tt_random_affine(0, 0, .translate = {2, 0}), NULL},
                   {tt_random_resized_crop(3, 3, .ratio = {2, 1}), NULL},
                   {tt_random_rotation(0, INFINITY), NULL},
                   {tt_color_jitter(.brightness = {-1, 1}), NULL},
                   {tt_color_jitter(.contrast = {2, 1}), NULL},
                   {tt_color_jitter(.saturation = {1, INFINITY}), NULL},
                   {tt_color_jitter(.hue = {0, NAN}), NULL},
                   {tt_transform_from(tt_spec(TT_U8, TT_SCALAR), NULL), NULL},
                   {tt_compose_with(NULL, 0), NULL}};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        assert_null(refused[i].made);
    assert_int_equal(tt_last_status(), TT_ERR_INVALID);
    tt_clear_error();
    assert_null(tt_dataset_transform(u8, tt_compose(tt_to_tensor(), tt_center_crop(0, 1))));
    expect_error(TT_ERR_INVALID, "tt_center_crop: expected a height and a width from 1");
    assert_null(tt_dataset_transform(u8, tt_random_crop(9, 3)));
    expect_error(TT_ERR_SHAPE, "tt_random_crop: expected images of at least 9 x 3");
    assert_null(tt_dataset_transform(u8, tt_random_crop(3, 3, .fill = 256)));
    expect_error(TT_ERR_INVALID, "fill: expected 0 to 255");
    assert_null(tt_dataset_transform(flat, tt_center_crop(1, 1)));
    expect_error(TT_ERR_SHAPE, "expected images (..., height, width), got 1 dimensions");
    assert_null(tt_dataset_transform(flat, tt_to_tensor()));
    expect_error(TT_ERR_DTYPE, "tt_to_tensor: expected u8, got f32");
    assert_null(tt_dataset_transform(u8, tt_normalize_channels(zero, one, 1)));
    expect_error(TT_ERR_DTYPE, "tt_to_tensor() comes before it");
    assert_null(tt_random_rotation(5, 1));
    expect_error(TT_ERR_INVALID, "tt_random_rotation: degrees: expected two finite numbers from -1e+09, the second not "
                                 "below the first, got 5 and 1");
    assert_null(tt_random_affine(0, 0, .scale = {1e-9, 1}));
    expect_error(TT_ERR_INVALID, "scale: expected two finite numbers from 1e-06");
    assert_null(tt_color_jitter(.hue = {-0.1, 0.6}));
    expect_error(TT_ERR_INVALID,
                 "tt_color_jitter: hue: expected two numbers from -0.5 to 0.5, the second not below the "
                 "first, got -0.1 and 0.6");
    tt_dataset *two = tt_tensor_dataset(tt_zeros(TT_SHAPE(1, 2, 3, 3), TT_U8), NULL);
    assert_null(tt_dataset_transform(two, tt_color_jitter(.hue = {0.1, 0.1})));
    expect_error(TT_ERR_SHAPE, "tt_color_jitter: expected images of 1 or 3 channels, got 2");
    tt_dataset_free(two);
    assert_null(tt_dataset_transform(u8, NULL));
    expect_error(TT_ERR_INVALID, "the transform is NULL");
    assert_null(tt_dataset_transform(NULL, tt_to_tensor()));
    expect_error(TT_ERR_INVALID, "the data set is NULL");
    tt_dataset *d =
        tt_dataset_transform(u8, tt_transform_from(tt_spec(TT_U8, TT_SHAPE(1, 8, 10)), fails, .name = "mine"));
    assert_int_equal(tt_dataset_get(d, 2, (uint8_t[80]){0}, &(int64_t){0}), TT_ERR_FORMAT);
    expect_error(TT_ERR_FORMAT, "example 2: mine: no");
    tt_dataset_free(d);
    tt_dataset_free(flat);
    tt_dataset_free(u8);
}

static void a_transform_has_one_owner(void **state) {
    (void)state;
    tt_dataset *u8 = places(3);
    tt_transform *flip = tt_random_horizontal_flip(0.5), *twice = tt_to_tensor();
    assert_null(tt_compose(twice, tt_center_crop(3, 3), twice));
    expect_error(TT_ERR_STATE, "tt_compose: this tt_to_tensor was taken over already");
    tt_dataset *first = tt_dataset_transform(u8, flip);
    assert_non_null(first);
    assert_null(tt_dataset_transform(u8, flip));
    expect_error(TT_ERR_STATE, "tt_dataset_transform: this tt_random_horizontal_flip was taken over already");
    assert_null(tt_dataset_transform(NULL, flip));
    assert_null(tt_compose(tt_to_tensor(), flip));
    expect_error(TT_ERR_STATE, "tt_compose: this tt_random_horizontal_flip was taken over already");
    tt_clear_error();
    tt_transform_free(flip);
    expect_error(TT_ERR_STATE, "tt_transform_free: this tt_random_horizontal_flip was taken over already");
    assert_int_equal(tt_dataset_get(first, 2, (uint8_t[80]){0}, &(int64_t){0}), TT_OK);
    tt_dataset_free(first);
    tt_dataset_free(u8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_torchvisions),
        cmocka_unit_test(crops_are_even_over_all_places),
        cmocka_unit_test(flips_come_with_their_probability),
        cmocka_unit_test(draws_depend_on_seed_epoch_and_example),
        cmocka_unit_test(neither_order_nor_workers_nor_ranks_change_an_example),
        cmocka_unit_test(resized_crops_keep_their_ranges),
        cmocka_unit_test(colours_change_in_any_order),
        cmocka_unit_test(moves_are_whole_elements_in_range),
        cmocka_unit_test(u8_results_are_normalised_by_the_loader),
        cmocka_unit_test(an_example_allocates_nothing),
        cmocka_unit_test(memory_that_runs_out_is_an_error),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(a_transform_has_one_owner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
