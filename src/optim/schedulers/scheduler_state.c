/* A scheduler's state as named tensors, and back. Its fields are listed once, for both ways. */
#include "base/error.h"
#include "optim/loadable.h"
#include "optim/schedulers/scheduler.h"
#include "tensor/core/named_tensors.h"

#include <stdio.h>
#include <string.h>

/* One entry: n elements of f64 or i64, where they lie. */
typedef struct lr_field {
    const char *name;
    tt_dtype dtype;
    int64_t n; /* -1: a scalar */
    void *at;
} lr_field;

/* Describe field i; false: there are no more. */
static bool field_at(tt_lr_scheduler *s, int i, lr_field *field) {
    const int numbers = s->cls->numbers, fixed = 3;
    if (i == 0)
        *field = (lr_field){"last_epoch", TT_I64, -1, &s->last_epoch};
    else if (i == 1)
        *field = (lr_field){"base_lrs", TT_F64, (int64_t)s->groups, s->base_lrs};
    else if (i == 2)
        *field = (lr_field){"_last_lr", TT_F64, (int64_t)s->groups, s->last_lr};
    else if (i < fixed + numbers)
        *field = (lr_field){s->cls->number_names[i - fixed], TT_F64, -1, &s->number[i - fixed]};
    else if (i == fixed + numbers && s->cls->milestones_name)
        *field = (lr_field){s->cls->milestones_name, TT_I64, s->milestone_count, s->milestones};
    else
        return false;
    return true;
}

/* What names of a scheduler's entries begin with: nothing, or "_schedulers.I." for a child. */
typedef struct lr_prefix {
    char text[96];
} lr_prefix;

static lr_prefix child_prefix(const lr_prefix *of, size_t i) {
    lr_prefix prefix;
    snprintf(prefix.text, sizeof prefix.text, "%.60s_schedulers.%zu.", of->text, i);
    return prefix;
}

static size_t count_fields(const tt_lr_scheduler *s) {
    size_t n = 3 + (size_t)s->cls->numbers + (s->cls->milestones_name != NULL);
    for (size_t i = 0; i < s->child_count; i++)
        n += count_fields(s->children[i]);
    return n;
}

/* ---- saving ---- */

static tt_status save_fields(tt_lr_scheduler *s, const lr_prefix *prefix, tt__dict *dict) {
    lr_field f;
    for (int i = 0; field_at(s, i, &f); i++)
        TT__TRY(tt__dict_add_own(dict, tt_from_data(f.at, f.n < 0 ? TT_SCALAR : TT_SHAPE(f.n), f.dtype), "%s%s",
                                 prefix->text, f.name));
    for (size_t i = 0; i < s->child_count; i++) {
        lr_prefix of_child = child_prefix(prefix, i);
        TT__TRY(save_fields(s->children[i], &of_child, dict));
    }
    return TT_OK;
}

const tt_named_tensors *tt_lr_scheduler_state_dict(tt_lr_scheduler *scheduler) {
    if (!scheduler)
        return NULL;
    const lr_prefix none = {""};
    tt_status status = tt__dict_init(&scheduler->dict, "tt_lr_scheduler_state_dict", count_fields(scheduler));
    return tt__dict_finish(&scheduler->dict, status ? status : save_fields(scheduler, &none, &scheduler->dict));
}

/* ---- loading ---- */

static const char who[] = "tt_lr_scheduler_load_state_dict";

/* Read an entry; one that has more than a scalar only if `vectors`. */
static tt_status load_field(const lr_field *f, const char *name, const tt_named_tensors *state, bool vectors) {
    const tt_tensor *x = tt_named_tensors_find(state, name);
    if (!x)
        return tt__fail(TT_ERR_NOT_FOUND, "%s: entry \"%s\" is missing", who, name);
    if (tt_tensor_dtype(x) != f->dtype)
        return tt__fail(TT_ERR_DTYPE, "%s: \"%s\": expected %s, got %s", who, name, tt_dtype_name(f->dtype),
                        TT__DESCRIBE(x));
    if (tt_tensor_numel(x) != (f->n < 0 ? 1 : f->n))
        return tt__fail(TT_ERR_SHAPE, "%s: \"%s\": expected %lld elements, got %s", who, name,
                        (long long)(f->n < 0 ? 1 : f->n), TT__DESCRIBE(x));
    if (!x->contiguous || !tt_tensor_data(x))
        return tt__fail(TT_ERR_INVALID, "%s: \"%s\": expected a contiguous tensor of the host, got %s", who, name,
                        TT__DESCRIBE(x));
    if (f->n < 0 || (vectors && f->n))
        memcpy(f->at, tt_tensor_data(x), (size_t)tt_tensor_numel(x) * tt_dtype_size(f->dtype));
    return TT_OK;
}

static tt_status load_fields(tt_lr_scheduler *s, const lr_prefix *prefix, const tt_named_tensors *state, bool vectors) {
    lr_field f;
    for (int i = 0; field_at(s, i, &f); i++) {
        char name[160];
        snprintf(name, sizeof name, "%s%s", prefix->text, f.name);
        TT__TRY(load_field(&f, name, state, vectors));
    }
    return TT_OK;
}

/* Check all entries, on a copy of what they would change. */
static tt_status check_fields(const tt_lr_scheduler *s, const lr_prefix *prefix, const tt_named_tensors *state) {
    tt_lr_scheduler copy = *s;
    TT__TRY(load_fields(&copy, prefix, state, false));
    if (copy.last_epoch < -1 || copy.last_epoch > INT64_C(1) << 53)
        return tt__fail(TT_ERR_INVALID, "%s: \"%slast_epoch\": expected an epoch, got %lld", who, prefix->text,
                        (long long)copy.last_epoch);
    if (s->cls->check)
        TT__TRY(s->cls->check(who, s->optimizer, copy.number));
    for (size_t i = 0; i < s->child_count; i++) {
        lr_prefix of_child = child_prefix(prefix, i);
        TT__TRY(check_fields(s->children[i], &of_child, state));
    }
    return TT_OK;
}

static tt_status apply_fields(tt_lr_scheduler *s, const lr_prefix *prefix, const tt_named_tensors *state) {
    TT__TRY(load_fields(s, prefix, state, true));
    for (size_t i = 0; i < s->child_count; i++) {
        lr_prefix of_child = child_prefix(prefix, i);
        TT__TRY(apply_fields(s->children[i], &of_child, state));
    }
    return TT_OK;
}

tt_status tt__lr_check_state(const tt_lr_scheduler *s, const tt_named_tensors *state) {
    const int64_t expected = (int64_t)count_fields(s);
    const lr_prefix none = {""};
    TT__TRY(tt__named_tensors_check(who, state, true));
    if (state->count != expected)
        return tt__fail(TT_ERR_INVALID, "%s: expected the %lld entries of a %s of %zu groups, got %lld", who,
                        (long long)expected, s->cls->name, s->groups, (long long)state->count);
    return check_fields(s, &none, state);
}

tt_status tt_lr_scheduler_load_state_dict(tt_lr_scheduler *scheduler, const tt_named_tensors *state) {
    const lr_prefix none = {""};
    if (!scheduler || !state)
        return tt__fail_argument("%s: the %s is NULL", who, scheduler ? "state" : "scheduler");
    TT__TRY(tt__lr_check_state(scheduler, state));
    return apply_fields(scheduler, &none, state);
}
