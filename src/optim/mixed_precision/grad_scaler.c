/* The gradient scaler: a scale, and what has happened to each optimizer since the last update. PyTorch's rules. */
#include "autograd/leaf.h"
#include "base/args.h"
#include "base/error.h"
#include "base/quarantine.h"
#include "optim/clipping/clip.h"
#include "optim/dict.h"
#include "optim/optimizer.h"
#include "tensor/core/named_tensors.h"
#include "tensor/device/capture.h"
#include "tensor/device/parallel.h"
#include "tensor/ops/ops.h"

#include <tutti/amp.h>

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- dividing all gradients by the scale, and looking through them, in one pass ---- */

typedef struct unscale_pass {
    tt__unscale_fn run;
    char *data;
    size_t size; /* of an element */
    double factor;
    _Atomic bool found;
} unscale_pass;

static void unscale_block(void *user, int64_t begin, int64_t end) {
    unscale_pass *pass = user;
    if (pass->run(pass->data + (size_t)begin * pass->size, end - begin, pass->factor))
        atomic_store_explicit(&pass->found, true, memory_order_relaxed);
}

/* Multiply contiguous memory of the host. */
static void unscale_here(tt_tensor *x, double factor, tt__grad_total *found) {
    enum { BLOCK = 1 << 15 };
    const tt__unscale_kernels *kernels = TT__LEVEL_CHOOSE(tt__unscale_kernels_of_types);
    unscale_pass pass = {.run = x->dtype == TT_F32 ? kernels->f32 : kernels->f64,
                         .data = x->data,
                         .size = tt_dtype_size(x->dtype),
                         .factor = factor};
    tt__parallel_for(x->numel, BLOCK, unscale_block, &pass);
    tt__grad_total_join(found, pass.found);
}

static tt_status unscale_far(tt_tensor *x, double factor, tt__grad_total *found) {
    tt__kernel_grad_unscale run = TT__KERNEL(found->who, x, grad_unscale);
    tt_tensor *far = run ? tt__grad_total_far(found, x) : NULL;
    return far ? run(x, factor, far) : tt_last_status();
}

/* Multiply x, in any layout and on any device. */
static tt_status unscale_one(tt_tensor *x, double factor, tt__grad_total *found) {
    tt_tensor *flat = tt_contiguous(x);
    if (!flat)
        return tt_last_status();
    if (tt__device_is_host(tt_tensor_device(x)))
        unscale_here(flat, factor, found);
    else
        TT__TRY(unscale_far(flat, factor, found));
    if (flat != x)
        return tt_copy(x, flat);
    tt__storage_touch(x->storage);
    return TT_OK;
}

static tt_status unscale_groups(const char *who, tt_optimizer *o, double factor, tt__grad_total *found,
                                int64_t *count) {
    for (size_t g = 0; g < o->group_count; g++)
        for (size_t i = 0; i < o->groups[g].count; i++) {
            const tt__optim_param *p = &o->groups[g].params[i];
            tt_tensor *grad = tt__grad_values(p->tensor);
            if (!grad)
                continue;
            if (grad->dtype != p->dtype)
                return tt__fail(TT_ERR_STATE,
                                "%s: a parameter was %s when it was added, and its gradient is %s now; make the "
                                "optimizer after converting the module",
                                who, tt_dtype_name(p->dtype), TT__DESCRIBE(grad));
            TT__TRY(unscale_one(grad, factor, found));
            ++*count;
        }
    return tt__grad_total_end(found);
}

/* Multiply the gradients of all groups of an optimizer by `factor`. *found: one of them was infinite or NaN. *count:
 * how many there are. */
static tt_status unscale_grads(const char *who, tt_optimizer *optimizer, double factor, bool *found, int64_t *count) {
    tt__grad_total infinite = {.who = who, .p = INFINITY};
    *count = 0;
    int scope = tt_scope_begin(); /* ends copies of gradients in other layouts */
    bool before = tt_no_grad_begin();
    tt_status status = scope ? tt__masters_begin(who, optimizer) : tt__fail_prefix("%s", who);
    if (!status)
        status = unscale_groups(who, optimizer, factor, &infinite, count);
    double any[1 + TT__JOIN_ROOM] = {infinite.value};
    if (optimizer->shards)
        status = optimizer->shards->join(optimizer->shards_user, who, status, any, 1, true);
    *found = any[0] != 0;
    tt_no_grad_end(before);
    tt_scope_end(scope);
    return status;
}

/* What an optimizer has seen since the last update. */
typedef enum scaler_stage { SCALED, UNSCALED, STEPPED } scaler_stage;

typedef struct scaler_entry {
    const tt_optimizer *optimizer; /* borrowed; only compared */
    scaler_stage stage;
    bool found_inf;
} scaler_entry;

/* What a state dict has. */
typedef struct scaler_state {
    double scale, growth_factor, backoff_factor; /* scale: always an f32 value */
    int64_t growth_interval, growth_tracker;
} scaler_state;

struct tt_grad_scaler {
    bool enabled;
    scaler_state now;
    scaler_entry *entries; /* since the last update */
    size_t count, room;
    tt__dict dict;
};

/* ---- making ---- */

static tt_status check_state(const char *who, const scaler_state *s) {
    if (!(s->scale > 0 && isfinite((float)s->scale)))
        return tt__fail(TT_ERR_INVALID, "%s: expected a scale above 0 that f32 holds, got %g", who, s->scale);
    if (!(s->growth_factor > 1 && isfinite(s->growth_factor)))
        return tt__fail(TT_ERR_INVALID, "%s: expected growth_factor above 1, got %g", who, s->growth_factor);
    if (!(s->backoff_factor > 0 && s->backoff_factor < 1))
        return tt__fail(TT_ERR_INVALID, "%s: expected backoff_factor above 0 and below 1, got %g", who,
                        s->backoff_factor);
    if (s->growth_interval < 1 || s->growth_tracker < 0)
        return tt__fail(TT_ERR_INVALID, "%s: expected growth_interval of at least 1, got %lld", who,
                        (long long)(s->growth_interval < 1 ? s->growth_interval : s->growth_tracker));
    return TT_OK;
}

tt_grad_scaler *tt_grad_scaler_new_with(const tt_grad_scaler_new_args *args, size_t size) {
    static const char who[] = "tt_grad_scaler_new";
    tt_grad_scaler_new_args a;
    TT__ARGS_COPY(a, args, size);
    const scaler_state state = {.scale = a.init_scale == 0 ? 65536 : (double)(float)a.init_scale,
                                .growth_factor = a.growth_factor == 0 ? 2 : a.growth_factor,
                                .backoff_factor = a.backoff_factor == 0 ? 0.5 : a.backoff_factor,
                                .growth_interval = a.growth_interval == 0 ? 2000 : a.growth_interval};
    if (check_state(who, &state))
        return NULL;
    tt_grad_scaler *scaler = calloc(1, sizeof *scaler);
    if (!scaler)
        return tt__fail_null(TT_ERR_MEMORY, "%s: no memory for a scaler", who);
    scaler->enabled = !a.disabled;
    scaler->now = state;
    return scaler;
}

static void scaler_end(tt_grad_scaler *scaler) {
    tt__dict_free(&scaler->dict);
    free(scaler->entries);
    tt__quarantine(scaler, sizeof *scaler, free);
}

void tt_grad_scaler_free(tt_grad_scaler *scaler) {
    if (scaler && !tt__freed_before("tt_grad_scaler_free", scaler))
        scaler_end(scaler);
}

double tt_grad_scaler_get_scale(const tt_grad_scaler *scaler) {
    return scaler && scaler->enabled ? scaler->now.scale : 1;
}

bool tt_grad_scaler_is_enabled(const tt_grad_scaler *scaler) { return scaler && scaler->enabled; }

/* ---- an iteration ---- */

static void give_scale(const tt__graph_source *source, uint64_t *words) {
    const tt_grad_scaler *scaler = source->object;
    memcpy(words, &scaler->now.scale, sizeof scaler->now.scale);
}

/* The scale of each replay, of x's type, on its device. */
static tt_tensor *captured_scale(tt__graph *graph, tt_grad_scaler *scaler, const tt_tensor *x) {
    static const char who[] = "tt_grad_scaler_scale";
    const tt__graph_source source = {.object = scaler, .words = 1, .give = give_scale};
    const void *at = NULL;
    if (tt_tensor_dtype(x) != TT_F32 && tt_tensor_dtype(x) != TT_F64)
        return tt__tensor_fail(TT_ERR_DTYPE, "%s: in a graph expected a loss of f32 or f64, got %s; tt_to() converts",
                               who, TT__DESCRIBE(x));
    if (tt__graph_add(graph, &source, &at))
        return tt__tensor_fail(tt_last_status(), "%s: %s", who, tt_last_error());
    tt_tensor *scale = tt__empty_beside(who, x, TT_SCALAR, tt_tensor_dtype(x));
    if (!scale)
        return NULL;
    tt_tensor number = *scale; /* a view of the number in the graph */
    number.dtype = TT_F64;
    number.data = (void *)at;
    return tt__copy_out(who, scale, &number) ? tt__abandon(scale) : scale;
}

static tt_tensor *scale_captured(tt__graph *graph, tt_grad_scaler *scaler, tt_tensor *loss) {
    tt_tensor *scale = captured_scale(graph, scaler, loss);
    return scale ? tt_mul(loss, scale) : NULL;
}

tt_tensor *tt_grad_scaler_scale(tt_grad_scaler *scaler, tt_tensor *loss) {
    if (!scaler)
        return tt__tensor_fail(tt__fail_argument("tt_grad_scaler_scale: the scaler is NULL"), "%s", tt_last_error());
    tt__graph *graph = loss && scaler->enabled ? tt__capturing(tt_tensor_device(loss)) : NULL;
    if (graph)
        return scale_captured(graph, scaler, loss);
    return scaler->enabled ? tt_scale(loss, scaler->now.scale) : loss;
}

static scaler_entry *find_entry(const tt_grad_scaler *scaler, const tt_optimizer *optimizer) {
    for (size_t i = 0; scaler && i < scaler->count; i++)
        if (scaler->entries[i].optimizer == optimizer)
            return &scaler->entries[i];
    return NULL;
}

/* Return the optimizer's entry, made at its first call since the last update; NULL: no memory. */
static scaler_entry *scaler_entry_of(const char *who, tt_grad_scaler *scaler, const tt_optimizer *optimizer) {
    scaler_entry *found = find_entry(scaler, optimizer);
    if (found)
        return found;
    if (scaler->count == scaler->room) {
        scaler_entry *more = reallocarray(scaler->entries, scaler->room + 4, sizeof *more);
        if (!more)
            return tt__fail_null(TT_ERR_MEMORY, "%s: no memory for an optimizer", who);
        scaler->entries = more;
        scaler->room += 4;
    }
    scaler->entries[scaler->count] = (scaler_entry){.optimizer = optimizer};
    return &scaler->entries[scaler->count++];
}

bool tt_grad_scaler_found_inf(const tt_grad_scaler *scaler, const tt_optimizer *optimizer) {
    const scaler_entry *entry = find_entry(scaler, optimizer);
    return entry && entry->found_inf;
}

static tt_status check_both(const char *who, const tt_grad_scaler *scaler, const tt_optimizer *optimizer) {
    if (scaler && optimizer)
        return tt__optim_check_unattended(who, optimizer);
    return tt__fail_argument("%s: the %s is NULL", who, scaler ? "optimizer" : "scaler");
}

/* Divide gradients, and note whether one was infinite or NaN. TT_ERR_STATE: there are none; the stage stays the
 * same. */
static tt_status unscale_entry(const char *who, tt_grad_scaler *scaler, tt_optimizer *optimizer, scaler_entry *entry) {
    int64_t count = 0;
    const double factor = (double)(float)(1 / scaler->now.scale);
    TT__TRY(unscale_grads(who, optimizer, factor, &entry->found_inf, &count));
    if (count == 0)
        return tt__fail(TT_ERR_STATE, "%s: none of the optimizer's parameters has a gradient; call tt_backward() first",
                        who);
    entry->stage = UNSCALED;
    return TT_OK;
}

tt_status tt_grad_scaler_unscale_(tt_grad_scaler *scaler, tt_optimizer *optimizer) {
    static const char who[] = "tt_grad_scaler_unscale_";
    TT__TRY(check_both(who, scaler, optimizer));
    TT__TRY(tt__capture_refuse(who, NULL));
    if (!scaler->enabled)
        return TT_OK;
    scaler_entry *entry = scaler_entry_of(who, scaler, optimizer);
    if (!entry)
        return tt_last_status();
    if (entry->stage != SCALED)
        return tt__fail(TT_ERR_STATE,
                        "%s: it was called for this optimizer %s; call tt_grad_scaler_update() once an "
                        "iteration, after the step",
                        who, entry->stage == UNSCALED ? "already since the last update" : "after its step");
    return unscale_entry(who, scaler, optimizer, entry);
}

tt_status tt_grad_scaler_step(tt_grad_scaler *scaler, tt_optimizer *optimizer) {
    static const char who[] = "tt_grad_scaler_step";
    TT__TRY(check_both(who, scaler, optimizer));
    TT__TRY(tt__capture_refuse(who, NULL));
    if (!scaler->enabled)
        return tt_optimizer_step(optimizer);
    scaler_entry *entry = scaler_entry_of(who, scaler, optimizer);
    if (!entry)
        return tt_last_status();
    if (entry->stage == STEPPED)
        return tt__fail(TT_ERR_STATE,
                        "%s: it was called for this optimizer already since the last update; call "
                        "tt_grad_scaler_update() after each step",
                        who);
    if (entry->stage == SCALED)
        TT__TRY(unscale_entry(who, scaler, optimizer, entry));
    if (!entry->found_inf)
        TT__TRY(tt_optimizer_step(optimizer));
    optimizer->masters_begun = false;
    entry->stage = STEPPED;
    return TT_OK;
}

/* ---- the scale ---- */

/* Move the scale as PyTorch does, in f32. */
static void move_scale(scaler_state *s, bool found_inf) {
    if (found_inf) {
        s->scale = (double)((float)s->scale * (float)s->backoff_factor);
        s->growth_tracker = 0;
    } else if (++s->growth_tracker == s->growth_interval) {
        float grown = (float)s->scale * (float)s->growth_factor;
        if (isfinite(grown))
            s->scale = (double)grown;
        s->growth_tracker = 0;
    }
}

tt_status tt_grad_scaler_update(tt_grad_scaler *scaler) {
    static const char who[] = "tt_grad_scaler_update";
    if (!scaler)
        return tt__fail_argument("%s: the scaler is NULL", who);
    TT__TRY(tt__capture_refuse(who, NULL));
    if (!scaler->enabled)
        return TT_OK;
    bool seen = false, found = false;
    for (size_t i = 0; i < scaler->count; i++) {
        seen = seen || scaler->entries[i].stage != SCALED;
        found = found || scaler->entries[i].found_inf;
    }
    if (!seen)
        return tt__fail(TT_ERR_STATE,
                        "%s: no gradients were looked at since the last update; call "
                        "tt_grad_scaler_step() first",
                        who);
    move_scale(&scaler->now, found);
    scaler->count = 0;
    return TT_OK;
}

tt_status tt_grad_scaler_update_to(tt_grad_scaler *scaler, double new_scale) {
    static const char who[] = "tt_grad_scaler_update_to";
    if (!scaler)
        return tt__fail_argument("%s: the scaler is NULL", who);
    if (!scaler->enabled)
        return TT_OK;
    scaler_state next = scaler->now;
    next.scale = (double)(float)new_scale;
    TT__TRY(check_state(who, &next));
    scaler->now = next;
    scaler->count = 0;
    return TT_OK;
}

/* ---- state ---- */

enum { SCALER_FIELDS = 5 };

/* Describe entry i of a state dict. Returns where its value lies: an int64_t if *is_count, else a double. */
static void *scaler_field(scaler_state *s, int i, const char **name, bool *is_count) {
    static const char *const names[SCALER_FIELDS] = {"scale", "growth_factor", "backoff_factor", "growth_interval",
                                                     "_growth_tracker"};
    void *const at[SCALER_FIELDS] = {&s->scale, &s->growth_factor, &s->backoff_factor, &s->growth_interval,
                                     &s->growth_tracker};
    *name = names[i];
    *is_count = i >= 3;
    return at[i];
}

const tt_named_tensors *tt_grad_scaler_state_dict(tt_grad_scaler *scaler) {
    if (!scaler)
        return NULL;
    tt__dict *dict = &scaler->dict;
    tt_status status = tt__dict_init(dict, "tt_grad_scaler_state_dict", SCALER_FIELDS);
    for (int i = 0; i < SCALER_FIELDS && !status && scaler->enabled; i++) {
        const char *name;
        bool is_count;
        const void *at = scaler_field(&scaler->now, i, &name, &is_count);
        status = tt__dict_add_own(dict, tt_from_data(at, TT_SCALAR, is_count ? TT_I64 : TT_F64), "%s", name);
    }
    return tt__dict_finish(dict, status);
}

/* Read one entry into `to`. */
static tt_status read_field(const char *who, const tt_named_tensors *state, int i, scaler_state *to) {
    const char *name;
    bool is_count;
    void *at = scaler_field(to, i, &name, &is_count);
    const tt_tensor *x = tt_named_tensors_find(state, name);
    double value;
    if (!x)
        return tt__fail(TT_ERR_NOT_FOUND, "%s: entry \"%s\" is missing", who, name);
    if (tt_tensor_numel(x) != 1)
        return tt__fail(TT_ERR_SHAPE, "%s: \"%s\": expected one number, got %s", who, name, TT__DESCRIBE(x));
    TT__TRY(tt_item(x, &value));
    if (!is_count) {
        *(double *)at = value;
        return TT_OK;
    }
    if (!(value >= 0 && value <= 0x1p53) || value != floor(value))
        return tt__fail(TT_ERR_INVALID, "%s: \"%s\": expected a count, got %g", who, name, value);
    *(int64_t *)at = (int64_t)value;
    return TT_OK;
}

static tt_status read_state(const tt_grad_scaler *scaler, const tt_named_tensors *state, scaler_state *to) {
    static const char who[] = "tt_grad_scaler_load_state_dict";
    *to = scaler->now;
    if (!scaler->enabled)
        return TT_OK;
    TT__TRY(tt__named_tensors_check(who, state, true));
    if (state->count != SCALER_FIELDS)
        return tt__fail(TT_ERR_INVALID, "%s: expected %d entries, got %lld; was it saved from a disabled scaler?", who,
                        SCALER_FIELDS, (long long)state->count);
    for (int i = 0; i < SCALER_FIELDS; i++)
        TT__TRY(read_field(who, state, i, to));
    return check_state(who, to);
}

tt_status tt__grad_scaler_check_state(const tt_grad_scaler *scaler, const tt_named_tensors *state) {
    scaler_state next;
    return read_state(scaler, state, &next);
}

tt_status tt_grad_scaler_load_state_dict(tt_grad_scaler *scaler, const tt_named_tensors *state) {
    scaler_state next;
    if (!scaler || !state) /* the call that gave NULL has usually recorded why */
        return tt__fail_argument("tt_grad_scaler_load_state_dict: the %s is NULL", scaler ? "state" : "scaler");
    TT__TRY(read_state(scaler, state, &next));
    scaler->now = next;
    return TT_OK;
}
