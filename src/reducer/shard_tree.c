#include "reducer/shard_tree.h"

/* With p the largest power of two not above n, the first 2(n-p) leaves fold in pairs: p units. */
static int folded_pairs(int n) {
    int p = 1;
    while (2 * p <= n)
        p *= 2;
    return n - p;
}

static int unit_of(int folded, int leaf) { return leaf < 2 * folded ? leaf / 2 : leaf - folded; }

static int first_leaf(int folded, int unit) { return unit < folded ? 2 * unit : unit + folded; }

static bool is_whole_units(int folded, tt__shard_node x) {
    return x.lo == first_leaf(folded, unit_of(folded, x.lo)) &&
           x.hi == first_leaf(folded, unit_of(folded, x.hi - 1) + 1);
}

/* Are these neighbouring subtrees the halves of a subtree? */
static bool are_halves(int n, tt__shard_node left, tt__shard_node right) {
    int folded = folded_pairs(n);
    int first = unit_of(folded, left.lo), middle = unit_of(folded, right.lo), end = unit_of(folded, right.hi - 1) + 1;
    if (first == middle)
        return true; /* the two leaves of a pair */
    if (!is_whole_units(folded, left) || !is_whole_units(folded, right))
        return false;
    return middle - first == end - middle && first % (end - first) == 0;
}

int tt__shard_push(tt__shard_stack *s, int n, tt__shard_node node) {
    int joins = 0;
    for (; s->depth > 0 && are_halves(n, s->node[s->depth - 1], node); joins++)
        node.lo = s->node[--s->depth].lo;
    s->node[s->depth++] = node;
    return joins;
}

tt__shard_node tt__shard_block(int shards, int world, int rank) {
    return (tt__shard_node){(int)((long long)shards * rank / world), (int)((long long)shards * (rank + 1) / world)};
}

/* Is a range of leaves one subtree? */
static bool is_subtree(int n, int lo, int hi) {
    tt__shard_stack s = {0};
    for (int leaf = lo; leaf < hi; leaf++)
        tt__shard_push(&s, n, (tt__shard_node){leaf, leaf + 1});
    return s.depth == 1;
}

/* If every subtree of the ranks' tree covers shards that are a subtree, the halves are the same, too. */
bool tt__shard_blocks_are_ranks(int shards, int world) {
    tt__shard_stack ranks = {0};
    for (int r = 0; r < world; r++) {
        tt__shard_stack before = ranks;
        int end = tt__shard_block(shards, world, r).hi;
        if (!is_subtree(shards, tt__shard_block(shards, world, r).lo, end))
            return false;
        int joins = tt__shard_push(&ranks, world, (tt__shard_node){r, r + 1});
        for (int j = 1; j <= joins; j++)
            if (!is_subtree(shards, tt__shard_block(shards, world, before.node[before.depth - j].lo).lo, end))
                return false;
    }
    return true;
}
