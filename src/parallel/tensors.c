/* Collectives on tensors: check shapes, copy tensors that are not contiguous, and call comm.
 *
 * Of tensors on a device, a call gets the memory itself if the group's back end takes it, else copies on the host. The
 * result is copied back when the call ends, or, of an asynchronous call, when its work is done (comm/callback.h). */
#include "base/args.h"
#include "base/error.h"
#include "comm/callback.h"
#include "comm/group.h"
#include "parallel/device_peers.h"
#include "tensor/device/capture.h"
#include "tensor/ops/ops.h"

#include <tutti/parallel.h>

#include <stdlib.h>

/* How the two tensors of a call fit each other. With parts, one of them holds world_size times the other. */
typedef enum fit { ANY_SHAPE, OUT_HAS_PARTS, X_HAS_PARTS, BOTH_HAVE_PARTS } fit;

/* A call's tensors as the caller gives them, and as the call gets them: contiguous, the same or copies. */
typedef struct stage {
    const char *who;
    const tt_tensor *x; /* is sent */
    tt_tensor *out;     /* receives what comes */
    bool sends, fills;  /* this rank needs x, out */
    bool keeps;         /* the call reads out's values, too */
    fit shapes;
    tt_tensor *sent, *filled;
    const tt_device *device;     /* of both, as the caller gives them */
    bool passes;                 /* the call gets the device's memory */
    tt_work **work;              /* the caller's; or NULL */
    struct tt__landing *landing; /* of copies that the work has; or NULL */
    int scope;                   /* ends the copies */
    bool begun, no_grad;
    tt_status status; /* not TT_OK: make no call */
} stage;

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

static tt_status check_parts(const char *who, int n, const tt_tensor *part, const tt_tensor *all) {
    if (n > 0 && !stacks_over(part, all, n))
        return tt__fail(TT_ERR_SHAPE, "%s: expected a tensor of %d times %s, (%d * D, ...) or (%d, D, ...), got %s",
                        who, n, TT__DESCRIBE(part), n, n, TT__DESCRIBE(all));
    return TT_OK;
}

/* Check that both are cut into world_size parts along dimension 0. */
static tt_status check_exchange(const char *who, int n, const tt_tensor *x, const tt_tensor *out) {
    if (tt_tensor_numel(x) != tt_tensor_numel(out) || (n > 0 && (tt_tensor_dim(x) < 1 || tt_tensor_size(x, 0) % n ||
                                                                 tt_tensor_dim(out) < 1 || tt_tensor_size(out, 0) % n)))
        return tt__fail(TT_ERR_SHAPE,
                        "%s: expected tensors of as many elements whose dimension 0 is a multiple of %d, got %s and %s",
                        who, n, TT__DESCRIBE(x), TT__DESCRIBE(out));
    return TT_OK;
}

static tt_status check_one_device(const stage *s) {
    if (!s->sends || !s->fills || tt_tensor_device(s->x) == tt_tensor_device(s->out))
        return TT_OK;
    return tt__fail(TT_ERR_INVALID, "%s: expected tensors on one device, got %s on %s and %s on %s", s->who,
                    TT__DESCRIBE(s->x), tt_device_name(tt_tensor_device(s->x)), TT__DESCRIBE(s->out),
                    tt_device_name(tt_tensor_device(s->out)));
}

static tt_status check_tensors(const stage *s, const tt_group *group) {
    if ((s->sends && !s->x) || (s->fills && !s->out))
        return tt__tensor_first_error(s->who);
    if ((s->sends && !tt__tensor_check(s->who, s->x)) || (s->fills && !tt__tensor_check(s->who, s->out)))
        return TT_ERR_STATE;
    if (s->fills)
        TT__TRY(tt__tensor_check_writable(s->who, s->out));
    TT__TRY(check_one_device(s));
    if (!s->sends || !s->fills || s->shapes == ANY_SHAPE)
        return TT_OK;
    bool x_is_part = s->shapes == OUT_HAS_PARTS;
    const tt_tensor *part = x_is_part ? s->x : s->out, *all = x_is_part ? s->out : s->x;
    int n = tt_get_world_size(group);
    if (tt_tensor_dtype(part) != tt_tensor_dtype(all))
        return tt__fail(TT_ERR_DTYPE, "%s: expected tensors of one type, got %s and %s", s->who, TT__DESCRIBE(part),
                        TT__DESCRIBE(all));
    return s->shapes == BOTH_HAVE_PARTS ? check_exchange(s->who, n, s->x, s->out) : check_parts(s->who, n, part, all);
}

/* ---- staging ---- */

/* Does the call take memory of this device? */
static bool takes_memory_of(const tt_group *group, const tt_device *device) {
    return tt__device_is_host(device) || (device->queue && tt__group_takes(group, device->type));
}

/* x, or a contiguous copy in memory that the call takes; on the host it is pinned. `values`: the copy has x's
 * values. */
static tt_tensor *copy_for_call(const stage *s, tt_tensor *x, bool values) {
    if (s->passes)
        return values ? tt_contiguous(x) : tt__empty_beside(s->who, x, tt_tensor_shape(x), tt_tensor_dtype(x));
    tt_tensor *copy = tt__tensor_new_pinned(s->who, s->device, tt_tensor_shape(x), tt_tensor_dtype(x));
    return copy && values && tt__copy_out(s->who, copy, x) ? tt__abandon(copy) : copy;
}

/* `staged` := x as the call takes it. */
static tt_status stage_one(const stage *s, const tt_tensor *x, bool values, tt_tensor **staged) {
    tt_tensor *given = (tt_tensor *)(uintptr_t)x; /* a tensor that is only sent is only read */
    *staged = given;
    if (s->passes && tt_is_contiguous(x))
        return TT_OK;
    if (s->work && s->passes)
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "%s: %s on \"%s\" is not contiguous, and an asynchronous call can't copy it; pass "
                        "tt_contiguous() of it",
                        s->who, TT__DESCRIBE(x), tt_device_name(s->device));
    *staged = copy_for_call(s, given, values);
    return *staged ? TT_OK : tt_last_status();
}

/* The copies that a work has, when the call has returned. */
typedef struct flight {
    tt_tensor *sent, *filled, *out; /* `filled` goes to `out`; NULL: there is none */
} flight;

static tt_status bring_back(tt_tensor *out, const tt_tensor *filled) {
    TT_AUTO_SCOPE;
    TT_NO_GRAD;
    return tt_copy(out, filled);
}

static tt_status flight_end(void *user, tt_status work) {
    flight *f = user;
    tt_status status = !work && f->filled ? bring_back(f->out, f->filled) : TT_OK;
    tt_tensor_free(f->sent);
    tt_tensor_free(f->filled);
    free(f);
    return status;
}

/* Leave the copies to the work that the call will make. */
static tt_status leave_copies(stage *s) {
    flight *f = calloc(1, sizeof *f);
    if (!f)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for an asynchronous call", s->who);
    s->landing = tt__landing_new(flight_end, f);
    if (!s->landing) {
        free(f);
        return tt_last_status();
    }
    *f = (flight){tt_keep(s->sent), tt_keep(s->filled), s->out};
    return TT_OK;
}

static tt_status stage_needed(stage *s, const tt_group *group, tt_work **work) {
    TT__TRY(check_tensors(s, group));
    TT__TRY(tt__capture_refuse(s->who, NULL));
    s->work = work;
    s->device = tt_tensor_device(s->sends ? s->x : s->out);
    s->passes = takes_memory_of(group, s->device);
    s->begun = true;
    s->scope = tt_scope_begin();
    s->no_grad = tt_no_grad_begin();
    if (!s->scope)
        return tt_last_status();
    if (s->sends)
        TT__TRY(stage_one(s, s->x, true, &s->sent));
    if (s->fills)
        TT__TRY(stage_one(s, s->out, s->keeps, &s->filled));
    return work && !s->passes ? leave_copies(s) : TT_OK;
}

/* Check the tensors, and stage those that this rank needs. Returns whether the call can be made. */
static bool stage_begin(stage *s, const tt_group *group, tt_work **work) {
    s->status = stage_needed(s, group, work);
    return !s->status;
}

/* End a stage after the call, whose status is returned: copy the result to `out`, free copies, add shapes to an
 * error. */
static tt_status stage_end(stage *s, tt_status status) {
    if (!s->begun)
        return status;
    if (s->landing)
        tt__landing_set(s->landing, status ? NULL : *s->work, status);
    else if (!status && s->fills && s->filled != s->out)
        status = tt_copy(s->out, s->filled);
    else if (s->filled)
        tt__storage_touch(s->filled->storage);
    tt_no_grad_end(s->no_grad);
    if (s->scope)
        tt_scope_end(s->scope);
    return status ? tt__fail_prefix("%s of %s", s->who, TT__DESCRIBE(s->sends ? s->x : s->out)) : TT_OK;
}

/* Do the call's buffers lie on a device? */
static bool is_far(const stage *s) { return s->passes && !tt__device_is_host(s->device); }
static tt_device_type stage_device(const stage *s) { return is_far(s) ? s->device->type : TT_DEVICE_CPU; }
static int stage_index(const stage *s) { return is_far(s) ? s->device->index : 0; }
static void *stage_stream(const stage *s) { return is_far(s) ? tt_device_stream(s->device) : NULL; }
static void *stage_data(const tt_tensor *x) { return x ? x->data : NULL; }

/* The number of elements for the call: of one rank's part, if there are parts. */
static int64_t stage_count(const stage *s, const tt_group *group) {
    int ranks = tt_get_world_size(group);
    if (s->shapes == BOTH_HAVE_PARTS)
        return tt_tensor_numel(s->x) / (ranks > 0 ? ranks : 1);
    return tt_tensor_numel(!s->sends || s->shapes == X_HAS_PARTS ? s->out : s->x);
}

static tt_dtype stage_dtype(const stage *s) { return tt_tensor_dtype(s->sends ? s->x : s->out); }

/* Make `call` (tt_all_reduce, ...) on stage s, with the options of the struct `a`, and return its status. The rest are
 * the buffers and the arguments that only this call has. */
#define STAGED(s, a, call, ...)                                                                                        \
    stage_end(&(s),                                                                                                    \
              stage_begin(&(s), (a).group, (a).work)                                                                   \
                  ? call##_with(TT_ARGS(call##_args, .group = (a).group, .count = stage_count(&(s), (a).group),        \
                                        .dtype = stage_dtype(&(s)), .work = (a).work, .timeout_ms = (a).timeout_ms,    \
                                        .file = (a).file, .line = (a).line, .device = stage_device(&(s)),              \
                                        .device_index = stage_index(&(s)), .stream = stage_stream(&(s)), __VA_ARGS__)) \
                  : (s).status)
#define IN_PLACE(s) .buf = stage_data((s).filled)
#define SEND_RECV(s) .send = stage_data((s).sent), .recv = stage_data((s).filled)

/* ---- one tensor, in place ---- */

tt_status tt_tensor_all_reduce_with(const tt_tensor_all_reduce_args *args, size_t size) {
    tt_tensor_all_reduce_args a;
    TT__ARGS_COPY(a, args, size);
    stage s = {.who = "tt_tensor_all_reduce", .out = a.x, .fills = true, .keeps = true};
    bool done = false;
    if (!check_tensors(&s, a.group) && tt__device_all_reduce_fits(&a)) {
        tt_status status = tt__device_all_reduce(&a, s.who, &done);
        if (status || done)
            return status ? tt__fail_prefix("%s of %s", s.who, TT__DESCRIBE(a.x)) : TT_OK;
    }
    return STAGED(s, a, tt_all_reduce, IN_PLACE(s), .op = a.op, .factor = a.factor);
}

tt_status tt_tensor_reduce_with(const tt_tensor_reduce_args *args, size_t size) {
    tt_tensor_reduce_args a;
    TT__ARGS_COPY(a, args, size);
    stage s = {.who = "tt_tensor_reduce", .out = a.x, .fills = true, .keeps = true};
    return STAGED(s, a, tt_reduce, IN_PLACE(s), .op = a.op, .root = a.root, .factor = a.factor);
}

tt_status tt_tensor_broadcast_with(const tt_tensor_broadcast_args *args, size_t size) {
    tt_tensor_broadcast_args a;
    TT__ARGS_COPY(a, args, size);
    stage s = {.who = "tt_tensor_broadcast", .out = a.x, .fills = true, .keeps = true};
    return STAGED(s, a, tt_broadcast, IN_PLACE(s), .root = a.root);
}

/* ---- from one tensor into another ---- */

tt_status tt_tensor_all_gather_with(const tt_tensor_all_gather_args *args, size_t size) {
    tt_tensor_all_gather_args a;
    TT__ARGS_COPY(a, args, size);
    stage s = {"tt_tensor_all_gather", a.x, a.out, .sends = true, .fills = true, .shapes = OUT_HAS_PARTS};
    return STAGED(s, a, tt_all_gather, SEND_RECV(s));
}

tt_status tt_tensor_gather_with(const tt_tensor_gather_args *args, size_t size) {
    tt_tensor_gather_args a;
    TT__ARGS_COPY(a, args, size);
    bool is_root = tt_get_rank(a.group) == a.root;
    stage s = {"tt_tensor_gather", a.x, a.out, .sends = true, .fills = is_root, .shapes = OUT_HAS_PARTS};
    return STAGED(s, a, tt_gather, SEND_RECV(s), .root = a.root);
}

tt_status tt_tensor_scatter_with(const tt_tensor_scatter_args *args, size_t size) {
    tt_tensor_scatter_args a;
    TT__ARGS_COPY(a, args, size);
    bool is_root = tt_get_rank(a.group) == a.root;
    stage s = {"tt_tensor_scatter", a.x, a.out, .sends = is_root, .fills = true, .shapes = X_HAS_PARTS};
    return STAGED(s, a, tt_scatter, SEND_RECV(s), .root = a.root);
}

tt_status tt_tensor_reduce_scatter_with(const tt_tensor_reduce_scatter_args *args, size_t size) {
    tt_tensor_reduce_scatter_args a;
    TT__ARGS_COPY(a, args, size);
    stage s = {"tt_tensor_reduce_scatter", a.x, a.out, .sends = true, .fills = true, .shapes = X_HAS_PARTS};
    return STAGED(s, a, tt_reduce_scatter, SEND_RECV(s), .op = a.op, .factor = a.factor);
}

tt_status tt_tensor_all_to_all_with(const tt_tensor_all_to_all_args *args, size_t size) {
    tt_tensor_all_to_all_args a;
    TT__ARGS_COPY(a, args, size);
    stage s = {"tt_tensor_all_to_all", a.x, a.out, .sends = true, .fills = true, .shapes = BOTH_HAVE_PARTS};
    return STAGED(s, a, tt_all_to_all, SEND_RECV(s));
}

/* ---- point to point ---- */

tt_status tt_tensor_send_with(const tt_tensor_send_args *args, size_t size) {
    tt_tensor_send_args a;
    TT__ARGS_COPY(a, args, size);
    stage s = {.who = "tt_tensor_send", .x = a.x, .sends = true};
    return STAGED(s, a, tt_send, .buf = stage_data(s.sent), .peer = a.peer, .tag = a.tag);
}

tt_status tt_tensor_recv_with(const tt_tensor_recv_args *args, size_t size) {
    tt_tensor_recv_args a;
    TT__ARGS_COPY(a, args, size);
    stage s = {.who = "tt_tensor_recv", .out = a.x, .fills = true};
    return STAGED(s, a, tt_recv, IN_PLACE(s), .peer = a.peer, .tag = a.tag, .source = a.source);
}
