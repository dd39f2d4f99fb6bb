/* Sends and receives, and what is made of them. */
#include "conformance.h"

static void expect(const void *buf, size_t bytes, int sender, unsigned seed, unsigned char *scratch) {
    fill_bytes(scratch, bytes, sender, seed);
    CHECK(!bytes || !memcmp(buf, scratch, bytes));
}

/* Everybody to the right, at once. */
static void around(ctx *c, size_t count, tt_dtype dtype) {
    int right = (c->rank + 1) % c->world, left = (c->rank + c->world - 1) % c->world;
    size_t bytes = count * tt_dtype_size(dtype);
    tt_work *works[2] = {0};
    next_case(c);
    fill_bytes(buffer(c, 0), bytes, c->rank, c->cases);
    CHECK_OK(tt_irecv(&works[0], c->group, buffer(c, 1), count, dtype, left, .tag = 3));
    CHECK_OK(tt_isend(&works[1], c->group, buffer(c, 0), count, dtype, right, .tag = 3));
    CHECK_OK(tt_work_wait_all(works, 2));
    CHECK(tt_work_source_rank(works[0]) == left);
    expect(buffer(c, 1), bytes, left, c->cases, c->want);
    tt_work_free(works[0]);
    tt_work_free(works[1]);
}

/* Rank 1 sends three tags, rank 0 takes them in another order; messages of one tag stay in order. */
static void by_tag(ctx *c) {
    int32_t sent[] = {70, 80, 81, 90}, got[4] = {0};
    static const int tags[] = {7, 8, 8, 9}, order[] = {3, 1, 2, 0};
    next_case(c);
    if (c->rank == 1)
        for (int i = 0; i < 4; i++) {
            tt_work *work;
            CHECK_OK(tt_isend(&work, c->group, &sent[i], 1, TT_I32, 0, .tag = tags[i]));
            tt_work_free(work);
        }
    for (int i = 0; c->rank == 0 && i < 4; i++) {
        CHECK_OK(tt_recv(c->group, &got[order[i]], 1, TT_I32, 1, .tag = tags[order[i]]));
        CHECK(got[order[i]] == sent[order[i]]);
    }
    CHECK_OK(tt_barrier(c->group)); /* the sent numbers lie on the stack */
}

/* Rank 0 takes one message of each other rank, in whatever order they come. */
static void from_any(ctx *c) {
    bool seen[MAX_RANKS] = {false};
    int32_t number = 1000 + c->rank;
    if (c->rank) {
        CHECK_OK(tt_send(c->group, &number, 1, TT_I32, 0, .tag = 11));
        return;
    }
    for (int i = 1; i < c->world; i++) {
        int source = -1;
        CHECK_OK(tt_recv(c->group, &number, 1, TT_I32, TT_ANY_SOURCE, .tag = 11, .source = &source));
        CHECK(source > 0 && source < c->world && !seen[source] && number == 1000 + source);
        seen[source] = true;
    }
}

/* Sends that were begun before a collective are received after it. */
static void across(ctx *c) {
    int32_t mine = c->rank, theirs = -1, sum = 1;
    int right = (c->rank + 1) % c->world, left = (c->rank + c->world - 1) % c->world;
    tt_work *work;
    CHECK_OK(tt_isend(&work, c->group, &mine, 1, TT_I32, right));
    CHECK_OK(tt_all_reduce(c->group, &sum, 1, TT_I32, TT_SUM));
    CHECK(sum == c->world);
    CHECK_OK(tt_recv(c->group, &theirs, 1, TT_I32, left));
    CHECK(theirs == left);
    CHECK_OK(tt_work_wait(work));
    tt_work_free(work);
}

static void to_itself(ctx *c) {
    int32_t mine = 5 + c->rank, got = 0;
    tt_work *works[2] = {0};
    CHECK_OK(tt_isend(&works[0], c->group, &mine, 1, TT_I32, c->rank, .tag = 2));
    CHECK_OK(tt_irecv(&works[1], c->group, &got, 1, TT_I32, c->rank, .tag = 2));
    CHECK_OK(tt_work_wait_all(works, 2));
    CHECK(got == mine);
    tt_work_free(works[0]);
    tt_work_free(works[1]);
}

/* An engine refuses by name what it lacks. */
static bool lacks_messages_to_itself(const ctx *c) {
    int32_t number = 0;
    tt_work *work = NULL;
    if (strcmp(tt_get_backend(c->group), "gloo") != 0)
        return false;
    CHECK(tt_isend(&work, c->group, &number, 1, TT_I32, c->rank) == TT_ERR_UNSUPPORTED && !work);
    CHECK_TEXT("gloo has no messages from a rank to itself");
    return true;
}

void test_messages(ctx *c) {
    static const size_t counts[] = {0, 1, 7, 1031, 4096, 70001};
    if (!lacks_messages_to_itself(c))
        to_itself(c);
    CHECK(tt_send(c->group, c->want, 1, TT_I32, c->world) == TT_ERR_INVALID);
    if (c->world == 1)
        return;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        around(c, counts[i], TT_F32);
        around(c, counts[i], TT_U8);
    }
    by_tag(c);
    from_any(c);
    across(c);
}

/* Everybody sends to everybody else and receives from them, in one call. */
void test_batch(ctx *c) {
    enum { COUNT = 1031 };
    for (int manner = 0; manner < 4; manner++) {
        tt_p2p_op ops[2 * MAX_RANKS];
        int n = 0;
        unsigned char *in = buffer(c, 1);
        next_case(c);
        fill_bytes(buffer(c, 0), COUNT, c->rank, c->cases);
        for (int r = 0; r < c->world; r++) {
            if (r == c->rank)
                continue;
            ops[n++] = tt_send_op(buffer(c, 0), COUNT, TT_U8, r, .tag = manner);
            ops[n++] = tt_recv_op(in + (size_t)r * COUNT, COUNT, TT_U8, r, .tag = manner);
        }
        in = buffer(c, 1);
        for (int i = 1; i < n; i += 2)
            ops[i].recv = in + (size_t)ops[i].peer * COUNT;
        CALL(c, tt_batch_isend_irecv, c->group, ops, n);
        for (int i = 1; i < n; i += 2)
            expect(ops[i].recv, COUNT, ops[i].peer, c->cases, c->want);
    }
}

void test_monitored_barrier(ctx *c) {
    CHECK_OK(tt_monitored_barrier(c->group, .timeout_ms = PATIENCE_MS));
    CHECK_OK(tt_barrier(c->group));
    CHECK_OK(tt_monitored_barrier(c->group));
}
