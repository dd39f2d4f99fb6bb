/* Inner groups of a group over several hosts, and whether hosts are subtrees of the one summation order.
 *
 *   local   the ranks of this host, which share memory
 *   cross   the ranks that have this rank's number on their hosts, one of each host; only if all hosts have as many
 *           ranks */
#include "comm/native/native.h"

#include "base/error.h"
#include "comm/shared/placement.h"

#include <stdlib.h>
#include <string.h>

/* Inner groups have the id of their group, marked; names leave these two bits free. */
static const uint32_t LOCAL_BIT = UINT32_C(1) << 30, CROSS_BIT = UINT32_C(1) << 31;

static int host_of(const tt_group *group, int r) { return group->native->world->peers[group->ranks[r]].host; }

/* Count the ranks among the first `end` that are on rank r's host. */
static int count_on_host(const tt_group *group, int r, int end) {
    int n = 0;
    for (int i = 0; i < end; i++)
        n += host_of(group, i) == host_of(group, r);
    return n;
}

static int first_on_host(const tt_group *group, int r) {
    int first = 0;
    while (host_of(group, first) != host_of(group, r))
        first++;
    return first;
}

/* Count the ranks of each host, 0 if they differ; *most: on the fullest. */
static int ranks_a_host(const tt_group *group, int *most) {
    int each = count_on_host(group, 0, group->size);
    bool alike = true;
    *most = each;
    for (int r = 1; r < group->size; r++) {
        int n = count_on_host(group, r, group->size);
        alike &= n == each;
        *most = n > *most ? n : *most;
    }
    return alike ? each : 0;
}

/* Describe the summation tree. left[i]: where the left side begins of the join whose right side begins with leaf i.
 * Leaves are `stride` apart, from `first` on. */
static void describe_tree(int n, int first, int stride, int *left) {
    int p = 1, starts[TT__MAX_RANKS];
    while (2 * p <= n)
        p *= 2;
    for (int unit = 0, leaf = 0; unit < p; unit++) {
        starts[unit] = first + leaf++ * stride;
        if (unit < n - p) /* a folded pair */
            left[first + leaf++ * stride] = starts[unit];
    }
    for (int width = 1; width < p; width *= 2)
        for (int unit = 0; unit + width < p; unit += 2 * width)
            left[starts[unit + width]] = starts[unit];
}

/* Does the one summation order sum blocks of `each` consecutive ranks first? */
static bool blocks_are_subtrees(int n, int each) {
    int whole[TT__MAX_RANKS] = {0}, composed[TT__MAX_RANKS] = {0};
    describe_tree(n, 0, 1, whole);
    for (int first = 0; first < n; first += each)
        describe_tree(each, first, 1, composed);
    describe_tree(n / each, 0, each, composed);
    return !memcmp(whole, composed, (size_t)n * sizeof *whole);
}

/* Fill in by_host and place, for `each` ranks a host. */
static tt_status order_by_host(tt_group *group, int each) {
    int n = group->size, hosts = 0;
    if (!(group->native->by_host = calloc(2 * (size_t)n, sizeof *group->native->by_host)))
        return tt__fail(TT_ERR_MEMORY, "no memory for the hosts of %d ranks", n);
    group->native->place = group->native->by_host + n;
    for (int r = 0; r < n; r++) {
        int number = count_on_host(group, r, r), first = first_on_host(group, r);
        group->native->place[r] = number ? group->native->place[first] + number : hosts++ * each;
        group->native->by_host[group->native->place[r]] = r;
    }
    return TT_OK;
}

/* Are ranks numbered host by host? */
static bool hosts_are_blocks(const tt_group *group) {
    bool blocks = true;
    for (int r = 0; r < group->size; r++)
        blocks &= group->native->place[r] == r;
    return blocks;
}

static tt_group *make_inner(tt_group *group, uint32_t bit, const int *members, int n) {
    tt_group *inner = tt__native_group_make(group->native->world, n, group->timeout_ms);
    if (!inner)
        return NULL;
    for (int i = 0; i < n; i++) {
        inner->ranks[i] = group->ranks[members[i]];
        if (members[i] == group->rank)
            inner->rank = i;
    }
    inner->native->parent = group;
    inner->id = group->id | bit;
    return inner;
}

/* Give the inner group its areas, which lie behind those of the group: see take_area(). */
static void share_memory(tt_group *local, const tt_group *group, const int *members) {
    for (int i = 0; i < local->size; i++) {
        local->native->areas[i] = group->native->areas[members[i]] + 1;
        local->native->bases[i] = group->native->bases[members[i]];
    }
    local->native->shared = true;
    local->native->spin = tt__ranks_fit_cpus(local);
    atomic_store_explicit(&local->native->areas[local->rank]->group, local->id, memory_order_release);
}

tt_status tt__make_inner_groups(tt_group *group) {
    int most, each = ranks_a_host(group, &most), members[TT__MAX_RANKS] = {0}, n = 0;
    if (group->native->shared || most == 1)
        return TT_OK;
    for (int r = 0; r < group->size; r++)
        if (host_of(group, r) == host_of(group, group->rank))
            members[n++] = r;
    if (!(group->native->local = make_inner(group, LOCAL_BIT, members, n)))
        return tt_last_status();
    share_memory(group->native->local, group, members);
    if (!each)
        return TT_OK;
    TT__TRY(order_by_host(group, each));
    n = 0;
    for (int at = group->native->place[group->rank] % each; at < group->size; at += each)
        members[n++] = group->native->by_host[at];
    if (!(group->native->cross = make_inner(group, CROSS_BIT, members, n)))
        return tt_last_status();
    group->native->cross->native->spin = group->native->local->native->spin;
    group->native->subtrees = hosts_are_blocks(group) && blocks_are_subtrees(group->size, each);
    return TT_OK;
}
