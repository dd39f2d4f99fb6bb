/* Making and ending records, and in anomaly mode noting where a recorded call was made. */
#include "autograd/node.h"

#include "base/error.h"
#include "tensor/core/pool.h"
#include "tensor/core/tensor.h"

#include <tutti/autograd.h>

#include <execinfo.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- anomaly mode */

enum { DEPTH = 24, TOLD = 3 /* frames */ };

struct tt__call_site {
    int count;
    void *at[DEPTH];
};

static _Atomic bool detects;

void tt_set_detect_anomaly(bool on) { atomic_store_explicit(&detects, on, memory_order_relaxed); }

bool tt_is_anomaly_enabled(void) { return atomic_load_explicit(&detects, memory_order_relaxed); }

/* Note where the call that is being recorded was made; NULL when the mode is off, or without memory. Freed by
 * tt__pool_free(). */
static tt__call_site *anomaly_note(void) {
    tt__call_site *site = tt_is_anomaly_enabled() ? tt__pool_alloc(sizeof *site) : NULL;
    if (site)
        site->count = backtrace(site->at, DEPTH);
    return site;
}

/* Is the frame the library's own? If the library is linked statically, only names tell. */
static bool is_ours(const char *frame) { return strstr(frame, "libtutti") || strstr(frame, "(tt_"); }

/* "./train(main+0x1a2), ..." */
static const char *site_text(const tt__call_site *site, char *text, size_t size) {
    char **frames = site ? backtrace_symbols(site->at, site->count) : NULL;
    size_t n = 0;
    int told = 0;
    snprintf(text, size, "an unknown place");
    for (int i = 0; frames && i < site->count && told < TOLD && n < size; i++) {
        int length = (int)strcspn(frames[i], "[");
        while (length > 0 && frames[i][length - 1] == ' ')
            length--;
        if (!is_ours(frames[i]))
            n += (size_t)snprintf(text + n, size - n, "%s%.*s", told++ ? ", " : "", length, frames[i]);
    }
    free(frames);
    return text;
}

tt_status tt__anomaly_fail(const char *op, uint64_t number, const tt__call_site *site, int i, const tt_tensor *x,
                           int64_t at, bool came_with_one) {
    char where[600];
    return tt__fail(TT_ERR_NAN,
                    "tt_backward: %s gave its input %d a gradient, %s, whose element %" PRId64 " is not a number%s; "
                    "the call, the %" PRIu64 "th that was recorded, was made from %s",
                    op, i, TT__DESCRIBE(x), at,
                    came_with_one ? " (the gradient of its result had such elements already)" : "", number,
                    site_text(site, where, sizeof where));
}

/* ---- whether to record */

static _Thread_local bool no_grad;

bool tt_no_grad_begin(void) {
    bool before = no_grad;
    no_grad = true;
    return before;
}

bool tt_enable_grad_begin(void) {
    bool before = no_grad;
    no_grad = false;
    return before;
}

void tt_no_grad_end(bool before) { no_grad = before; }

void tt_no_grad_cleanup(const bool *before) { tt_no_grad_end(before && *before); }

bool tt__is_recording(void) { return !no_grad; }

bool tt__wants_grad(int n, tt_tensor *const *inputs) {
    for (int i = 0; i < n && !no_grad; i++)
        if (inputs[i] && inputs[i]->requires_grad)
            return true;
    return false;
}

/* ---- letting go */

static void drop_saved(tt_node *node) {
    for (int i = 0; i < node->saved; i++)
        tt__tensor_unref(node->save[i].tensor);
    node->saved = 0;
    if (node->op->destroy && node->state)
        node->op->destroy(node->state);
    node->state = NULL;
}

static bool is_last_ref(tt_node *node) { return atomic_fetch_sub_explicit(&node->refs, 1, memory_order_acq_rel) == 1; }

/* Drop the edges. Nodes without references are put before `dead`, so that a chain of any length is freed without
 * recursion. */
static void drop_edges(tt_node *node, tt_node **dead) {
    for (int i = 0; i < node->inputs; i++) {
        tt__edge *edge = &node->edge[i];
        tt__tensor_unref(edge->leaf);
        edge->leaf = NULL;
        if (edge->node && is_last_ref(edge->node)) {
            edge->node->next = *dead;
            *dead = edge->node;
        }
        edge->node = NULL;
    }
}

static void free_all(tt_node *dead) {
    while (dead) {
        tt_node *node = dead;
        dead = node->next;
        tt__scope_remove(&node->entry, TT__ENTRY_RECORD);
        drop_saved(node);
        drop_edges(node, &dead);
        tt__pool_free(node->site);
        tt__pool_free(node);
    }
}

void tt__node_ref(tt_node *node) { atomic_fetch_add_explicit(&node->refs, 1, memory_order_relaxed); }

void tt__node_unref(tt_node *node) {
    if (!node || !is_last_ref(node))
        return;
    node->next = NULL;
    free_all(node);
}

void tt__node_spend(tt_node *node) {
    tt_node *dead = NULL;
    if (atomic_exchange_explicit(&node->history.spent, true, memory_order_relaxed))
        return;
    tt__scope_remove(&node->entry, TT__ENTRY_RECORD);
    drop_saved(node);
    drop_edges(node, &dead);
    free_all(dead);
}

static void result_lets_go(tt__history *history) { tt__node_unref((tt_node *)history); }

/* Spend a record when its scope ends, so that a tensor kept from the scope does not keep all the others. */
static void node_scope_ended(tt__entry *entry) {
    tt__node_spend((tt_node *)(void *)((char *)entry - offsetof(tt_node, entry)));
}

/* ---- making */

static void set_edge(tt__edge *edge, tt_tensor *x) {
    *edge = (tt__edge){.wants = x && x->requires_grad};
    if (!x)
        return;
    edge->device = tt__device_of(x);
    edge->dtype = x->dtype;
    edge->shape = x->shape;
    memcpy(edge->stride, x->stride, sizeof edge->stride);
    if (!edge->wants)
        return;
    edge->node = tt__node_of(x);
    edge->output = x->output;
    if (edge->node)
        tt__node_ref(edge->node);
    else
        edge->leaf = tt__tensor_ref(x);
}

static _Atomic uint64_t last_number;

static uint64_t next_number(void) { return atomic_fetch_add_explicit(&last_number, 1, memory_order_relaxed) + 1; }

uint64_t tt__node_last_number(void) { return atomic_load_explicit(&last_number, memory_order_relaxed); }

static size_t round_to_16(size_t bytes) { return (bytes + 15) / 16 * 16; }

tt_node *tt__node_new(const tt__operator *op, int n, tt_tensor *const *inputs, int outputs, int saves,
                      const void *state, size_t state_bytes) {
    size_t head = round_to_16(sizeof(tt_node)), edges = round_to_16((size_t)n * sizeof(tt__edge));
    size_t saved = round_to_16((size_t)saves * sizeof(tt__saved_tensor));
    char *block = tt__pool_alloc(head + edges + saved + round_to_16(state_bytes));
    if (!block)
        return tt__tensor_fail(TT_ERR_MEMORY, "%s: no memory to record the call", op->name);
    tt_node *node = (tt_node *)(void *)block;
    memset(node, 0, sizeof *node);
    node->history.release = result_lets_go;
    node->refs = 1;
    node->op = op;
    node->site = anomaly_note();
    node->number = next_number();
    node->inputs = n;
    node->outputs = outputs;
    node->saved_room = saves;
    node->edge = (tt__edge *)(void *)(block + head);
    node->save = (tt__saved_tensor *)(void *)(block + head + edges);
    node->state = block + head + edges + saved;
    if (state)
        memcpy(node->state, state, state_bytes);
    else
        memset(node->state, 0, state_bytes);
    for (int i = 0; i < n; i++)
        set_edge(&node->edge[i], inputs[i]);
    tt__scope_add(&node->entry, TT__ENTRY_RECORD, node_scope_ended);
    return node;
}

tt_status tt__node_save(tt_node *node, const tt_tensor *x, const char *name) {
    if (node->saved == node->saved_room)
        return tt__fail(TT_ERR_INVALID, "%s: expected at most %d tensors to save, got one more, \"%s\"", node->op->name,
                        node->saved_room, name);
    tt_tensor *kept = x ? tt__tensor_detached(node->op->name, x) : NULL;
    if (x && !kept)
        return tt_last_status();
    uint32_t version = x ? atomic_load_explicit(&x->storage->version, memory_order_relaxed) : 0;
    node->save[node->saved++] = (tt__saved_tensor){kept, version, name};
    return TT_OK;
}

void tt__node_made(tt_node *node, int output, tt_tensor *y) {
    tt__node_ref(node);
    y->history = &node->history;
    y->output = output;
    y->requires_grad = true;
}

/* ---- without history */

tt_tensor *tt_detach(tt_tensor *x) {
    return x && tt__tensor_check("tt_detach", x) ? tt__tensor_alias("tt_detach", x, x->shape, x->stride, 0) : NULL;
}
