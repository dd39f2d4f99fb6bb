/* Copies that the host doesn't wait for, on a fake of CUDA whose work is late: whoever was told that one has ended, or
 * that it could not begin, may take the host's memory away. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include "cuda_compare.h"
#include "tensor/device/device.h"

enum { BYTES = 1 << 16, MOST = 200 };
enum { ENDED_WELL, FAILED_WELL, FAILED_BADLY };

static tt_status send_there(const tt_device *device, void *host, void *data) {
    void *mark = NULL;
    bool done = false;
    tt_status status = device->queue->send(device, host, data, BYTES, &mark);
    while (!status && !done)
        status = device->queue->sent(device, mark, false, &done);
    return status;
}

static tt_status receive_there(const tt_device *device, void *host, void *data) {
    void *mark = NULL;
    bool done;
    tt_status status = device->queue->receive(device, data, host, BYTES);
    if (!status)
        status = device->queue->mark(device, &mark);
    return status ? status : device->queue->sent(device, mark, true, &done);
}

/* The fake ends the process when pinned memory is given back too early. */
static int copy_to_and_fro(const char *variable, int number) {
    char text[16];
    snprintf(text, sizeof text, "%d", number);
    setenv("FAKE_CUDA_LATE", "3000", 1);
    setenv(variable, text, 1);
    alarm(60);
    const tt_device *device = tt_device_get("cuda:0");
    void *data = device ? device->alloc(device, BYTES) : NULL;
    tt_status status = data ? TT_OK : tt_last_status();
    for (int copy = 0; copy < 4 && !status; copy++) {
        void *host = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        status = device->queue->pin(device, host, BYTES);
        if (!status) {
            status = copy % 2 ? send_there(device, host, data) : receive_there(device, host, data);
            device->queue->unpin(device, host);
        }
        munmap(host, BYTES);
    }
    if (data)
        device->free(device, data);
    if (fake_count("fake_pinned_ranges"))
        return FAILED_BADLY;
    return status ? FAILED_WELL : ENDED_WELL;
}

static void fail_in_turn(const char *variable) {
    int status = 0, number = 0;
    do {
        fflush(NULL);
        pid_t child = fork();
        if (child == 0)
            _exit(copy_to_and_fro(variable, number + 1));
        assert_int_equal(waitpid(child, &status, 0), child);
        number++;
    } while (status == FAILED_WELL << 8 && number < MOST);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != ENDED_WELL || number < 20)
        fail_msg("%s=%d: the child's status is %#x", variable, number, (unsigned)status);
}

static void one_call_may_fail(void **state) {
    (void)state;
    fail_in_turn("FAKE_CUDA_FAIL_ONE");
}

static void all_later_calls_may_fail(void **state) {
    (void)state;
    fail_in_turn("FAKE_CUDA_FAIL");
}

int main(void) {
    if (!cuda_choose() || cuda_is_real)
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_call_may_fail),
        cmocka_unit_test(all_later_calls_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
