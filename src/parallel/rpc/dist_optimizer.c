/* Optimizers of parameters of several workers: each owner has one, which is made and stepped by calls. */
#include "autograd/leaf.h"
#include "base/error.h"
#include "parallel/rpc/dist.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the kinds of optimizers */

/* Constructors with the arguments that they require; options are set afterwards. */
static tt_optimizer *new_sgd(const tt_named_tensors *p) { return tt_sgd(p, 0.001); }
static tt_optimizer *new_adam(const tt_named_tensors *p) { return tt_adam(p, 0.001); }
static tt_optimizer *new_adamw(const tt_named_tensors *p) { return tt_adamw(p, 0.001, 0.01); }
static tt_optimizer *new_rmsprop(const tt_named_tensors *p) { return tt_rmsprop(p, 0.01); }
static tt_optimizer *new_adagrad(const tt_named_tensors *p) { return tt_adagrad(p, 0.01); }
static tt_optimizer *new_adadelta(const tt_named_tensors *p) { return tt_adadelta(p, 1.0); }
static tt_optimizer *new_lamb(const tt_named_tensors *p) { return tt_lamb(p, 0.001, 0.01); }

static const struct {
    const char *name;
    tt_optimizer *(*make)(const tt_named_tensors *params);
} kinds[] = {{"sgd", new_sgd},         {"adam", new_adam},         {"adamw", new_adamw}, {"rmsprop", new_rmsprop},
             {"adagrad", new_adagrad}, {"adadelta", new_adadelta}, {"lamb", new_lamb}};

enum { KINDS = sizeof kinds / sizeof *kinds };

static int find_kind(const char *kind) {
    for (int i = 0; kind && i < KINDS; i++)
        if (!strcmp(kinds[i].name, kind))
            return i;
    char known[128] = "";
    for (size_t i = 0, n = 0; i < KINDS; i++)
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", kinds[i].name);
    tt__fail(TT_ERR_NOT_FOUND, "tt_dist_optimizer_new: there is no optimizer \"%s\"; there are %s",
             kind ? kind : "NULL", known);
    return -1;
}

/* ---- on the owner */

/* The object behind a reference to an optimizer. */
typedef struct owned_optimizer {
    tt_optimizer *optimizer;
    tt_rref **params; /* shares */
    tt_tensor **tensors;
    int64_t count;
} owned_optimizer;

static const char owned_type[] = "tt_optimizer of a tt_dist_optimizer";

static void owned_free(void *at) {
    owned_optimizer *o = at;
    if (!o)
        return;
    tt_optimizer_free(o->optimizer);
    for (int64_t i = 0; i < o->count; i++)
        tt_rref_free(o->params[i]);
    free(o->params);
    free(o->tensors);
    free(o);
}

static tt_status take_params(owned_optimizer *o, const tt_rpc_value *list) {
    o->params = calloc((size_t)list->list.count + 1, sizeof(tt_rref *));
    o->tensors = calloc((size_t)list->list.count + 1, sizeof(tt_tensor *));
    if (!o->params || !o->tensors)
        return tt__fail(TT_ERR_MEMORY, "no memory for an optimizer of %" PRId64 " parameters", list->list.count);
    for (int64_t i = 0; i < list->list.count; i++) {
        const tt_rpc_value *item = &list->list.items[i];
        if (item->kind != TT_RPC_RREF)
            return tt__fail(TT_ERR_INVALID, "parameter %" PRId64 ": expected a reference, got %s", i,
                            tt_rpc_kind_name(item->kind));
        const tt_rpc_value *value = tt_rref_local(item->rref);
        if (!value)
            return tt__fail_prefix("parameter %" PRId64, i);
        o->tensors[i] = tt__value_tensor(value);
        if (!o->tensors[i] || !o->tensors[i]->history || !o->tensors[i]->history->is_leaf)
            return tt__fail(TT_ERR_INVALID,
                            "parameter %" PRId64 ": expected a reference to a tensor that requires a gradient, as "
                            "tt_requires_grad_() makes one, got %s",
                            i, o->tensors[i] ? TT__DESCRIBE(o->tensors[i]) : tt_rpc_kind_name(value->kind));
        o->params[o->count++] = tt_rref_share(item->rref);
    }
    return TT_OK;
}

static tt_optimizer *make_kind(int kind, tt_tensor *const *tensors, int64_t count) {
    char(*names)[24] = calloc((size_t)count, sizeof *names);
    const char **list = calloc((size_t)count, sizeof *list);
    for (int64_t i = 0; names && list && i < count; i++) {
        snprintf(names[i], sizeof *names, "%" PRId64, i);
        list[i] = names[i];
    }
    tt_optimizer *made =
        names && list ? kinds[kind].make(TT_NAMED_TENSORS(count, list, tensors))
                      : tt__fail_null(TT_ERR_MEMORY, "no memory for an optimizer of %" PRId64 " parameters", count);
    free(names);
    free(list);
    return made;
}

static tt_status set_owned_option(tt_optimizer *optimizer, const tt_rpc_value *name, const tt_rpc_value *value) {
    if (name->kind != TT_RPC_TEXT || (value->kind != TT_RPC_FLOAT && value->kind != TT_RPC_INT))
        return tt__fail(TT_ERR_INVALID, "expected options to be texts and numbers, got %s and %s",
                        tt_rpc_kind_name(name->kind), tt_rpc_kind_name(value->kind));
    return tt_optimizer_set_option(optimizer, TT_ALL_GROUPS, name->bytes.data,
                                   value->kind == TT_RPC_INT ? (double)value->integer : value->number);
}

/* Set options until none is left, or none can be set: some are valid only after others. */
static tt_status set_owned_options(tt_optimizer *optimizer, const tt_rpc_value *map) {
    int64_t count = map->list.count / 2, left = count, before;
    tt_status status;
    do {
        before = left;
        left = 0;
        status = TT_OK;
        for (int64_t i = 0; i < count; i++) {
            tt_status set = set_owned_option(optimizer, &map->list.items[2 * i], &map->list.items[2 * i + 1]);
            left += set != TT_OK;
            status = status ? status : set;
        }
    } while (left && left < before);
    return status;
}

static tt_status fill_owned(owned_optimizer *o, tt_rpc_call *call) {
    int kind = find_kind(tt_rpc_arg_text(call, 0));
    if (kind < 0)
        return tt_last_status();
    TT__TRY(take_params(o, tt_rpc_arg(call, 2)));
    o->optimizer = make_kind(kind, o->tensors, o->count);
    return o->optimizer ? set_owned_options(o->optimizer, tt_rpc_arg(call, 1)) : tt_last_status();
}

tt_status tt__serve_make_optimizer(tt_rpc_call *call) {
    owned_optimizer *o = calloc(1, sizeof *o);
    if (!o)
        return tt__fail(TT_ERR_MEMORY, "no memory for an optimizer");
    tt_status status = fill_owned(o, call);
    if (status) {
        owned_free(o);
        return status;
    }
    tt_rref *rref = tt_rref_new(tt_rpc_of_call(call), tt_rpc_object(o, owned_free, owned_type));
    if (!rref)
        return tt_last_status();
    status = tt_rpc_return(call, tt_rpc_rref(rref));
    tt_rref_free(rref);
    return status;
}

static owned_optimizer *owned_of_call(const tt_rpc_call *call) {
    const tt_rpc_value *value = tt_rref_local(tt_rpc_arg_rref(call, 0));
    if (!value)
        return NULL;
    if (value->kind == TT_RPC_OBJECT && value->object.type == owned_type)
        return value->object.at;
    return tt__fail_null(TT_ERR_INVALID, "expected a reference to an optimizer, got one to %s",
                         tt_rpc_kind_name(value->kind));
}

/* Set the parameters' gradients to the context's, step, and clear them. dist->stepping is held. */
static tt_status step_owned(tt__dist_context *context, const owned_optimizer *o) {
    tt_status status = TT_OK;
    pthread_mutex_lock(&context->lock);
    for (int64_t i = 0; i < o->count && !status; i++) {
        int64_t at = tt__pointer_map_get(&context->grads.at, o->tensors[i]);
        tt_zero_grad(o->tensors[i]);
        if (at >= 0)
            status = tt__leaf_give_grad(o->tensors[i], context->grads.grads[at]);
    }
    pthread_mutex_unlock(&context->lock);
    if (!status)
        status = tt_optimizer_step(o->optimizer);
    for (int64_t i = 0; i < o->count; i++)
        tt_zero_grad(o->tensors[i]);
    return status;
}

tt_status tt__serve_step_optimizer(tt_rpc_call *call) {
    tt__dist *dist = tt__dist_of(tt_rpc_of_call(call));
    owned_optimizer *o = dist ? owned_of_call(call) : NULL;
    tt__dist_context *context = o ? tt__dist_find(dist, "tt_dist_optimizer_step", tt_rpc_arg_int(call, 1)) : NULL;
    if (!context) {
        /* A worker whose parameters took no part in the context has nothing to do. */
        bool unknown = o && tt_last_status() == TT_ERR_NOT_FOUND && tt_rpc_arg_int(call, 1) > 0 &&
                       tt__dist_owner((uint64_t)tt_rpc_arg_int(call, 1)) != tt_rpc_id(dist->rpc);
        if (unknown)
            tt_clear_error();
        return unknown ? TT_OK : tt_last_status();
    }
    pthread_mutex_lock(&dist->stepping);
    tt_status status = step_owned(context, o);
    pthread_mutex_unlock(&dist->stepping);
    tt__dist_unref(context);
    return status;
}

tt_status tt__serve_set_option(tt_rpc_call *call) {
    tt__dist *dist = tt__dist_of(tt_rpc_of_call(call));
    owned_optimizer *o = dist ? owned_of_call(call) : NULL;
    if (!o)
        return tt_last_status();
    pthread_mutex_lock(&dist->stepping);
    tt_status status =
        tt_optimizer_set_option(o->optimizer, TT_ALL_GROUPS, tt_rpc_arg_text(call, 1), tt_rpc_arg_float(call, 2));
    pthread_mutex_unlock(&dist->stepping);
    return status;
}

/* ---- the program's side */

struct tt_dist_optimizer {
    tt_rpc *rpc;
    tt_rref **owned; /* one for each owner */
    int64_t count;
};

static tt_status check_new_args(const tt_dist_optimizer_new_args *a) {
    if (!a->out)
        return tt__fail(TT_ERR_INVALID, "tt_dist_optimizer_new: `out` is NULL");
    *a->out = NULL;
    if (a->count < 1)
        return tt__fail(TT_ERR_INVALID, "tt_dist_optimizer_new: expected parameters, got a count of %" PRId64,
                        a->count);
    if (!a->params)
        return tt__fail_argument("tt_dist_optimizer_new: expected parameters, got NULL");
    for (int64_t i = 0; i < a->count; i++)
        if (!a->params[i])
            return tt__fail_argument("tt_dist_optimizer_new: parameter %" PRId64 " is NULL", i);
    return find_kind(a->kind) < 0 ? TT_ERR_NOT_FOUND : TT_OK;
}

static tt_rpc_value *option_items(const tt_option *options, int64_t *count) {
    *count = 0;
    while (options && options[*count].name)
        ++*count;
    tt_rpc_value *items = calloc(2 * (size_t)*count + 1, sizeof *items);
    for (int64_t i = 0; items && i < *count; i++) {
        items[2 * i] = tt_rpc_text(options[i].name);
        items[2 * i + 1] = tt_rpc_float(options[i].value);
    }
    return items;
}

/* Have one owner make the optimizer of its parameters. `params` has room for all. */
static tt_status make_at_owner(const tt_dist_optimizer_new_args *a, int owner, tt_rpc_value *params, tt_rref **out) {
    int64_t count = 0, options = 0;
    for (int64_t i = 0; i < a->count; i++)
        if (tt_rref_owner(a->params[i]) == owner)
            params[count++] = tt_rpc_rref(a->params[i]);
    tt_rpc_value *items = option_items(a->options, &options), made = tt_rpc_none();
    if (!items)
        return tt__fail(TT_ERR_MEMORY, "tt_dist_optimizer_new: no memory for options");
    uint64_t before = tt__dist_outside();
    tt_status status = tt_rpc_sync(
        a->rpc, NULL, "tutti.optim.make", .to_id = owner, .result = &made,
        .args = TT_RPC_ARGS(tt_rpc_text(a->kind), tt_rpc_map(items, 2 * options), tt_rpc_list(params, count)));
    tt__dist_reenter(before);
    free(items);
    if (!status && made.kind == TT_RPC_RREF)
        *out = tt_rref_share(made.rref);
    tt_rpc_value_free(&made);
    return status ? tt__fail_prefix("tt_dist_optimizer_new") : TT_OK;
}

static bool is_first_of_owner(const tt_dist_optimizer_new_args *a, int64_t i) {
    for (int64_t k = 0; k < i; k++)
        if (tt_rref_owner(a->params[k]) == tt_rref_owner(a->params[i]))
            return false;
    return true;
}

static tt_status make_at_owners(tt_dist_optimizer *optimizer, const tt_dist_optimizer_new_args *a) {
    tt_rpc_value *params = calloc((size_t)a->count, sizeof *params);
    optimizer->owned = calloc((size_t)a->count, sizeof(tt_rref *));
    tt_status status =
        params && optimizer->owned
            ? TT_OK
            : tt__fail(TT_ERR_MEMORY, "tt_dist_optimizer_new: no memory for %" PRId64 " parameters", a->count);
    for (int64_t i = 0; i < a->count && !status; i++)
        if (is_first_of_owner(a, i)) {
            status = make_at_owner(a, tt_rref_owner(a->params[i]), params, &optimizer->owned[optimizer->count]);
            optimizer->count += !status;
        }
    free(params);
    return status;
}

tt_status tt__dist_optimizer_new(const tt_dist_optimizer_new_args *a) {
    TT__TRY(check_new_args(a));
    if (!tt__dist_of(a->rpc))
        return tt__fail_prefix("tt_dist_optimizer_new");
    tt_dist_optimizer *optimizer = calloc(1, sizeof *optimizer);
    if (!optimizer)
        return tt__fail(TT_ERR_MEMORY, "tt_dist_optimizer_new: no memory");
    optimizer->rpc = a->rpc;
    tt_status status = make_at_owners(optimizer, a);
    if (status)
        tt_dist_optimizer_free(optimizer);
    else
        *a->out = optimizer;
    return status;
}

/* Keep the first failure of several calls. */
typedef struct first_failure {
    tt_status status;
    char text[TT__ERROR_TEXT_SIZE];
} first_failure;

static void keep_failure(first_failure *first, tt_status status) {
    if (!status || first->status)
        return;
    first->status = status;
    snprintf(first->text, sizeof first->text, "%s", tt_last_error());
}

/* Call all owners at once, also those after a lost one, and wait for all. Returns the first error. */
static tt_status call_owners(const tt_dist_optimizer *o, const char *function, tt_rpc_values args) {
    tt_future **futures = calloc((size_t)o->count + 1, sizeof(tt_future *));
    first_failure first = {TT_OK, ""};
    if (!futures)
        return tt__fail(TT_ERR_MEMORY, "no memory for %" PRId64 " calls", o->count);
    uint64_t before = tt__dist_outside();
    for (int64_t i = 0; i < o->count; i++)
        keep_failure(&first, tt_rref_async(&futures[i], o->owned[i], function, .args = args));
    tt__dist_reenter(before);
    for (int64_t i = 0; i < o->count; i++) {
        keep_failure(&first, futures[i] ? tt_future_wait(futures[i], 0) : TT_OK);
        tt_future_free(futures[i]);
    }
    free(futures);
    return first.status ? tt__fail(first.status, "%s", first.text) : TT_OK;
}

tt_status tt_dist_optimizer_step(tt_dist_optimizer *optimizer, int64_t context) {
    static const char who[] = "tt_dist_optimizer_step";
    if (!optimizer)
        return tt__fail_argument("%s: the optimizer is NULL", who);
    tt__dist *dist = tt__dist_of(optimizer->rpc);
    tt__dist_context *known = dist ? tt__dist_find(dist, who, context) : NULL;
    if (!known)
        return tt_last_status();
    tt__dist_unref(known);
    return call_owners(optimizer, "tutti.optim.step", TT_RPC_ARGS(tt_rpc_int(context))) ? tt__fail_prefix("%s", who)
                                                                                        : TT_OK;
}

tt_status tt_dist_optimizer_set_option(tt_dist_optimizer *optimizer, const char *name, double value) {
    static const char who[] = "tt_dist_optimizer_set_option";
    if (!optimizer || !name)
        return tt__fail_argument("%s: the %s is NULL", who, optimizer ? "name" : "optimizer");
    return call_owners(optimizer, "tutti.optim.set_option", TT_RPC_ARGS(tt_rpc_text(name), tt_rpc_float(value)))
               ? tt__fail_prefix("%s", who)
               : TT_OK;
}

void tt_dist_optimizer_free(tt_dist_optimizer *optimizer) {
    if (!optimizer)
        return;
    for (int64_t i = 0; i < optimizer->count; i++)
        tt_rref_free(optimizer->owned[i]);
    free(optimizer->owned);
    free(optimizer);
}
