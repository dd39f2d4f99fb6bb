/* What all averagers share: making and freeing, the count of steps, state. */
#include "parallel/local_sgd/averager.h"

#include "base/args.h"
#include "base/error.h"
#include "base/quarantine.h"
#include "comm/group.h"
#include "tensor/core/named_tensors.h"
#include "tensor/core/tensor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- making ---- */

static tt_status averager_no_memory(const char *who) {
    return tt__fail(TT_ERR_MEMORY, "%s: no memory for the averager", who);
}

static tt_status describe_params(const tt__averager_plan *plan, char **texts) {
    const tt_named_tensors *p = plan->params;
    for (int64_t i = 0; i < p->count; i++)
        if (asprintf(&texts[i], "parameter %" PRId64 " \"%s\" %s", i, p->names[i], TT__DESCRIBE(p->tensors[i])) < 0)
            return texts[i] = NULL, averager_no_memory(plan->cls->name);
    return TT_OK;
}

static tt_status compare_over_ranks(const tt__averager_plan *plan) {
    size_t options = plan->option_count, count = options + (size_t)plan->params->count;
    char **made = calloc((size_t)plan->params->count + 1, sizeof *made);
    const char **texts = calloc(count + 1, sizeof *texts);
    tt_status status = made && texts ? describe_params(plan, made) : averager_no_memory(plan->cls->name);
    if (!status) {
        for (size_t i = 0; i < count; i++)
            texts[i] = i < options ? plan->options[i] : made[i - options];
        status = tt__agree_on(plan->group, plan->cls->name, texts, count);
    }
    for (int64_t i = 0; made && i < plan->params->count; i++)
        free(made[i]);
    free(made);
    free(texts);
    return status;
}

static tt_status check_and_compare(const tt__averager_plan *plan) {
    const char *who = plan->cls->name;
    if (!plan->out)
        return tt__fail(TT_ERR_INVALID, "%s: `out` is NULL", who);
    if (!plan->params)
        return tt__fail_argument("%s: expected a list of parameters, got NULL", who);
    TT__TRY(tt__named_tensors_check(who, plan->params, true));
    TT__TRY(compare_over_ranks(plan)); /* first, so that all ranks hear of a type that is wrong on one */
    return tt__flat_check_list(who, plan->params);
}

tt_status tt__averager_agree(tt__averager_plan *plan) {
    if (plan->out)
        *plan->out = NULL;
    if (!plan->group)
        return tt__fail(TT_ERR_INVALID, "%s: `group` is NULL", plan->cls->name);
    plan->call = tt__joint_call_begin(plan->group, plan->cls->name);
    return tt__joint_call_end(&plan->call, check_and_compare(plan));
}

static tt_dtype slot_type(const tt__flat *f, size_t bucket) {
    return f->buckets[bucket].dtype == TT_F64 ? TT_F64 : TT_F32;
}

static tt_status make_slot(tt_model_averager *a, tt__averager_slot *slot) {
    const tt__flat *f = &a->flat;
    slot->data = calloc(f->bucket_count + 1, sizeof *slot->data);
    slot->views = calloc(f->count + 1, sizeof *slot->views);
    if (!slot->data || !slot->views)
        return averager_no_memory(a->cls->name);
    for (size_t b = 0; b < f->bucket_count; b++)
        if (!(slot->data[b] = calloc((size_t)f->buckets[b].count + 1, tt_dtype_size(slot_type(f, b)))))
            return averager_no_memory(a->cls->name);
    for (size_t i = 0; i < f->count; i++) {
        const tt__flat_entry *e = &f->entries[i];
        tt_dtype dtype = slot_type(f, e->bucket);
        void *at = (char *)slot->data[e->bucket] + (size_t)e->offset * tt_dtype_size(dtype);
        slot->views[i] = tt__optim_hold(tt_from_blob(at, tt_tensor_shape(e->view), dtype));
        if (!slot->views[i])
            return tt_last_status();
    }
    return TT_OK;
}

static tt_status make_slots(tt_model_averager *a) {
    a->slots = calloc((size_t)a->cls->slots + 1, sizeof *a->slots);
    if (!a->slots)
        return averager_no_memory(a->cls->name);
    for (int s = 0; s < a->cls->slots; s++)
        TT__TRY(make_slot(a, &a->slots[s]));
    return TT_OK;
}

static void free_slots(tt_model_averager *a) {
    for (int s = 0; a->slots && s < a->cls->slots; s++) {
        for (size_t i = 0; a->slots[s].views && i < a->flat.count; i++)
            tt__tensor_disown(a->slots[s].views[i]);
        for (size_t b = 0; a->slots[s].data && b < a->flat.bucket_count; b++)
            free(a->slots[s].data[b]);
        free(a->slots[s].data);
        free(a->slots[s].views);
    }
    free(a->slots);
}

static void end_averager(tt_model_averager *a) {
    if (a->cls->end)
        a->cls->end(a);
    tt__dict_free(&a->dict);
    free_slots(a);
    tt__flat_free(&a->flat, a->broken != TT_OK);
    tt__quarantine(a, a->cls->size, free);
}

tt_status tt__averager_make(const tt__averager_plan *plan, tt_model_averager **made) {
    tt_model_averager *a = *made = calloc(1, plan->cls->size);
    if (!a)
        return averager_no_memory(plan->cls->name);
    a->cls = plan->cls;
    a->group = plan->group;
    TT__TRY(tt__flat_make(&a->flat, plan->cls->name, plan->group, plan->params, plan->as));
    return make_slots(a);
}

tt_status tt__averager_finish(const tt__averager_plan *plan, tt_model_averager *a, tt_status status) {
    if (!status) {
        *plan->out = a;
        return TT_OK;
    }
    tt_ignore(tt__joint_call_end(&plan->call, status));
    tt__saved_error saved;
    tt__error_save_reason(&saved);
    if (a)
        end_averager(a);
    tt__error_restore_reason(&saved);
    return status;
}

void tt_model_averager_free(tt_model_averager *a) {
    if (a && !tt__freed_before("tt_model_averager_free", a))
        end_averager(a);
}

/* ---- averaging ---- */

static tt_status pack_bucket(const tt__flat *f, size_t bucket, void *user) {
    (void)user;
    return tt__flat_pack(f, bucket);
}

static tt_status unpack_bucket(const tt__flat *f, size_t bucket, void *user) {
    (void)user;
    return tt__flat_unpack(f, bucket);
}

tt_status tt__average_plainly(tt_model_averager *a, tt_group *group) {
    return tt__flat_average(&a->flat, group, a->cls->doing, pack_bucket, unpack_bucket, NULL);
}

static tt_status check_averager(const tt_model_averager *a, const char *who) {
    if (!a)
        return tt__fail(TT_ERR_INVALID, "%s: the averager is NULL", who);
    if (a->broken)
        return tt__fail(TT_ERR_STATE, "%s: an earlier averaging failed (%s); destroy the group", who,
                        tt_status_name(a->broken));
    return TT_OK;
}

/* Average. A failure is told to the ranks that wait for this one, and nothing is averaged after it. */
static tt_status average_now(tt_model_averager *a, const char *who, bool all) {
    a->broken = tt__flat_check(&a->flat, who);
    if (!a->broken && (a->broken = a->cls->average ? a->cls->average(a, all) : tt__average_plainly(a, a->group)))
        tt__fail_prefix("%s", a->cls->name);
    if (a->broken && a->cls->tell)
        a->cls->tell(a);
    else if (a->broken)
        tt__abort_with_error(a->group);
    else
        tt__group_note_step(a->group);
    return a->broken;
}

tt_status tt_model_averager_step(tt_model_averager *a) {
    static const char who[] = "tt_model_averager_step";
    TT__TRY(check_averager(a, who));
    if (a->cls->due(a))
        TT__TRY(average_now(a, who, false));
    a->steps++;
    return TT_OK;
}

tt_status tt_model_averager_average(tt_model_averager *a) {
    static const char who[] = "tt_model_averager_average";
    TT__TRY(check_averager(a, who));
    return average_now(a, who, true);
}

bool tt_model_averager_is_due(const tt_model_averager *a) { return a && a->cls->due(a); }

int64_t tt_model_averager_steps(const tt_model_averager *a) { return a ? a->steps : 0; }

/* ---- state ---- */

static tt_status save_averager(tt_model_averager *a) {
    size_t entries = (size_t)a->cls->slots * a->flat.count + 1;
    TT__TRY(tt__dict_init(&a->dict, "tt_model_averager_state_dict", entries));
    TT__TRY(tt__dict_add_own(&a->dict, tt_from_data(&a->steps, TT_SCALAR, TT_I64), "step"));
    for (int s = 0; s < a->cls->slots; s++)
        for (size_t i = 0; i < a->flat.count; i++)
            TT__TRY(
                tt__dict_add(&a->dict, a->slots[s].views[i], "%s.%s", a->cls->slot_names[s], a->flat.entries[i].name));
    return TT_OK;
}

const tt_named_tensors *tt_model_averager_state_dict(tt_model_averager *a) {
    if (!a) {
        tt_ignore(tt__fail(TT_ERR_INVALID, "tt_model_averager_state_dict: the averager is NULL"));
        return NULL;
    }
    return tt__dict_finish(&a->dict, save_averager(a));
}

static const char loads[] = "tt_model_averager_load_state_dict";

static const tt_tensor *find_slot_entry(const tt_named_tensors *state, const char *slot, const char *name) {
    size_t n = strlen(slot);
    for (int64_t i = 0; i < state->count; i++)
        if (!strncmp(state->names[i], slot, n) && state->names[i][n] == '.' && !strcmp(state->names[i] + n + 1, name))
            return state->tensors[i];
    return NULL;
}

static tt_status check_slots(const tt_model_averager *a, const tt_named_tensors *state) {
    for (int s = 0; s < a->cls->slots; s++)
        for (size_t i = 0; i < a->flat.count; i++) {
            const char *slot = a->cls->slot_names[s], *name = a->flat.entries[i].name;
            const tt_tensor *x = find_slot_entry(state, slot, name), *expected = a->slots[s].views[i];
            if (!x)
                return tt__fail(TT_ERR_NOT_FOUND, "%s: entry \"%s.%s\" is missing", loads, slot, name);
            const tt_shape shape = tt_tensor_shape(x), wanted = tt_tensor_shape(expected);
            if (tt_tensor_dtype(x) != tt_tensor_dtype(expected) || !tt__shape_equal(&shape, &wanted))
                return tt__fail(tt_tensor_dtype(x) != tt_tensor_dtype(expected) ? TT_ERR_DTYPE : TT_ERR_SHAPE,
                                "%s: \"%s.%s\": expected %s, got %s", loads, slot, name, TT__DESCRIBE(expected),
                                TT__DESCRIBE(x));
        }
    return TT_OK;
}

static tt_status read_steps(const tt_named_tensors *state, int64_t *steps) {
    const tt_tensor *x = tt_named_tensors_find(state, "step");
    if (!x)
        return tt__fail(TT_ERR_NOT_FOUND, "%s: entry \"step\" is missing", loads);
    if (tt_tensor_dtype(x) != TT_I64 || tt_tensor_numel(x) != 1)
        return tt__fail(TT_ERR_SHAPE, "%s: \"step\": expected one i64, got %s", loads, TT__DESCRIBE(x));
    *steps = *tt_tensor_i64(x);
    return *steps >= 0
               ? TT_OK
               : tt__fail(TT_ERR_INVALID, "%s: \"step\": expected a number of steps, got %" PRId64, loads, *steps);
}

static tt_status check_averager_state(const tt_model_averager *a, const tt_named_tensors *state, int64_t *steps) {
    const int64_t entries = (int64_t)a->cls->slots * (int64_t)a->flat.count + 1;
    TT__TRY(tt__named_tensors_check(loads, state, true));
    if (state->count != entries)
        return tt__fail(TT_ERR_INVALID, "%s: expected %" PRId64 " entries of %s, got %" PRId64, loads, entries,
                        a->cls->name, state->count);
    TT__TRY(read_steps(state, steps));
    return check_slots(a, state);
}

tt_status tt_model_averager_load_state_dict(tt_model_averager *a, const tt_named_tensors *state) {
    int64_t steps = 0;
    if (!a || !state)
        return tt__fail_argument("%s: the %s is NULL", loads, a ? "state" : "averager");
    TT__TRY(check_averager_state(a, state, &steps));
    for (int s = 0; s < a->cls->slots; s++)
        for (size_t i = 0; i < a->flat.count; i++)
            TT__TRY(
                tt_copy(a->slots[s].views[i], find_slot_entry(state, a->cls->slot_names[s], a->flat.entries[i].name)));
    a->steps = steps;
    return TT_OK;
}

/* ---- local SGD: every rank steps on its own, and every few steps all average their parameters (S. Stich: Local SGD
 * Converges Fast and Communicates Little. ICLR 2019) ---- */

typedef struct periodic {
    tt_model_averager base;
    int64_t period, warmup_steps;
} periodic;

static bool periodic_due(const tt_model_averager *a) {
    const periodic *p = (const periodic *)a;
    return a->steps >= p->warmup_steps && (a->steps - p->warmup_steps) % p->period == 0;
}

static const tt__averager_class periodic_class = {
    .name = "tt_periodic_model_averager",
    .doing = "the averaging of parameters (tt_periodic_model_averager)",
    .size = sizeof(periodic),
    .due = periodic_due,
};

static tt_status check_periodic(const tt_periodic_model_averager_args *a) {
    if (a->period < 1)
        return tt__fail(TT_ERR_INVALID, "%s: expected a period of 1 step or more, got %" PRId64, periodic_class.name,
                        a->period);
    if (a->warmup_steps < 0)
        return tt__fail(TT_ERR_INVALID, "%s: expected .warmup_steps of at least 0, got %" PRId64, periodic_class.name,
                        a->warmup_steps);
    return TT_OK;
}

tt_status tt_periodic_model_averager_with(const tt_periodic_model_averager_args *given, size_t size) {
    tt_periodic_model_averager_args args;
    char period[64], warmup[64];
    TT__ARGS_COPY(args, given, size);
    snprintf(period, sizeof period, "period %" PRId64, args.period);
    snprintf(warmup, sizeof warmup, ".warmup_steps %" PRId64, args.warmup_steps);
    tt__averager_plan plan = {
        &periodic_class, args.out, args.group, args.params, (const char *const[]){period, warmup}, 2, NULL,
        {.group = NULL}};
    TT__TRY(tt__averager_agree(&plan));
    TT__TRY(check_periodic(&args));
    tt_model_averager *a;
    tt_status status = tt__averager_make(&plan, &a);
    if (!status)
        status = tt__flat_take_rank_0(&a->flat, plan.cls->doing);
    if (!status) {
        ((periodic *)a)->period = args.period;
        ((periodic *)a)->warmup_steps = args.warmup_steps;
    }
    return tt__averager_finish(&plan, a, status);
}
