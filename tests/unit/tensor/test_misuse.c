/* Misuse of memory is seen: tensors that were freed or whose scope ended, loops without a scope, causes that come
 * first. Each test runs in a child process, where TT_DEBUG is read anew. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <pthread.h>

#include <cmocka.h>
#include <tutti/tutti.h>

#include "base/build.h"
#include "support/ranks.h"

#define S(...) TT_SHAPE(__VA_ARGS__)

typedef void (*child_body)(void);

/* Run `body` in a child with this TT_DEBUG; its stderr into `text`. Returns its exit code, or 128 + signal. */
static int in_child(child_body body, const char *debug, char *text, size_t size) {
    int ends[2], how = 0;
    fflush(NULL);
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm((unsigned)test_seconds() * 3 / 4);
        dup2(ends[1], STDERR_FILENO);
        setenv("TT_DEBUG", debug, 1);
        body();
        _exit(0);
    }
    close(ends[1]);
    size_t used = 0;
    for (ssize_t n = 1; n > 0 && used + 1 < size; used += (size_t)n) {
        n = read(ends[0], text + used, size - 1 - used);
        n = n < 0 ? 0 : n;
    }
    text[used] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &how, 0), child);
    return WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
}

static void expect_success(child_body body, const char *debug) {
    char text[4096];
    int code = in_child(body, debug, text, sizeof text);
    if (code)
        fail_msg("the child ended with %d: %s", code, text);
}

/* ---- freed, ended ---- */

static const char freed[] = "expected a tensor, got one that was freed, or whose scope ended";

/* The last error is `who`'s, that its tensor is dead; it is cleared. */
static void check_dead(const char *who) {
    CHECK(tt_last_status() == TT_ERR_STATE);
    CHECK(!strncmp(tt_last_error(), who, strlen(who)) && tt_last_error()[strlen(who)] == ':');
    CHECK_TEXT(freed);
    tt_clear_error();
}

static tt_tensor *dead_tensor(void) {
    tt_tensor *x = tt_ones(S(2, 2), TT_F32);
    tt_tensor_free(x);
    for (int i = 0; i < 1000; i++) /* memory that is used again would be so now */
        tt_tensor_free(tt_ones(S(2, 2), TT_F32));
    return x;
}

static void free_twice(void) {
    tt_tensor_free(dead_tensor());
    check_dead("tt_tensor_free");
}

static void use_in_operators(void) {
    tt_tensor *x = dead_tensor(), *y = tt_ones(S(2, 2), TT_F32), *t = tt_zeros(S(2), TT_I64);
#define DEAD(who, call) \
    CHECK(!(call));     \
    check_dead(who)
    DEAD("tt_add", tt_add(x, y));
    DEAD("tt_add", tt_add(y, x));
    DEAD("tt_sub", tt_sub(y, x));
    DEAD("tt_mul", tt_mul(x, y));
    DEAD("tt_scale", tt_scale(x, 2));
    DEAD("tt_sum", tt_sum(x));
    DEAD("tt_mean", tt_mean(x));
    DEAD("tt_matmul", tt_matmul(y, x));
    DEAD("tt_linear", tt_linear(y, x, NULL));
    DEAD("tt_linear", tt_linear(y, y, x));
    DEAD("tt_relu", tt_relu(x));
    DEAD("tt_log_softmax", tt_log_softmax(x, 1));
    DEAD("tt_nll_loss", tt_nll_loss(y, x));
    DEAD("tt_cross_entropy", tt_cross_entropy(x, t));
    DEAD("tt_cross_entropy", tt_cross_entropy(y, x));
    DEAD("tt_mse_loss", tt_mse_loss(y, x));
    DEAD("tt_detach", tt_detach(x));
    DEAD("tt_requires_grad_", tt_requires_grad_(x, true));
}

static void use_in_views_and_copies(void) {
    tt_tensor *x = dead_tensor();
    DEAD("tt_view", tt_view(x, S(4)));
    DEAD("tt_reshape", tt_reshape(x, S(4)));
    DEAD("tt_flatten", tt_flatten(x, 0));
    DEAD("tt_transpose", tt_transpose(x, 0, 1));
    DEAD("tt_narrow", tt_narrow(x, 0, 0, 1));
    DEAD("tt_contiguous", tt_contiguous(x));
    DEAD("tt_to_memory_format", tt_to_memory_format(x, TT_CHANNELS_LAST));
    DEAD("tt_clone", tt_clone(x));
    DEAD("tt_to", tt_to(x, TT_F64));
    DEAD("tt_to_device", tt_to_device(x, tt_device_get("reference")));
    DEAD("tt_argmax", tt_argmax(x, 0));
    DEAD("tt_empty_like", tt_empty_like(x));
    DEAD("tt_tensor_data", tt_tensor_data(x));
    DEAD("tt_tensor_f32", tt_tensor_f32(x));
#undef DEAD
}

static void use_in_calls(void) {
    tt_tensor *x = dead_tensor(), *y = tt_ones(S(2, 2), TT_F32);
    double value;
#define DEAD(who, call)            \
    CHECK((call) == TT_ERR_STATE); \
    check_dead(who)
    DEAD("tt_item", tt_item(x, &value));
    DEAD("tt_copy", tt_copy(x, y));
    DEAD("tt_copy", tt_copy(y, x));
    DEAD("tt_backward", tt_backward(x));
    DEAD("tt_uniform_", tt_uniform_(x, 0, 1, NULL));
    DEAD("tt_normal_", tt_normal_(x, 0, 1, NULL));
#undef DEAD
    CHECK(!tt_equal(x, y));
    check_dead("tt_equal");
    tt_keep(x);
    check_dead("tt_keep");
    tt_module *relu = tt_nn_relu();
    CHECK(!tt_module_forward(relu, x));
    check_dead("tt_relu");
    tt_module_free(relu);
}

static void use_after_the_scope(void) {
    tt_tensor *x, *y;
    {
        TT_AUTO_SCOPE;
        x = tt_requires_grad_(tt_ones(S(2), TT_F32), true);
        y = tt_sum(tt_mul(x, x));
    }
    for (int i = 0; i < 1000; i++) {
        TT_AUTO_SCOPE;
        tt_sum(tt_ones(S(2), TT_F32));
    }
    CHECK(!tt_scale(y, 2));
    check_dead("tt_scale");
    CHECK(tt_backward(y) == TT_ERR_STATE);
    check_dead("tt_backward");
    tt_tensor_free(x);
    check_dead("tt_tensor_free");
}

static void two_frees_are_one_error(void **state) {
    (void)state;
    expect_success(free_twice, "1");
}

/* Free each object twice: the second time is an error, and no crash. */
#define FREE_TWICE(free_it, object) \
    do {                            \
        CHECK((object) != NULL);    \
        free_it(object);            \
        free_it(object);            \
        check_freed(#free_it);      \
    } while (0)

static void check_freed(const char *who) {
    CHECK(tt_last_status() == TT_ERR_STATE);
    CHECK(!strncmp(tt_last_error(), who, strlen(who)));
    CHECK_TEXT("freed before");
    tt_clear_error();
}

static void free_tensor_side_twice(void) {
    tt_module *model = tt_nn_sequential(tt_nn_linear(3, 2), tt_nn_relu()), *child = tt_module_child_at(model, 0);
    tt_optimizer *adam = tt_adam(tt_module_parameters(model), 1e-3);
    tt_dataset *digits = tt_digits(8, 0);
    tt_sampler *sampler = tt_random_sampler(8);
    tt_loader *loader = tt_loader_new(digits, 4, sampler);
    tt_tensor *y = tt_sum(tt_module_forward(model, tt_ones(S(4, 3), TT_F32)));
    tt_deferred_backward *deferred = NULL;
    CHECK_OK(tt_backward(y, .deferred = &deferred));
    FREE_TWICE(tt_deferred_backward_free, deferred);
    FREE_TWICE(tt_loader_free, loader);
    FREE_TWICE(tt_sampler_free, sampler);
    FREE_TWICE(tt_dataset_free, digits);
    FREE_TWICE(tt_optimizer_free, adam);
    FREE_TWICE(tt_module_free, model);
    tt_module_free(child);
    check_freed("tt_module_free");
    tt_generator *generator = tt_generator_new(1);
    FREE_TWICE(tt_generator_free, generator);
    tt_scope *scope = tt_scope_new();
    FREE_TWICE(tt_scope_free, scope);
}

static void free_file_twice(void) {
    char path[] = "/tmp/tutti-misuse-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, "\2\0\0\0\0\0\0\0{}", 10) == 10);
    close(fd);
    tt_safetensors *file = NULL;
    CHECK_OK(tt_safetensors_load(&file, path));
    unlink(path);
    FREE_TWICE(tt_safetensors_free, file);
}

static void free_stores_twice(void) {
    tt_store *hash = NULL, *prefix = NULL, *tcp = NULL;
    tt_store_server *server = NULL;
    CHECK_OK(tt_hash_store(&hash, 0));
    CHECK_OK(tt_prefix_store(&prefix, "p", hash));
    CHECK_OK(tt_store_server_new(&server, NULL, 0));
    CHECK_OK(tt_tcp_store(&tcp, "localhost", tt_store_server_port(server)));
    FREE_TWICE(tt_store_free, tcp);
    FREE_TWICE(tt_store_server_free, server);
    FREE_TWICE(tt_store_free, prefix);
    FREE_TWICE(tt_store_free, hash);
}

static void free_works_twice(void) {
    tt_group *world;
    tt_work *work = NULL, *later = NULL;
    float x[4] = {0};
    CHECK_OK(tt_init_process_group(&world, .init_method = "tcp://localhost:1", .world_size = 1));
    CHECK_OK(tt_all_reduce(world, x, 4, TT_F32, TT_SUM, .work = &work));
    CHECK_OK(tt_work_wait(work));
    FREE_TWICE(tt_work_free, work);
    CHECK_OK(tt_irecv(&later, world, x, 4, TT_F32, TT_ANY_SOURCE));
    FREE_TWICE(tt_work_free, later); /* it is still on its way */
    CHECK_OK(tt_all_reduce(world, x, 4, TT_F32, TT_SUM, .work = &work));
    tt_destroy_process_group(world);
    FREE_TWICE(tt_work_free, work);
    FREE_TWICE(tt_destroy_process_group, world);
}

static void second_frees_are_errors(void **state) {
    (void)state;
    expect_success(free_tensor_side_twice, "1");
    expect_success(free_file_twice, "1");
    expect_success(free_stores_twice, "1");
    expect_success(free_works_twice, "1");
}

static void use_in_collectives(void) {
    tt_group *world;
    tt_tensor *x = dead_tensor();
    CHECK_OK(tt_init_process_group(&world, .init_method = "tcp://localhost:1", .world_size = 1));
    CHECK(tt_tensor_all_reduce(world, x, TT_SUM));
    check_dead("tt_tensor_all_reduce");
    CHECK(tt_tensor_all_gather(world, x, tt_zeros(S(4, 2), TT_F32)));
    check_dead("tt_tensor_all_gather");
    tt_destroy_process_group(world);
}

static void uses_after_the_end_are_errors(void **state) {
    (void)state;
    expect_success(use_in_operators, "1");
    expect_success(use_in_views_and_copies, "1");
    expect_success(use_in_calls, "1");
    expect_success(use_in_collectives, "1");
    expect_success(use_after_the_scope, "1");
}

/* ---- what pointers read: the address sanitizer sees memory that waits for its next use ---- */

static void read_after_the_scope(void) {
    const volatile float *p;
    {
        TT_AUTO_SCOPE;
        p = tt_tensor_f32(tt_ones(S(100), TT_F32));
    }
    fprintf(stderr, "read %g\n", (double)p[50]);
}

static void read_after_free(void) {
    tt_tensor *x = tt_ones(S(3, 1 << 20), TT_F32);
    const volatile float *p = tt_tensor_f32(x);
    tt_tensor_free(x);
    fprintf(stderr, "read %g\n", (double)p[50]);
}

static void use_a_tensor_after_the_scope(void) {
    tt_tensor *x;
    {
        TT_AUTO_SCOPE;
        x = tt_ones(S(100), TT_F32);
    }
    fprintf(stderr, "has %d\n", (int)tt_tensor_numel(x));
}

static void the_address_sanitizer_sees_reads(void **state) {
    (void)state;
#if TT__ASAN
    const child_body bodies[] = {read_after_the_scope, read_after_free, use_a_tensor_after_the_scope};
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        static char text[1 << 16];
        assert_int_not_equal(in_child(bodies[i], "0", text, sizeof text), 0);
        assert_non_null(strstr(text, "AddressSanitizer"));
        assert_true(strstr(text, "use-after-poison") || strstr(text, "heap-use-after-free"));
        assert_null(strstr(text, "read 1"));
    }
#else
    (void)read_after_the_scope;
    (void)read_after_free;
    (void)use_a_tensor_after_the_scope;
    print_message("skipped: the address sanitizer is not in this build\n");
    skip();
#endif
}

/* ---- loops without a scope ---- */

static int warnings;
static char warning[512];

static void note_warning(tt_log_level level, const char *line, void *user) {
    (void)user;
    if (level < TT_LOG_WARNING)
        return;
    warnings++;
    snprintf(warning, sizeof warning, "%s", line);
}

enum { MANY_STEPS = 12000 };

static void loop_in_a_scope(void) {
    tt_set_log(note_warning, NULL);
    for (int i = 0; i < MANY_STEPS; i++) {
        TT_AUTO_SCOPE;
        tt_scale(tt_ones(S(1), TT_F32), 2);
    }
    for (int i = 0; i < MANY_STEPS; i++) /* or with a free for each */
        tt_tensor_free(tt_ones(S(1), TT_F32));
    CHECK(warnings == 0);
}

static void loop_without_a_scope(void) {
    tt_set_log(note_warning, NULL);
    for (int i = 0; i < MANY_STEPS; i++)
        tt_ones(S(1), TT_F32);
    CHECK(warnings == 1);
    CHECK(strstr(warning, "live outside of scopes") && strstr(warning, "TT_AUTO_SCOPE"));
    _exit(0); /* what lives is no leak to report */
}

enum { LARGE = 64 << 20, WARNED_AT = 5000 };

static void leave_tensors(int count, int64_t bytes) {
    for (int i = 0; i < count; i++)
        tt_empty(S(bytes), TT_U8); /* its pages are never touched */
}

static void many_small_tensors(void) {
    tt_set_log(note_warning, NULL);
    leave_tensors(WARNED_AT - 1, 1);
    CHECK(warnings == 0);
    leave_tensors(1, 1);
    CHECK(warnings == 1);
    _exit(0);
}

static void some_large_tensors(void) {
    tt_set_log(note_warning, NULL);
    leave_tensors(15, LARGE);
    CHECK(warnings == 0);
    leave_tensors(2, LARGE);
    CHECK(warnings == 1);
    _exit(0);
}

/* What a large program holds: a data set in two tensors, a model, its optimizer's state, kept tensors, leaves,
 * views. */
static void hold_what_stays(void) {
    tt_set_log(note_warning, NULL);
    tt_module *model = tt_nn_sequential(tt_nn_linear(1, 1));
    for (int i = 0; i < 20; i++) {
        const char name[] = {(char)('a' + i), '\0'};
        CHECK_OK(tt_module_register_buffer(model, name, tt_empty(S(LARGE), TT_U8)));
    }
    tt_dataset *data = tt_tensor_dataset(tt_empty(S(1, (int64_t)20 * LARGE), TT_U8), tt_zeros(S(1), TT_I64));
    for (int i = 0; i < 2 * WARNED_AT; i++) {
        tt_keep(tt_ones(S(1), TT_F32));
        tt_requires_grad_(tt_ones(S(1), TT_F32), true);
    }
    tt_tensor *kept = tt_keep(tt_empty(S(LARGE), TT_U8));
    for (int i = 0; i < 20; i++)
        tt_view(kept, S(LARGE / 2, 2));
    CHECK(model && data && warnings == 0);
    _exit(0);
}

static void *free_given(void *given) {
    tt_tensor *const *x = given;
    for (int i = 0; i < 1000; i++)
        tt_tensor_free(x[i]);
    return NULL;
}

/* Tensors that one thread makes and another one frees don't pile up. */
static void free_in_another_thread(void) {
    tt_tensor *x[1000];
    tt_set_log(note_warning, NULL);
    for (int round = 0; round < 2 * WARNED_AT / 1000; round++) {
        pthread_t consumer;
        for (int i = 0; i < 1000; i++)
            x[i] = tt_ones(S(1), TT_F32);
        CHECK(!pthread_create(&consumer, NULL, free_given, x) && !pthread_join(consumer, NULL));
    }
    CHECK(warnings == 0);
}

static void a_loop_without_a_scope_warns_once(void **state) {
    (void)state;
    expect_success(loop_in_a_scope, "0");
    expect_success(loop_without_a_scope, "0");
    expect_success(many_small_tensors, "0");
    expect_success(some_large_tensors, "0");
    expect_success(hold_what_stays, "0");
    expect_success(free_in_another_thread, "0");
}

/* ---- the first cause, outside of scopes ---- */

static void fail_several_times(void) {
    tt_tensor *x = tt_ones(S(2, 3), TT_F32), *loss = NULL;
    tt_tensor *hidden = tt_relu(tt_matmul(x, x));    /* the cause: shapes */
    loss = tt_sum(tt_add(hidden, tt_view(x, S(7)))); /* and another one */
    CHECK(!loss);
    CHECK_TEXT("tt_view");
    CHECK(tt_backward(loss) == TT_ERR_SHAPE);
    CHECK_TEXT("tt_matmul: expected");
    CHECK(tt_backward(NULL) == TT_ERR_SHAPE); /* it is the thread's last error now */
    tt_clear_error();
    CHECK(tt_backward(NULL) == TT_ERR_INVALID); /* and no more */
    tt_clear_error();
    double value = 0;
    tt_tensor *narrow = tt_narrow(x, 0, 5, 5);
    CHECK(tt_item(narrow, &value) == TT_ERR_SHAPE); /* an answer settles, too */
    CHECK_TEXT("tt_narrow");
    tt_clear_error();
    CHECK(!tt_view(x, S(7)) && tt_item(tt_sum(x), &value) == TT_OK && value == 6);
    tt_tensor_free(x);
}

static void the_first_cause_is_kept(void **state) {
    (void)state;
    expect_success(fail_several_times, "0");
}

/* ---- a model that goes before what wraps it ---- */

static tt_module *user_of(tt_module *self) { return tt_module_user(self); }

static void free_a_model_first(void) {
    static const tt_module_class wrapper_class = TT_MODULE_CLASS(.name = "Wrapper", .wrapped = user_of);
    tt_module *model = tt_nn_sequential(tt_nn_linear(3, 2), tt_nn_relu()),
              *wrapper = tt_module_new(&wrapper_class, model);
    tt_module_free(model);
    double value = -1;
    {
        TT_AUTO_SCOPE;
        CHECK_OK(tt_item(tt_sum(tt_module_forward(wrapper, tt_zeros(S(4, 3), TT_F32))), &value));
    }
    CHECK(value >= 0 && tt_module_parameters(wrapper)->count == 2);
    tt_module_free(wrapper);
}

static void a_wrapper_keeps_its_model(void **state) {
    (void)state;
    expect_success(free_a_model_first, "0");
    expect_success(free_a_model_first, "1");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_frees_are_one_error),           cmocka_unit_test(second_frees_are_errors),
        cmocka_unit_test(uses_after_the_end_are_errors),     cmocka_unit_test(the_address_sanitizer_sees_reads),
        cmocka_unit_test(a_loop_without_a_scope_warns_once), cmocka_unit_test(the_first_cause_is_kept),
        cmocka_unit_test(a_wrapper_keeps_its_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
