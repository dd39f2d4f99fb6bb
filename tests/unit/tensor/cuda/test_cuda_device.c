/* The properties and the memory of a CUDA device, beside the numbers of the fake that it runs on, and what happens when
 * memory runs out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <pthread.h>
#include <tutti/tutti.h>

#include "cuda_compare.h"
#include "unit/expect.h"

enum { MIB = 1 << 20 };

/* How much of a device's memory the fake has given; the library has loaded it. */
static int64_t taken_on_the_fake(int device) {
    void *fake = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    size_t (*taken)(int);
    assert_non_null(fake);
    *(void **)&taken = dlsym(fake, "fake_memory_taken");
    assert_non_null(taken);
    int64_t bytes = (int64_t)taken(device);
    dlclose(fake);
    return bytes;
}

static tt_device_memory memory_of(const tt_device *device) {
    tt_device_memory memory = TT_DEVICE_MEMORY_INIT;
    assert_int_equal(tt_device_memory_get(device, &memory), TT_OK);
    if (!cuda_is_real)
        assert_int_equal(memory.reserved, taken_on_the_fake(device == TT_CUDA(1)));
    return memory;
}

/* ---- what it is ---- */

static void devices_have_properties(void **state) {
    (void)state;
    only_on_the_fake();
    const tt_device_properties *first = tt_device_properties_of(TT_CUDA(0)),
                               *second = tt_device_properties_of(TT_CUDA(1));
    assert_int_equal(first->size, sizeof *first);
    assert_string_equal(first->name, "Fake GPU 0");
    assert_string_equal(second->name, "Fake GPU 1");
    assert_int_equal(first->total_memory, 64 * MIB);
    assert_int_equal(first->major, 9);
    assert_int_equal(first->minor, 0);
    assert_int_equal(first->multiprocessors, 132);
    assert_string_equal(first->uuid, "GPU-00112233-4455-6677-8899-aabbccddeeff");
    assert_string_equal(first->pci_bus_id, "0000:10:00.0");
    assert_string_equal(second->pci_bus_id, "0000:20:00.0");
    const tt_device_properties *host = tt_device_properties_of(TT_CPU);
    assert_string_equal(host->name, "cpu");
    assert_true(host->total_memory > MIB && !*host->uuid && !*host->pci_bus_id && !host->multiprocessors);
    assert_string_equal(tt_device_properties_of(tt_device_get("reference"))->name, "reference");
    assert_null(tt_device_properties_of(NULL));
    expect_error(TT_ERR_INVALID, "tt_device_properties_of: `device` is NULL");
}

static void a_device_has_one_name(void **state) {
    (void)state;
    static const char *const bad[] = {"cuda:+0", "cuda:00", "cuda:-1", "cuda: 0", "cuda:0 ",         "cuda:0x0",
                                      "cuda:",   "cuda::0", "CUDA:0",  "cuda0",   "cuda:99999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_null(tt_device_get(bad[i]));
        assert_non_null(strstr(tt_last_error(), bad[i]));
    }
    assert_null(tt_device_get("cuda:007"));
    expect_error(TT_ERR_INVALID, "cuda:007: expected a number without sign and leading zeros, as in \"cuda:7\"");
    tt_clear_error();
}

static void *device_of_a_thread(void *unused) {
    (void)unused;
    return (void *)(uintptr_t)tt_current_device();
}

static void each_thread_has_a_current_device(void **state) {
    (void)state;
    pthread_t thread;
    void *of_thread = NULL;
    const tt_device *other = other_device();
    assert_ptr_equal(tt_current_device(), TT_CUDA(0));
    assert_int_equal(tt_set_device(other), TT_OK);
    assert_ptr_equal(tt_current_device(), other);
    assert_ptr_equal(tt_device_get("cuda"), other);
    assert_ptr_equal(tt_device_get("cuda:0"), TT_CUDA(0));
    assert_int_equal(pthread_create(&thread, NULL, device_of_a_thread, NULL), 0);
    assert_int_equal(pthread_join(thread, &of_thread), 0);
    assert_ptr_equal(of_thread, TT_CUDA(0));
    assert_int_equal(tt_set_device(TT_CPU), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "tt_set_device: expected a CUDA device, as TT_CUDA(0), got cpu");
    assert_int_equal(tt_set_device(NULL), TT_ERR_INVALID);
    assert_ptr_equal(tt_current_device(), other);
    assert_int_equal(tt_set_device(TT_CUDA(0)), TT_OK);
}

/* ---- its memory ---- */

static void memory_is_counted(void **state) {
    (void)state;
    const tt_device *device = other_device();
    tt_device_memory before = memory_of(device), held, after;
    {
        TT_AUTO_SCOPE;
        assert_non_null(tt_to_device(tt_ones(S(MIB), TT_F32), device));
        assert_non_null(tt_to_device(tt_ones(S(100), TT_F32), device));
        held = memory_of(device);
    }
    after = memory_of(device);
    assert_int_equal(held.allocated - before.allocated, 4 * MIB + 512); /* in blocks of 512 */
    assert_int_equal(held.blocks - before.blocks, 2);
    assert_int_equal(held.allocations - before.allocations, 2);
    assert_int_equal(after.allocations, held.allocations);
    assert_int_equal(after.allocated, before.allocated);
    assert_int_equal(after.blocks, before.blocks);
    assert_true(after.peak >= held.allocated && after.reserved >= held.allocated);
    if (!cuda_is_real)
        assert_int_equal(after.total - after.free, after.reserved);
    assert_int_equal(tt_device_reset_peak(device), TT_OK);
    assert_int_equal(memory_of(device).peak, after.allocated);
}

/* What lies behind the last tensor goes back, in whole pieces; what is in use keeps its values. */
static void an_empty_cache_gives_memory_back(void **state) {
    (void)state;
    only_on_the_fake();
    TT_AUTO_SCOPE;
    const tt_device *device = TT_CUDA(1);
    assert_int_equal(tt_device_empty_cache(device), TT_OK);
    assert_int_equal(memory_of(device).reserved, 0);
    tt_tensor *kept = tt_to_device(tt_full(S(MIB), TT_F32, 3), device);
    {
        TT_AUTO_SCOPE;
        assert_non_null(tt_to_device(tt_ones(S(40, MIB), TT_U8), device));
    }
    assert_int_equal(memory_of(device).reserved, 64 * MIB);
    assert_int_equal(tt_device_empty_cache(device), TT_OK);
    assert_int_equal(memory_of(device).reserved, 32 * MIB);
    assert_true(tt_equal(here(kept), tt_full(S(MIB), TT_F32, 3)));
    assert_non_null(tt_to_device(tt_ones(S(50, MIB), TT_U8), device)); /* and can be had again */
    assert_int_equal(memory_of(device).reserved, 64 * MIB);
}

static void wrong_calls_are_errors(void **state) {
    (void)state;
    tt_device_memory memory = {.size = 0}, early = {.size = offsetof(tt_device_memory, reserved), .reserved = 7};
    assert_int_equal(tt_device_memory_get(TT_CUDA(0), &memory), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "whose size is set by TT_DEVICE_MEMORY_INIT, got no size");
    memory.size = sizeof memory;
    assert_int_equal(tt_device_memory_get(NULL, &memory), TT_ERR_INVALID);
    assert_int_equal(tt_device_memory_get(TT_CUDA(0), NULL), TT_ERR_INVALID);
    assert_int_equal(tt_device_memory_get(TT_CPU, &memory), TT_ERR_UNSUPPORTED);
    expect_error(TT_ERR_UNSUPPORTED, "tt_device_memory_get: expected a device with memory of its own, as TT_CUDA(0), "
                                     "got cpu");
    assert_int_equal(tt_device_memory_get(TT_CUDA(0), &early), TT_OK); /* a program of an earlier version */
    assert_int_equal(early.reserved, 7);
    assert_int_equal(tt_device_reset_peak(NULL), TT_ERR_INVALID);
    assert_int_equal(tt_device_empty_cache(NULL), TT_ERR_INVALID);
    assert_int_equal(tt_device_reset_peak(TT_CPU), TT_OK);
    assert_int_equal(tt_device_empty_cache(TT_CPU), TT_OK);
    tt_clear_error();
}

/* ---- running out of it ---- */

static tt_status train_step(tt_module *model, tt_optimizer *adam, tt_tensor *x, tt_tensor *y) {
    TT_AUTO_SCOPE;
    tt_tensor *loss = tt_cross_entropy(tt_module_forward(model, x), y);
    return !loss || tt_backward(loss) ? tt_last_status() : tt_optimizer_step(adam);
}

/* A step that has `left` bytes; another one, with all memory, works. */
static bool step_with(int64_t left) {
    const tt_device *device = TT_CUDA(0);
    TT_AUTO_SCOPE;
    tt_module *model = tt_nn_sequential(tt_nn_linear(64, 300), tt_nn_relu(), tt_nn_linear(300, 10));
    assert_int_equal(tt_module_to_device(model, device), TT_OK);
    tt_optimizer *adam = tt_adam(tt_module_parameters(model), 0.1);
    tt_tensor *x = there(tt_ones(S(50, 64), TT_F32)), *y = there(tt_zeros(S(50), TT_I64));
    tt_device_memory memory = memory_of(device);
    tt_tensor *wall = tt_keep(there(tt_zeros(S(memory.total - memory.allocated - left), TT_U8)));
    assert_non_null(wall);
    bool done = !train_step(model, adam, x, y);
    if (!done)
        expect_error(TT_ERR_MEMORY, "cuda:0 is out of memory: ");
    tt_tensor_free(wall);
    assert_int_equal(train_step(model, adam, x, y), TT_OK);
    tt_optimizer_free(adam);
    tt_module_free(model);
    return done;
}

/* A step that fails for want of memory, in forward, in backward or in the optimizer, leaves nothing behind. */
static void a_step_without_memory_leaves_nothing(void **state) {
    (void)state;
    only_on_the_fake();
    TT_AUTO_SCOPE;
    tt_device_memory memory = memory_of(TT_CUDA(0));
    tt_tensor *most = tt_keep(there(tt_zeros(S(memory.total - memory.allocated - 2 * MIB), TT_U8)));
    int64_t before = memory_of(TT_CUDA(0)).allocated;
    int failures = 0;
    for (int64_t left = 0; !step_with(left); left += 16384, failures++)
        assert_int_equal(memory_of(TT_CUDA(0)).allocated, before);
    assert_true(failures > 12); /* it needs more than 200 kB */
    tt_tensor_free(most);
}

static void what_is_held_is_listed(void **state) {
    (void)state;
    only_on_the_fake();
    TT_AUTO_SCOPE;
    assert_non_null(there(tt_ones(S(8, MIB), TT_U8)));
    assert_non_null(there(tt_ones(S(4, MIB), TT_U8)));
    assert_non_null(there(tt_ones(S(8, MIB), TT_U8)));
    assert_null(there(tt_ones(S(60, MIB), TT_U8)));
    expect_error(TT_ERR_MEMORY, "; the largest: 2 of 8388608 bytes, 1 of 4194304 bytes");
}

int main(void) {
    if (!cuda_choose())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_have_properties),
        cmocka_unit_test(a_device_has_one_name),
        cmocka_unit_test(each_thread_has_a_current_device),
        cmocka_unit_test(memory_is_counted),
        cmocka_unit_test(an_empty_cache_gives_memory_back),
        cmocka_unit_test(wrong_calls_are_errors),
        cmocka_unit_test(a_step_without_memory_leaves_nothing),
        cmocka_unit_test(what_is_held_is_listed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
