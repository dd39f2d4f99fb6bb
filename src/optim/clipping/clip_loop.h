/* Measuring, scaling and clamping for one element type: see tensor/rules/each_real.h. */

/* Sums run in eight lanes, which are added up at the end. */
static double NAME(sum_of_squares)(const void *at, int64_t n) {
    const REAL *x = at;
    double lane[8] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int l = 0; l < 8; l++)
            lane[l] += (double)x[i + l] * (double)x[i + l];
    for (; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    for (int l = 0; l < 8; l++)
        sum += lane[l];
    return sum;
}

static double NAME(sum_of_powers)(const void *at, int64_t n, double power) {
    const REAL *x = at;
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += power == 1 ? fabs((double)x[i]) : pow(fabs((double)x[i]), power);
    return sum;
}

static double NAME(largest)(const void *at, int64_t n) {
    const REAL *x = at;
    double most = 0;
    for (int64_t i = 0; i < n; i++) {
        double size = fabs((double)x[i]);
        most = size > most || size != size ? size : most; /* nothing is larger than NaN */
    }
    return most;
}

static void NAME(scale)(void *at, int64_t n, double factor) {
    REAL *x = at;
    const REAL by = (REAL)factor;
    for (int64_t i = 0; i < n; i++)
        x[i] *= by;
}

static void NAME(clamp)(void *at, int64_t n, double most) {
    REAL *x = at;
    const REAL high = (REAL)most, low = -high;
    for (int64_t i = 0; i < n; i++) {
        REAL v = x[i] < low ? low : x[i]; /* NaN stays, as torch.clamp's */
        x[i] = v > high ? high : v;
    }
}

/* average = average * decay + x * (1 - decay), each of the three rounded. */
static void NAME(average)(void *to, const void *from, int64_t n, double decay) {
    REAL *restrict y = to;
    const REAL *restrict x = from;
    const REAL kept = (REAL)decay, rest = (REAL)(1 - decay);
    for (int64_t i = 0; i < n; i++)
        y[i] = kept * y[i] + rest * x[i];
}
