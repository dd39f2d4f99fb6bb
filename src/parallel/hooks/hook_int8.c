/* Gradients in 8 bits with a scale a block, and error feedback in both directions.
 *
 * Seide et al., "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel Distributed Training of Speech
 * DNNs" (2014): quantise, feed the error back, exchange slices, average, quantise the average and feed that error back.
 * Tang et al., "DoubleSqueeze" (2019) show that it converges; there a block has a scale, as here.
 *
 * A bucket's B blocks are cut into N slices of S = ceil(B / N) blocks. A slice travels as S scales (f32) and then S * W
 * bytes, W elements a block:
 *   stage 0  slice r of this rank's gradients to rank r: all_to_all
 *   stage 1  the average of this rank's slice over the ranks, in their order, to all: all_gather
 * 2 (N-1)/N C (1 + 4 / W) bytes a rank for C elements; the blocks behind the last element are zero. */
#include "base/args.h"
#include "base/dtype.h"
#include "base/error.h"
#include "parallel/hooks/comm_hook.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct int8_hook {
    tt__comm_hook base;
    int64_t block;
    bool feedback;
    float *average; /* room for the largest slice */
} int8_hook;

/* The buffers of a bucket. */
enum { SEND, RECEIVE, AVERAGES };

/* ---- slices ---- */

static int64_t slice_blocks(const int8_hook *h, const tt_bucket *b) {
    int64_t blocks = (b->count + h->block - 1) / h->block, world = tt_get_world_size(b->group);
    return (blocks + world - 1) / world;
}

static size_t slice_bytes(const int8_hook *h, const tt_bucket *b) {
    return (size_t)slice_blocks(h, b) * (sizeof(float) + (size_t)h->block);
}

/* A slice as it is sent. */
typedef struct int8_slice {
    float *scales;
    int8_t *values;
} int8_slice;

static int8_slice slice_at(const int8_hook *h, const tt_bucket *b, void *buffer, int64_t rank) {
    char *at = (char *)buffer + (size_t)rank * slice_bytes(h, b);
    return (int8_slice){(float *)(void *)at, (int8_t *)at + (size_t)slice_blocks(h, b) * sizeof(float)};
}

/* The elements of block `i` of a slice, which begins at element `first` of a bucket of `count` elements. */
static size_t block_elements(const int8_hook *h, int64_t first, int64_t i, int64_t count) {
    int64_t left = count - first - i * h->block;
    return (size_t)(left < 0 ? 0 : left < h->block ? left : h->block);
}

/* ---- quantising ---- */

/* A block with smaller magnitudes is sent as zeros, as 1 / scale would overflow. */
static const float least_magnitude = 1e-30F;

/* Quantise x (n); the rest goes to `error`, if there is one. Returns the scale. */
static float quantise_block(int8_t *q, float *error, const float *x, size_t n) {
    const tt__hook_kernels *k = TT__LEVEL_CHOOSE(tt__hook_kernels);
    uint32_t bits = k->largest(x, n);
    float most = tt__float_of_bits(bits);
    if (bits >= 0x7f800000 || most < least_magnitude) {
        memset(q, 0, n);
        if (error && bits < 0x7f800000)
            memcpy(error, x, n * sizeof *error);
        else if (error)
            memset(error, 0, n * sizeof *error);
        return bits >= 0x7f800000 ? NAN : 0;
    }
    float scale = most / 127;
    k->quantise(q, error, x, n, scale);
    return scale;
}

/* x: the bucket's elements from `first` on, or a copy of them; error: theirs, or NULL. */
static void quantise_slice(const int8_hook *h, const tt_bucket *b, int8_slice to, const float *x, float *error,
                           int64_t first) {
    for (int64_t i = 0; i < slice_blocks(h, b); i++) {
        size_t n = block_elements(h, first, i, b->count);
        int8_t *q = to.values + i * h->block;
        to.scales[i] = n ? quantise_block(q, error ? error + i * h->block : NULL, x + i * h->block, n) : 0;
        memset(q + n, 0, (size_t)h->block - n);
    }
}

/* ---- stages ---- */

static tt_status send_gradients(const int8_hook *h, const tt_bucket *b, tt_work **work) {
    tt__hook_bucket *own = tt__hook_bucket_of(&h->base, b);
    float *x = b->data;
    int64_t slice = slice_blocks(h, b) * h->block;
    TT__TRY(tt__hook_keep_error(&h->base, b));
    if (own->error)
        TT__LEVEL_CHOOSE(tt__hook_kernels)->add(x, own->error, (size_t)b->count);
    for (int rank = 0; rank < tt_get_world_size(b->group); rank++) {
        int64_t first = rank * slice < b->count ? rank * slice : b->count;
        quantise_slice(h, b, slice_at(h, b, own->buffers[SEND], rank), x + first,
                       own->error ? own->error + first : NULL, first);
    }
    return tt_all_to_all_with(TT_ARGS(tt_all_to_all_args, b->group, own->buffers[SEND], own->buffers[RECEIVE],
                                      (int64_t)slice_bytes(h, b), TT_U8, .work = work, .file = tt__hook_site));
}

static tt_status send_averages(const int8_hook *h, const tt_bucket *b, tt_work **work) {
    const tt__hook_kernels *k = TT__LEVEL_CHOOSE(tt__hook_kernels);
    tt__hook_bucket *own = tt__hook_bucket_of(&h->base, b);
    int world = tt_get_world_size(b->group), rank = tt_get_rank(b->group);
    int64_t blocks = slice_blocks(h, b), slice = blocks * h->block;
    memset(h->average, 0, (size_t)slice * sizeof(float));
    for (int r = 0; r < world; r++) {
        int8_slice from = slice_at(h, b, own->buffers[RECEIVE], r);
        for (int64_t i = 0; i < blocks; i++)
            k->add_scaled(h->average + i * h->block, from.values + i * h->block, (size_t)h->block, from.scales[i]);
    }
    k->divide(h->average, (size_t)slice, (float)world);
    TT__TRY(tt__hook_keep_more(&h->base, b, rank * slice));
    if (own->more)
        k->add(h->average, own->more, (size_t)slice);
    int8_slice to = slice_at(h, b, own->buffers[AVERAGES], rank);
    quantise_slice(h, b, to, h->average, own->more, rank * slice);
    return tt_all_gather_with(TT_ARGS(tt_all_gather_args, b->group, to.scales, own->buffers[AVERAGES],
                                      (int64_t)slice_bytes(h, b), TT_U8, .work = work, .file = tt__hook_site));
}

static void take_averages(const int8_hook *h, const tt_bucket *b) {
    const tt__hook_kernels *k = TT__LEVEL_CHOOSE(tt__hook_kernels);
    void *averages = tt__hook_bucket_of(&h->base, b)->buffers[AVERAGES];
    int64_t blocks = slice_blocks(h, b);
    for (int64_t block = 0; block * h->block < b->count; block++) {
        int8_slice from = slice_at(h, b, averages, block / blocks);
        int64_t i = block % blocks, at = block * h->block;
        k->scale((float *)b->data + at, from.values + i * h->block, block_elements(h, at, 0, b->count), from.scales[i]);
    }
}

static tt_status int8_next(void *state, const tt_bucket *b, int stage, tt_work **work) {
    const int8_hook *h = state;
    if (stage == 0)
        return send_gradients(h, b, work);
    if (stage == 1)
        return send_averages(h, b, work);
    take_averages(h, b);
    tt__hook_put_error_back(&h->base, b);
    tt__hook_put_more_back(&h->base, b, tt_get_rank(b->group) * slice_blocks(h, b) * h->block);
    return TT_OK;
}

/* ---- life ---- */

static void int8_needs(const tt__comm_hook *hook, const tt_bucket *b, tt__hook_needs *needs) {
    const int8_hook *h = (const int8_hook *)hook;
    size_t all = slice_bytes(h, b) * (size_t)tt_get_world_size(b->group);
    *needs = (tt__hook_needs){.bytes = {[SEND] = all, [RECEIVE] = all, [AVERAGES] = all},
                              .error = h->feedback,
                              .more_count = h->feedback ? slice_blocks(h, b) * h->block : 0};
}

static tt_status int8_attached(tt__comm_hook *hook) {
    int8_hook *h = (int8_hook *)hook;
    int64_t most = 0;
    for (int64_t b = 0; b < hook->bucket_count; b++) {
        int64_t slice = slice_blocks(h, &hook->buckets[b].view) * h->block;
        most = slice > most ? slice : most;
    }
    free(h->average);
    h->average = calloc((size_t)most + 1, sizeof *h->average);
    return h->average ? TT_OK : tt__fail(TT_ERR_MEMORY, "no memory for %" PRId64 " averages", most);
}

static void int8_free(tt__comm_hook *hook) {
    free(((int8_hook *)hook)->average);
    free(hook);
}

tt_status tt_int8_hook_with(const tt_int8_hook_args *given, size_t size) {
    static const tt__hook_class cls = {.hook = {.size = sizeof cls.hook,
                                                .name = "int8",
                                                .stages = 2,
                                                .next = int8_next,
                                                .attach = tt__hook_attach,
                                                .detach = tt__hook_detach},
                                       .takes = tt__hook_takes_f32,
                                       .types = "f32",
                                       .needs = int8_needs,
                                       .attached = int8_attached,
                                       .free = int8_free};
    tt_int8_hook_args a;
    char settings[64];
    TT__ARGS_COPY(a, given, size);
    TT__TRY(tt__hook_check("tt_int8_hook", a.ddp));
    int64_t block = a.block ? a.block : 256;
    if (block < 8 || block > 65536)
        return tt__hook_refused(
            a.ddp,
            tt__fail(TT_ERR_INVALID, "tt_int8_hook: expected a block of 8 to 65536 elements, got %" PRId64, a.block));
    snprintf(settings, sizeof settings, "blocks of %" PRId64 "%s", block, a.no_error_feedback ? ", forgetful" : "");
    int8_hook *h = calloc(1, sizeof *h);
    if (h) {
        h->block = block;
        h->feedback = !a.no_error_feedback;
    }
    return tt__hook_register(a.ddp, (tt__comm_hook *)h, &cls, settings);
}
