/* Recurrent cells: threads share the rows, which are the sequences of a batch. */
#include "tensor/cpu/cpu_kernels.h"

#include "tensor/cpu/levels.h"
#include "tensor/device/parallel.h"

/* Hidden values that one thread takes at a time, about. */
enum { CELL_VALUES = 1 << 12 };

static int64_t sequences_at_a_time(int64_t H) { return H < CELL_VALUES ? CELL_VALUES / H : 1; }

/* Row b of x; NULL for NULL. */
static float *cell_row(const tt_tensor *x, int64_t b) { return x ? (float *)x->data + b * x->stride[0] : NULL; }

typedef struct cell_call {
    tt_tensor *to;
    const tt__cell_step *step;
    const tt__cell_grad *grad;
} cell_call;

static void run_cells(void *user, int64_t begin, int64_t end) {
    const cell_call *k = user;
    const tt__cell_step *s = k->step;
    for (int64_t b = begin; b < end; b++) {
        const tt__cell_row row = {.x = cell_row(s->x, b),
                                  .bias = s->bias->data,
                                  .h = cell_row(s->h, b),
                                  .c = cell_row(s->c, b),
                                  .gates = cell_row(s->gates, b),
                                  .c_next = cell_row(s->c_next, b),
                                  .y = cell_row(k->to, b)};
        tt__rnn_loops()->cell[s->cell](k->to->shape.dim[1], &row);
    }
}

tt_status tt__cpu_rnn_cell_f32(tt_tensor *y, const tt__cell_step *step) {
    cell_call k = {.to = y, .step = step};
    tt__parallel_for(y->shape.dim[0], sequences_at_a_time(y->shape.dim[1]), run_cells, &k);
    return TT_OK;
}

static void run_cell_grads(void *user, int64_t begin, int64_t end) {
    const cell_call *k = user;
    const tt__cell_grad *d = k->grad;
    for (int64_t b = begin; b < end; b++) {
        const tt__cell_grad_row row = {.gates = cell_row(d->gates, b),
                                       .y = cell_row(d->y, b),
                                       .h = cell_row(d->h, b),
                                       .c = cell_row(d->c, b),
                                       .c_next = cell_row(d->c_next, b),
                                       .g = cell_row(d->g, b),
                                       .dx = cell_row(k->to, b),
                                       .dh = cell_row(d->dh, b),
                                       .dc = cell_row(d->dc, b),
                                       .dhidden = cell_row(d->dhidden, b)};
        tt__rnn_loops()->grad[d->cell](d->y->shape.dim[1], &row);
    }
}

tt_status tt__cpu_rnn_cell_backward_f32(tt_tensor *dx, const tt__cell_grad *grad) {
    cell_call k = {.to = dx, .grad = grad};
    const tt_tensor *y = grad->y;
    tt__parallel_for(y->shape.dim[0], sequences_at_a_time(y->shape.dim[1]), run_cell_grads, &k);
    return TT_OK;
}
