/* What machines on messages are made of (work.h), and what becomes of messages that fail. */
#include "base/clock.h"
#include "base/error.h"
#include "comm/collective/p2p.h"

#include <stdio.h>
#include <stdlib.h>

tt_status tt__work_messages(tt_work *work, size_t n) {
    work->message_used = n;
    if (n > work->message_count) {
        tt__message *messages = realloc(work->messages, n * sizeof *messages);
        if (!messages) {
            work->message_used = 0;
            return tt__fail(TT_ERR_MEMORY, "no memory for %zu messages", n);
        }
        work->messages = messages;
        work->message_count = n;
    }
    for (size_t i = 0; i < n; i++)
        work->messages[i] = (tt__message){.done = true};
    return TT_OK;
}

static tt__message *prepare(tt_work *work, size_t slot, int peer, uint32_t step, void *data, size_t bytes) {
    tt__message *message = &work->messages[slot];
    *message = (tt__message){.key = {.group = work->group->id, .seq = work->seq, .step = step, .word = work->word},
                             .peer = work->group->ranks[peer],
                             .data = data,
                             .bytes = bytes,
                             .pending = &work->pending};
    atomic_fetch_add_explicit(&work->pending, 1, memory_order_relaxed);
    return message;
}

void tt__work_send(tt_work *work, size_t slot, int to, uint32_t step, const void *data, size_t bytes) {
    tt__message_send(work->group->world->messages, prepare(work, slot, to, step, (void *)(uintptr_t)data, bytes));
}

void tt__work_recv(tt_work *work, size_t slot, int from, uint32_t step, void *data, size_t bytes) {
    tt__message_recv(work->group->world->messages, prepare(work, slot, from, step, data, bytes));
}

tt__next tt__work_wait_messages(tt_work *work) {
    work->wait = (tt__wait){.what = TT__MESSAGES};
    return TT__NEXT_WAIT;
}

tt_status tt__work_scratch(tt_work *work, size_t bytes) {
    if (bytes <= work->scratch_bytes)
        return TT_OK;
    void *scratch = NULL;
    if (posix_memalign(&scratch, 64, bytes))
        return tt__fail(TT_ERR_MEMORY, "no memory for %zu bytes that %s needs", bytes, tt_op_name(work->call.op));
    free(work->scratch);
    work->scratch = scratch;
    work->scratch_bytes = bytes;
    return TT_OK;
}

void tt__cancel_messages(tt_work *work) {
    for (size_t i = 0; i < work->message_used && !work->group->world->forked; i++)
        if (!work->messages[i].done)
            tt__message_cancel(work->group->world->messages, &work->messages[i], TT_ERR_ABORTED);
}

/* ---- what went wrong */

static int rank_in_group(const tt_group *group, int job_rank) {
    for (int r = 0; r < group->size; r++)
        if (group->ranks[r] == job_rank)
            return r;
    return -1;
}

/* What a rank called as this work's number. */
typedef struct said {
    bool known;
    uint32_t word;
    char text[256];
} said;

enum { ASK_MS = 100, ASK_ALL_MS = 600, CALLS_BACK = 8 };

static void ask(const tt_group *group, int r, uint32_t seq, int64_t deadline_ms, said *answer) {
    tt__world *world = group->world;
    int left = tt__left_ms(deadline_ms);
    *answer = (said){0};
    if (world->peers[group->ranks[r]].local)
        answer->known =
            tt__find_call(world, group->ranks[r], group->id, seq, answer->text, sizeof answer->text, &answer->word);
    else if (left)
        answer->known = tt__ask_call(world->messages, group->ranks[r], group->id, seq, answer->text,
                                     sizeof answer->text, &answer->word, left < ASK_MS ? left : ASK_MS);
}

/* Whether those who tell it called different things. */
static bool ask_all(const tt_group *group, uint32_t seq, int64_t deadline_ms, said *all) {
    bool differ = false;
    const said *one = NULL;
    for (int r = 0; r < group->size; r++) {
        ask(group, r, seq, deadline_ms, &all[r]);
        if (!all[r].known)
            continue;
        differ |= one && one->word != all[r].word;
        one = &all[r];
    }
    return differ;
}

/* The smallest set of ranks that called alike, of equal ones that with the higher ranks; they are taken out of `left`. */
static tt__rankset take_rarest(const tt_group *group, const said *all, tt__rankset *left, int *first) {
    tt__rankset rarest = {0};
    int least = TT__MAX_RANKS + 1;
    for (int r = 0; r < group->size; r++) {
        tt__rankset same = {0};
        for (int i = 0; i < group->size && tt__rankset_has(left, r); i++)
            if (tt__rankset_has(left, i) && all[i].word == all[r].word)
                tt__rankset_add(&same, i);
        int n = tt__rankset_count(&same);
        if (n && n <= least) {
            rarest = same;
            least = n;
            *first = tt__rankset_next(&same, 0);
        }
    }
    for (int i = 0; i < TT__MAX_RANKS / 64; i++)
        left->bits[i] &= ~rarest.bits[i];
    return rarest;
}

/* "rank 1 called A while ranks 0, 2 called B" */
static void name_calls(const tt_group *group, const said *all, char *text, size_t size) {
    tt__rankset left = {0};
    size_t n = 0;
    text[0] = '\0';
    for (int r = 0; r < group->size; r++)
        if (all[r].known)
            tt__rankset_add(&left, r);
    for (int sets = 0; sets < 3 && tt__rankset_count(&left) && n < size; sets++) {
        char ranks[128];
        int first = 0;
        tt__rankset rarest = take_rarest(group, all, &left, &first), job = tt__job_ranks(group, &rarest);
        n += (size_t)snprintf(text + n, size - n, "%s%s called %s", sets ? " while " : "",
                              tt__rankset_text(&job, ranks, sizeof ranks), all[first].text);
    }
}

/* A rank that is gone can't be asked; but one that failed before it went has told the whole story. */
static bool told_by_another(const tt_group *group, const said *all) {
    bool known = true;
    for (int r = 0; r < group->size; r++)
        known &= all[r].known;
    for (int r = 0; r < group->size && !known; r++)
        if (r != group->rank && tt__check_failed(group, r) == TT_ERR_MISMATCH)
            return true;
    return false;
}

/* Where ranks made calls in which they need not meet, they may have differed a while before anybody sees it. */
tt_status tt__fail_differing(tt_group *group, uint32_t seq) {
    tt__world *world = group->world;
    uint32_t at = seq;
    char text[1024], name[192];
    said *all = calloc((size_t)group->size, sizeof *all);
    if (!all)
        return tt__fail(TT_ERR_MISMATCH, "call %u of the group differs between its ranks", seq);
    int64_t deadline_ms = tt__deadline_ms(ASK_ALL_MS);
    world->asking++;
    group->asking = true;
    while (!ask_all(group, at, deadline_ms, all) && at > 1 && at + CALLS_BACK > seq && tt__left_ms(deadline_ms))
        at--;
    group->asking = false;
    world->asking--;
    bool told = told_by_another(group, all);
    name_calls(group, all, text, sizeof text);
    free(all);
    if (told)
        return TT_ERR_MISMATCH;
    return tt__fail(TT_ERR_MISMATCH, "call %u of %s differs: %s. All ranks must make the same calls in the same order.",
                    at, tt__group_text(group, name, sizeof name), text);
}

/* ---- what others called */

void tt__hear_word(tt_group *group, uint32_t seq, uint32_t word) {
    const tt__begun *begun = &group->begun[seq % TT__BEGUN];
    tt_group *top = group->parent ? group->parent : group;
    if (begun->seq == seq && begun->word != word && !top->differs)
        top->differs = begun->top_seq;
}

void tt__note_begun(tt_work *work) {
    tt_group *group = work->group;
    uint32_t seq = work->seq, top_seq = work->parent ? work->parent->seq : seq;
    group->begun[seq % TT__BEGUN] = (tt__begun){seq, work->word, top_seq};
    tt__messages_compare(group->world->messages, group->ranks, group->size,
                         &(tt__key){.group = group->id, .seq = seq, .word = work->word});
}

void tt__look_at_calls(const tt_work *work) {
    while (work->parent)
        work = work->parent;
    tt_group *group = work->group;
    const tt__world *world = group->world;
    char text[256];
    uint32_t word;
    if (group->shared || !work->seq)
        return;
    for (int r = 0; r < group->size; r++)
        if (r != group->rank && world->peers[group->ranks[r]].local &&
            tt__find_call(world, group->ranks[r], group->id, work->seq, text, sizeof text, &word))
            tt__hear_word(group, work->seq, word);
}

/* ---- messages that failed */

static tt_status fail_mismatch(const tt_work *work) {
    const tt_work *top = work;
    while (top->parent)
        top = top->parent;
    return tt__fail_differing(top->group, top->seq);
}

static tt_status fail_message(tt_work *work, const tt__message *message) {
    int r = rank_in_group(work->group, message->peer);
    char call[256];
    if (message->status == TT_ERR_MISMATCH)
        return work->seq ? fail_mismatch(work) : tt__p2p_mismatch(work, *message);
    tt_status status = r < 0 || r == work->group->rank ? TT_OK : tt__check_rank(work, r);
    if (status)
        return status;
    tt__work_text(work, call, sizeof call);
    return tt__fail(message->status, "the connection between rank %d and rank %d failed in call %u, %s",
                    work->group->world->rank, message->peer, work->seq, call);
}

tt_status tt__check_messages(tt_work *work) {
    for (size_t i = 0; i < work->message_used; i++)
        if (work->messages[i].done && work->messages[i].status)
            return fail_message(work, &work->messages[i]);
    return TT_OK;
}
