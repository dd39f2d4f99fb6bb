/* Leads a backward pass over workers: the leader's side of the protocol in dist_part.c. */
#include "base/args.h"
#include "base/error.h"
#include "base/machine/clock.h"
#include "parallel/rpc/dist.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char who[] = "tt_dist_autograd_backward";

enum { ABORT_MS = 5000 /* how long to wait for a worker's answer to abort() */ };

/* A worker that the pass needs. */
typedef struct led_worker {
    int id;
    tt_future *answer; /* to the last question; or NULL */
} led_worker;

typedef struct lead {
    int refs;
    pthread_mutex_t lock; /* guards refs, status and text */
    tt_status status;     /* of the first failure, with its text */
    char *text;
    tt__dist *dist;
    tt__dist_context *context; /* a reference */
    uint64_t pass;
    bool retain;
    int64_t deadline_ms; /* 0: none */
    led_worker *workers;
    int64_t count, room;
} lead;

static void lead_unref(lead *l) {
    pthread_mutex_lock(&l->lock);
    bool last = !--l->refs;
    pthread_mutex_unlock(&l->lock);
    if (!last)
        return;
    for (int64_t i = 0; i < l->count; i++)
        tt_future_free(l->workers[i].answer);
    free(l->workers);
    free(l->text);
    tt__dist_unref(l->context);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

/* ---- the first failure, and its end on all workers */

/* Keep this thread's last error, if it is the first. */
static bool lead_notes_failure(lead *l) {
    pthread_mutex_lock(&l->lock);
    bool first = !l->status;
    if (first) {
        l->status = tt_last_status() ? tt_last_status() : TT_ERR_STATE;
        l->text = strdup(tt_last_error());
    }
    pthread_mutex_unlock(&l->lock);
    return first;
}

static tt_rpc_values pass_args(const lead *l, tt_rpc_value values[2]) {
    values[0] = tt_rpc_int((int64_t)l->context->id);
    values[1] = tt_rpc_int((int64_t)l->pass);
    return (tt_rpc_values){values, 2};
}

/* End the parts of all workers, as one has failed or was lost; then they answer finish(). */
static void end_on_all(const lead *l) {
    tt_rpc_value values[2];
    for (int64_t i = 0; i < l->count; i++)
        tt_ignore(tt__dist_call(l->dist, l->workers[i].id, "tutti.autograd.abort", pass_args(l, values), NULL, NULL));
}

static void on_finished(tt_future *future, void *user) {
    lead *l = user;
    if (!tt_future_value(future)) {
        if (lead_notes_failure(l))
            end_on_all(l);
        tt_clear_error();
    }
    lead_unref(l);
}

/* ---- asking */

static tt_status ask(const lead *l, led_worker *worker, const char *function, tt_rpc_values args) {
    tt_future_free(worker->answer);
    worker->answer = NULL;
    uint64_t before = tt__dist_outside();
    tt_status status = tt_rpc_async(&worker->answer, l->dist->rpc, NULL, function, .to_id = worker->id, .args = args);
    tt__dist_reenter(before);
    return status;
}

static tt_status wait_answer(const lead *l, const led_worker *worker) {
    int64_t left = l->deadline_ms ? l->deadline_ms - tt__now_ms() : 0;
    if (!l->deadline_ms || left > 0)
        return tt_future_wait(worker->answer, left);
    return tt_future_is_done(worker->answer) ? tt_future_wait(worker->answer, 1)
                                             : tt__fail(TT_ERR_TIMEOUT, "worker %d has not answered", worker->id);
}

static tt_status add_worker(lead *l, int64_t id) {
    for (int64_t i = 0; i < l->count; i++)
        if (l->workers[i].id == id)
            return TT_OK;
    if (!tt__dist_room(&l->workers, l->count, &l->room, sizeof *l->workers))
        return TT_ERR_MEMORY;
    l->workers[l->count++] = (led_worker){.id = (int)id};
    return TT_OK;
}

/* Ask a worker about those of `messages` that it has sent: on which messages do they depend? */
static tt_status ask_reach(const lead *l, led_worker *worker, const tt__dist_messages *messages, int64_t *numbers) {
    int64_t count = 0;
    for (int64_t i = 0; i < messages->count; i++)
        if (messages->list[i].from == worker->id)
            numbers[count++] = messages->list[i].number;
    if (!count)
        return TT_OK;
    return ask(l, worker, "tutti.autograd.reach",
               TT_RPC_ARGS(tt_rpc_int((int64_t)l->context->id), tt_rpc_int((int64_t)l->pass), tt_rpc_bool(l->retain),
                           tt_rpc_bytes(numbers, (size_t)count * sizeof *numbers)));
}

static tt_status take_reach(const lead *l, led_worker *worker, tt__dist_messages *found) {
    if (!worker->answer)
        return TT_OK;
    TT__TRY(wait_answer(l, worker));
    const tt_rpc_value *value = tt_future_value(worker->answer);
    if (!value || value->kind != TT_RPC_BYTES)
        return tt__fail(TT_ERR_MISMATCH, "worker %d answered something else than was asked", worker->id);
    for (size_t at = 0; at + sizeof(tt__dist_message) <= value->bytes.size; at += sizeof(tt__dist_message)) {
        tt__dist_message m;
        memcpy(&m, (const char *)value->bytes.data + at, sizeof m);
        TT__TRY(tt__dist_messages_add(found, m.from, m.number));
    }
    tt_future_free(worker->answer);
    worker->answer = NULL;
    return TT_OK;
}

/* Ask all workers that have sent some of `messages`, at once. *found receives the messages that these depend on.
 * `numbers` has room for all. Each worker's numbers have memory of their own, as they are read while they are sent. */
static tt_status reach_round(lead *l, const tt__dist_messages *messages, int64_t *numbers, tt__dist_messages *found) {
    for (int64_t i = 0; i < messages->count; i++)
        TT__TRY(add_worker(l, messages->list[i].from));
    tt_status status = TT_OK;
    for (int64_t i = 0; i < l->count && !status; i++) {
        status = ask_reach(l, &l->workers[i], messages, numbers);
        for (int64_t k = 0; k < messages->count; k++)
            numbers += messages->list[k].from == l->workers[i].id;
    }
    for (int64_t i = 0; i < l->count && !status; i++)
        status = take_reach(l, &l->workers[i], found);
    return status;
}

/* Tell every worker which of its sends the roots depend on. */
static tt_status find_all(lead *l, tt__dist_messages *messages) {
    tt_status status = TT_OK;
    while (!status && messages->count) {
        tt__dist_messages found = {0};
        int64_t *numbers = calloc((size_t)messages->count, sizeof *numbers);
        status = numbers ? reach_round(l, messages, numbers, &found)
                         : tt__fail(TT_ERR_MEMORY, "%s: no memory for a pass", who);
        if (status) /* unanswered questions may still read the numbers */
            for (int64_t i = 0; i < l->count; i++)
                if (l->workers[i].answer)
                    tt_ignore(tt_future_wait(l->workers[i].answer, ABORT_MS));
        free(numbers);
        free(messages->list);
        *messages = found;
    }
    return status;
}

/* ---- leading */

static tt_status ask_finish(lead *l, led_worker *worker) {
    tt_rpc_value values[2];
    TT__TRY(ask(l, worker, "tutti.autograd.finish", pass_args(l, values)));
    pthread_mutex_lock(&l->lock);
    l->refs++;
    pthread_mutex_unlock(&l->lock);
    tt_status status = tt_future_add_callback(worker->answer, on_finished, l);
    if (status) { /* the caller has a share, so this was not the last */
        pthread_mutex_lock(&l->lock);
        l->refs--;
        pthread_mutex_unlock(&l->lock);
    }
    return status;
}

/* Tell all workers that the pass has ended, and wait for their answers, so that another can begin. */
static void abort_pass(lead *l) {
    tt_rpc_value values[2];
    for (int64_t i = 0; i < l->count; i++)
        tt_ignore(ask(l, &l->workers[i], "tutti.autograd.abort", pass_args(l, values)));
    for (int64_t i = 0; i < l->count; i++)
        if (l->workers[i].answer)
            tt_ignore(tt_future_wait(l->workers[i].answer, ABORT_MS));
}

/* Return the first failure, which caused the later ones. */
static tt_status lead_failed(lead *l, tt_status status) {
    if (status)
        lead_notes_failure(l);
    if (!l->status)
        return TT_OK;
    abort_pass(l);
    return tt__fail(l->status, "%s: %s", who, l->text ? l->text : tt_status_text(l->status));
}

static tt_status lead_walk(lead *l, tt__dist_part *part) {
    for (int64_t i = 0; i < l->count; i++)
        TT__TRY(ask_finish(l, &l->workers[i]));
    tt__dist_part_walk(part);
    tt_status status = TT_OK;
    for (int64_t i = 0; i < l->count && !status; i++)
        status = wait_answer(l, &l->workers[i]);
    return status;
}

static tt_status lead_pass(lead *l, const tt_dist_autograd_backward_args *a) {
    int self = tt_rpc_id(a->rpc);
    tt__dist_part *part = tt__dist_part_begin(l->context, l->pass, self, a->retain_graph);
    if (!part)
        return tt_last_status();
    tt__dist_messages messages = {0};
    tt_status status = add_worker(l, self);
    if (!status)
        status = tt__dist_part_roots(part, a->roots, a->count, &messages);
    if (!status)
        status = find_all(l, &messages);
    free(messages.list);
    if (!status)
        status = lead_walk(l, part);
    status = lead_failed(l, status);
    tt__dist_part_unref(part);
    return status;
}

static lead *lead_new(tt__dist *dist, const tt_dist_autograd_backward_args *a) {
    tt__dist_context *context = tt__dist_find(dist, who, a->context);
    if (!context)
        return NULL;
    lead *l = calloc(1, sizeof *l);
    if (!l) {
        tt__dist_unref(context);
        return tt__fail_null(TT_ERR_MEMORY, "%s: no memory for a pass", who);
    }
    pthread_mutex_init(&l->lock, NULL);
    l->refs = 1;
    l->dist = dist;
    l->context = context;
    l->retain = a->retain_graph;
    l->deadline_ms = a->timeout_ms > 0 ? tt__deadline_ms(a->timeout_ms) : 0;
    l->pass = (uint64_t)tt_rpc_id(a->rpc) << TT__DIST_ID_BITS | (atomic_fetch_add(&dist->last_pass, 1) + 1);
    return l;
}

static tt_status check_root(const tt_tensor *root, int64_t i) {
    if (!root)
        return tt__fail_argument("%s: root %" PRId64 " is NULL", who, i);
    if (!tt__tensor_check(who, root))
        return TT_ERR_STATE;
    if (root->numel != 1)
        return tt__fail(TT_ERR_SHAPE, "%s: expected roots of one element, got %s as root %" PRId64, who,
                        TT__DESCRIBE(root), i);
    if (!root->requires_grad)
        return tt__fail(TT_ERR_STATE, "%s: nothing that root %" PRId64 " was computed from requires a gradient", who,
                        i);
    return TT_OK;
}

static tt_status check_backward(const tt_dist_autograd_backward_args *a) {
    if (a->create_graph)
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "%s: .create_graph: there is no second derivative over workers; compute it on one", who);
    if (a->count < 1 || a->count > INT32_MAX / 2 || !a->roots)
        return tt__fail(TT_ERR_INVALID, "%s: expected roots, got a count of %" PRId64 " and %s", who, a->count,
                        a->roots ? "a list" : "NULL");
    for (int64_t i = 0; i < a->count; i++)
        TT__TRY(check_root(a->roots[i], i));
    return TT_OK;
}

tt_status tt_dist_autograd_backward_with(const tt_dist_autograd_backward_args *args, size_t size) {
    tt_dist_autograd_backward_args a;
    TT__ARGS_COPY(a, args, size);
    TT__TRY(check_backward(&a));
    tt__dist *dist = tt__dist_of(a.rpc);
    lead *l = dist ? lead_new(dist, &a) : NULL;
    if (!l)
        return tt_last_status();
    tt_status status = lead_pass(l, &a);
    lead_unref(l);
    return status;
}
