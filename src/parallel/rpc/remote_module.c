/* Modules that other workers own: calls to them, and the functions that serve these calls. */
#include "base/error.h"
#include "parallel/rpc/dist.h"

#include <inttypes.h>
#include <stdlib.h>

/* ---- on the owner */

typedef struct owned_module {
    tt_module *module;
    pthread_mutex_t lock; /* held while a thread runs it */
} owned_module;

static const char module_type[] = "tt_module";

static void owned_module_free(void *at) {
    owned_module *m = at;
    tt_module_free(m->module);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

tt_status tt__return_module(tt_rpc_call *call, tt_module *module) {
    if (!module)
        return tt__fail_argument("tt_rpc_return_module: the module is NULL");
    owned_module *m = calloc(1, sizeof *m);
    if (!m) {
        tt_module_free(module);
        return tt__fail(TT_ERR_MEMORY, "tt_rpc_return_module: no memory");
    }
    m->module = module;
    pthread_mutex_init(&m->lock, NULL);
    return tt_rpc_return(call, tt_rpc_object(m, owned_module_free, module_type));
}

static owned_module *owned_of_rref(tt_rref *rref) {
    const tt_rpc_value *value = tt_rref_local(rref);
    if (!value)
        return NULL;
    if (value->kind == TT_RPC_OBJECT && value->object.type == module_type)
        return value->object.at;
    return tt__fail_null(TT_ERR_INVALID,
                         "expected a reference to a module, as tt_rpc_return_module() gives one, got one to %s",
                         tt_rpc_kind_name(value->kind));
}

tt_module *tt_rref_local_module(tt_rref *rref) {
    owned_module *m = owned_of_rref(rref);
    return m ? m->module : NULL;
}

tt_status tt__serve_check_module(tt_rpc_call *call) {
    return owned_of_rref(tt_rpc_arg_rref(call, 0)) ? TT_OK : tt_last_status();
}

static tt_status run_owned(owned_module *m, tt_tensor *const *in, int64_t n, tt_tensor **out, int64_t outputs) {
    pthread_mutex_lock(&m->lock);
    tt_status status = TT_OK;
    if (n == 1 && outputs == 1)
        status = (out[0] = tt_module_forward(m->module, in[0])) ? TT_OK : tt__tensor_first_error("tt_module_forward");
    else
        status = tt_module_forward_many(m->module, in, n, out, outputs);
    pthread_mutex_unlock(&m->lock);
    return status;
}

/* `tensors` has room for inputs and outputs. */
static tt_status forward_call(tt_rpc_call *call, owned_module *m, tt_tensor **tensors, int64_t n, int64_t outputs) {
    for (int64_t i = 0; i < n; i++)
        tensors[i] = tt__value_tensor(tt_rpc_arg(call, 2 + i));
    TT__TRY(run_owned(m, tensors, n, tensors + n, outputs));
    tt_rpc_value *values = calloc((size_t)outputs + 1, sizeof *values);
    if (!values)
        return tt__fail(TT_ERR_MEMORY, "no memory for %" PRId64 " results", outputs);
    for (int64_t i = 0; i < outputs; i++)
        values[i] = tt__tensor_value(tensors[n + i]);
    tt_status status = tt_rpc_return(call, tt_rpc_list(values, outputs));
    free(values);
    return status;
}

enum { MAX_RESULTS = 1024 };

tt_status tt__serve_forward(tt_rpc_call *call) {
    owned_module *m = owned_of_rref(tt_rpc_arg_rref(call, 0));
    int64_t outputs = tt_rpc_arg_int(call, 1), n = tt_rpc_arg_count(call) - 2;
    if (!m)
        return tt_last_status();
    if (outputs < 1 || outputs > MAX_RESULTS)
        return tt__fail(TT_ERR_INVALID, "expected 1 to %d results to be asked for, got %" PRId64, MAX_RESULTS, outputs);
    tt_tensor **tensors = calloc((size_t)(n + outputs), sizeof(tt_tensor *));
    tt_status status = tensors ? forward_call(call, m, tensors, n, outputs)
                               : tt__fail(TT_ERR_MEMORY, "no memory for %" PRId64 " tensors", n + outputs);
    free(tensors);
    return status;
}

static tt_status return_rrefs(tt_rpc_call *call, const tt_named_tensors *params, tt_rpc_value *values) {
    for (int64_t i = 0; i < params->count; i++) {
        tt_rref *rref = tt_rref_new(tt_rpc_of_call(call), tt__tensor_value(params->tensors[i]));
        if (!rref)
            return tt_last_status();
        values[i] = tt_rpc_rref(rref);
        values[i].owned = true;
    }
    return tt_rpc_return(call, tt_rpc_list(values, params->count));
}

tt_status tt__serve_parameters(tt_rpc_call *call) {
    owned_module *m = owned_of_rref(tt_rpc_arg_rref(call, 0));
    const tt_named_tensors *params = m ? tt_module_parameters(m->module) : NULL;
    if (!params)
        return tt_last_status();
    tt_rpc_value *values = calloc((size_t)params->count + 1, sizeof *values);
    tt_status status = values ? return_rrefs(call, params, values)
                              : tt__fail(TT_ERR_MEMORY, "no memory for %" PRId64 " references", params->count);
    for (int64_t i = 0; values && i < params->count; i++)
        tt_rpc_value_free(&values[i]);
    free(values);
    return status;
}

tt_status tt__serve_train(tt_rpc_call *call) {
    owned_module *m = owned_of_rref(tt_rpc_arg_rref(call, 0));
    if (!m)
        return tt_last_status();
    pthread_mutex_lock(&m->lock);
    if (tt_rpc_arg_bool(call, 1))
        tt_module_train(m->module);
    else
        tt_module_eval(m->module);
    pthread_mutex_unlock(&m->lock);
    return TT_OK;
}

/* ---- the program's side */

struct tt_remote_module {
    tt_rref *rref;
};

tt_status tt__remote_module_new(const tt_remote_module_new_args *a) {
    if (!a->out)
        return tt__fail(TT_ERR_INVALID, "tt_remote_module_new: `out` is NULL");
    *a->out = NULL;
    tt_remote_module *module = calloc(1, sizeof *module);
    if (!module)
        return tt__fail(TT_ERR_MEMORY, "tt_remote_module_new: no memory");
    uint64_t before = tt__dist_outside();
    tt_status status = tt_rpc_remote(&module->rref, a->rpc, a->to, a->function, .args = a->args);
    if (!status)
        status = tt_rref_sync(module->rref, "tutti.module.check");
    tt__dist_reenter(before);
    if (status) {
        tt_remote_module_free(module);
        return tt__fail_prefix("tt_remote_module_new");
    }
    *a->out = module;
    return TT_OK;
}

tt_status tt_remote_module_forward_async(tt_future **out, tt_remote_module *module, tt_tensor *const *inputs,
                                         int64_t input_count, int64_t output_count) {
    static const char who[] = "tt_remote_module_forward_async";
    if (!out || !module || input_count < 0 || (input_count && !inputs))
        return tt__fail_argument("%s: expected a place, a module and inputs, got NULL", who);
    tt_rpc_value *values = calloc((size_t)input_count + 1, sizeof *values);
    if (!values)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for %" PRId64 " inputs", who, input_count);
    values[0] = tt_rpc_int(output_count);
    tt_status status = TT_OK;
    for (int64_t i = 0; i < input_count && !status; i++) {
        values[1 + i] = tt__tensor_value(inputs[i]);
        if (!inputs[i])
            status = tt__tensor_first_error(who);
    }
    if (!status)
        status = tt_rref_async(out, module->rref, "tutti.module.forward", .args = {values, 1 + input_count});
    free(values);
    return status;
}

static tt_status take_results(const tt_rpc_value *list, tt_tensor **outputs, int64_t count) {
    if (list->kind != TT_RPC_LIST || list->list.count != count)
        return tt__fail(TT_ERR_MISMATCH, "expected %" PRId64 " results, got %" PRId64, count,
                        list->kind == TT_RPC_LIST ? list->list.count : 0);
    for (int64_t i = 0; i < count; i++)
        if (!(outputs[i] = tt__take_tensor(&list->list.items[i])))
            return tt_last_status();
    return TT_OK;
}

tt_status tt_remote_module_forward_many(tt_remote_module *module, tt_tensor *const *inputs, int64_t input_count,
                                        tt_tensor **outputs, int64_t output_count) {
    static const char who[] = "tt_remote_module_forward_many";
    if (!outputs || output_count < 1)
        return tt__fail(TT_ERR_INVALID, "%s: expected outputs, got a count of %" PRId64 " and %s", who, output_count,
                        outputs ? "a list" : "NULL");
    tt_future *future = NULL;
    tt_rpc_value copy = tt_rpc_none();
    for (int64_t i = 0; i < output_count; i++)
        outputs[i] = NULL;
    tt_status status = tt_remote_module_forward_async(&future, module, inputs, input_count, output_count);
    if (!status)
        status = tt_future_wait(future, 0);
    if (!status)
        status = tt_rpc_value_copy(&copy, tt_future_value(future)); /* tensors are shared */
    if (!status)
        status = take_results(&copy, outputs, output_count);
    tt_rpc_value_free(&copy);
    tt_future_free(future);
    if (!status)
        return TT_OK;
    for (int64_t i = 0; i < output_count; i++)
        outputs[i] = NULL;
    return tt__fail_prefix("%s", who);
}

tt_tensor *tt_remote_module_forward(tt_remote_module *module, tt_tensor *x) {
    tt_tensor *y = NULL;
    if (!module || !x)
        return NULL;
    if (!tt_remote_module_forward_many(module, &x, 1, &y, 1))
        return y;
    return tt__tensor_fail(tt_last_status(), "%s", tt_last_error());
}

static tt_status take_rrefs(const tt_rpc_value *list, tt_rref ***params, int64_t *count) {
    tt_rref **rrefs = calloc((size_t)list->list.count + 1, sizeof *rrefs);
    if (!rrefs)
        return tt__fail(TT_ERR_MEMORY, "no memory for %" PRId64 " references", list->list.count);
    for (int64_t i = 0; i < list->list.count; i++)
        if (list->list.items[i].kind == TT_RPC_RREF)
            rrefs[i] = tt_rref_share(list->list.items[i].rref);
    *params = rrefs;
    *count = list->list.count;
    return TT_OK;
}

tt_status tt_remote_module_parameters(tt_remote_module *module, tt_rref ***params, int64_t *count) {
    static const char who[] = "tt_remote_module_parameters";
    if (!module || !params || !count)
        return tt__fail_argument("%s: expected a module and places, got NULL", who);
    *params = NULL;
    *count = 0;
    tt_rpc_value list = tt_rpc_none();
    uint64_t before = tt__dist_outside();
    tt_status status = tt_rref_sync(module->rref, "tutti.module.parameters", .result = &list);
    tt__dist_reenter(before);
    if (!status)
        status = take_rrefs(&list, params, count);
    tt_rpc_value_free(&list);
    return status ? tt__fail_prefix("%s", who) : TT_OK;
}

void tt_rrefs_free(tt_rref **rrefs, int64_t count) {
    for (int64_t i = 0; rrefs && i < count; i++)
        tt_rref_free(rrefs[i]);
    free(rrefs);
}

tt_status tt_remote_module_train(tt_remote_module *module, bool training) {
    if (!module)
        return tt__fail_argument("tt_remote_module_train: the module is NULL");
    uint64_t before = tt__dist_outside();
    tt_status status = tt_rref_sync(module->rref, "tutti.module.train", .args = TT_RPC_ARGS(tt_rpc_bool(training)));
    tt__dist_reenter(before);
    return status ? tt__fail_prefix("tt_remote_module_train") : TT_OK;
}

tt_rref *tt_remote_module_rref(const tt_remote_module *module) { return module ? module->rref : NULL; }

void tt_remote_module_free(tt_remote_module *module) {
    if (!module)
        return;
    tt_rref_free(module->rref);
    free(module);
}
