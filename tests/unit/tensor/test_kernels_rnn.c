/* Recurrent cells in f32: every instruction-set level gives the same bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "tensor/cpu/levels.h"

enum { MOST = 67, PARTS = 16 }; /* hidden values: several vectors and a rest at every level */

#if defined(__x86_64__)
static const tt__rnn_kernels *const rnn[] = {&tt__rnn_kernels_base, &tt__rnn_kernels_avx2, &tt__rnn_kernels_avx512};
static int levels(void) { return (int)tt__cpu_level_get() + 1; }
#else
static const tt__rnn_kernels *const rnn[] = {&tt__rnn_kernels_base};
static int levels(void) { return 1; }
#endif

static void fill_numbers(float *x, int n, int step) {
    for (int i = 0; i < n; i++)
        x[i] = (float)((i * step + 11) % 101) / 17.0f - 2.9f;
}

/* All that a forward and a backward step of a cell write, side by side. */
static void cell_results(int level, int cell, int H, float *out) {
    static float in[PARTS * MOST];
    float *gates = out, *c_next = gates + 4 * H, *y = c_next + H, *dx = y + H, *dh = dx + 4 * H, *dc = dh + H;
    float *dhidden = dc + H;
    fill_numbers(in, PARTS * H, 37);
    fill_numbers(out, PARTS * H, 53);
    const tt__cell_row row = {
        .x = in, .bias = in + 4 * H, .h = in + 8 * H, .c = in + 9 * H, .gates = gates, .c_next = c_next, .y = y};
    rnn[level]->cell[cell](H, &row);
    const tt__cell_grad_row grad = {.gates = gates,
                                    .y = y,
                                    .h = row.h,
                                    .c = row.c,
                                    .c_next = c_next,
                                    .g = in + 10 * H,
                                    .dx = dx,
                                    .dh = dh,
                                    .dc = dc,
                                    .dhidden = dhidden};
    rnn[level]->grad[cell](H, &grad);
}

static void levels_agree(void **state) {
    (void)state;
    static float base[PARTS * MOST], other[PARTS * MOST];
    for (int cell = 0; cell < 4; cell++)
        for (int H = 1; H <= MOST; H++) {
            cell_results(0, cell, H, base);
            for (int l = 1; l < levels(); l++) {
                cell_results(l, cell, H, other);
                assert_memory_equal(other, base, (size_t)(PARTS * H) * sizeof(float));
            }
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(levels_agree)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
