/* Record calls in a context: the scopes of functions, tensors that are sent, and tensors that arrive. */
#include "autograd/record.h"
#include "base/error.h"
#include "parallel/rpc/dist.h"

#include <stdlib.h>

/* ---- functions that run in a context, and in none */

/* A function that runs in this thread. */
typedef struct frame {
    struct frame *outer;
    tt__dist_context *context; /* a reference, or NULL */
    tt_scope *scope;           /* in a context; NULL: the scope is */
    int block;                 /* this one of the thread */
} frame;

static _Thread_local frame *frames;
static _Thread_local int unframed; /* functions for which there was no memory */

void tt__dist_enter(tt_rpc *rpc, uint64_t context) {
    frame *f = unframed ? NULL : calloc(1, sizeof *f);
    tt__dist *dist = context && f ? tt__dist_of(rpc) : NULL;
    tt__dist_reenter(context);
    if (!f) {
        unframed++;
        return;
    }
    f->outer = frames;
    frames = f;
    f->context = dist ? tt__dist_meet(dist, context) : NULL;
    f->scope = f->context ? tt_scope_new() : NULL;
    if (f->scope && tt_scope_enter(f->scope)) {
        tt_scope_free(f->scope);
        f->scope = NULL;
    }
    if (!f->scope)
        f->block = tt_scope_begin();
}

/* Let the context keep the tensors that a function has made, unless it has ended. */
static void keep_scope(tt__dist_context *context, tt_scope *scope) {
    pthread_mutex_lock(&context->lock);
    bool kept = !context->ended &&
                tt__dist_room(&context->scopes, context->scope_count, &context->scope_room, sizeof(tt_scope *));
    if (kept)
        context->scopes[context->scope_count++] = scope;
    pthread_mutex_unlock(&context->lock);
    if (!kept)
        tt_scope_free(scope);
}

void tt__dist_leave(uint64_t before) {
    tt__dist_reenter(before);
    if (unframed) {
        unframed--;
        return;
    }
    frame *f = frames;
    if (!f)
        return;
    frames = f->outer;
    if (f->scope) {
        tt_ignore(tt_scope_leave(f->scope));
        keep_scope(f->context, f->scope);
    } else {
        tt_scope_end(f->block);
    }
    tt__dist_unref(f->context);
    free(f);
}

/* ---- tensors that are sent */

/* Pass the gradients that came back on to the tensors that were sent. */
static tt_status sent_backward(tt_node *node) {
    for (int i = 0; i < node->inputs; i++)
        if (tt__grad_of(node, i))
            TT__TRY(tt__grad_give(node, i, tt__grad_of(node, i)));
    return TT_OK;
}

static const tt__operator sent_op = {.name = "a tensor sent to another worker", .backward = sent_backward};

tt_node *tt__dist_node(tt_tensor *const *tensors, int64_t count) {
    tt_node *node = tt__node_new(&sent_op, (int)count, tensors, (int)count, 0, NULL, 0);
    if (node)
        tt__scope_remove(&node->entry, TT__ENTRY_RECORD); /* it belongs to the context */
    return node;
}

static tt_status note_send(tt__dist_context *context, int to, tt_node *node, uint64_t *number) {
    pthread_mutex_lock(&context->lock);
    bool room = tt__dist_room(&context->sends, context->send_count, &context->send_room, sizeof *context->sends);
    if (room) {
        *number = atomic_fetch_add(&context->dist->last_message, 1) + 1;
        context->sends[context->send_count++] = (tt__dist_send){*number, to, node};
        tt__node_ref(node);
    }
    pthread_mutex_unlock(&context->lock);
    return room ? TT_OK : TT_ERR_MEMORY;
}

tt_status tt__dist_sending(tt_rpc *rpc, int to, tt__rpc_context *context, tt_tensor *const *tensors, int64_t count) {
    context->message = 0;
    if (count > INT32_MAX / 2 || !tt__wants_grad((int)count, tensors))
        return TT_OK;
    tt__dist *dist = tt__dist_of(rpc);
    if (!dist)
        return tt_last_status();
    tt__dist_context *of = tt__dist_meet(dist, context->context);
    if (!of) /* it has ended: nobody will ask */
        return TT_OK;
    tt_node *node = tt__dist_node(tensors, count);
    tt_status status = node ? note_send(of, to, node, &context->message) : tt_last_status();
    tt__node_unref(node);
    tt__dist_unref(of);
    return status;
}

const tt__dist_send *tt__dist_find_send(const tt__dist_context *context, uint64_t number) {
    int64_t low = 0, high = context->send_count;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (context->sends[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < context->send_count && context->sends[low].number == number ? &context->sends[low] : NULL;
}

/* ---- tensors that arrive */

static tt_status fill_receipt(tt__dist_context *context, tt__dist_receipt *receipt, tt_tensor *const *tensors) {
    for (int64_t i = 0; i < receipt->count; i++) {
        if (!tensors[i] || !tensors[i]->requires_grad)
            continue;
        if (!tt__pointer_map_put(&context->receipt_at, tensors[i], context->receipt_count))
            return tt__fail(TT_ERR_MEMORY, "no memory for a message in a context of distributed autograd");
        receipt->leaves[i] = tt__tensor_ref(tensors[i]);
    }
    return TT_OK;
}

/* After a failure the map may have leaves without a receipt: the call of this message fails. */
static tt_status note_receipt(tt__dist_context *context, tt__dist_receipt *receipt, tt_tensor *const *tensors) {
    if (!tt__dist_room(&context->receipts, context->receipt_count, &context->receipt_room, sizeof *receipt))
        return TT_ERR_MEMORY;
    receipt->leaves = calloc((size_t)receipt->count + 1, sizeof *receipt->leaves);
    if (!receipt->leaves)
        return tt__fail(TT_ERR_MEMORY, "no memory for a message of %lld tensors", (long long)receipt->count);
    tt_status status = fill_receipt(context, receipt, tensors);
    context->receipts[context->receipt_count++] = *receipt;
    return status;
}

tt_status tt__dist_received(tt_rpc *rpc, int from, const tt__rpc_context *context, tt_tensor **tensors, int64_t count) {
    tt__dist *dist = tt__dist_of(rpc);
    if (!dist)
        return tt_last_status();
    tt__dist_context *of = tt__dist_meet(dist, context->context);
    if (!of)
        return TT_OK;
    tt__dist_receipt receipt = {.number = context->message, .from = from, .count = count};
    pthread_mutex_lock(&of->lock);
    tt_status status = note_receipt(of, &receipt, tensors);
    pthread_mutex_unlock(&of->lock);
    tt__dist_unref(of);
    return status;
}
