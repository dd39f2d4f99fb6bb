/* The collectives of a SyncBatchNorm. What goes between ranks goes over the host, or over the device where the back end
 * takes that alone: of x on a device that is 2 C + 1 numbers, and in backward 2 C. */
#include "parallel/sync_exchange.h"

#include "base/error.h"
#include "comm/group.h"
#include "reducer/text_agreement.h"
#include "tensor/ops/ops.h"

#include <tutti/parallel.h>

#include <math.h>
#include <string.h>

static const char who[] = "SyncBatchNorm";

/* ---- backward ---- */

/* x itself, or a new tensor of its shape and type there. NULL: no memory. */
static tt_tensor *near_of(tt_tensor *x) {
    return tt__device_is_host(tt__device_of(x)) ? x : tt__tensor_new(who, x->shape, x->dtype);
}

/* Bring near_of(x) to x, if `status` is TT_OK, and free it. */
static tt_status near_done(tt_tensor *near, tt_tensor *x, tt_status status) {
    if (near == x)
        return status;
    if (!status)
        status = tt__copy_out(who, x, near);
    tt__abandon(near);
    return status;
}

static tt_status sum_at(const tt__sync_ranks *r, const tt_tensor *db, const tt_tensor *dw, tt_tensor *sums) {
    const tt_device *device = tt__device_of(sums);
    tt_tensor rows = tt__tensor_seen(sums, sums->shape, sums->stride);
    int64_t channels = sums->shape.dim[1];
    const tt_tensor *const from[] = {db, dw};
    for (int i = 0; i < 2; i++) {
        rows.shape = TT_SHAPE(channels);
        rows.stride[0] = 1;
        rows.numel = channels;
        rows.data = (double *)sums->data + i * channels;
        TT__TRY(tt__copy_out(who, &rows, from[i]));
    }
    return tt_all_reduce_with(TT_ARGS(tt_all_reduce_args, .group = r->group, .buf = sums->data, .count = 2 * channels,
                                      .dtype = TT_F64, .op = TT_SUM, .file = "the backward of a SyncBatchNorm",
                                      .device = device->type, .device_index = device->index,
                                      .stream = device->queue ? tt_device_stream(device) : NULL));
}

tt_status tt__sync_sums(const tt__sync_ranks *r, const tt_tensor *db, const tt_tensor *dw, tt_tensor *sums) {
    if (!tt__group_takes(r->group, TT_DEVICE_CPU))
        return sum_at(r, db, dw, sums);
    tt_tensor *near = near_of(sums);
    return near ? near_done(near, sums, sum_at(r, db, dw, near)) : tt_last_status();
}

/* ---- forward ---- */

/* Find mean and rstd of this rank's x; `near`: on the host. */
static tt_status own_stats(const tt_batch_norm_args *a, double eps, tt_tensor *const stats[2],
                           tt_tensor *const near[2]) {
    TT__TRY(tt__batch_norm_stats_out(who, a->x, eps, stats[0], stats[1]));
    for (int i = 0; i < 2; i++)
        if (near[i] != stats[i])
            TT__TRY(tt__copy_out(who, near[i], stats[i]));
    return TT_OK;
}

/* Write this rank's part; the tensors are room for it. */
static tt_status own_moments(const tt_batch_norm_args *a, double eps, tt_tensor *const stats[2],
                             tt_tensor *const near[2], double *part) {
    int64_t channels = near[0]->numel, count = a->x->numel / channels;
    const double *m = near[0]->data, *r = near[1]->data;
    part[2 * channels] = (double)count;
    if (count == 0)
        return memset(part, 0, 2 * (size_t)channels * sizeof *part), TT_OK;
    TT__TRY(own_stats(a, eps, stats, near));
    for (int64_t c = 0; c < channels; c++) {
        part[c] = m[c];
        part[channels + c] = fmax(1 / (r[c] * r[c]) - eps, 0);
    }
    return TT_OK;
}

/* Merge all ranks' parts. */
static void merge_channel(const double *parts, int world, int64_t channels, int64_t c, double count, double *mean,
                          double *var) {
    size_t stride = tt__sync_part_size(channels);
    double total = 0, squares = 0;
    for (int r = 0; r < world; r++)
        total += parts[r * stride + 2 * channels] * parts[r * stride + c];
    *mean = total / count;
    for (int r = 0; r < world; r++) {
        const double *part = parts + r * stride;
        double off = part[c] - *mean, n = part[2 * channels];
        if (n > 0)
            squares += n * (part[channels + c] + off * off);
    }
    *var = squares / count;
}

static double *own_moments_part(const tt__sync_ranks *s, int64_t channels) {
    return s->parts + s->world * tt__sync_part_size(channels);
}

/* The same by way of x's device, where the group's back end takes nothing of the host. */
static tt_status gather_parts_far(const tt__sync_ranks *s, int64_t channels) {
    TT_AUTO_SCOPE;
    const int64_t n = (int64_t)tt__sync_part_size(channels);
    tt_tensor *own = (tt_from_blob)(own_moments_part(s, channels), TT_SHAPE(n), TT_F64);
    own = own ? tt__to_device(who, own, s->device) : NULL;
    tt_tensor *all = own ? tt__tensor_new_on(who, s->device, TT_SHAPE(s->world * n), TT_F64, NULL) : NULL;
    if (!all)
        return tt_last_status();
    TT__TRY(tt_tensor_all_gather_with(TT_ARGS(tt_tensor_all_gather_args, .group = s->group, .x = own, .out = all,
                                              .file = "the forward of a SyncBatchNorm")));
    tt_tensor *near = tt__to_device(who, all, &tt__cpu_device);
    if (!near)
        return tt_last_status();
    memcpy(s->parts, near->data, (size_t)near->numel * sizeof *s->parts);
    return TT_OK;
}

static tt_status gather_parts(tt__sync_ranks *s, int64_t channels) {
    s->progress = TT__EXCHANGING;
    if (!tt__group_takes(s->group, TT_DEVICE_CPU)) {
        tt_status status = s->device ? gather_parts_far(s, channels) : TT_ERR_STATE;
        if (status) /* it may have failed on this rank alone */
            tt__abort_with_error(s->group);
        return status;
    }
    return tt_all_gather_with(TT_ARGS(tt_all_gather_args, .group = s->group, .send = own_moments_part(s, channels),
                                      .recv = s->parts, .count = (int64_t)tt__sync_part_size(channels), .dtype = TT_F64,
                                      .file = "the forward of a SyncBatchNorm"));
}

void tt__sync_tell_failure(tt__sync_ranks *s, int64_t channels) {
    tt__saved_error failure;
    double *own = own_moments_part(s, channels);
    tt__error_save(&failure);
    memset(own, 0, 2 * (size_t)channels * sizeof *own);
    own[2 * channels] = -1;
    tt_ignore(gather_parts(s, channels));
    tt__error_restore(&failure);
}

/* Exchange the parts: *count, and mean and rstd of all ranks' x, in `near`. */
static tt_status exchange_parts(tt__sync_ranks *s, const tt_batch_norm_args *a, tt_tensor *const stats[2],
                                tt_tensor *const near[2], int64_t *count) {
    int64_t channels = near[0]->numel;
    double *mean = near[0]->data, *rstd = near[1]->data;
    const double *parts = s->parts;
    double eps = a->eps ? a->eps : 1e-5, total = 0, var;
    s->device = tt__device_of(a->x);
    TT__TRY(own_moments(a, eps, stats, near, own_moments_part(s, channels)));
    TT__TRY(gather_parts(s, channels));
    for (int r = 0; r < s->world; r++) {
        double elements = parts[r * tt__sync_part_size(channels) + 2 * channels];
        if (elements < 0)
            return tt__fail(TT_ERR_PEER, "%s: rank %d could not find the mean of its batch; its error says why", who,
                            r);
        total += elements;
    }
    if (total == 1)
        return tt__fail(TT_ERR_INVALID,
                        "%s: expected more than one element a channel over all ranks in training; this rank has x %s",
                        who, TT__DESCRIBE(a->x));
    for (int64_t c = 0; c < channels && total > 0; c++) {
        merge_channel(parts, s->world, channels, c, total, &mean[c], &var);
        rstd[c] = 1 / sqrt(var + eps);
    }
    *count = (int64_t)total;
    s->progress = TT__EXCHANGED;
    return TT_OK;
}

/* The same, of tensors on any device. */
static tt_status exchange_stats(tt__sync_ranks *s, const tt_batch_norm_args *a, tt_tensor *mean, tt_tensor *rstd,
                                int64_t *count) {
    tt_tensor *const stats[2] = {mean, rstd};
    tt_tensor *near[2] = {near_of(mean), NULL};
    near[1] = near[0] ? near_of(rstd) : NULL;
    tt_status status = near[1] ? exchange_parts(s, a, stats, near, count) : tt_last_status();
    for (int i = 0; i < 2 && near[i]; i++)
        status = near_done(near[i], stats[i], status);
    return status;
}

/* No rank has an element: the running statistics stay, weights have gradients of 0. */
static tt_status no_stats(tt_tensor *mean, tt_tensor *rstd) {
    TT__TRY(tt__fill_out(who, mean, 0));
    return tt__fill_out(who, rstd, 1);
}

tt_status tt__sync_stats(tt__sync_ranks *s, const tt_batch_norm_args *a, tt_tensor *mean, tt_tensor *rstd,
                         int64_t *count) {
    TT__TRY(exchange_stats(s, a, mean, rstd, count));
    if (!*count)
        return no_stats(mean, rstd);
    if (!a->running_mean)
        return TT_OK;
    return tt__batch_norm_running_(who, a->running_mean, a->running_var, mean, rstd, a->eps ? a->eps : 1e-5,
                                   a->momentum ? a->momentum : 0.1, *count);
}
