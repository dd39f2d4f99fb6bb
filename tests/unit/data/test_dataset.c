/* Data sets: built in, made of others, of one's own; what is asked of their functions, and how they fail. */
#include "unit/data/data_cases.h"

#include <stdlib.h>

/* ---- of tensors, and parts of them ---- */

static tt_dataset *bytes(void) {
    uint8_t all[256];
    for (int i = 0; i < 256; i++)
        all[i] = (uint8_t)i;
    return tt_tensor_dataset(tt_from_data(all, TT_SHAPE(4, 64), TT_U8), NULL);
}

static float last_of_batch(tt_loader *loader) {
    tt_batch b;
    tt_loader_restart(loader);
    assert_int_equal(tt_loader_next(loader, &b), 1);
    assert_null(b.y);
    return tt_tensor_f32(b.x)[tt_tensor_numel(b.x) - 1];
}

static void subsets_are_views_with_their_base_s_normalisation(void **state) {
    (void)state;
    tt_dataset *d = bytes(), *tail = tt_subset(d, 3, 4), *nothing = tt_subset(d, 4, 4);
    assert_int_equal(tt_dataset_size(tail), 1);
    assert_int_equal(tt_dataset_size(nothing), 0);
    assert_ptr_equal(tt_tensor_data(tt_dataset_inputs(tail)), (uint8_t *)tt_tensor_data(tt_dataset_inputs(d)) + 192);
    assert_null(tt_dataset_targets(tail));
    assert_int_equal(tt_dataset_normalize(d, 0, 1), TT_OK);
    tt_loader *loader = tt_loader_new(tail, 1, tt_in_order());
    assert_true(last_of_batch(loader) == 1.0f);
    assert_int_equal(tt_dataset_normalize(tail, 1, 1), TT_OK); /* its own wins */
    assert_true(last_of_batch(loader) == 0.0f);
    tt_loader_free(loader);
    tt_batch b;
    loader = tt_loader_new(nothing, 1, tt_in_order());
    assert_non_null(loader);
    assert_int_equal(tt_loader_batches(loader), 0);
    assert_int_equal(tt_loader_next(loader, &b), 0);
    tt_loader_free(loader);
    tt_dataset_free(nothing);
    tt_dataset_free(tail);
    assert_null(tt_subset(d, -1, 2));
    assert_null(tt_subset(d, 3, 2));
    assert_null(tt_subset(d, 0, 5));
    assert_string_equal(tt_last_error(), "tt_subset: expected 0 <= begin <= end <= 4, got 0 and 5");
    tt_dataset_free(d);
    assert_null(tt_subset(NULL, 0, 0));
}

static void subsets_carry_targets(void **state) {
    (void)state;
    tt_dataset *d = numbered(6), *middle = tt_subset(d, 2, 5);
    tt_loader *loader = tt_loader_new(middle, 3, tt_in_order());
    tt_batch b;
    assert_int_equal(tt_loader_next(loader, &b), 1);
    assert_memory_equal(b.indices, ((int64_t[]){0, 1, 2}), 3 * sizeof(int64_t)); /* counted in the subset */
    b.indices = (int64_t[]){2, 3, 4};
    assert_batch(&b, b.indices, 3);
    tt_loader_free(loader);
    tt_dataset_free(middle);
    tt_dataset_free(d);
}

static void views_with_gaps_are_copied(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_transpose(tt_view(tt_arange(6), TT_SHAPE(2, 3)), 0, 1); /* {0,3}, {1,4}, {2,5} */
    tt_dataset *d = tt_tensor_dataset(x, NULL);
    assert_memory_equal(tt_tensor_data(tt_dataset_inputs(d)), ((int64_t[]){0, 3, 1, 4, 2, 5}), 48);
    tt_dataset_free(d);
}

/* Under a leak checker this also shows that what was taken over is freed on failure. */
static void tensors_that_do_not_fit_are_refused(void **state) {
    (void)state;
    assert_null(tt_tensor_dataset(tt_zeros(TT_SHAPE(3, 2), TT_F32), tt_arange(4)));
    assert_int_equal(tt_last_status(), TT_ERR_SHAPE);
    assert_non_null(strstr(tt_last_error(), "got inputs f32 (3, 2), targets i64 (4)"));
    assert_null(tt_tensor_dataset(tt_zeros(TT_SCALAR, TT_F32), NULL));
    assert_null(tt_tensor_dataset(tt_zeros(TT_SHAPE(1), TT_F32), tt_zeros(TT_SCALAR, TT_F32)));
    tt_clear_error();
    assert_null(tt_tensor_dataset(NULL, tt_arange(4)));
    assert_int_not_equal(tt_last_status(), TT_OK);
    tt_dataset *d = numbered(2);
    assert_null(tt_tensor_dataset(tt_arange(2), tt_dataset_inputs(d))); /* belongs to another set, which keeps it */
    assert_int_equal(tt_last_status(), TT_ERR_STATE);
    assert_int_equal(tt_tensor_numel(tt_dataset_inputs(d)), 4);
    tt_dataset_free(d);
    tt_dataset_free(NULL);
    assert_int_equal(tt_dataset_size(NULL), 0);
    assert_null(tt_dataset_inputs(NULL));
    assert_null(tt_dataset_targets(NULL));
}

/* ---- by callback ---- */

/* x {i, -i}, y i squared */
static tt_status get_numbers(void *user, int64_t index, void *x, void *y) {
    int64_t *calls = user;
    if (calls)
        ++*calls;
    ((float *)x)[0] = (float)index;
    ((float *)x)[1] = (float)-index;
    if (y)
        *(double *)y = (double)(index * index);
    return TT_OK;
}

static void a_callback_writes_the_batches(void **state) {
    (void)state;
    int64_t calls = 0, visited = 0;
    tt_dataset *d =
        tt_dataset_from(10, get_numbers, tt_spec(TT_F32, TT_SHAPE(2)), .y = tt_spec(TT_F64, TT_SCALAR), .user = &calls);
    tt_loader *loader = tt_loader_new(d, 4, tt_shuffled());
    tt_batch b;
    char text[64];
    assert_int_equal(tt_dataset_size(d), 10);
    assert_null(tt_dataset_inputs(d));
    assert_null(tt_dataset_targets(d));
    while (tt_loader_next(loader, &b) == 1) {
        assert_int_equal(tt_tensor_dtype(b.y), TT_F64);
        assert_string_equal(tt_tensor_describe(b.x, text, sizeof text), b.size == 4 ? "f32 (4, 2)" : "f32 (2, 2)");
        for (int64_t i = 0; i < b.size; i++) {
            assert_true(tt_tensor_f32(b.x)[2 * i] == (float)b.indices[i]);
            assert_true(tt_tensor_f32(b.x)[2 * i + 1] == (float)-b.indices[i]);
            assert_true(((double *)tt_tensor_data(b.y))[i] == (double)(b.indices[i] * b.indices[i]));
            visited |= INT64_C(1) << b.indices[i];
        }
    }
    assert_int_equal(visited, 1023);
    assert_int_equal(calls, 10);
    tt_loader_free(loader);
    tt_dataset_free(d);
}

static tt_status get_pattern(void *user, int64_t index, void *x, void *y) {
    const tt_dtype *type = user;
    memset(x, (int)index + 1, 3 * tt_dtype_size(*type));
    memset(y, (int)index + 65, tt_dtype_size(*type));
    return TT_OK;
}

/* Bytes go where they belong, whatever they mean. u8 inputs become f32, u8 targets stay. */
static void every_element_type_is_collated(void **state) {
    (void)state;
    tt_dtype types[] = {TT_F32, TT_F64, TT_I32, TT_I64, TT_U8};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        tt_dtype type = types[t], x_type = type == TT_U8 ? TT_F32 : type;
        size_t size = tt_dtype_size(type), x_size = tt_dtype_size(x_type);
        tt_dataset *d =
            tt_dataset_from(5, get_pattern, tt_spec(type, TT_SHAPE(3)), .y = tt_spec(type, TT_SCALAR), .user = &type);
        tt_loader *loader = tt_loader_new(d, 5, tt_in_order());
        tt_batch b;
        assert_int_equal(tt_loader_next(loader, &b), 1);
        assert_int_equal(tt_tensor_dtype(b.x), x_type);
        assert_int_equal(tt_tensor_dtype(b.y), type);
        const uint8_t *x = tt_tensor_data(b.x), *y = tt_tensor_data(b.y);
        for (size_t i = 0; i < 15 * x_size; i++)
            if (type == TT_U8)
                assert_int_equal((int)tt_tensor_f32(b.x)[i / 4], i / 12 + 1);
            else
                assert_int_equal(x[i], i / (3 * size) + 1);
        for (size_t i = 0; i < 5 * size; i++)
            assert_int_equal(y[i], i / size + 65);
        tt_loader_free(loader);
        tt_dataset_free(d);
    }
}

static void one_example_can_be_looked_at(void **state) {
    (void)state;
    float x[2] = {0};
    double y = 0;
    tt_dataset *d = tt_dataset_from(10, get_numbers, tt_spec(TT_F32, TT_SHAPE(2)), .y = tt_spec(TT_F64, TT_SCALAR)),
               *none = tt_dataset_from(3, get_numbers, tt_spec(TT_F32, TT_SHAPE(2)), .name = "numbers");
    assert_int_equal(tt_dataset_get(d, 7, x, &y), TT_OK);
    assert_true(x[0] == 7 && x[1] == -7 && y == 49);
    assert_int_equal(tt_dataset_get(none, 2, x, NULL), TT_OK);
    assert_int_equal(tt_dataset_get(none, 1, x, &y), TT_OK); /* for which there is no target to write */
    assert_true(x[0] == 1 && y == 49);
    assert_int_equal(tt_dataset_x(d).shape.dim[0], 2);
    assert_int_equal(tt_dataset_y(d).dtype, TT_F64);
    assert_false(tt_dataset_y(none).given);
    assert_int_equal(tt_dataset_get(d, 0, x, NULL), TT_ERR_INVALID);
    assert_int_equal(tt_dataset_get(d, 0, NULL, &y), TT_ERR_INVALID);
    assert_int_equal(tt_dataset_get(none, 3, x, NULL), TT_ERR_INVALID);
    assert_string_equal(tt_last_error(), "tt_dataset_get: numbers: expected an example from 0 to 2, got 3");
    assert_int_equal(tt_dataset_get(none, -1, x, NULL), TT_ERR_INVALID);
    tt_dataset_free(none);
    tt_dataset_free(d);
    tt_clear_error();
    assert_int_equal(tt_dataset_get(NULL, 0, x, NULL), TT_ERR_INVALID);
    assert_false(tt_dataset_x(NULL).given || tt_dataset_y(NULL).given);
}

static void impossible_examples_are_refused(void **state) {
    (void)state;
    const tt_shape eight = TT_SHAPE(1, 1, 1, 1, 1, 1, 1, 1);
    assert_null(tt_dataset_from(3, NULL, tt_spec(TT_F32, TT_SCALAR)));
    assert_string_equal(tt_last_error(), "tt_dataset_from: a data set: get is NULL");
    assert_null(tt_dataset_from(-1, get_numbers, tt_spec(TT_F32, TT_SCALAR)));
    assert_string_equal(tt_last_error(), "tt_dataset_from: a data set: size: expected at least 0 examples, got -1");
    assert_null(tt_dataset_from(3, get_numbers, (tt_tensor_spec){0}));
    assert_non_null(strstr(tt_last_error(), "x: expected the type and shape"));
    assert_null(tt_dataset_from(3, get_numbers, tt_spec((tt_dtype)77, TT_SCALAR)));
    assert_int_equal(tt_last_status(), TT_ERR_DTYPE);
    assert_null(tt_dataset_from(3, get_numbers, tt_spec(TT_F32, eight)));
    assert_int_equal(tt_last_status(), TT_ERR_SHAPE);
    assert_null(tt_dataset_from(3, get_numbers, tt_spec(TT_F32, TT_SCALAR), .y = tt_spec(TT_F32, TT_SHAPE(-1))));
    assert_int_equal(tt_last_status(), TT_ERR_SHAPE);
    assert_non_null(strstr(tt_last_error(), "y: expected sizes of at least 0"));
    assert_null(tt_dataset_from_with(NULL, 0));
}

/* ---- by class ---- */

typedef struct numbers {
    int64_t size, gets, batches, destroyed;
    tt_status status;
    bool silent;
} numbers;

static int64_t numbers_size(void *user) { return ((numbers *)user)->size; }

static tt_status numbers_get(void *user, int64_t index, void *x, void *y) {
    numbers *s = user;
    s->gets++;
    if (s->status)
        return s->silent ? s->status : tt_fail(s->status, "no luck with %d", (int)index);
    return get_numbers(NULL, index, x, y);
}

static tt_status numbers_get_batch(void *user, const int64_t *indices, int64_t n, void *x, void *y) {
    numbers *s = user;
    s->batches++;
    if (s->status)
        return s->silent ? s->status : tt_fail(s->status, "no luck");
    for (int64_t i = 0; i < n; i++)
        if (get_numbers(NULL, indices[i], (float *)x + 2 * i, y ? (double *)y + i : NULL))
            return TT_ERR_STATE;
    return TT_OK;
}

static void numbers_destroy(void *user) { ((numbers *)user)->destroyed++; }

static const tt_dataset_class numbers_class = {.name = "numbers",
                                               .size = numbers_size,
                                               .get = numbers_get,
                                               .get_batch = numbers_get_batch,
                                               .destroy = numbers_destroy};

static void a_class_reads_whole_batches_if_it_can(void **state) {
    (void)state;
    for (int batches = 0; batches < 2; batches++) {
        numbers s = {.size = 10};
        tt_dataset_class cls = numbers_class;
        if (!batches)
            cls.get_batch = NULL;
        tt_dataset *d = tt_dataset_new(&cls, &s, tt_spec(TT_F32, TT_SHAPE(2)), .y = tt_spec(TT_F64, TT_SCALAR));
        memset(&cls, 0, sizeof cls); /* it was copied */
        tt_loader *loader = tt_loader_new(d, 4, tt_shuffled());
        tt_batch b;
        while (tt_loader_next(loader, &b) == 1)
            for (int64_t i = 0; i < b.size; i++) {
                assert_true(tt_tensor_f32(b.x)[2 * i + 1] == (float)-b.indices[i]);
                assert_true(((double *)tt_tensor_data(b.y))[i] == (double)(b.indices[i] * b.indices[i]));
            }
        assert_int_equal(s.batches, batches ? 3 : 0);
        assert_int_equal(s.gets, batches ? 0 : 10);
        tt_loader_free(loader);
        assert_int_equal(s.destroyed, 0);
        tt_dataset_free(d);
        assert_int_equal(s.destroyed, 1);
    }
}

static void user_is_destroyed_on_failure_too(void **state) {
    (void)state;
    numbers s = {.size = -1};
    tt_dataset_class without_get = numbers_class, without_size = numbers_class;
    without_get.get = NULL;
    without_size.size = NULL;
    assert_null(tt_dataset_new(&numbers_class, &s, tt_spec(TT_F32, TT_SHAPE(2))));
    assert_string_equal(tt_last_error(), "tt_dataset_new: numbers: size: expected at least 0 examples, got -1");
    assert_null(tt_dataset_new(&without_get, &s, tt_spec(TT_F32, TT_SHAPE(2))));
    assert_string_equal(tt_last_error(), "tt_dataset_new: numbers: the class has no get function");
    assert_null(tt_dataset_new(&without_size, &s, tt_spec(TT_F32, TT_SHAPE(2))));
    assert_string_equal(tt_last_error(), "tt_dataset_new: numbers: the class has no size function");
    assert_int_equal(s.destroyed, 3);
    assert_null(tt_dataset_new((const tt_dataset_class *)NULL, &s, tt_spec(TT_F32, TT_SHAPE(2))));
    assert_int_equal(tt_last_status(), TT_ERR_INVALID);
    assert_null(tt_dataset_new_with(NULL, 0));
    assert_int_equal(s.destroyed, 3);
}

/* A program built when classes had fewer functions. */
static void older_classes_work(void **state) {
    (void)state;
    numbers s = {.size = 2};
    float x[2];
    tt_dataset_new_args args = {.cls = &numbers_class,
                                .cls_size = offsetof(tt_dataset_class, get_batch),
                                .user = &s,
                                .x = tt_spec(TT_F32, TT_SHAPE(2))};
    tt_dataset *d = tt_dataset_new_with(&args, offsetof(tt_dataset_new_args, y));
    assert_int_equal(tt_dataset_get(d, 1, x, NULL), TT_OK);
    tt_dataset_free(d);
    assert_int_equal(s.destroyed, 0);
}

static const char *error_of_first_batch(tt_dataset *d) {
    tt_loader *loader = tt_loader_new(d, 2, tt_in_order());
    tt_batch b;
    assert_int_equal(tt_loader_next(loader, &b), -1);
    tt_loader_free(loader);
    return tt_last_error();
}

static void errors_name_data_set_and_example(void **state) {
    (void)state;
    numbers s = {.size = 5, .status = TT_ERR_IO};
    tt_dataset_class one_by_one = numbers_class;
    one_by_one.get_batch = NULL;
    tt_dataset *d = tt_dataset_new(&one_by_one, &s, tt_spec(TT_F32, TT_SHAPE(2)));
    tt_dataset *batches = tt_dataset_new(&numbers_class, &s, tt_spec(TT_F32, TT_SHAPE(2)));
    tt_dataset *part = tt_subset(d, 3, 5), *chain = tt_concat_dataset((tt_dataset *[]){part, d}, 2);
    tt_fail(TT_ERR_SHAPE, "an older error, which is another matter") ? (void)0 : fail();
    s.silent = true;
    assert_string_equal(error_of_first_batch(d), "numbers: example 0: a file could not be read or written");
    s.silent = false;
    assert_string_equal(error_of_first_batch(d), "numbers: example 0: no luck with 0");
    assert_int_equal(tt_last_status(), TT_ERR_IO);
    assert_string_equal(error_of_first_batch(part), "numbers: example 3: no luck with 3"); /* where it really is */
    assert_string_equal(error_of_first_batch(chain), "numbers: example 3: no luck with 3");
    assert_string_equal(error_of_first_batch(batches), "numbers: 2 examples, of which the first is number 0: no luck");
    tt_dataset_free(chain);
    tt_dataset_free(part);
    tt_dataset_free(batches);
    tt_dataset_free(d);
}

/* ---- made of others ---- */

static void parts_follow_each_other(void **state) {
    (void)state;
    tt_dataset *a = numbered(3), *b = numbered(90), *none = tt_subset(a, 1, 1), *part = tt_subset(b, 5, 75);
    tt_dataset *d = tt_concat_dataset((tt_dataset *[]){a, none, part, a}, 4), *middle = tt_subset(d, 2, 75);
    int64_t want[76];
    tt_batch batch;
    for (int64_t i = 0; i < 76; i++)
        want[i] = i < 3 ? i : i < 73 ? i + 2 : i - 73;
    assert_int_equal(tt_dataset_size(d), 76);
    for (int64_t i = 0; i < 76; i++) {
        float x[2];
        int64_t y;
        assert_int_equal(tt_dataset_get(d, i, x, &y), TT_OK);
        assert_true(x[1] == (float)(2 * want[i] + 1));
        assert_int_equal(y, 10 * want[i]);
    }
    tt_loader *loader = tt_loader_new(middle, 73, tt_in_order());
    assert_int_equal(tt_loader_next(loader, &batch), 1);
    for (int64_t i = 0; i < 73; i++) {
        assert_int_equal(batch.indices[i], i);
        assert_int_equal(tt_tensor_i64(batch.y)[i], 10 * want[i + 2]);
        assert_true(tt_tensor_f32(batch.x)[2 * i] == (float)(2 * want[i + 2]));
    }
    tt_loader_free(loader);
    tt_dataset_free(middle);
    tt_dataset_free(d);
    tt_dataset_free(part);
    tt_dataset_free(none);
    tt_dataset_free(b);
    tt_dataset_free(a);
}

static void parts_must_be_alike(void **state) {
    (void)state;
    tt_dataset *a = numbered(3), *b = bytes();
    tt_dataset *wide = tt_dataset_from(2, get_numbers, tt_spec(TT_F32, TT_SHAPE(3)), .y = tt_spec(TT_I64, TT_SCALAR));
    tt_dataset *bare = tt_dataset_from(2, get_numbers, tt_spec(TT_F32, TT_SHAPE(2)));
    assert_null(tt_concat_dataset((tt_dataset *[]){a, b}, 2));
    assert_int_equal(tt_last_status(), TT_ERR_DTYPE);
    assert_null(tt_concat_dataset((tt_dataset *[]){a, a, wide}, 3));
    assert_int_equal(tt_last_status(), TT_ERR_SHAPE);
    assert_non_null(strstr(tt_last_error(), "x of part 0 (a data set of tensors) and of part 2 (a data set) differ"));
    assert_null(tt_concat_dataset((tt_dataset *[]){a, bare}, 2));
    assert_int_equal(tt_last_status(), TT_ERR_SHAPE);
    assert_null(tt_concat_dataset((tt_dataset *[]){a}, 0));
    assert_int_equal(tt_last_status(), TT_ERR_INVALID);
    assert_null(tt_concat_dataset(NULL, 1));
    tt_clear_error();
    assert_null(tt_concat_dataset((tt_dataset *[]){a, NULL}, 2));
    assert_string_equal(tt_last_error(), "tt_concat_dataset: part 1 is NULL");
    tt_dataset_free(bare);
    tt_dataset_free(wide);
    tt_dataset_free(b);
    tt_dataset_free(a);
}

static void parts_must_agree_on_their_normalisation(void **state) {
    (void)state;
    tt_dataset *a = bytes(), *b = bytes(), *part = tt_subset(b, 0, 2);
    tt_dataset *d = tt_concat_dataset((tt_dataset *[]){a, part}, 2);
    tt_loader *loader = tt_loader_new(d, 6, tt_in_order());
    tt_batch batch;
    assert_true(last_of_batch(loader) == 127.0f);
    assert_int_equal(tt_dataset_normalize(a, 0, 1), TT_OK);
    tt_loader_restart(loader);
    assert_int_equal(tt_loader_next(loader, &batch), -1);
    assert_int_equal(tt_last_status(), TT_ERR_STATE);
    assert_non_null(strstr(tt_last_error(), "parts 0 and 1 are normalised differently"));
    assert_int_equal(tt_dataset_normalize(b, 0, 1), TT_OK); /* by way of its subset */
    assert_true(last_of_batch(loader) == 127.0f / 255.0f);
    assert_int_equal(tt_dataset_normalize(b, 1, 1), TT_OK);
    assert_int_equal(tt_dataset_normalize(d, 0, 2), TT_OK); /* its own wins */
    assert_true(last_of_batch(loader) == 127.0f / 255.0f / 2);
    tt_loader_free(loader);
    tt_dataset_free(d);
    tt_dataset_free(part);
    tt_dataset_free(b);
    tt_dataset_free(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(subsets_are_views_with_their_base_s_normalisation),
        cmocka_unit_test(subsets_carry_targets),
        cmocka_unit_test(views_with_gaps_are_copied),
        cmocka_unit_test(tensors_that_do_not_fit_are_refused),
        cmocka_unit_test(a_callback_writes_the_batches),
        cmocka_unit_test(every_element_type_is_collated),
        cmocka_unit_test(one_example_can_be_looked_at),
        cmocka_unit_test(impossible_examples_are_refused),
        cmocka_unit_test(a_class_reads_whole_batches_if_it_can),
        cmocka_unit_test(user_is_destroyed_on_failure_too),
        cmocka_unit_test(older_classes_work),
        cmocka_unit_test(errors_name_data_set_and_example),
        cmocka_unit_test(parts_follow_each_other),
        cmocka_unit_test(parts_must_be_alike),
        cmocka_unit_test(parts_must_agree_on_their_normalisation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
