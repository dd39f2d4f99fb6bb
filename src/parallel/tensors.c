/* Collectives on tensors: check shapes, stage layouts that are not contiguous, and call comm. */
#include "base/args.h"
#include "base/error.h"
#include "tensor/tensor.h"

#include <tutti/parallel.h>

/* The tensors that a call sends and fills, contiguous: the caller's, or copies. */
typedef struct stage {
    const char *who;
    const tt_tensor *x; /* named by errors */
    tt_tensor *sent, *filled;
    tt_tensor *target; /* receives `filled` in the end, if that is a copy */
    int scope;         /* ends the copies */
    bool no_grad;
} stage;

static tt_status stage_begin(stage *s, const char *who, const tt_tensor *x) {
    *s = (stage){.who = who, .x = x, .scope = tt_scope_begin()};
    s->no_grad = tt_no_grad_begin();
    return s->scope ? TT_OK : tt_last_status();
}

/* Is x in contiguous memory that plain pointers reach? */
static bool is_plain_memory(const tt_tensor *x) {
    return tt_is_contiguous(x) && tt__device_is_host(tt_tensor_device(x));
}

/* `staged` := x as a contiguous tensor on the host. `values`: a copy has those of x. */
static tt_status stage_one(const stage *s, const tt_tensor *x, tt_work *const *work, bool values, tt_tensor **staged) {
    tt_tensor *given = (tt_tensor *)(uintptr_t)x; /* what is only sent is not written to */
    *staged = given;
    if (is_plain_memory(x))
        return TT_OK;
    if (work)
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "%s: %s on \"%s\" is not contiguous host memory, and an asynchronous call can't copy it; pass "
                        "tt_contiguous() of it",
                        s->who, TT__DESCRIBE(x), tt_device_name(tt_tensor_device(x)));
    *staged = values ? tt_contiguous(tt_to_device(given, tt_device_get("cpu")))
                     : tt_empty(tt_tensor_shape(x), tt_tensor_dtype(x));
    return *staged ? TT_OK : tt_last_status();
}

static tt_status stage_sent(stage *s, const tt_tensor *x, tt_work *const *work) {
    return stage_one(s, x, work, true, &s->sent);
}

static tt_status stage_filled(stage *s, tt_tensor *x, tt_work *const *work, bool values) {
    s->target = x;
    return stage_one(s, x, work, values, &s->filled);
}

/* End a stage after the call, whose status is returned: copy the result to the target, free copies, add shapes to an
 * error. */
static tt_status stage_end(stage *s, tt_status status) {
    if (!status && s->filled != s->target)
        status = tt_copy(s->target, s->filled);
    else if (s->filled)
        tt__storage_touch(s->filled->storage);
    tt_no_grad_end(s->no_grad);
    if (s->scope)
        tt_scope_end(s->scope);
    return status ? tt__fail_prefix("%s of %s", s->who, TT__DESCRIBE(s->x)) : TT_OK;
}

/* ---- shapes ---- */

/* Is `all` (n * D, ...) or (n, D, ...), for `part` (D, ...)? */
static bool stacks_over(const tt_tensor *part, const tt_tensor *all, int n) {
    int ndim = tt_tensor_dim(part), more = tt_tensor_dim(all) - ndim;
    if ((more != 0 && more != 1) || (ndim == 0 && more == 0) || tt_tensor_numel(all) != n * tt_tensor_numel(part))
        return false;
    if (more == 1 && tt_tensor_size(all, 0) != n)
        return false;
    for (int d = more ? 0 : 1; d < ndim; d++)
        if (tt_tensor_size(part, d) != tt_tensor_size(all, d + more))
            return false;
    return more == 1 || tt_tensor_size(all, 0) == n * tt_tensor_size(part, 0);
}

static tt_status check_parts(const char *who, const tt_group *group, const tt_tensor *part, const tt_tensor *all) {
    int n = tt_get_world_size(group);
    if (tt_tensor_dtype(part) != tt_tensor_dtype(all))
        return tt__fail(TT_ERR_DTYPE, "%s: expected tensors of one type, got %s and %s", who, TT__DESCRIBE(part),
                        TT__DESCRIBE(all));
    if (n > 0 && !stacks_over(part, all, n))
        return tt__fail(TT_ERR_SHAPE, "%s: expected a tensor of %d times %s, (%d * D, ...) or (%d, D, ...), got %s",
                        who, n, TT__DESCRIBE(part), n, n, TT__DESCRIBE(all));
    return TT_OK;
}

/* Check that both are cut into world_size parts along dimension 0. */
static tt_status check_exchange(const char *who, const tt_group *group, const tt_tensor *x, const tt_tensor *out) {
    int n = tt_get_world_size(group);
    if (tt_tensor_dtype(x) != tt_tensor_dtype(out))
        return tt__fail(TT_ERR_DTYPE, "%s: expected tensors of one type, got %s and %s", who, TT__DESCRIBE(x),
                        TT__DESCRIBE(out));
    if (tt_tensor_numel(x) != tt_tensor_numel(out) || (n > 0 && (tt_tensor_dim(x) < 1 || tt_tensor_size(x, 0) % n ||
                                                                 tt_tensor_dim(out) < 1 || tt_tensor_size(out, 0) % n)))
        return tt__fail(TT_ERR_SHAPE,
                        "%s: expected tensors of as many elements whose dimension 0 is a multiple of %d, got %s and %s",
                        who, n, TT__DESCRIBE(x), TT__DESCRIBE(out));
    return TT_OK;
}

/* ---- one tensor, in place ---- */

#define CALL_OF(a) .work = (a).work, .timeout_ms = (a).timeout_ms, .file = (a).file, .line = (a).line

tt_status tt_tensor_all_reduce_with(const tt_tensor_all_reduce_args *args, size_t size) {
    static const char who[] = "tt_tensor_all_reduce";
    tt_tensor_all_reduce_args a;
    TT__ARGS_COPY(a, args, size);
    if (!a.x)
        return tt__tensor_first_error(who);
    stage s;
    tt_status status = stage_begin(&s, who, a.x);
    if (!status)
        status = stage_filled(&s, a.x, a.work, true);
    if (!status)
        status = tt_all_reduce_with(TT_ARGS(tt_all_reduce_args, .group = a.group, .buf = tt_tensor_data(s.filled),
                                            .count = tt_tensor_numel(a.x), .dtype = tt_tensor_dtype(a.x), .op = a.op,
                                            .factor = a.factor, CALL_OF(a)));
    return stage_end(&s, status);
}

tt_status tt_tensor_reduce_with(const tt_tensor_reduce_args *args, size_t size) {
    static const char who[] = "tt_tensor_reduce";
    tt_tensor_reduce_args a;
    TT__ARGS_COPY(a, args, size);
    if (!a.x)
        return tt__tensor_first_error(who);
    stage s;
    tt_status status = stage_begin(&s, who, a.x);
    if (!status)
        status = stage_filled(&s, a.x, a.work, true);
    if (!status)
        status = tt_reduce_with(TT_ARGS(tt_reduce_args, .group = a.group, .buf = tt_tensor_data(s.filled),
                                        .count = tt_tensor_numel(a.x), .dtype = tt_tensor_dtype(a.x), .op = a.op,
                                        .root = a.root, .factor = a.factor, CALL_OF(a)));
    return stage_end(&s, status);
}

tt_status tt_tensor_broadcast_with(const tt_tensor_broadcast_args *args, size_t size) {
    static const char who[] = "tt_tensor_broadcast";
    tt_tensor_broadcast_args a;
    TT__ARGS_COPY(a, args, size);
    if (!a.x)
        return tt__tensor_first_error(who);
    stage s;
    tt_status status = stage_begin(&s, who, a.x);
    if (!status)
        status = stage_filled(&s, a.x, a.work, true);
    if (!status)
        status = tt_broadcast_with(TT_ARGS(tt_broadcast_args, .group = a.group, .buf = tt_tensor_data(s.filled),
                                           .count = tt_tensor_numel(a.x), .dtype = tt_tensor_dtype(a.x), .root = a.root,
                                           CALL_OF(a)));
    return stage_end(&s, status);
}

/* ---- from one tensor into another ---- */

/* `sent` or `filled` may be missing where a root alone needs it. */
static tt_status stage_both(stage *s, const char *who, const tt_tensor *sent, tt_tensor *filled, tt_work *const *work) {
    tt_status status = stage_begin(s, who, sent ? sent : filled);
    if (!status && sent)
        status = stage_sent(s, sent, work);
    if (!status && filled)
        status = stage_filled(s, filled, work, false);
    return status;
}

tt_status tt_tensor_all_gather_with(const tt_tensor_all_gather_args *args, size_t size) {
    static const char who[] = "tt_tensor_all_gather";
    tt_tensor_all_gather_args a;
    TT__ARGS_COPY(a, args, size);
    if (!a.x || !a.out)
        return tt__tensor_first_error(who);
    TT__TRY(check_parts(who, a.group, a.x, a.out));
    stage s;
    tt_status status = stage_both(&s, who, a.x, a.out, a.work);
    if (!status)
        status = tt_all_gather_with(TT_ARGS(tt_all_gather_args, .group = a.group, .send = tt_tensor_data(s.sent),
                                            .recv = tt_tensor_data(s.filled), .count = tt_tensor_numel(a.x),
                                            .dtype = tt_tensor_dtype(a.x), CALL_OF(a)));
    return stage_end(&s, status);
}

tt_status tt_tensor_gather_with(const tt_tensor_gather_args *args, size_t size) {
    static const char who[] = "tt_tensor_gather";
    tt_tensor_gather_args a;
    TT__ARGS_COPY(a, args, size);
    bool is_root = tt_get_rank(a.group) == a.root;
    if (!a.x || (is_root && !a.out))
        return tt__tensor_first_error(who);
    if (is_root)
        TT__TRY(check_parts(who, a.group, a.x, a.out));
    stage s;
    tt_status status = stage_both(&s, who, a.x, is_root ? a.out : NULL, a.work);
    if (!status)
        status = tt_gather_with(TT_ARGS(tt_gather_args, .group = a.group, .send = tt_tensor_data(s.sent),
                                        .recv = tt_tensor_data(s.filled), .count = tt_tensor_numel(a.x),
                                        .dtype = tt_tensor_dtype(a.x), .root = a.root, CALL_OF(a)));
    return stage_end(&s, status);
}

tt_status tt_tensor_scatter_with(const tt_tensor_scatter_args *args, size_t size) {
    static const char who[] = "tt_tensor_scatter";
    tt_tensor_scatter_args a;
    TT__ARGS_COPY(a, args, size);
    bool is_root = tt_get_rank(a.group) == a.root;
    if (!a.out || (is_root && !a.x))
        return tt__tensor_first_error(who);
    if (is_root)
        TT__TRY(check_parts(who, a.group, a.out, a.x));
    stage s;
    tt_status status = stage_both(&s, who, is_root ? a.x : NULL, a.out, a.work);
    if (!status)
        status = tt_scatter_with(TT_ARGS(tt_scatter_args, .group = a.group, .send = tt_tensor_data(s.sent),
                                         .recv = tt_tensor_data(s.filled), .count = tt_tensor_numel(a.out),
                                         .dtype = tt_tensor_dtype(a.out), .root = a.root, CALL_OF(a)));
    return stage_end(&s, status);
}

tt_status tt_tensor_reduce_scatter_with(const tt_tensor_reduce_scatter_args *args, size_t size) {
    static const char who[] = "tt_tensor_reduce_scatter";
    tt_tensor_reduce_scatter_args a;
    TT__ARGS_COPY(a, args, size);
    if (!a.x || !a.out)
        return tt__tensor_first_error(who);
    TT__TRY(check_parts(who, a.group, a.out, a.x));
    stage s;
    tt_status status = stage_both(&s, who, a.x, a.out, a.work);
    if (!status)
        status = tt_reduce_scatter_with(TT_ARGS(tt_reduce_scatter_args, .group = a.group,
                                                .send = tt_tensor_data(s.sent), .recv = tt_tensor_data(s.filled),
                                                .count = tt_tensor_numel(a.out), .dtype = tt_tensor_dtype(a.out),
                                                .op = a.op, .factor = a.factor, CALL_OF(a)));
    return stage_end(&s, status);
}

tt_status tt_tensor_all_to_all_with(const tt_tensor_all_to_all_args *args, size_t size) {
    static const char who[] = "tt_tensor_all_to_all";
    tt_tensor_all_to_all_args a;
    TT__ARGS_COPY(a, args, size);
    if (!a.x || !a.out)
        return tt__tensor_first_error(who);
    TT__TRY(check_exchange(who, a.group, a.x, a.out));
    int ranks = tt_get_world_size(a.group);
    stage s;
    tt_status status = stage_both(&s, who, a.x, a.out, a.work);
    if (!status)
        status = tt_all_to_all_with(TT_ARGS(
            tt_all_to_all_args, .group = a.group, .send = tt_tensor_data(s.sent), .recv = tt_tensor_data(s.filled),
            .count = tt_tensor_numel(a.x) / (ranks > 0 ? ranks : 1), .dtype = tt_tensor_dtype(a.x), CALL_OF(a)));
    return stage_end(&s, status);
}

/* ---- point to point ---- */

tt_status tt_tensor_send_with(const tt_tensor_send_args *args, size_t size) {
    static const char who[] = "tt_tensor_send";
    tt_tensor_send_args a;
    TT__ARGS_COPY(a, args, size);
    if (!a.x)
        return tt__tensor_first_error(who);
    stage s;
    tt_status status = stage_both(&s, who, a.x, NULL, a.work);
    if (!status)
        status = tt_send_with(TT_ARGS(tt_send_args, .group = a.group, .buf = tt_tensor_data(s.sent),
                                      .count = tt_tensor_numel(a.x), .dtype = tt_tensor_dtype(a.x), .peer = a.peer,
                                      .tag = a.tag, CALL_OF(a)));
    return stage_end(&s, status);
}

tt_status tt_tensor_recv_with(const tt_tensor_recv_args *args, size_t size) {
    static const char who[] = "tt_tensor_recv";
    tt_tensor_recv_args a;
    TT__ARGS_COPY(a, args, size);
    if (!a.x)
        return tt__tensor_first_error(who);
    stage s;
    tt_status status = stage_both(&s, who, NULL, a.x, a.work);
    if (!status)
        status = tt_recv_with(TT_ARGS(tt_recv_args, .group = a.group, .buf = tt_tensor_data(s.filled),
                                      .count = tt_tensor_numel(a.x), .dtype = tt_tensor_dtype(a.x), .peer = a.peer,
                                      .tag = a.tag, .source = a.source, CALL_OF(a)));
    return stage_end(&s, status);
}
