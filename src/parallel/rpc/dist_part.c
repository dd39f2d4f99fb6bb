/* A worker's part of a backward pass over a context. The leader is the worker that called backward.
 *
 *   leader                                     every worker, the leader included
 *   1. find the messages that the roots depend on
 *   reach(numbers of sends) ---------------->  marks these sends as sources, follows the graph from them
 *                           <----------------  the receipts that it came to: (sender, number), each named once
 *   ... and so on, until no new receipts are named. Now each worker knows the sends whose gradients will come
 *   2. compute
 *   finish() ------------------------------->  is answered when the part is done, or has failed
 *                                              walks the graph from the roots, and from each source when its gradients
 *                                              have come: gradient(number, gradients), sent by the worker that has the
 *                                              receipt, as soon as the gradients of all its leaves are final
 *   3. only after a failure
 *   abort() -------------------------------->  ends its part
 *
 * A part is walked by the thread that brought it a gradient. */
#include "base/error.h"
#include "parallel/rpc/dist.h"
#include "tensor/ops/ops.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char pass_name[] = "tt_dist_autograd_backward";

/* ---- life */

static void part_free(tt__dist_part *part) {
    tt__open_pass_free(part->open);
    for (int64_t i = 0; i < part->source_count; i++) {
        tt__dist_source *s = &part->sources[i];
        for (int k = 0; s->gradients && k < s->node->outputs; k++)
            tt__tensor_unref(s->gradients[k]);
        free(s->gradients);
        tt__node_unref(s->node);
    }
    free(part->sources);
    free(part->source_at);
    free(part->receipts);
    free(part->text);
    tt_future_free(part->finished);
    tt__dist_unref(part->context);
    free(part);
}

void tt__dist_part_unref(tt__dist_part *part) {
    if (!part)
        return;
    pthread_mutex_lock(&part->context->lock);
    bool last = !--part->refs;
    pthread_mutex_unlock(&part->context->lock);
    if (last)
        part_free(part);
}

static void ref_context(tt__dist_context *context) {
    pthread_mutex_lock(&context->dist->lock);
    context->refs++;
    pthread_mutex_unlock(&context->dist->lock);
}

static tt__dist_part *part_new(tt__dist_context *context, uint64_t pass, int leader, bool retain) {
    tt__dist_part *part = calloc(1, sizeof *part);
    if (!part)
        return tt__fail_null(TT_ERR_MEMORY, "%s: no memory for a pass", pass_name);
    ref_context(context);
    *part = (tt__dist_part){.refs = 2, .context = context, .pass = pass, .leader = leader, .retain = retain};
    return part;
}

static tt__dist_part *begin_here(tt__dist_context *context, tt__dist_part *part) {
    context->leader = part->leader;
    context->end_part = tt__dist_part_end;
    return context->part = part;
}

tt__dist_part *tt__dist_part_begin(tt__dist_context *context, uint64_t pass, int leader, bool retain) {
    tt__dist_part *made = part_new(context, pass, leader, retain), *part = NULL;
    if (!made)
        return NULL;
    pthread_mutex_lock(&context->lock);
    tt__dist_part *there = context->part;
    bool taken = there && (there->pass != pass || there->leader != leader);
    int leads = there ? there->leader : -1;
    bool gone = context->ended;
    if (!there && !gone)
        part = begin_here(context, made);
    else if (!taken && !gone)
        (part = there)->refs++;
    pthread_mutex_unlock(&context->lock);
    if (part != made) {
        made->refs = 1;
        tt__dist_part_unref(made);
    }
    if (!part && gone)
        return tt__fail_null(TT_ERR_NOT_FOUND, "%s: context %" PRIu64 " has ended", pass_name, context->id);
    return part ? part
                : tt__fail_null(TT_ERR_STATE,
                                "%s: another pass over context %" PRIu64 ", which worker %d began, is under way",
                                pass_name, context->id, leads);
}

tt__dist_part *tt__dist_part_find(tt__dist_context *context, uint64_t pass) {
    pthread_mutex_lock(&context->lock);
    tt__dist_part *part = context->part && context->part->pass == pass ? context->part : NULL;
    if (part)
        part->refs++;
    pthread_mutex_unlock(&context->lock);
    return part ? part
                : tt__fail_null(TT_ERR_NOT_FOUND, "%s: pass %" PRIu64 " over context %" PRIu64 " is not under way here",
                                pass_name, pass, context->id);
}

bool tt__dist_part_detach(tt__dist_part *part) {
    if (part->context->part != part)
        return false;
    part->context->part = NULL;
    return true;
}

/* End the part with this thread's last error, unless it has ended, and tell the leader if it has asked. */
static void part_fail(tt__dist_part *part) {
    tt_status status = tt_last_status();
    pthread_mutex_lock(&part->context->lock);
    bool fails = part->state < TT__DIST_DONE || (part->state == TT__DIST_DONE && part->parcels);
    tt_future *finished = fails ? part->finished : NULL;
    if (fails) {
        part->state = TT__DIST_FAILED;
        part->status = status ? status : TT_ERR_STATE;
        part->text = strdup(tt_last_error());
        part->finished = NULL;
    }
    bool mine = finished && tt__dist_part_detach(part);
    pthread_mutex_unlock(&part->context->lock);
    if (finished)
        tt_ignore(tt_future_set_error(finished));
    tt_future_free(finished);
    if (mine)
        tt__dist_part_unref(part);
}

void tt__dist_part_end(tt__dist_context *context, uint64_t pass) {
    pthread_mutex_lock(&context->lock);
    tt__dist_part *part = context->part && (!pass || context->part->pass == pass) ? context->part : NULL;
    if (part)
        part->refs++;
    pthread_mutex_unlock(&context->lock);
    if (!part)
        return;
    part_fail(part);
    pthread_mutex_lock(&context->lock);
    bool mine = tt__dist_part_detach(part);
    pthread_mutex_unlock(&context->lock);
    if (mine)
        tt__dist_part_unref(part);
    tt__dist_part_unref(part);
}

/* ---- finding what matters */

static tt_status add_source(tt__dist_part *part, tt_node *node, int to) {
    if (part->state != TT__DIST_FINDING)
        return tt__fail(TT_ERR_STATE, "%s: the pass walks already", pass_name);
    if (tt__node_is_spent(node))
        return tt__fail(TT_ERR_STATE,
                        "%s: the record of a tensor sent to worker %d is spent: it went through a pass over this "
                        "context before; .retain_graph keeps it",
                        pass_name, to);
    if (!tt__dist_room(&part->sources, part->source_count, &part->source_room, sizeof *part->sources))
        return TT_ERR_MEMORY;
    tt__node_ref(node);
    part->sources[part->source_count++] = (tt__dist_source){.node = node, .to = to};
    return TT_OK;
}

/* Grow a list that begins with `*count` elements to `wanted`, with zeros. */
static tt_status grow_list(void *list, int64_t *count, int64_t wanted, size_t size) {
    if (*count >= wanted)
        return TT_OK;
    char *more = realloc(*(void **)list, (size_t)wanted * size);
    if (!more)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for a pass", pass_name);
    memset(more + (size_t)*count * size, 0, (size_t)(wanted - *count) * size);
    *(void **)list = more;
    *count = wanted;
    return TT_OK;
}

/* Make room for messages that the context has recorded meanwhile. */
static tt_status follow_context(tt__dist_part *part) {
    const tt__dist_context *c = part->context;
    TT__TRY(grow_list(&part->receipts, &part->receipt_count, c->receipt_count, sizeof *part->receipts));
    return grow_list(&part->source_at, &part->send_count, c->send_count, sizeof *part->source_at);
}

/* Find the messages that the sources from index `first` on depend on, except those that were found before. */
static tt_status find_from(tt__dist_part *part, int64_t first, tt__dist_messages *found) {
    int64_t count = part->source_count - first;
    tt_node **nodes = calloc((size_t)count + 1, sizeof *nodes);
    if (!nodes)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for a pass", pass_name);
    for (int64_t i = 0; i < count; i++)
        nodes[i] = part->sources[first + i].node;
    tt__reach reach;
    tt_status status = tt__reach_from_nodes(&reach, nodes, count);
    for (int64_t i = 0; i < reach.leaf_count && !status; i++) {
        int64_t at = tt__pointer_map_get(&part->context->receipt_at, reach.leaves[i].tensor);
        if (at < 0 || at >= part->receipt_count || part->receipts[at].needed)
            continue;
        part->receipts[at].needed = true;
        const tt__dist_receipt *r = &part->context->receipts[at];
        status = tt__dist_messages_add(found, r->from, (int64_t)r->number);
    }
    tt__reach_free(&reach);
    free(nodes);
    return status;
}

static tt_status part_roots(tt__dist_part *part, tt_node *node, tt__dist_messages *found) {
    TT__TRY(follow_context(part));
    TT__TRY(add_source(part, node, -1));
    return find_from(part, part->source_count - 1, found);
}

/* Set the gradients of the roots, the last source, to 1. */
static tt_status fill_roots(tt__dist_part *part, tt_tensor *const *roots, int64_t count) {
    tt__dist_source *s = &part->sources[part->source_count - 1];
    s->gradients = calloc((size_t)count, sizeof(tt_tensor *));
    if (!s->gradients)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for a pass", pass_name);
    for (int64_t i = 0; i < count; i++) {
        int scope = tt_scope_begin();
        tt_tensor *one = tt__empty_like(pass_name, roots[i]);
        tt_status status = one ? tt__fill_out(pass_name, one, 1) : tt_last_status();
        if (!status)
            s->gradients[i] = tt__tensor_ref(one);
        tt_scope_end(scope);
        TT__TRY(status);
    }
    return TT_OK;
}

tt_status tt__dist_part_roots(tt__dist_part *part, tt_tensor *const *roots, int64_t count, tt__dist_messages *found) {
    tt_node *node = tt__dist_node(roots, count);
    if (!node)
        return tt_last_status();
    pthread_mutex_lock(&part->context->lock);
    tt_status status = part_roots(part, node, found);
    if (!status)
        status = fill_roots(part, roots, count);
    pthread_mutex_unlock(&part->context->lock);
    tt__node_unref(node);
    return status;
}

static tt_status add_sends(tt__dist_part *part, const int64_t *numbers, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        const tt__dist_send *send = tt__dist_find_send(part->context, (uint64_t)numbers[i]);
        if (!send)
            return tt__fail(TT_ERR_NOT_FOUND, "%s: message %" PRId64 " was not sent here in context %" PRIu64,
                            pass_name, numbers[i], part->context->id);
        int64_t *at = &part->source_at[send - part->context->sends];
        if (*at)
            return tt__fail(TT_ERR_STATE, "%s: message %" PRId64 " was named twice", pass_name, numbers[i]);
        TT__TRY(add_source(part, send->node, send->to));
        *at = part->source_count;
    }
    return TT_OK;
}

tt_status tt__dist_part_reach(tt__dist_part *part, const int64_t *numbers, int64_t count, tt__dist_messages *found) {
    pthread_mutex_lock(&part->context->lock);
    int64_t first = part->source_count;
    tt_status status = follow_context(part);
    if (!status)
        status = add_sends(part, numbers, count);
    if (!status)
        status = find_from(part, first, found);
    pthread_mutex_unlock(&part->context->lock);
    return status;
}

/* ---- the answer to the leader */

/* If the part is done, return the future that answers the leader's finish(), or NULL. The context is locked. */
static tt_future *question_of_done(tt__dist_part *part) {
    tt_future *finished = tt__dist_part_is_done(part) ? part->finished : NULL;
    if (finished)
        part->finished = NULL;
    return finished;
}

static void answer_if_done(tt__dist_part *part) {
    pthread_mutex_lock(&part->context->lock);
    tt_future *finished = question_of_done(part);
    bool mine = finished && tt__dist_part_detach(part);
    pthread_mutex_unlock(&part->context->lock);
    if (finished)
        tt_ignore(tt_future_set_value(finished, tt_rpc_none()));
    tt_future_free(finished);
    if (mine)
        tt__dist_part_unref(part);
}

/* ---- sending gradients on */

/* Gradients of a receipt that are being sent back to the sender of the message. */
typedef struct parcel_back {
    tt__dist_part *part; /* a reference */
    int to;
    int64_t count;
    tt_tensor **gradients; /* references */
} parcel_back;

static void parcel_back_free(parcel_back *p) {
    for (int64_t i = 0; i < p->count; i++)
        tt__tensor_unref(p->gradients[i]);
    free(p->gradients);
    pthread_mutex_lock(&p->part->context->lock);
    p->part->parcels--;
    pthread_mutex_unlock(&p->part->context->lock);
    answer_if_done(p->part);
    tt__dist_part_unref(p->part);
    free(p);
}

static void on_gradients_sent(tt_future *future, void *user) {
    parcel_back *p = user;
    if (!tt_future_value(future)) {
        tt__fail_prefix("a gradient to worker %d", p->to);
        part_fail(p->part);
        tt_clear_error();
    }
    parcel_back_free(p);
}

static tt_status begin_parcel(parcel_back *p, uint64_t number) {
    tt_rpc_value *values = calloc((size_t)p->count + 1, sizeof *values);
    if (!values) {
        tt_ignore(tt__fail(TT_ERR_MEMORY, "%s: no memory for a message", pass_name));
        return TT_ERR_MEMORY;
    }
    for (int64_t i = 0; i < p->count; i++)
        values[i] = tt__tensor_value(p->gradients[i]);
    tt_status status =
        tt__dist_call(p->part->context->dist, p->to, "tutti.autograd.gradient",
                      TT_RPC_ARGS(tt_rpc_int((int64_t)p->part->context->id), tt_rpc_int((int64_t)p->part->pass),
                                  tt_rpc_int((int64_t)number), tt_rpc_list(values, p->count)),
                      on_gradients_sent, p);
    free(values);
    return status;
}

/* Send the gradients of a receipt, which are all final. Called by the thread that walks, without locks. */
static tt_status send_gradients_back(tt__dist_part *part, const tt__dist_receipt *receipt) {
    parcel_back *p = calloc(1, sizeof *p);
    tt_tensor **gradients = calloc((size_t)receipt->count + 1, sizeof *gradients);
    if (!p || !gradients) {
        free(p);
        free(gradients);
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for a message", pass_name);
    }
    pthread_mutex_lock(&part->context->lock);
    part->refs++;
    part->parcels++;
    pthread_mutex_unlock(&part->context->lock);
    *p = (parcel_back){part, receipt->from, receipt->count, gradients};
    for (int64_t i = 0; i < receipt->count; i++) {
        int64_t at = receipt->leaves[i] ? tt__pointer_map_get(&part->open->capture.at, receipt->leaves[i]) : -1;
        gradients[i] = at < 0 ? NULL : tt__tensor_ref(part->open->capture.grads[at]);
    }
    tt_status status = begin_parcel(p, receipt->number);
    if (status)
        parcel_back_free(p);
    return status;
}

static tt_status leaf_is_done(void *user, tt_tensor *leaf, tt_tensor *gradient) {
    tt__dist_part *part = user;
    (void)gradient;
    tt__dist_receipt receipt = {0};
    pthread_mutex_lock(&part->context->lock);
    int64_t at = tt__pointer_map_get(&part->context->receipt_at, leaf);
    if (at >= 0 && at < part->receipt_count && !--part->receipts[at].waits)
        receipt = part->context->receipts[at]; /* a copy, as the array may move */
    pthread_mutex_unlock(&part->context->lock);
    return receipt.leaves ? send_gradients_back(part, &receipt) : TT_OK;
}

/* ---- walking */

/* Begin to walk. The context is locked. */
static tt_status open_walk(tt__dist_part *part) {
    tt_node **nodes = calloc((size_t)part->source_count + 1, sizeof *nodes);
    if (!nodes)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for a pass", pass_name);
    for (int64_t i = 0; i < part->source_count; i++)
        nodes[i] = part->sources[i].node;
    tt_status status = tt__open_pass_new(&part->open, nodes, part->source_count, part->retain, leaf_is_done, part);
    free(nodes);
    TT__TRY(status);
    part->state = TT__DIST_WALKS;
    for (int64_t i = 0; i < part->open->reach.leaf_count; i++) {
        int64_t at = tt__pointer_map_get(&part->context->receipt_at, part->open->reach.leaves[i].tensor);
        if (at >= 0 && at < part->receipt_count)
            part->receipts[at].waits++;
    }
    return TT_OK;
}

static tt_status give_what_came(tt__dist_part *part) {
    for (int64_t i = 0; i < part->source_count; i++) {
        tt__dist_source *s = &part->sources[i];
        if (!s->gradients || s->given)
            continue;
        s->given = true;
        TT__TRY(tt__open_pass_give(part->open, s->node, s->gradients, s->node->outputs));
        /* the walk has its own references, and may overwrite tensors that have no other */
        for (int k = 0; k < s->node->outputs; k++) {
            tt__tensor_unref(s->gradients[k]);
            s->gradients[k] = NULL;
        }
    }
    return TT_OK;
}

/* Refuse a message that step 1 did not find, as only an operator's own backward pass leads to it. */
static tt_status refuse_unforeseen(const tt__dist_receipt *receipt) {
    return tt__fail(TT_ERR_UNSUPPORTED,
                    "%s: a tensor from worker %d is used inside of tt_recompute() or a function of one's own, but is "
                    "not among its inputs: pass it as one",
                    pass_name, receipt->from);
}

static tt_status keep_gradients(tt__dist_part *part) {
    tt__dist_context *context = part->context;
    for (int64_t i = 0; i < part->open->leaf_count; i++) {
        tt_tensor *leaf = part->open->leaves[i], **gradient = &part->open->capture.grads[i];
        int64_t at = tt__pointer_map_get(&context->receipt_at, leaf);
        if (at >= 0 && *gradient && (at >= part->receipt_count || !part->receipts[at].needed))
            return refuse_unforeseen(&context->receipts[at]);
        if (at < 0 && *gradient)
            TT__TRY(tt__dist_add_grad(context, leaf, *gradient));
        tt__tensor_unref(*gradient);
        *gradient = NULL;
    }
    return TT_OK;
}

/* Walk once. *more: further gradients have come meanwhile. The context is locked, and unlocked while it walks. */
static tt_status walk_round(tt__dist_part *part, bool *more) {
    *more = false;
    if (part->state == TT__DIST_FINDING)
        TT__TRY(open_walk(part));
    TT__TRY(give_what_came(part));
    part->again = false;
    pthread_mutex_unlock(&part->context->lock);
    tt_status status = tt__open_pass_walk(part->open);
    pthread_mutex_lock(&part->context->lock);
    TT__TRY(status);
    if (part->state == TT__DIST_WALKS && tt__open_pass_is_done(part->open)) {
        TT__TRY(keep_gradients(part));
        part->state = TT__DIST_DONE;
    }
    *more = part->again && part->state == TT__DIST_WALKS;
    return TT_OK;
}

void tt__dist_part_walk(tt__dist_part *part) {
    tt_status status = TT_OK;
    pthread_mutex_lock(&part->context->lock);
    bool walks = !part->walking && part->state < TT__DIST_DONE;
    part->again = true;
    part->walking |= walks;
    for (bool more = walks; more && !status;)
        status = walk_round(part, &more);
    if (walks)
        part->walking = false;
    pthread_mutex_unlock(&part->context->lock);
    if (status) {
        part_fail(part);
        tt_clear_error();
    } else {
        answer_if_done(part);
    }
}
