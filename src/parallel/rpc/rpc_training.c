/* The functions that workers call of each other in a pass (dist_part.c), and the registration of these and all others.
 *
 * A constructor registers them, and the hooks for tensors in values. A static linker takes this file although nothing
 * calls a constructor, because every program that trains by calls uses one of the public functions below. */
#include "base/args.h"
#include "base/error.h"
#include "parallel/rpc/dist.h"
#include "tensor/ops/ops.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char pass_name[] = "tt_dist_autograd_backward";

/* The context and part that a call is about, each with a reference. */
static tt__dist_part *part_of_call(const tt_rpc_call *call, const char *what) {
    tt__dist *dist = tt__dist_of(tt_rpc_of_call(call));
    tt__dist_context *context = dist ? tt__dist_find(dist, what, tt_rpc_arg_int(call, 0)) : NULL;
    tt__dist_part *part = context ? tt__dist_part_find(context, (uint64_t)tt_rpc_arg_int(call, 1)) : NULL;
    tt__dist_unref(context);
    return part;
}

static tt_status check_leader(const tt__dist_part *part, const tt_rpc_call *call) {
    return part->leader == tt_rpc_caller(call)
               ? TT_OK
               : tt__fail(TT_ERR_INVALID, "%s: worker %d leads this pass, not worker %d", pass_name, part->leader,
                          tt_rpc_caller(call));
}

static tt_status serve_reach(tt_rpc_call *call) {
    const tt_rpc_value *numbers = tt_rpc_arg(call, 3);
    tt__dist *dist = tt__dist_of(tt_rpc_of_call(call));
    tt__dist_context *context = dist ? tt__dist_find(dist, pass_name, tt_rpc_arg_int(call, 0)) : NULL;
    if (!context)
        return tt_last_status();
    int64_t *list = calloc(numbers->bytes.size / sizeof *list + 1, sizeof *list); /* aligned */
    tt__dist_part *part = list ? tt__dist_part_begin(context, (uint64_t)tt_rpc_arg_int(call, 1), tt_rpc_caller(call),
                                                     tt_rpc_arg_bool(call, 2))
                               : tt__fail_null(TT_ERR_MEMORY, "%s: no memory for a pass", pass_name);
    tt__dist_messages found = {0};
    tt_status status = part ? TT_OK : tt_last_status();
    if (!status) {
        memcpy(list, numbers->bytes.data, numbers->bytes.size / sizeof *list * sizeof *list);
        status = tt__dist_part_reach(part, list, (int64_t)(numbers->bytes.size / sizeof *list), &found);
    }
    if (!status)
        status = tt_rpc_return(call, tt_rpc_bytes(found.list, (size_t)found.count * sizeof *found.list));
    free(found.list);
    free(list);
    tt__dist_part_unref(part);
    tt__dist_unref(context);
    return status;
}

/* Answer the leader's finish(), or make the future *later that will. The context is locked. */
static tt_status begin_question(tt__dist_part *part, tt_future **later) {
    *later = NULL;
    if (part->state == TT__DIST_FAILED)
        return tt__fail(part->status, "%s", part->text ? part->text : tt_status_text(part->status));
    if (tt__dist_part_is_done(part))
        return TT_OK;
    if (part->finished)
        return tt__fail(TT_ERR_STATE, "%s: the leader has asked before", pass_name);
    part->finished = tt_future_new();
    *later = tt_future_share(part->finished);
    return part->finished ? TT_OK : tt_last_status();
}

static tt_status serve_finish(tt_rpc_call *call) {
    tt__dist_part *part = part_of_call(call, "finish");
    tt_future *later = NULL;
    if (!part)
        return tt_last_status();
    tt_status status = check_leader(part, call);
    bool mine = false;
    if (!status) {
        pthread_mutex_lock(&part->context->lock);
        status = begin_question(part, &later);
        mine = !later && tt__dist_part_detach(part);
        pthread_mutex_unlock(&part->context->lock);
    }
    if (later)
        status = tt_rpc_return_future(call, later);
    tt_future_free(later);
    if (mine)
        tt__dist_part_unref(part);
    tt__dist_part_unref(part);
    return status;
}

/* Take the gradients of a source out of a list. The context is locked. */
static tt_status take_gradients(tt__dist_source *s, const tt_rpc_value *list) {
    if (list->list.count != s->node->outputs)
        return tt__fail(TT_ERR_MISMATCH, "%s: expected gradients of %d tensors, got %" PRId64, pass_name,
                        s->node->outputs, list->list.count);
    s->gradients = calloc((size_t)list->list.count + 1, sizeof *s->gradients);
    if (!s->gradients)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for gradients", pass_name);
    for (int64_t i = 0; i < list->list.count; i++) {
        const tt_rpc_value *item = &list->list.items[i];
        tt_tensor *came = tt__value_tensor(item);
        if (!came && item->kind != TT_RPC_NONE)
            return tt__fail(TT_ERR_MISMATCH, "%s: expected gradients, got %s", pass_name, tt_rpc_kind_name(item->kind));
        const tt_device *device = s->node->edge[i].device;
        if (!came || !device || tt__device_of(came) == device)
            s->gradients[i] = tt__tensor_ref(came);
        else if (!(s->gradients[i] = tt__tensor_ref(tt__to_device(pass_name, came, device))))
            return tt_last_status();
    }
    return TT_OK;
}

static tt_status gradients_came(tt__dist_part *part, int from, uint64_t number, const tt_rpc_value *list) {
    const tt__dist_send *send = tt__dist_find_send(part->context, number);
    int64_t index = send && send->to == from ? send - part->context->sends : part->send_count;
    int64_t at = index < part->send_count ? part->source_at[index] : 0;
    tt__dist_source *s = at ? &part->sources[at - 1] : NULL;
    if (!s || s->gradients)
        return tt__fail(TT_ERR_STATE, "%s: worker %d sent gradients of message %" PRIu64 "%s", pass_name, from, number,
                        s ? " twice" : ", which it did not get, or which does not matter");
    return take_gradients(s, list);
}

static tt_status serve_gradient(tt_rpc_call *call) {
    tt__dist_part *part = part_of_call(call, "gradient");
    if (!part)
        return tt_last_status();
    pthread_mutex_lock(&part->context->lock);
    tt_status status =
        gradients_came(part, tt_rpc_caller(call), (uint64_t)tt_rpc_arg_int(call, 2), tt_rpc_arg(call, 3));
    pthread_mutex_unlock(&part->context->lock);
    if (!status)
        tt__dist_part_walk(part);
    tt__dist_part_unref(part);
    return status;
}

/* End a part, which may have ended already. */
static tt_status serve_abort(tt_rpc_call *call) {
    tt__dist_part *part = part_of_call(call, "abort");
    tt_status status = part ? check_leader(part, call) : TT_OK;
    if (part && !status) {
        tt__fail(TT_ERR_STATE, "%s: worker %d has ended the pass", pass_name, part->leader);
        tt__dist_part_end(part->context, part->pass);
    }
    tt__dist_part_unref(part);
    if (!status)
        tt_clear_error();
    return status;
}

/* ---- registering ---- */

__attribute__((constructor)) static void register_training(void) {
    tt__rpc_set_tensor_hooks(&tt__tensor_hooks);
#define REGISTER_SERVED(function, name, signature) tt_rpc_register_at_load(name, signature, tt__serve_##function);
    TT__TRAINING_FUNCTIONS(REGISTER_SERVED)
    tt_rpc_register_at_load("tutti.autograd.reach", "(int context, int pass, bool retain, bytes numbers) -> bytes",
                            serve_reach);
    tt_rpc_register_at_load("tutti.autograd.finish", "(int context, int pass)", serve_finish);
    tt_rpc_register_at_load("tutti.autograd.gradient", "(int context, int pass, int number, list gradients)",
                            serve_gradient);
    tt_rpc_register_at_load("tutti.autograd.abort", "(int context, int pass)", serve_abort);
}

/* ---- public functions that every program which trains by calls uses one of ---- */

tt_rpc_value tt_rpc_tensor(tt_tensor *x) { return tt__tensor_value(x); }

tt_tensor *tt_rpc_value_tensor(const tt_rpc_value *value) { return tt__value_tensor(value); }

tt_tensor *tt_rpc_arg_tensor(const tt_rpc_call *call, int64_t index) {
    return tt__value_tensor(tt_rpc_arg(call, index));
}

tt_tensor *tt_rpc_take_tensor(tt_rpc_value *value) { return tt__take_tensor(value); }

tt_status tt_dist_autograd_begin(int64_t *context, tt_rpc *rpc) { return tt__dist_begin(context, rpc); }

tt_status tt_rpc_return_module(tt_rpc_call *call, tt_module *module) { return tt__return_module(call, module); }

tt_status tt_remote_module_new_with(const tt_remote_module_new_args *args, size_t size) {
    tt_remote_module_new_args a;
    TT__ARGS_COPY(a, args, size);
    return tt__remote_module_new(&a);
}

tt_status tt_dist_optimizer_new_with(const tt_dist_optimizer_new_args *args, size_t size) {
    tt_dist_optimizer_new_args a;
    TT__ARGS_COPY(a, args, size);
    return tt__dist_optimizer_new(&a);
}
