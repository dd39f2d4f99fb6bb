/* What a backward pass reaches, and the watchers that hear when one fails. */
#include "autograd/reach.h"

#include "autograd/leaf.h"
#include "base/error.h"
#include "tensor/core/pool.h"

#include <pthread.h>
#include <string.h>

static tt_status reach_no_memory(void) { return tt__fail(TT_ERR_MEMORY, "tt_backward: no memory to walk the records"); }

/* Append an element of `size` zero bytes; NULL: no memory. */
static void *array_push(void **array, int64_t count, int64_t *room, size_t size) {
    if (count == *room) {
        int64_t more = *room ? 2 * *room : 32;
        void *larger = tt__pool_alloc((size_t)more * size);
        if (!larger)
            return NULL;
        if (count)
            memcpy(larger, *array, (size_t)count * size);
        tt__pool_free(*array);
        *array = larger;
        *room = more;
    }
    return memset((char *)*array + (size_t)count * size, 0, size);
}

static tt_status add_node(tt__reach *r, tt_node *node) {
    if (tt__pointer_map_get(&r->node_at, node) >= 0)
        return TT_OK;
    tt__reached_node *n = array_push((void **)&r->nodes, r->node_count, &r->node_room, sizeof *n);
    if (!n || !tt__pointer_map_put(&r->node_at, node, r->node_count))
        return reach_no_memory();
    size_t bytes = (size_t)node->outputs * sizeof(tt_tensor *);
    if (node->outputs > 1 && !(n->many = tt__pool_alloc(bytes)))
        return reach_no_memory();
    if (n->many)
        memset(n->many, 0, bytes);
    tt__node_ref(node);
    n->node = node;
    r->node_count++;
    return TT_OK;
}

static tt_status add_leaf(tt__reach *r, tt_tensor *tensor) {
    if (tt__pointer_map_get(&r->leaf_at, tensor) >= 0)
        return TT_OK;
    tt__reached_leaf *leaf = array_push((void **)&r->leaves, r->leaf_count, &r->leaf_room, sizeof *leaf);
    if (!leaf || !tt__pointer_map_put(&r->leaf_at, tensor, r->leaf_count))
        return reach_no_memory();
    leaf->tensor = tt__tensor_ref(tensor);
    r->leaf_count++;
    return TT_OK;
}

static tt_status check_unspent(const tt_node *used, const tt__edge *edge) {
    if (!tt__node_is_spent(edge->node))
        return TT_OK;
    tt_tensor seen = {.dtype = edge->dtype, .shape = edge->shape};
    return tt__fail(TT_ERR_STATE,
                    "tt_backward: the record of %s, an input of %s, is spent: it went through backward before, "
                    "or its scope ended",
                    TT__DESCRIBE(&seen), used->op->name);
}

/* Add a node's inputs. A tensor that was a leaf when the call was made may no longer be one. */
static tt_status add_inputs(tt__reach *r, const tt_node *node) {
    for (int i = 0; i < node->inputs; i++) {
        const tt__edge *edge = &node->edge[i];
        if (edge->leaf && tt__leaf_of(edge->leaf))
            TT__TRY(add_leaf(r, edge->leaf));
        if (!edge->node)
            continue;
        TT__TRY(check_unspent(node, edge));
        TT__TRY(add_node(r, edge->node));
    }
    return TT_OK;
}

/* ---- heap sort, by falling number: without memory, and fast on what is nearly in order */

static void sift_down(tt__reached_node *nodes, int64_t at, int64_t count) {
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child + 1 < count && nodes[child + 1].node->number < nodes[child].node->number)
            child++;
        if (child >= count || nodes[at].node->number <= nodes[child].node->number)
            return;
        tt__reached_node held = nodes[at];
        nodes[at] = nodes[child];
        nodes[child] = held;
        at = child;
    }
}

static bool nodes_in_order(const tt__reach *r) {
    for (int64_t i = 1; i < r->node_count; i++)
        if (r->nodes[i - 1].node->number < r->nodes[i].node->number)
            return false;
    return true;
}

static void sort_nodes(tt__reach *r) {
    if (nodes_in_order(r))
        return;
    for (int64_t i = r->node_count / 2; i-- > 0;)
        sift_down(r->nodes, i, r->node_count);
    for (int64_t end = r->node_count - 1; end > 0; end--) {
        tt__reached_node least = r->nodes[0];
        r->nodes[0] = r->nodes[end];
        r->nodes[end] = least;
        sift_down(r->nodes, 0, end);
    }
    for (int64_t i = 0; i < r->node_count; i++) /* all keys are in the map: this takes no memory */
        tt__pointer_map_put(&r->node_at, r->nodes[i].node, i);
}

tt_status tt__reach_from(tt__reach *reach, const tt_tensor *y) {
    *reach = (tt__reach){0};
    if (tt__leaf_of(y))
        return add_leaf(reach, (tt_tensor *)y);
    return tt__reach_from_nodes(reach, (tt_node *[]){tt__node_of(y)}, 1);
}

tt_status tt__reach_from_nodes(tt__reach *reach, tt_node *const *nodes, int64_t count) {
    *reach = (tt__reach){0};
    for (int64_t i = 0; i < count; i++)
        TT__TRY(add_node(reach, nodes[i]));
    for (int64_t i = 0; i < reach->node_count; i++) { /* grows on the way */
        const tt_node *node = reach->nodes[i].node;
        reach->may_reach_more |= node->op->may_run_passes;
        TT__TRY(add_inputs(reach, node));
    }
    sort_nodes(reach);
    return TT_OK;
}

/* ---- */

tt__reached_node *tt__reach_node(const tt__reach *reach, const tt_node *node) {
    int64_t at = node ? tt__pointer_map_get(&reach->node_at, node) : -1;
    return at < 0 ? NULL : &reach->nodes[at];
}

tt__reached_leaf *tt__reach_leaf(const tt__reach *reach, const tt_tensor *tensor) {
    int64_t at = tensor ? tt__pointer_map_get(&reach->leaf_at, tensor) : -1;
    return at < 0 ? NULL : &reach->leaves[at];
}

static bool edge_is_useful(const tt__reach *r, const tt__edge *edge) {
    const tt__reached_leaf *leaf = tt__reach_leaf(r, edge->leaf);
    const tt__reached_node *node = tt__reach_node(r, edge->node);
    return (leaf && leaf->when != TT__NEVER) || (node && node->useful);
}

/* Count, from the oldest node on: what a node uses comes before it. */
void tt__reach_count(tt__reach *r) {
    for (int64_t i = r->node_count; i-- > 0;)
        for (int k = 0; k < r->nodes[i].node->inputs; k++)
            r->nodes[i].useful = r->nodes[i].useful || edge_is_useful(r, &r->nodes[i].node->edge[k]);
    for (int64_t i = 0; i < r->node_count; i++)
        for (int k = 0; k < r->nodes[i].node->inputs; k++) {
            tt__reached_leaf *leaf = tt__reach_leaf(r, r->nodes[i].node->edge[k].leaf);
            if (leaf)
                leaf->pending++;
        }
}

void tt__reach_free(tt__reach *r) {
    for (int64_t i = 0; i < r->node_count; i++) {
        tt__reached_node *n = &r->nodes[i];
        for (int k = 0; k < n->node->outputs; k++)
            tt__tensor_unref(*tt__reached_grad(n, k));
        tt__pool_free(n->many);
        tt__node_unref(n->node);
    }
    for (int64_t i = 0; i < r->leaf_count; i++)
        tt__tensor_unref(r->leaves[i].tensor);
    tt__pool_free(r->nodes);
    tt__pool_free(r->leaves);
    tt__pointer_map_free(&r->node_at);
    tt__pointer_map_free(&r->leaf_at);
    *r = (tt__reach){0};
}

/* ---- looking */

int64_t tt_reachable_leaves(const tt_tensor *y, tt_tensor **leaves, int64_t room) {
    if (!y || !y->history)
        return 0;
    if (tt__node_of(y) && tt__node_is_spent(tt__node_of(y)))
        return 0;
    tt__reach reach;
    int64_t count = tt__reach_from(&reach, y) ? -1 : reach.leaf_count;
    for (int64_t i = 0; i < count && i < room; i++)
        leaves[i] = reach.leaves[i].tensor;
    tt__reach_free(&reach);
    return count;
}

static pthread_mutex_t watch_lock = PTHREAD_MUTEX_INITIALIZER;
static tt__pass_watcher *watchers;

void tt__watch_passes(tt__pass_watcher *watcher, void (*failed)(void *user, const tt__reach *reach), void *user) {
    pthread_mutex_lock(&watch_lock);
    *watcher = (tt__pass_watcher){.next = watchers, .at = &watchers, .failed = failed, .user = user};
    if (watchers)
        watchers->at = &watcher->next;
    watchers = watcher;
    pthread_mutex_unlock(&watch_lock);
}

void tt__unwatch_passes(tt__pass_watcher *watcher) {
    if (!watcher->at)
        return;
    pthread_mutex_lock(&watch_lock);
    *watcher->at = watcher->next;
    if (watcher->next)
        watcher->next->at = watcher->at;
    *watcher = (tt__pass_watcher){NULL, NULL, NULL, NULL};
    pthread_mutex_unlock(&watch_lock);
}

void tt__pass_failed(const tt__reach *reach) {
    pthread_mutex_lock(&watch_lock);
    for (const tt__pass_watcher *w = watchers; w; w = w->next)
        w->failed(w->user, reach);
    pthread_mutex_unlock(&watch_lock);
}
