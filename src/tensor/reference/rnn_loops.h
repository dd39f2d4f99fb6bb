/* Recurrent cells: included by float_loops.h; see kernels.h. Computed in double, rounded once. */
static double rnn_get(const tt_tensor *x, int64_t row, int64_t column) {
    return (double)LOAD(((const TYPE *)x->data)[row * x->stride[0] + column]);
}

static void rnn_put(tt_tensor *x, int64_t row, int64_t column, double value) {
    ((TYPE *)x->data)[row * x->stride[0] + column] = FROM_F64(value);
}

static double rnn_sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* The hidden part of column k, with its bias. */
static double rnn_hidden(const tt__cell_step *s, int64_t b, int64_t k) {
    return rnn_get(s->gates, b, k) + (double)LOAD(((const TYPE *)s->bias->data)[k]);
}

static double rnn_gate(const tt__cell_step *s, int64_t b, int64_t k) {
    return rnn_get(s->x, b, k) + rnn_hidden(s, b, k);
}

static void lstm_value(tt_tensor *y, const tt__cell_step *s, int64_t b, int64_t j, int64_t H) {
    double i = rnn_sigmoid(rnn_gate(s, b, j)), f = rnn_sigmoid(rnn_gate(s, b, H + j));
    double g = tanh(rnn_gate(s, b, 2 * H + j)), o = rnn_sigmoid(rnn_gate(s, b, 3 * H + j));
    double c = f * rnn_get(s->c, b, j) + i * g;
    rnn_put(s->c_next, b, j, c);
    rnn_put(y, b, j, o * tanh(c));
    rnn_put(s->gates, b, j, i);
    rnn_put(s->gates, b, H + j, f);
    rnn_put(s->gates, b, 2 * H + j, g);
    rnn_put(s->gates, b, 3 * H + j, o);
}

static void gru_value(tt_tensor *y, const tt__cell_step *s, int64_t b, int64_t j, int64_t H) {
    double r = rnn_sigmoid(rnn_gate(s, b, j)), z = rnn_sigmoid(rnn_gate(s, b, H + j));
    double hidden = rnn_hidden(s, b, 2 * H + j), n = tanh(rnn_get(s->x, b, 2 * H + j) + r * hidden);
    rnn_put(y, b, j, n + z * (rnn_get(s->h, b, j) - n));
    rnn_put(s->gates, b, j, r);
    rnn_put(s->gates, b, H + j, z);
    rnn_put(s->gates, b, 2 * H + j, n);
    rnn_put(s->gates, b, 3 * H + j, hidden);
}

static tt_status ref_rnn_cell(tt_tensor *y, const tt__cell_step *s) {
    int64_t B = y->shape.dim[0], H = y->shape.dim[1];
    for (int64_t b = 0; b < B; b++)
        for (int64_t j = 0; j < H; j++) {
            if (s->cell == TT__CELL_LSTM) {
                lstm_value(y, s, b, j, H);
            } else if (s->cell == TT__CELL_GRU) {
                gru_value(y, s, b, j, H);
            } else {
                double a = rnn_gate(s, b, j);
                rnn_put(y, b, j, s->cell == TT__CELL_TANH ? tanh(a) : a < 0 ? 0 : a);
            }
        }
    return TT_OK;
}

static void lstm_grad(tt_tensor *dx, const tt__cell_grad *d, int64_t b, int64_t j, int64_t H) {
    double i = rnn_get(d->gates, b, j), f = rnn_get(d->gates, b, H + j);
    double g = rnn_get(d->gates, b, 2 * H + j), o = rnn_get(d->gates, b, 3 * H + j);
    double t = tanh(rnn_get(d->c_next, b, j)), dh = rnn_get(d->g, b, j) + rnn_get(d->dh, b, j);
    double dc = rnn_get(d->dc, b, j) + dh * o * (1 - t * t);
    rnn_put(dx, b, j, dc * g * i * (1 - i));
    rnn_put(dx, b, H + j, dc * rnn_get(d->c, b, j) * f * (1 - f));
    rnn_put(dx, b, 2 * H + j, dc * i * (1 - g * g));
    rnn_put(dx, b, 3 * H + j, dh * t * o * (1 - o));
    rnn_put(d->dc, b, j, dc * f);
}

static void gru_grad(tt_tensor *dx, const tt__cell_grad *d, int64_t b, int64_t j, int64_t H) {
    double r = rnn_get(d->gates, b, j), z = rnn_get(d->gates, b, H + j);
    double n = rnn_get(d->gates, b, 2 * H + j), hidden = rnn_get(d->gates, b, 3 * H + j);
    double dh = rnn_get(d->g, b, j) + rnn_get(d->dh, b, j);
    double dn = dh * (1 - z) * (1 - n * n), dr = dn * hidden * r * (1 - r);
    double dz = dh * (rnn_get(d->h, b, j) - n) * z * (1 - z);
    rnn_put(dx, b, j, dr);
    rnn_put(dx, b, H + j, dz);
    rnn_put(dx, b, 2 * H + j, dn);
    rnn_put(d->dhidden, b, j, dr);
    rnn_put(d->dhidden, b, H + j, dz);
    rnn_put(d->dhidden, b, 2 * H + j, dn * r);
    rnn_put(d->dh, b, j, dh * z);
}

static tt_status ref_rnn_cell_backward(tt_tensor *dx, const tt__cell_grad *d) {
    int64_t B = d->y->shape.dim[0], H = d->y->shape.dim[1];
    for (int64_t b = 0; b < B; b++)
        for (int64_t j = 0; j < H; j++) {
            if (d->cell == TT__CELL_LSTM) {
                lstm_grad(dx, d, b, j, H);
            } else if (d->cell == TT__CELL_GRU) {
                gru_grad(dx, d, b, j, H);
            } else {
                double y = rnn_get(d->y, b, j), dh = rnn_get(d->g, b, j) + rnn_get(d->dh, b, j);
                rnn_put(dx, b, j, d->cell == TT__CELL_TANH ? dh * (1 - y * y) : y <= 0 ? 0 : dh);
            }
        }
    return TT_OK;
}

#define RNN_KERNELS .rnn_cell = ref_rnn_cell, .rnn_cell_backward = ref_rnn_cell_backward
