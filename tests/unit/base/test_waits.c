/* Waits: a wake is seen by whom polls it, however often it was rung; a signal handler ends a wait early and well. */
#include "base/machine/clock.h"
#include "base/machine/host_name.h"
#include "base/process/waits.h"
#include "base/random_bytes.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include <cmocka.h>

enum { PATIENCE_MS = 20000 };

static void wake_is_seen_until_it_is_cleared(void **state) {
    (void)state;
    int wake;
    assert_int_equal(tt__wake_open(&wake), TT_OK);
    struct pollfd one = {.fd = wake, .events = POLLIN};
    assert_int_equal(tt__poll(&one, 1, 0), 0);
    for (int i = 0; i < 3; i++)
        tt__wake_ring(wake);
    for (int i = 0; i < 2; i++)
        assert_int_equal(tt__poll(&one, 1, PATIENCE_MS), 1);
    tt__wake_clear(wake);
    assert_int_equal(tt__poll(&one, 1, 0), 0);
    tt__wake_clear(wake); /* nobody has rung: no wait */
    tt__wake_close(wake);
    tt__wake_close(-1);
}

static void on_alarm(int sig) { (void)sig; }

static void signal_ends_a_wait_without_an_error(void **state) {
    (void)state;
    struct sigaction action = {.sa_handler = on_alarm}, before;
    const struct itimerval often = {.it_interval.tv_usec = 20000, .it_value.tv_usec = 20000}, never = {0};
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    struct pollfd one = {.fd = ends[0], .events = POLLIN, .revents = POLLIN};
    sigaction(SIGALRM, &action, &before);
    setitimer(ITIMER_REAL, &often, NULL);
    int64_t begin = tt__now_ms();
    assert_int_equal(tt__poll(&one, 1, PATIENCE_MS), 0);
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &before, NULL);
    assert_int_equal(one.revents, 0);
    assert_true(tt__now_ms() - begin < PATIENCE_MS);
    close(ends[0]);
    close(ends[1]);
}

static void sleep_lasts_as_long(void **state) {
    (void)state;
    int64_t begin = tt__now_ns();
    tt__sleep_us(1500);
    assert_true(tt__now_ns() - begin >= 1500000);
}

static void host_name_is_cut_to_fit(void **state) {
    (void)state;
    char whole[256], system[256] = "", cut[3] = {'x', 'x', 'x'};
    tt__host_name(whole, sizeof whole);
    assert_int_equal(gethostname(system, sizeof system - 1), 0);
    assert_string_equal(whole, *system ? system : "?");
    tt__host_name(cut, sizeof cut);
    assert_memory_equal(cut, whole, strlen(cut));
    assert_true(strlen(cut) < sizeof cut);
}

static void random_bytes_differ(void **state) {
    (void)state;
    unsigned char of[4][16] = {{0}};
    assert_int_equal(tt__random_bytes(of[0], sizeof of[0]), TT_OK);
    assert_int_equal(tt__random_bytes(of[1], sizeof of[1]), TT_OK);
    tt__random_seed(of[2], sizeof of[2]);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < i; k++)
            assert_memory_not_equal(of[i], of[k], sizeof of[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wake_is_seen_until_it_is_cleared),
        cmocka_unit_test(signal_ends_a_wait_without_an_error),
        cmocka_unit_test(sleep_lasts_as_long),
        cmocka_unit_test(host_name_is_cut_to_fit),
        cmocka_unit_test(random_bytes_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
