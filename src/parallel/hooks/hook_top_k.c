/* The largest elements of each gradient, with their places.
 *
 * Aji and Heafield, "Sparse Communication for Distributed Gradient Descent" (2017): what is not sent is kept, and added
 * to the next gradient; Stich et al., "Sparsified SGD with Memory" (2018) show that it converges as SGD does.
 *
 * A gradient of n elements gives k = ceil(density n) pairs of 8 bytes, the place in the bucket and the value; K pairs a
 * bucket. One all_gather: (N-1) 8 K bytes a rank. All ranks add up the pairs in the order of ranks and divide by N. */
#include "base/args.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/text/format.h"
#include "parallel/hooks/comm_hook.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct top_k_hook {
    tt__comm_hook base;
    double density;
    bool feedback;
} top_k_hook;

typedef struct top_pair {
    uint32_t place;
    float value;
} top_pair;

enum { OWN, ALL };

static int64_t pairs_of(const top_k_hook *h, int64_t count) {
    int64_t k = (int64_t)ceil(h->density * (double)count);
    return k < 1 ? (count > 0) : k < count ? k : count;
}

static int64_t bucket_pairs(const top_k_hook *h, const tt_bucket *b) {
    int64_t pairs = 0;
    for (int64_t g = 0; g < b->gradient_count; g++)
        pairs += pairs_of(h, b->gradients[g].count);
    return pairs;
}

/* ---- choosing: magnitudes are ordered as their bits are, NaN above inf */

static uint32_t magnitude(float x) { return tt__bits_of_float(x) & 0x7fffffff; }

/* The bits of the k-th largest magnitude, 1 <= k <= n; *above: how many are larger. For each digit, from the highest
 * on, count how often each value occurs among the magnitudes that agree in the higher digits. */
static uint32_t find_threshold(const float *x, int64_t n, int64_t k, int64_t *above) {
    enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };
    static const int shifts[] = {20, 9, 0}; /* 31 bits are 11, 11 and 9 */
    uint32_t prefix = 0, mask = 0;
    *above = 0;
    for (int d = 0; d < 3; d++) {
        int64_t counts[DIGITS] = {0};
        uint32_t digits = d == 2 ? (1u << 9) - 1 : DIGITS - 1;
        for (int64_t i = 0; i < n; i++) {
            uint32_t bits = magnitude(x[i]);
            if ((bits & mask) == prefix)
                counts[bits >> shifts[d] & digits]++;
        }
        uint32_t digit = digits;
        while (*above + counts[digit] < k)
            *above += counts[digit--];
        prefix |= digit << shifts[d];
        mask |= digits << shifts[d];
    }
    return prefix;
}

/* Take the k largest elements of x (n), which begins at `place` of its bucket; of equal ones the first. */
static void take_largest(top_pair *to, const float *x, int64_t n, int64_t k, int64_t place) {
    int64_t above, taken = 0;
    uint32_t threshold = find_threshold(x, n, k, &above);
    int64_t equal = k - above;
    for (int64_t i = 0; i < n && taken < k; i++) {
        uint32_t bits = magnitude(x[i]);
        if (bits > threshold || (bits == threshold && equal-- > 0))
            to[taken++] = (top_pair){.place = (uint32_t)(place + i), .value = x[i]};
    }
}

/* ---- stages ---- */

/* error := the elements that were not sent. Those that aren't finite become zero, or they would stay for ever. */
static void keep_unsent(float *error, const tt_bucket *b, const top_pair *sent, int64_t pairs) {
    const float *x = b->data;
    memcpy(error, x, (size_t)b->count * sizeof *error);
    for (int64_t i = 0; i < pairs; i++)
        error[sent[i].place] = 0;
    if (TT__LEVEL_CHOOSE(tt__hook_kernels)->largest(error, (size_t)b->count) >= 0x7f800000)
        for (int64_t i = 0; i < b->count; i++)
            error[i] = isfinite(error[i]) ? error[i] : 0;
}

static tt_status send_largest(const top_k_hook *h, const tt_bucket *b, tt_work **work) {
    tt__hook_bucket *own = tt__hook_bucket_of(&h->base, b);
    float *x = b->data;
    top_pair *to = own->buffers[OWN];
    TT__TRY(tt__hook_keep_error(&h->base, b));
    if (own->error)
        TT__LEVEL_CHOOSE(tt__hook_kernels)->add(x, own->error, (size_t)b->count);
    int64_t pairs = 0;
    for (int64_t g = 0; g < b->gradient_count; g++) {
        const tt_bucket_gradient *at = &b->gradients[g];
        int64_t k = pairs_of(h, at->count);
        if (k)
            take_largest(to + pairs, x + at->offset, at->count, k, at->offset);
        pairs += k;
    }
    if (own->error)
        keep_unsent(own->error, b, to, pairs);
    if (!pairs)
        return TT_OK;
    return tt_all_gather_with(TT_ARGS(tt_all_gather_args, b->group, to, own->buffers[ALL], pairs * (int64_t)sizeof *to,
                                      TT_U8, .work = work, .file = tt__hook_site));
}

static void add_largest(const top_k_hook *h, const tt_bucket *b) {
    const top_pair *all = tt__hook_bucket_of(&h->base, b)->buffers[ALL];
    int world = tt_get_world_size(b->group);
    int64_t pairs = bucket_pairs(h, b) * world;
    float *x = b->data;
    memset(x, 0, (size_t)b->count * sizeof *x);
    for (int64_t i = 0; i < pairs; i++)
        if (all[i].place < b->count) /* checked, as it came from another process */
            x[all[i].place] += all[i].value;
    TT__LEVEL_CHOOSE(tt__hook_kernels)->divide(x, (size_t)b->count, (float)world);
}

static tt_status top_k_next(void *state, const tt_bucket *b, int stage, tt_work **work) {
    const top_k_hook *h = state;
    if (stage == 0)
        return send_largest(h, b, work);
    add_largest(h, b);
    tt__hook_put_error_back(&h->base, b);
    return TT_OK;
}

/* ---- life ---- */

static void top_k_needs(const tt__comm_hook *hook, const tt_bucket *b, tt__hook_needs *needs) {
    const top_k_hook *h = (const top_k_hook *)hook;
    size_t bytes = (size_t)bucket_pairs(h, b) * sizeof(top_pair);
    *needs = (tt__hook_needs){.bytes = {[OWN] = bytes, [ALL] = bytes * (size_t)tt_get_world_size(b->group)},
                              .error = h->feedback};
}

static tt_status top_k_attached(tt__comm_hook *hook) {
    for (int64_t b = 0; b < hook->bucket_count; b++)
        if (hook->buckets[b].view.count > UINT32_MAX)
            return tt__fail(TT_ERR_UNSUPPORTED, "a bucket has %lld elements, places have 32 bits",
                            (long long)hook->buckets[b].view.count);
    return TT_OK;
}

static void top_k_free(tt__comm_hook *h) { free(h); }

tt_status tt_top_k_hook_with(const tt_top_k_hook_args *given, size_t size) {
    static const tt__hook_class cls = {.hook = {.size = sizeof cls.hook,
                                                .name = "top_k",
                                                .next = top_k_next,
                                                .attach = tt__hook_attach,
                                                .detach = tt__hook_detach},
                                       .takes = tt__hook_takes_f32,
                                       .types = "f32",
                                       .needs = top_k_needs,
                                       .attached = top_k_attached,
                                       .free = top_k_free};
    tt_top_k_hook_args a;
    char settings[64];
    TT__ARGS_COPY(a, given, size);
    TT__TRY(tt__hook_check("tt_top_k_hook", a.ddp));
    double density = a.density == 0 ? 0.01 : a.density;
    if (!(density > 0 && density <= 1))
        return tt__hook_refused(
            a.ddp, tt__fail(TT_ERR_INVALID, "tt_top_k_hook: expected a density above 0, at most 1, got %g", a.density));
    tt__format(settings, sizeof settings, "density %.17g%s", density, a.no_error_feedback ? ", forgetful" : "");
    top_k_hook *h = calloc(1, sizeof *h);
    if (h) {
        h->density = density;
        h->feedback = !a.no_error_feedback;
    }
    return tt__hook_register(a.ddp, (tt__comm_hook *)h, &cls, settings);
}
