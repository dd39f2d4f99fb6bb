/* A program's signal handler runs on the stack of the thread that it interrupts. oneDNN's products keep something else
 * in the stack pointer while they run, so no handler may run then. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <tutti/tutti.h>

enum { SIGNALS = 3000, MOST_ROUNDS = 100000, HELD = 64 };

static volatile sig_atomic_t handled;

static void count_signal(int sig) {
    (void)sig;
    char on_the_stack[2048];
    memset(on_the_stack, 0x5a, sizeof on_the_stack);
    __asm__ volatile("" : : "r"(on_the_stack) : "memory");
    handled++;
}

static void interrupt_often(bool on) {
    const struct timeval often = {0, on ? 200 : 0};
    const struct itimerval timer = {often, often};
    assert_int_equal(setitimer(ITIMER_REAL, &timer, NULL), 0);
}

/* Blocks of many sizes come and go, so that what is beside oneDNN's memory belongs to somebody. */
static void change_heap(void *held[HELD], int round) {
    int at = round % HELD;
    free(held[at]);
    held[at] = malloc((size_t)(500 + round * 37 % 4000));
}

static bool product_is_right(tt_tensor *a, tt_tensor *b, double want) {
    TT_AUTO_SCOPE;
    double got = 0;
    return !tt_item(tt_sum(tt_matmul(a, b)), &got) && got == want;
}

static void handlers_may_run_while_products_do(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    TT_NO_GRAD;
    void *held[HELD] = {NULL};
    assert_int_equal(tt_set_num_threads(1), TT_OK);
    const struct sigaction count = {.sa_handler = count_signal, .sa_flags = SA_RESTART};
    struct sigaction before;
    assert_int_equal(sigaction(SIGALRM, &count, &before), 0);
    tt_tensor *a = tt_ones(TT_SHAPE(192, 96), TT_F32), *b = tt_ones(TT_SHAPE(96, 160), TT_F32);
    tt_tensor *at = tt_transpose(tt_ones(TT_SHAPE(96, 192), TT_F32), 0, 1);
    tt_tensor *bt = tt_transpose(tt_ones(TT_SHAPE(160, 96), TT_F32), 0, 1);
    interrupt_often(true);
    for (int round = 0; handled < SIGNALS && round < MOST_ROUNDS; round++) {
        change_heap(held, round);
        assert_true(product_is_right(round % 2 ? a : at, round % 4 < 2 ? b : bt, 192.0 * 96 * 160));
    }
    interrupt_often(false);
    assert_in_range(handled, SIGNALS, MOST_ROUNDS);
    sigaction(SIGALRM, &before, NULL);
    for (int i = 0; i < HELD; i++)
        free(held[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(handlers_may_run_while_products_do)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
