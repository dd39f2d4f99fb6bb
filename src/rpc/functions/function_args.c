/* What a function sees of the call that it serves: arguments and result. */
#include "base/error.h"
#include "rpc/functions/served_call.h"
#include "rpc/values/rpc_value.h"

int64_t tt_rpc_arg_count(const tt_rpc_call *call) { return call ? call->args.list.count : 0; }

const tt_rpc_value *tt_rpc_arg(const tt_rpc_call *call, int64_t index) {
    static const tt_rpc_value none;
    return call && index >= 0 && index < call->args.list.count ? &call->args.list.items[index] : &none;
}

bool tt_rpc_arg_bool(const tt_rpc_call *call, int64_t index) {
    const tt_rpc_value *value = tt_rpc_arg(call, index);
    return value->kind == TT_RPC_BOOL && value->boolean;
}

int64_t tt_rpc_arg_int(const tt_rpc_call *call, int64_t index) {
    const tt_rpc_value *value = tt_rpc_arg(call, index);
    return value->kind == TT_RPC_INT ? value->integer : 0;
}

double tt_rpc_arg_float(const tt_rpc_call *call, int64_t index) {
    const tt_rpc_value *value = tt_rpc_arg(call, index);
    return value->kind == TT_RPC_FLOAT ? value->number : value->kind == TT_RPC_INT ? (double)value->integer : 0;
}

const char *tt_rpc_arg_text(const tt_rpc_call *call, int64_t index) {
    const tt_rpc_value *value = tt_rpc_arg(call, index);
    return value->kind == TT_RPC_TEXT ? value->bytes.data : NULL;
}

tt_rref *tt_rpc_arg_rref(const tt_rpc_call *call, int64_t index) {
    const tt_rpc_value *value = tt_rpc_arg(call, index);
    return value->kind == TT_RPC_RREF ? value->rref : NULL;
}

tt_status tt_rpc_take_arg(tt_rpc_call *call, int64_t index, tt_rpc_value *out) {
    if (!call || !out)
        return tt__fail_argument("tt_rpc_take_arg: expected a call and a place, got NULL");
    if (index < 0 || index >= call->args.list.count)
        return tt__fail(TT_ERR_INVALID, "tt_rpc_take_arg: there is no argument %lld: the call has %lld",
                        (long long)index, (long long)call->args.list.count);
    tt_rpc_value *value = &call->args.list.items[index];
    if (!value->lent && (value->kind == TT_RPC_TEXT || value->kind == TT_RPC_BYTES))
        TT__TRY(tt_rpc_value_copy(out, value)); /* the data is in the packet */
    else if (value->kind == TT_RPC_LIST || value->kind == TT_RPC_MAP)
        TT__TRY(tt_rpc_value_copy(out, value));
    else {
        *out = *value;
        tt__value_take_back(out);
        *value = tt_rpc_none();
        return TT_OK;
    }
    tt__value_free_lent(value);
    return TT_OK;
}

tt_status tt_rpc_return(tt_rpc_call *call, tt_rpc_value value) {
    tt_rpc_value kept = value;
    tt_status status = call ? TT_OK : tt__fail_argument("tt_rpc_return: the call is NULL");
    if (!status && (call->returned || call->later))
        status = tt__fail(TT_ERR_STATE, "tt_rpc_return: the call has a result already");
    if (!status && tt_last_status() && tt__signature_is_null(&call->function->signature.result, &value))
        status = tt_last_status(); /* of what made it NULL */
    if (!status)
        status =
            tt__signature_check_result(&call->function->signature, call->function->name, call->function->text, &value);
    if (!status && !value.owned)
        status = tt_rpc_value_copy(&kept, &value);
    if (status) {
        tt_rpc_value_free(&kept);
        return status;
    }
    call->result = kept;
    call->returned = true;
    return TT_OK;
}

tt_status tt_rpc_return_future(tt_rpc_call *call, tt_future *future) {
    if (!call || !future)
        return tt__fail_argument("tt_rpc_return_future: expected a call and a future, got NULL");
    if (call->returned || call->later)
        return tt__fail(TT_ERR_STATE, "tt_rpc_return_future: the call has a result already");
    call->later = tt_future_share(future);
    return TT_OK;
}

int tt_rpc_caller(const tt_rpc_call *call) { return call ? call->from : -1; }

tt_rpc *tt_rpc_of_call(const tt_rpc_call *call) { return call ? call->rpc : NULL; }
