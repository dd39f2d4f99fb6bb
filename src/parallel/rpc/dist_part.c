#include "parallel/rpc/dist_part.h"

#include "base/error.h"
#include "tensor/ops.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char pass_name[] = "tt_dist_autograd_backward";

/* Where the pass begins on this worker: a message that it sent, or the roots. */
typedef struct part_source {
    tt_node *node;         /* a reference */
    int to;                /* -1: the roots */
    tt_tensor **gradients; /* references; NULL: they have not come */
    bool given;            /* to the walk */
} part_source;

/* Of a receipt of the context. */
typedef struct part_receipt {
    bool needed;
    int64_t waits; /* its leaves that are not final */
} part_receipt;

typedef enum part_state { PART_FINDING, PART_WALKS, PART_DONE, PART_FAILED } part_state;

/* Guarded by the context's lock; `open` is the walking thread's. */
struct tt__dist_part {
    int refs;
    tt__dist_context *context; /* a reference */
    uint64_t pass;
    int leader;
    bool retain;
    part_state state;
    part_source *sources;
    int64_t source_count, source_room;
    int64_t *source_at; /* of a message that was sent, by the context's index: 1 + its source; 0: it does not matter */
    int64_t send_count;
    part_receipt *receipts; /* by the context's index */
    int64_t receipt_count;
    tt__open_pass *open;
    bool walking, again; /* again: gradients have come meanwhile */
    tt_future *finished; /* the leader's question, or NULL */
    tt_status status;    /* of one that failed; and its text */
    char *text;
};

/* ---- life */

static void part_free(tt__dist_part *part) {
    tt__open_pass_free(part->open);
    for (int64_t i = 0; i < part->source_count; i++) {
        part_source *s = &part->sources[i];
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
        part = context->part = made;
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

/* Find the part of this pass; with a reference. */
static tt__dist_part *part_find(tt__dist_context *context, uint64_t pass) {
    pthread_mutex_lock(&context->lock);
    tt__dist_part *part = context->part && context->part->pass == pass ? context->part : NULL;
    if (part)
        part->refs++;
    pthread_mutex_unlock(&context->lock);
    return part ? part
                : tt__fail_null(TT_ERR_NOT_FOUND, "%s: pass %" PRIu64 " over context %" PRIu64 " is not under way here",
                                pass_name, pass, context->id);
}

uint64_t tt__dist_pass_of(tt__dist_context *context, int *leader) {
    pthread_mutex_lock(&context->lock);
    uint64_t pass = context->part ? context->part->pass : 0;
    if (pass)
        *leader = context->part->leader;
    pthread_mutex_unlock(&context->lock);
    return pass;
}

/* The leader knows how it ended: the context is free for another pass. The context is locked; true: a reference is the
 * caller's to drop. */
static bool detach_part(tt__dist_part *part) {
    if (part->context->part != part)
        return false;
    part->context->part = NULL;
    return true;
}

/* End the part with this thread's last error, unless it has ended, and tell the leader if it has asked. */
static void part_fail(tt__dist_part *part) {
    tt_status status = tt_last_status();
    pthread_mutex_lock(&part->context->lock);
    bool fails = part->state < PART_DONE;
    tt_future *finished = fails ? part->finished : NULL;
    if (fails) {
        part->state = PART_FAILED;
        part->status = status ? status : TT_ERR_STATE;
        part->text = strdup(tt_last_error());
        part->finished = NULL;
    }
    bool mine = finished && detach_part(part);
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
    bool mine = detach_part(part);
    pthread_mutex_unlock(&context->lock);
    if (mine)
        tt__dist_part_unref(part);
    tt__dist_part_unref(part);
}

/* ---- finding what matters */

static tt_status add_source(tt__dist_part *part, tt_node *node, int to) {
    if (part->state != PART_FINDING)
        return tt__fail(TT_ERR_STATE, "%s: the pass walks already", pass_name);
    if (tt__node_is_spent(node))
        return tt__fail(TT_ERR_STATE,
                        "%s: the record of a tensor sent to worker %d is spent: it went through a pass over this "
                        "context before; .retain_graph keeps it",
                        pass_name, to);
    if (!tt__dist_room(&part->sources, part->source_count, &part->source_room, sizeof *part->sources))
        return TT_ERR_MEMORY;
    tt__node_ref(node);
    part->sources[part->source_count++] = (part_source){.node = node, .to = to};
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

/* The context may have come to know more since. */
static tt_status follow_context(tt__dist_part *part) {
    const tt__dist_context *c = part->context;
    TT__TRY(grow_list(&part->receipts, &part->receipt_count, c->receipt_count, sizeof *part->receipts));
    return grow_list(&part->source_at, &part->send_count, c->send_count, sizeof *part->source_at);
}

/* Name the messages that the newest sources, from number `first` on, depend on, if they were not named before. */
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

/* Make the roots' gradients, for the source that was added last. */
static tt_status fill_roots(tt__dist_part *part, tt_tensor *const *roots, int64_t count) {
    part_source *s = &part->sources[part->source_count - 1];
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
            return tt__fail(TT_ERR_STATE, "%s: message %" PRId64 " was asked for twice", pass_name, numbers[i]);
        TT__TRY(add_source(part, send->node, send->to));
        *at = part->source_count;
    }
    return TT_OK;
}

static tt_status part_reach(tt__dist_part *part, const int64_t *numbers, int64_t count, tt__dist_messages *found) {
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

/* ---- sending gradients on */

/* Gradients that are under way to the worker that the message came from. */
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
    if (!values)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for a message", pass_name);
    for (int64_t i = 0; i < p->count; i++)
        values[i] = tt_rpc_tensor(p->gradients[i]);
    tt_status status =
        tt__dist_call(p->part->context->dist, p->to, "tutti.autograd.gradient",
                      TT_RPC_ARGS(tt_rpc_int((int64_t)p->part->context->id), tt_rpc_int((int64_t)p->part->pass),
                                  tt_rpc_int((int64_t)number), tt_rpc_list(values, p->count)),
                      on_gradients_sent, p);
    free(values);
    return status;
}

/* All that comes to a receipt has come. In the thread that walks, without locks. */
static tt_status send_back(tt__dist_part *part, const tt__dist_receipt *receipt) {
    parcel_back *p = calloc(1, sizeof *p);
    tt_tensor **gradients = calloc((size_t)receipt->count + 1, sizeof *gradients);
    if (!p || !gradients) {
        free(p);
        free(gradients);
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for a message", pass_name);
    }
    pthread_mutex_lock(&part->context->lock);
    part->refs++;
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
        receipt = part->context->receipts[at]; /* the array may move; what it points to stays */
    pthread_mutex_unlock(&part->context->lock);
    return receipt.leaves ? send_back(part, &receipt) : TT_OK;
}

/* ---- walking */

/* The pass walks from now on. With the lock. */
static tt_status open_walk(tt__dist_part *part) {
    tt_node **nodes = calloc((size_t)part->source_count + 1, sizeof *nodes);
    if (!nodes)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for a pass", pass_name);
    for (int64_t i = 0; i < part->source_count; i++)
        nodes[i] = part->sources[i].node;
    tt_status status = tt__open_pass_new(&part->open, nodes, part->source_count, part->retain, leaf_is_done, part);
    free(nodes);
    TT__TRY(status);
    part->state = PART_WALKS;
    for (int64_t i = 0; i < part->open->reach.leaf_count; i++) {
        int64_t at = tt__pointer_map_get(&part->context->receipt_at, part->open->reach.leaves[i].tensor);
        if (at >= 0 && at < part->receipt_count)
            part->receipts[at].waits++;
    }
    return TT_OK;
}

static tt_status give_what_came(tt__dist_part *part) {
    for (int64_t i = 0; i < part->source_count; i++) {
        part_source *s = &part->sources[i];
        if (!s->gradients || s->given)
            continue;
        s->given = true;
        TT__TRY(tt__open_pass_give(part->open, s->node, s->gradients, s->node->outputs));
        for (int k = 0; k < s->node->outputs; k++) { /* the walk has its own references, and may overwrite */
            tt__tensor_unref(s->gradients[k]);
            s->gradients[k] = NULL;
        }
    }
    return TT_OK;
}

/* A message whose tensor was not seen to lead to the roots, as only an operator's own pass reaches it. */
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

/* One round, with the lock, which it gives back while it walks. *more: others have come meanwhile. */
static tt_status walk_round(tt__dist_part *part, bool *more) {
    *more = false;
    if (part->state == PART_FINDING)
        TT__TRY(open_walk(part));
    TT__TRY(give_what_came(part));
    part->again = false;
    pthread_mutex_unlock(&part->context->lock);
    tt_status status = tt__open_pass_walk(part->open);
    pthread_mutex_lock(&part->context->lock);
    TT__TRY(status);
    if (part->state == PART_WALKS && tt__open_pass_is_done(part->open)) {
        TT__TRY(keep_gradients(part));
        part->state = PART_DONE;
    }
    *more = part->again && part->state == PART_WALKS;
    return TT_OK;
}

/* Take the leader's question, if the part is done. With the lock. */
static tt_future *question_of_done(tt__dist_part *part) {
    tt_future *finished = part->state == PART_DONE ? part->finished : NULL;
    if (finished)
        part->finished = NULL;
    return finished;
}

void tt__dist_part_walk(tt__dist_part *part) {
    tt_status status = TT_OK;
    pthread_mutex_lock(&part->context->lock);
    bool walks = !part->walking && part->state < PART_DONE;
    part->again = true;
    part->walking |= walks;
    for (bool more = walks; more && !status;)
        status = walk_round(part, &more);
    if (walks)
        part->walking = false;
    tt_future *finished = question_of_done(part);
    bool mine = finished && detach_part(part);
    pthread_mutex_unlock(&part->context->lock);
    if (status) {
        part_fail(part);
        tt_clear_error();
    }
    if (finished)
        tt_ignore(tt_future_set_value(finished, tt_rpc_none()));
    tt_future_free(finished);
    if (mine)
        tt__dist_part_unref(part);
}

/* ---- what other workers call */

/* The context and part that a call is about, each with a reference. */
static tt__dist_part *part_of_call(const tt_rpc_call *call, const char *what) {
    tt__dist *dist = tt__dist_of(tt_rpc_of_call(call));
    tt__dist_context *context = dist ? tt__dist_find(dist, what, tt_rpc_arg_int(call, 0)) : NULL;
    tt__dist_part *part = context ? part_find(context, (uint64_t)tt_rpc_arg_int(call, 1)) : NULL;
    tt__dist_unref(context);
    return part;
}

static tt_status check_leader(const tt__dist_part *part, const tt_rpc_call *call) {
    return part->leader == tt_rpc_caller(call)
               ? TT_OK
               : tt__fail(TT_ERR_INVALID, "%s: worker %d leads this pass, not worker %d", pass_name, part->leader,
                          tt_rpc_caller(call));
}

static tt_status reach_function(tt_rpc_call *call) {
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
        status = part_reach(part, list, (int64_t)(numbers->bytes.size / sizeof *list), &found);
    }
    if (!status)
        status = tt_rpc_return(call, tt_rpc_bytes(found.list, (size_t)found.count * sizeof *found.list));
    free(found.list);
    free(list);
    tt__dist_part_unref(part);
    tt__dist_unref(context);
    return status;
}
TT_RPC_FUNCTION_NAMED(reach_function, "tutti.autograd.reach",
                      "(int context, int pass, bool retain, bytes numbers) -> bytes");

/* Ask for the answer later, or learn that there is one. With the lock. */
static tt_status begin_question(tt__dist_part *part, tt_future **later) {
    *later = NULL;
    if (part->state == PART_FAILED)
        return tt__fail(part->status, "%s", part->text ? part->text : tt_status_text(part->status));
    if (part->state == PART_DONE)
        return TT_OK;
    if (part->finished)
        return tt__fail(TT_ERR_STATE, "%s: the leader has asked before", pass_name);
    part->finished = tt_future_new();
    *later = tt_future_share(part->finished);
    return part->finished ? TT_OK : tt_last_status();
}

static tt_status finish_function(tt_rpc_call *call) {
    tt__dist_part *part = part_of_call(call, "finish");
    tt_future *later = NULL;
    if (!part)
        return tt_last_status();
    tt_status status = check_leader(part, call);
    bool mine = false;
    if (!status) {
        pthread_mutex_lock(&part->context->lock);
        status = begin_question(part, &later);
        mine = !later && detach_part(part);
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
TT_RPC_FUNCTION_NAMED(finish_function, "tutti.autograd.finish", "(int context, int pass)");

/* The list has what came; references of the source. With the lock. */
static tt_status take_gradients(part_source *s, const tt_rpc_value *list) {
    if (list->list.count != s->node->outputs)
        return tt__fail(TT_ERR_MISMATCH, "%s: expected gradients of %d tensors, got %" PRId64, pass_name,
                        s->node->outputs, list->list.count);
    s->gradients = calloc((size_t)list->list.count + 1, sizeof *s->gradients);
    if (!s->gradients)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for gradients", pass_name);
    for (int64_t i = 0; i < list->list.count; i++) {
        tt_tensor *came = tt_rpc_value_tensor(&list->list.items[i]);
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
    part_source *s = at ? &part->sources[at - 1] : NULL;
    if (!s || s->gradients)
        return tt__fail(TT_ERR_STATE, "%s: worker %d sent gradients of message %" PRIu64 "%s", pass_name, from, number,
                        s ? " twice" : ", which it did not get, or which does not matter");
    return take_gradients(s, list);
}

static tt_status gradient_function(tt_rpc_call *call) {
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
TT_RPC_FUNCTION_NAMED(gradient_function, "tutti.autograd.gradient",
                      "(int context, int pass, int number, list gradients)");

/* It may have ended already. */
static tt_status abort_function(tt_rpc_call *call) {
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
TT_RPC_FUNCTION_NAMED(abort_function, "tutti.autograd.abort", "(int context, int pass)");
