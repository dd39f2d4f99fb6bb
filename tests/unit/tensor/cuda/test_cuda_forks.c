/* Children of processes that use CUDA, or only count its devices.
 *
 * Those that are forked while other threads of their parent use a device find its locks held for ever. They free what
 * they have got, are refused by name, and end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>
#include <signal.h>

#include "cuda_compare.h"
#include "support/own_folder.h"

#include "base/build.h"

enum { FORKS = 100, SECONDS = 10 };

static atomic_bool ends;

/* Holds the lock of the device's memory nearly all the time. */
static void *empty_the_cache(void *failed) {
    while (!ends) {
        TT_AUTO_SCOPE;
        if (!there(tt_ones(S(1000), TT_F32)) || tt_device_empty_cache(TT_CUDA(0)))
            *(atomic_bool *)failed = true;
    }
    return NULL;
}

/* ... and that of the list of devices. */
static void *look_for_devices(void *failed) {
    while (!ends)
        if (tt_device_get("cuda:9"))
            *(atomic_bool *)failed = true;
    return NULL;
}

/* Does every call say why, and none wait? */
static bool child_is_refused(tt_tensor *x) {
    tt_device_memory memory = TT_DEVICE_MEMORY_INIT;
    const tt_device *device = tt_tensor_device(x);
    const char *const why = "had used CUDA before fork()";
    bool refused = !tt_to_device(tt_ones(S(2), TT_F32), device) && strstr(tt_last_error(), why);
    refused = refused && !strstr(tt_last_error(), "no memory"); /* that is not why */
    tt_tensor_free(x);
    refused = refused && tt_device_memory_get(device, &memory) == TT_ERR_UNSUPPORTED && strstr(tt_last_error(), why);
    refused = refused && tt_device_empty_cache(device) == TT_ERR_UNSUPPORTED && strstr(tt_last_error(), why);
    refused = refused && tt_device_synchronize(device) == TT_ERR_UNSUPPORTED && !tt_device_reset_peak(device);
    refused = refused && !tt_device_get("cuda:1") && strstr(tt_last_error(), why);
    refused = refused && tt_device_count(TT_DEVICE_CUDA) == 0;
    return refused && tt_device_get("cpu");
}

static void children_do_not_wait_for_other_threads(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    static void *(*const bodies[])(void *) = {empty_the_cache, look_for_devices};
    pthread_t threads[2];
    atomic_bool failed = false;
    if (TT__ASAN || TT__TSAN)
        skip(); /* malloc() of theirs may wait for ever in a child that was forked while another thread was in it */
    tt_tensor *x = tt_keep(there(tt_ones(S(1000), TT_F32)));
    assert_non_null(x);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, bodies[i], &failed), 0);
    int status = 0;
    for (int i = 0; i < FORKS && !status; i++) {
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            alarm(SECONDS);
            _exit(child_is_refused(x) ? 0 : 1);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
    }
    ends = true;
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(status, 0);
    assert_false(failed);
    assert_true(tt_equal(here(x), tt_ones(S(1000), TT_F32)));
    tt_tensor_free(x);
}

/* ---- copies that fail ---- */

/* Did writing `file` fail, with its path, what it has of tensors, and the cause? Nothing is left. */
static bool names(tt_status status, const char *file, const char *tensor) {
    bool named = status == TT_ERR_UNSUPPORTED && strstr(tt_last_error(), file) && strstr(tt_last_error(), tensor) &&
                 strstr(tt_last_error(), "had used CUDA before fork()") && access(file, F_OK);
    if (!named)
        fprintf(stderr, "%s: %s\n", file, tt_last_error());
    return named;
}

static bool child_writes_no_file(tt_tensor *x) {
    const char *const name = "layer.weight";
    const tt_named_tensors *list = TT_NAMED_TENSORS(1, &name, &x);
    tt_value *value = tt_value_of_tensors(list);
    bool named = names(tt_safetensors_save("x.safetensors", list, NULL, 0), "x.safetensors", "\"layer.weight\"");
    named = names(tt_torch_save("x.pt", value), "x.pt", "tensor 0") && named;
    named = names(tt_npz_write("x.npz", list), "x.npz", "layer.weight.npy") && named;
    named = names(tt_npy_write(x, "x.npy"), "x.npy", "tt_npy_write") && named;
    named = names(tt_bytes_write(x, "x.bin"), "x.bin", "tt_bytes_write") && named;
    named = names(tt_image_write_png(x, "x.png"), "x.png", "tt_image_write_png") && named;
    tt_value_free(value);
    return named;
}

/* A device that can't be read from, as that of a forked child's parent. */
static void files_that_cannot_be_written_are_named(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = there(tt_zeros(S(3, 4, 4), TT_U8));
    assert_int_equal(tt_device_synchronize(TT_CUDA(0)), TT_OK);
    int status = -1;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        _exit(child_writes_no_file(x) ? 0 : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* ---- counting ---- */

static bool child_computes(void) {
    TT_AUTO_SCOPE;
    double sum = 0;
    return tt_item(tt_sum(there(tt_ones(S(10), TT_F32))), &sum) == TT_OK && sum == 10;
}

/* As PyTorch's spawn(main, nprocs=torch.cuda.device_count()): who only counts leaves CUDA to the children. */
static void children_of_who_counts_use_cuda(void **state) {
    (void)state;
    only_on_the_fake();
    assert_int_equal(tt_device_count(TT_DEVICE_CUDA), 2);
    setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    assert_int_equal(tt_device_count(TT_DEVICE_CUDA), 1); /* it is not known from before */
    unsetenv("CUDA_VISIBLE_DEVICES");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tt_device_count(TT_DEVICE_CUDA), 2);
        expect_child_with("FAKE_CUDA_SEED", "1", child_computes);
    }
}

static bool nothing_is_counted(void) { return tt_device_count(TT_DEVICE_CUDA) == 0 && !*tt_last_error(); }

static bool two_are_counted(void) { return tt_device_count(TT_DEVICE_CUDA) == 2; }

static void counting_fails_as_none(void **state) {
    (void)state;
    only_on_the_fake();
    expect_child_with("FAKE_CUDA_DRIVER", "0", nothing_is_counted);
    expect_child_with("FAKE_CUDA_FAIL", "1", nothing_is_counted);
    expect_child_with("CUDA_VISIBLE_DEVICES", "", nothing_is_counted);
    expect_child_with("FAKE_CUDA_DIE", "1", nothing_is_counted); /* the child that was asked */
}

/* SIGCHLD ignored, no process to be had: it is counted all the same. */
static bool counted_without_children(void) {
    signal(SIGCHLD, SIG_IGN);
    return two_are_counted();
}

static void programs_may_ignore_children(void **state) {
    (void)state;
    only_on_the_fake();
    expect_child_with("FAKE_CUDA_SEED", "1", counted_without_children);
}

int main(void) {
    if (!cuda_choose())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counting_fails_as_none), /* first: nothing has been counted */
        cmocka_unit_test(programs_may_ignore_children),
        cmocka_unit_test(children_of_who_counts_use_cuda), /* before this process uses CUDA */
        cmocka_unit_test(children_do_not_wait_for_other_threads),
        cmocka_unit_test(files_that_cannot_be_written_are_named),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
