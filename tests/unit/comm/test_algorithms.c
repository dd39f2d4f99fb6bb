/* Every algorithm on messages, in a simulation: all ranks live in this process, messages are delivered in random order
 * (each seed another), sends end before or after they are received. Results are compared bit by bit with the tree over
 * all leaves. A second simulation gives every message the same time of travel and counts steps and bytes against what
 * the algorithms' files say. */
#include "algorithm_sim.h"
#include "base/build.h"
#include "comm/collective/choose.h"

#include <malloc.h>

/* ---- calls: buffers of all ranks, and what they must hold afterwards */

typedef struct kind {
    tt_dtype dtype;
    tt_reduce_op op;
} kind;

typedef struct buffers {
    unsigned char *send, *recv, *expected, *untouched;
    size_t send_bytes, recv_bytes;
    int64_t counts[MAX_RANKS], offsets[MAX_RANKS], send_counts[MAX_RANKS], send_offsets[MAX_RANKS];
    void *parts[3];
    int64_t part_counts[3];
    bool checked; /* recv has to hold `expected` */
} buffers;

static buffers of[MAX_RANKS];

/* Element i of rank r's buffer: small whole numbers are summed exactly in any order, others aren't. */
static double value(int r, size_t i, bool whole) {
    uint32_t x = (uint32_t)i * 2654435761u ^ (uint32_t)(r + 1) * 40503u;
    x ^= x >> 13;
    return whole ? (double)(x % 5) - 2 : ((double)(x % 20001) - 10000) / 7777;
}

static void make_values(void *data, size_t count, tt_dtype dtype, int r, bool whole) {
    for (size_t i = 0; i < count; i++) {
        float x = (float)value(r, i, whole);
        if (dtype == TT_F32)
            ((float *)data)[i] = x;
        else if (dtype == TT_F64)
            ((double *)data)[i] = value(r, i, whole);
        else if (dtype == TT_I32)
            ((int32_t *)data)[i] = (int32_t)(x * 1e6f);
        else if (dtype == TT_F16 || dtype == TT_BF16)
            tt__reduce_round((uint16_t *)data + i, &x, 1, dtype, 1);
        else
            ((uint8_t *)data)[i] = (uint8_t)(i + (size_t)r * 37);
    }
}

/* Rank r's buffer: the first `count` of values that don't depend on the count, so the longest made is kept. */
static void fill(void *data, size_t count, tt_dtype dtype, int r, bool whole) {
    static struct {
        void *data;
        size_t count;
    } made[TT_BOOL + 1][2][MAX_RANKS];
    size_t size = tt_dtype_size(dtype);
    if (made[dtype][whole][r].count < count) {
        free(made[dtype][whole][r].data);
        made[dtype][whole][r].data = malloc(count * size);
        made[dtype][whole][r].count = count;
        make_values(made[dtype][whole][r].data, count, dtype, r, whole);
    }
    if (count)
        memcpy(data, made[dtype][whole][r].data, count * size);
}

static double factor_of(int r) { return 0.75 + r * 0.1; }

/* out (count) := the reduction of everybody's send, from element `at` on. */
static void reduce_reference(void *out, size_t at, size_t count, kind k) {
    const void *src[MAX_RANKS];
    double factors[MAX_RANKS];
    for (int r = 0; r < sim.ranks; r++) {
        src[r] = of[r].send + at * tt_dtype_size(k.dtype);
        factors[r] = factor_of(r);
    }
    tt__reduce_tree_scaled(&out, 1, src, factors, sim.ranks, count, k.dtype, k.op);
}

static size_t uneven(int r, size_t count) { return (size_t)(r * 7 + 3) % 5 * count / 2; }
static size_t uneven_pair(int from, int to, size_t count) { return (size_t)(from * 3 + to * 5) % 4 * count / 2; }

/* Sizes in elements of what rank r gives and gets. */
static void sizes_of(tt_op op, int r, int root, size_t count, size_t *gives, size_t *gets) {
    size_t ranks = (size_t)sim.ranks, all = 0, out = 0, in = 0;
    for (int i = 0; i < sim.ranks; i++) {
        size_t gets_here = op == TT_OP_ALL_TO_ALL_V ? uneven_pair(i, r, count) : uneven(i, count);
        size_t gives_here = uneven_pair(r, i, count);
        of[r].counts[i] = (int64_t)gets_here, of[r].send_counts[i] = (int64_t)gives_here;
        of[r].offsets[i] = (int64_t)in, of[r].send_offsets[i] = (int64_t)out;
        in += gets_here, out += gives_here;
        all = in;
    }
    *gives = *gets = count;
    if (op == TT_OP_REDUCE_SCATTER || op == TT_OP_ALL_TO_ALL || (op == TT_OP_SCATTER && r == root))
        *gives = ranks * count;
    if (op == TT_OP_ALL_GATHER || op == TT_OP_ALL_TO_ALL || (op == TT_OP_GATHER && r == root))
        *gets = ranks * count;
    if (op == TT_OP_ALL_GATHER_V)
        *gives = uneven(r, count), *gets = all;
    if (op == TT_OP_ALL_TO_ALL_V)
        *gives = out, *gets = in;
}

static void expect_of(tt_op op, int r, int root, size_t count, kind k) {
    size_t size = tt_dtype_size(k.dtype);
    buffers *b = &of[r];
    b->checked = true;
    for (int i = 0; i < sim.ranks; i++) {
        size_t block = (size_t)i * count * size, bytes = count * size;
        const int64_t *gives = of[i].send_counts, *at = of[i].send_offsets;
        if (op == TT_OP_ALL_GATHER || (op == TT_OP_GATHER && r == root))
            memcpy(b->expected + block, of[i].send, bytes);
        else if (op == TT_OP_ALL_GATHER_V)
            memcpy(b->expected + (size_t)b->offsets[i] * size, of[i].send, (size_t)b->counts[i] * size);
        else if (op == TT_OP_ALL_TO_ALL)
            memcpy(b->expected + block, of[i].send + (size_t)r * bytes, bytes);
        else if (op == TT_OP_ALL_TO_ALL_V)
            memcpy(b->expected + (size_t)b->offsets[i] * size, of[i].send + (size_t)at[r] * size,
                   (size_t)gives[r] * size);
    }
    if (op == TT_OP_SCATTER)
        memcpy(b->expected, of[root].send + (size_t)r * count * size, count * size);
    else if (op == TT_OP_BROADCAST)
        memcpy(b->expected, of[root].send, count * size);
    else if (op == TT_OP_REDUCE_SCATTER)
        reduce_reference(b->expected, (size_t)r * count, count, k);
    else if ((op == TT_OP_ALL_REDUCE || op == TT_OP_ALL_REDUCE_COALESCED) && r)
        memcpy(b->expected, of[0].expected, count * size); /* everywhere the same */
    else if (op == TT_OP_ALL_REDUCE || op == TT_OP_ALL_REDUCE_COALESCED || (op == TT_OP_REDUCE && r == root))
        reduce_reference(b->expected, 0, count, k);
    else if (op == TT_OP_REDUCE)
        memcpy(b->expected, b->send, count * size);
    else if (op == TT_OP_BARRIER || (op == TT_OP_GATHER && r != root))
        b->checked = false;
}

static bool in_place_op(tt_op op) {
    return op == TT_OP_ALL_REDUCE || op == TT_OP_REDUCE || op == TT_OP_BROADCAST || op == TT_OP_ALL_REDUCE_COALESCED;
}

static void make_buffers(tt_op op, int root, size_t count, kind k, bool whole) {
    size_t size = tt_dtype_size(k.dtype);
    for (int r = 0; r < sim.ranks; r++) {
        buffers *b = &of[r];
        size_t gives, gets;
        sizes_of(op, r, root, count, &gives, &gets);
        b->send_bytes = gives * size, b->recv_bytes = gets * size;
        b->send = malloc(b->send_bytes + 1);
        b->recv = calloc(1, b->recv_bytes + 1);
        b->expected = calloc(1, b->recv_bytes + 1);
        fill(b->send, gives, k.dtype, r, whole);
        if (in_place_op(op) && gives)
            memcpy(b->recv, b->send, b->send_bytes);
    }
    for (int r = 0; r < sim.ranks; r++)
        expect_of(op, r, root, count, k);
}

/* Three pieces of the buffer. */
static void cut_parts(buffers *b, tt_call *call, size_t size) {
    int64_t counts[3] = {call->count / 3, 0, call->count - call->count / 3};
    size_t at = 0;
    for (int i = 0; i < 3; i++) {
        b->parts[i] = b->recv + at * size;
        b->part_counts[i] = counts[i];
        at += (size_t)counts[i];
    }
    call->bufs = b->parts, call->recv_counts = b->part_counts, call->buffers = 3;
}

static tt_call call_of(tt_op op, int r, int root, size_t count, kind k) {
    buffers *b = &of[r];
    tt_call call = {
        .op = op, .dtype = k.dtype, .reduce_op = k.op, .root = root, .count = count, .factor = factor_of(r)};
    call.send = in_place_op(op) ? b->recv : b->send;
    call.recv = b->recv;
    if (op == TT_OP_ALL_REDUCE_COALESCED)
        cut_parts(b, &call, tt_dtype_size(k.dtype));
    if (op == TT_OP_ALL_GATHER_V || op == TT_OP_ALL_TO_ALL_V) {
        call.recv_counts = b->counts, call.recv_offsets = b->offsets;
        call.count = (int64_t)(b->send_bytes / tt_dtype_size(k.dtype));
    }
    if (op == TT_OP_ALL_TO_ALL_V)
        call.send_counts = b->send_counts, call.send_offsets = b->send_offsets;
    return call;
}

static void run_case(const tt__algorithm *algorithm, int root, size_t count, kind k) {
    char what[160];
    snprintf(what, sizeof what, "%s %s, %d ranks, root %d, %s x %zu, %s", tt_op_name(algorithm->op), algorithm->name,
             sim.ranks, root, tt_dtype_name(k.dtype), count, tt_reduce_op_name(k.op));
    tt_call first = {.op = algorithm->op, .dtype = k.dtype, .count = count, .recv_counts = of[0].counts};
    if ((algorithm->serves && !algorithm->serves(&sim.groups[0], &first)) ||
        (sim.ranks == 1 && tt__choose_by(&(tt__tuning){0}, &sim.groups[0], &first) != algorithm))
        return;
    make_buffers(algorithm->op, root, count, k, algorithm->own_order);
    for (int r = 0; r < sim.ranks; r++) {
        const tt_call call = call_of(algorithm->op, r, root, count, k);
        begin(&sim.groups[r], &call, algorithm);
    }
    run(what);
    for (int r = 0; r < sim.ranks; r++) {
        buffers *b = &of[r];
        if (b->checked && memcmp(b->recv, b->expected, b->recv_bytes) != 0)
            fail_msg("%s: wrong on rank %d", what, r);
        free(b->send);
        free(b->recv);
        free(b->expected);
    }
}

static bool has_root(tt_op op) {
    return op == TT_OP_REDUCE || op == TT_OP_BROADCAST || op == TT_OP_GATHER || op == TT_OP_SCATTER;
}

static bool reduces(tt_op op) {
    return op == TT_OP_ALL_REDUCE || op == TT_OP_REDUCE || op == TT_OP_REDUCE_SCATTER ||
           op == TT_OP_ALL_REDUCE_COALESCED;
}

static void run_roots(const tt__algorithm *algorithm, size_t count, kind k) {
    run_case(algorithm, 0, count, k);
    if (has_root(algorithm->op) && sim.ranks > 1)
        run_case(algorithm, sim.ranks - 1, count, k);
    if (has_root(algorithm->op) && sim.ranks > 3)
        run_case(algorithm, sim.ranks / 2, count, k);
}

static const kind kinds[] = {{TT_I32, TT_AVG},  {TT_F32, TT_SUM}, {TT_F32, TT_AVG},  {TT_F32, TT_PREMUL_SUM},
                             {TT_F64, TT_SUM},  {TT_F16, TT_SUM}, {TT_BF16, TT_AVG}, {TT_F16, TT_PREMUL_SUM},
                             {TT_BF16, TT_MAX}, {TT_I32, TT_SUM}, {TT_I32, TT_MIN},  {TT_U8, TT_BXOR},
                             {TT_BOOL, TT_SUM}};

/* Collectives on messages. Sends, receives and what makes groups have tests of their own. */
static bool is_simulated(const tt__algorithm *algorithm) {
    return !algorithm->shared && (algorithm->op <= TT_OP_ALL_TO_ALL_V || algorithm->op == TT_OP_ALL_REDUCE_COALESCED);
}

static void run_all(const size_t *counts, int n, bool all_kinds) {
    for (size_t at = 0; at < tt__algorithm_count; at++)
        for (int i = 0; i < n && is_simulated(tt__algorithms[at]); i++) {
            const tt__algorithm *a = tt__algorithms[at];
            run_roots(a, counts[i], kinds[0]);
            for (size_t k = 1; all_kinds && reduces(a->op) && k < sizeof kinds / sizeof *kinds; k++)
                if (!a->own_order || kinds[k].op == TT_SUM)
                    run_roots(a, counts[i], kinds[k]);
        }
}

/* The sanitizers take ten times the time and more: there, fewer worlds, and of all kinds few; the one for threads, of
 * which there is one here, sees the code once. */
#if TT__TSAN
enum { MOST_RANKS = 3, MANY_WORLDS = 0, MOST_LONG = 1, SHAPES = 1, ALL_KINDS = 2, COSTS = 3 };
#elif TT__ASAN
enum { MOST_RANKS = 6, MANY_WORLDS = 1, MOST_LONG = 2, SHAPES = 2, ALL_KINDS = 3, COSTS = 7 };
#else
enum { MOST_RANKS = 17, MANY_WORLDS = 4, MOST_LONG = 5, SHAPES = 7, ALL_KINDS = 9, COSTS = 12 };
#endif

static void test_worlds(void **state) {
    static const size_t counts[] = {0, 1, 37, 1000};
    (void)state;
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++) {
        make_world(ranks, 1, false);
        run_all(counts, 4, ranks <= ALL_KINDS || ranks == 12);
    }
}

static void test_many_ranks(void **state) {
    static const size_t counts[] = {3, 130};
    static const int worlds[] = {65, 63, 64, 100};
    (void)state;
    for (int i = 0; i < MANY_WORLDS; i++) {
        make_world(worlds[i], 1, false);
        run_all(counts, 2, false);
    }
}

static void test_long_buffers(void **state) {
    static const size_t counts[] = {70001, 600011};
    (void)state;
    for (int ranks = 2; ranks <= MOST_LONG; ranks++) {
        make_world(ranks, 1, false);
        run_all(counts, 1 + (ranks < 4), ranks == 3);
    }
}

static void test_hosts(void **state) {
    static const size_t counts[] = {0, 1, 37, 1000, 9001};
    static const int shapes[][2] = {{2, 2}, {2, 3}, {3, 2}, {2, 4}, {3, 4}, {4, 4}, {5, 2}};
    (void)state;
    for (size_t i = 0; i < SHAPES; i++)
        for (int in_turn = 0; in_turn < 2; in_turn++) {
            make_world(shapes[i][0] * shapes[i][1], shapes[i][0], in_turn);
            run_all(counts, 5, !in_turn);
        }
}

/* ---- steps and bytes, as the algorithms' files say */

static int log2_floor(int n) {
    int k = 0;
    while (2 << k <= n)
        k++;
    return k;
}

typedef struct cost {
    long steps;
    double bytes; /* the most that any rank sends */
} cost;

/* N ranks, buffers (or blocks) of b bytes. */
static cost cost_of(const tt__algorithm *a, int N, double b) {
    int ceil = log2_floor(N) + ((N & (N - 1)) != 0), p = 1 << log2_floor(N), fold = p != N;
    double others = N - 1, halves = (double)(p - 1) / p;
    if (a == &tt__barrier_dissemination)
        return (cost){ceil, 0};
    if (a == &tt__all_reduce_direct || a == &tt__reduce_scatter_direct || a == &tt__all_gather_direct ||
        a == &tt__all_to_all_direct || a == &tt__broadcast_direct || a == &tt__scatter_direct)
        return (cost){1, others * b};
    if (a == &tt__reduce_direct || a == &tt__gather_direct)
        return (cost){1, b};
    if (a == &tt__all_reduce_slices)
        return (cost){2, 2 * others / N * b};
    if (a == &tt__reduce_slices)
        return (cost){2, b};
    if (a == &tt__all_reduce_halving_doubling)
        return (cost){2 * log2_floor(N) + 2 * fold, 2 * halves * b + fold * b};
    if (a == &tt__all_reduce_ring)
        return (cost){2 * (N - 1), 2 * others / N * b};
    if (a == &tt__reduce_binomial)
        return (cost){ceil, b};
    if (a == &tt__reduce_scatter_halving)
        return (cost){log2_floor(N) + 2 * fold, fold ? N * b : halves * N * b};
    if (a == &tt__broadcast_binomial)
        return (cost){ceil, ceil * b};
    if (a == &tt__broadcast_chain)
        return (cost){N - 1, b};
    if (a == &tt__broadcast_scatter)
        return (cost){2, b};
    if (a == &tt__all_gather_ring || a == &tt__all_to_all_pairwise)
        return (cost){N - 1, others * b};
    if (a == &tt__all_gather_neighbor_exchange)
        return (cost){N / 2, others * b};
    if (a == &tt__all_gather_bruck || a == &tt__all_gather_doubling)
        return (cost){ceil, others * b};
    if (a == &tt__gather_binomial)
        return (cost){ceil, (1 << (ceil - 1)) * b};
    if (a == &tt__scatter_binomial)
        return (cost){ceil, others * b};
    if (a == &tt__all_to_all_bruck)
        return (cost){ceil, ceil * (N >> 1) * b};
    return (cost){-1, 0};
}

static void check_cost(const tt__algorithm *algorithm, int ranks) {
    size_t count = (size_t)ranks * 64, bytes = count * 4;
    make_world(ranks, 1, false);
    sim.timed = true;
    tt_call call = {.op = algorithm->op, .dtype = TT_F32, .count = count};
    cost expected = cost_of(algorithm, ranks, (double)bytes);
    if (expected.steps < 0 || (algorithm->serves && !algorithm->serves(&sim.groups[0], &call)))
        return;
    run_case(algorithm, 0, count, kinds[0]);
    size_t most = 0;
    for (int r = 0; r < ranks; r++)
        most = sim.sent[r] > most ? sim.sent[r] : most;
    double lines = 64.0 * ranks; /* shares are whole cache lines */
    if (sim.now > expected.steps || (double)most > expected.bytes + lines)
        fail_msg("%s %s, %d ranks: %ld steps and %zu bytes; its file says %ld and %.0f", tt_op_name(algorithm->op),
                 algorithm->name, ranks, sim.now, most, expected.steps, expected.bytes);
    if (sim.now == expected.steps && (double)most >= expected.bytes * 0.999)
        return;
    bool at_most = algorithm == &tt__all_to_all_bruck || algorithm == &tt__all_to_all_pairwise ||
                   algorithm == &tt__reduce_scatter_halving || algorithm == &tt__all_reduce_halving_doubling ||
                   algorithm == &tt__gather_binomial || algorithm == &tt__scatter_binomial ||
                   algorithm == &tt__reduce_binomial || algorithm == &tt__broadcast_binomial;
    if (!at_most)
        fail_msg("%s %s, %d ranks: only %ld steps and %zu bytes; its file says %ld and %.0f", tt_op_name(algorithm->op),
                 algorithm->name, ranks, sim.now, most, expected.steps, expected.bytes);
}

static void test_steps_and_bytes(void **state) {
    static const int worlds[12] = {2, 3, 4, 5, 6, 7, 8, 12, 16, 33, 64, 100};
    (void)state;
    for (size_t i = 0; i < COSTS; i++)
        for (size_t a = 0; a < tt__algorithm_count; a++)
            if (is_simulated(tt__algorithms[a]))
                check_cost(tt__algorithms[a], worlds[i]);
}

/* What the host that sends most sends to others: H hosts of L ranks, buffers (or blocks) of b bytes; w: of the same as
 * partial results. */
static double left_of(const tt__algorithm *a, double H, double L, double b, double w) {
    if (a == &tt__all_reduce_hierarchical)
        return (H - 1) / H * (w + b);
    if (a == &tt__reduce_hierarchical)
        return w;
    if (a == &tt__reduce_scatter_hierarchical)
        return (H - 1) * L * w;
    if (a == &tt__all_gather_hierarchical || a == &tt__scatter_hierarchical)
        return (H - 1) * L * b;
    if (a == &tt__gather_hierarchical)
        return L * b;
    if (a == &tt__all_to_all_hierarchical)
        return (H - 1) * L * L * b;
    return -1;
}

static void check_left(const tt__algorithm *algorithm, int hosts, int each, kind k) {
    size_t count = algorithm->op == TT_OP_ALL_REDUCE || algorithm->op == TT_OP_REDUCE ? 1 << 15 : 1 << 10;
    double bytes = (double)(tt_dtype_size(k.dtype) * count), most = 0;
    double expected =
        left_of(algorithm, hosts, each, bytes, (double)(tt_dtype_size(tt__partial_dtype(k.dtype)) * count));
    const tt_call call = {.op = algorithm->op, .dtype = k.dtype};
    make_world(hosts * each, hosts, false);
    if (expected < 0 || !algorithm->serves(&sim.groups[0], &call))
        return;
    run_case(algorithm, 0, count, k);
    for (int h = 0; h < hosts; h++)
        most = (double)sim.left[h] > most ? (double)sim.left[h] : most;
    if (most != expected)
        fail_msg("%s %s of %s, %d hosts of %d: %.0f bytes from one to others; its file says %.0f",
                 tt_op_name(algorithm->op), algorithm->name, tt_dtype_name(k.dtype), hosts, each, most, expected);
}

static void test_bytes_between_hosts(void **state) {
    static const int shapes[][2] = {{2, 2}, {2, 4}, {4, 4}};
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t a = 0; a < tt__algorithm_count; a++) {
            check_left(tt__algorithms[a], shapes[i][0], shapes[i][1], (kind){TT_F32, TT_SUM});
            if (reduces(tt__algorithms[a]->op))
                check_left(tt__algorithms[a], shapes[i][0], shapes[i][1], (kind){TT_F16, TT_SUM});
        }
}

static int load_default(void **state) {
    (void)state;
    return (int)tt__tuning_parse(&tuning, tt__tuning_default(), "the built-in table");
}

int main(void) {
    /* Buffers come from the heap again and again, instead of new pages from the system. */
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_worlds),          cmocka_unit_test(test_many_ranks),
        cmocka_unit_test(test_long_buffers),    cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_steps_and_bytes), cmocka_unit_test(test_bytes_between_hosts)};
    return cmocka_run_group_tests(tests, load_default, NULL);
}
