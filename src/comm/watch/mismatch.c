/* Ranks that called different things, and messages that failed. The lock is held, and released while other hosts are
 * asked.
 *
 * On shared memory all ranks' words are compared before any peer's memory is touched. On messages the words travel in
 * the keys; each rank also remembers those of its last calls, so a message that nobody receives shows a difference,
 * too. */
#include "base/error.h"
#include "base/machine/clock.h"
#include "base/process/waits.h"
#include "comm/record/call_record.h"
#include "comm/shared/arrival.h"
#include "comm/watch/verdicts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ASK_MS = 100, ASK_ALL_MS = 600, CALLS_BACK = 8 };

/* ---- the sentence */

/* What a rank called as this work's number. */
typedef struct called {
    bool known;
    uint32_t word;
    char text[512];
} called;

/* Move the smallest set of ranks that called the same out of `left`; of equally small ones, that with the higher
 * ranks. */
static tt__rankset take_rarest(const tt_group *group, const called *all, tt__rankset *left, int *first) {
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
static void name_calls(const tt_group *group, const called *all, char *text, size_t size) {
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

/* Return the text of rank r's call; it is kept at the first rank with the same word. */
static const char *text_called(const called *all, int r) {
    int i = 0;
    while (!all[i].known || all[i].word != all[r].word)
        i++;
    return all[i].text;
}

/* Find the ranks that free because they leave, while others go on. */
static tt__rankset leaving_ranks(const tt_group *group, const called *all) {
    tt__rankset leaving = {0};
    int known = 0;
    for (int r = 0; r < group->size; r++) {
        known += all[r].known;
        if (all[r].known && tt__is_leaving(text_called(all, r)))
            tt__rankset_add(&leaving, r);
    }
    return tt__rankset_count(&leaving) < known ? leaving : (tt__rankset){0};
}

/* "tt_module_free", which the rank called; `own`: the text of its free. */
static void name_release(const char *own, char *text, size_t size) {
    const char *name = strstr(own, TT__RELEASES);
    snprintf(text, size, "%s", name ? name + strlen(") in ") : "tt_group_free");
}

/* "rank 2 failed: TT_ERR_INVALID: ..., and left before call 5 of the others", or "rank 2 left before call 5 of the
 * others: it called tt_module_free() while rank 0 called barrier()" */
static tt_status fail_left(tt_group *group, uint32_t seq, called *all, const tt__rankset *leaving) {
    int first = tt__rankset_next(leaving, 0);
    const char *own = text_called(all, first), *after = strstr(own, TT__AFTER_FAILURE);
    char text[700], ranks[128], released[48];
    tt__rankset job = tt__job_ranks(group, leaving);
    group->native->leaving |= tt__rankset_has(leaving, group->rank);
    if (after)
        return tt__fail(TT_ERR_PEER, "rank %d failed: %s, and left before call %u of the others", group->ranks[first],
                        after + strlen(TT__AFTER_FAILURE), tt__call_number(group, seq));
    name_release(own, released, sizeof released);
    for (int r = tt__rankset_next(leaving, 0); r >= 0; r = tt__rankset_next(leaving, r + 1))
        all[r].known = false;
    name_calls(group, all, text, sizeof text);
    return tt__fail(TT_ERR_PEER, "%s left before call %u of the others: %s called %s() while %s",
                    tt__rankset_text(&job, ranks, sizeof ranks), tt__call_number(group, seq),
                    tt__rankset_count(&job) == 1 ? "it" : "they", released, text);
}

static tt_status fail_mismatch(tt_group *group, uint32_t seq, called *all) {
    char text[1024], name[192];
    tt__rankset leaving = leaving_ranks(group, all);
    if (tt__rankset_count(&leaving))
        return fail_left(group, seq, all, &leaving);
    name_calls(group, all, text, sizeof text);
    return tt__fail(TT_ERR_MISMATCH, "call %u of %s differs: %s. All ranks must make the same calls in the same order.",
                    tt__call_number(group, seq), tt__group_text(group, name, sizeof name), text);
}

static tt_status fail_unnamed(const tt_group *group, uint32_t seq) {
    return tt__fail(TT_ERR_MISMATCH, "call %u of the group differs between its ranks", tt__call_number(group, seq));
}

/* ---- words that were published in shared memory */

static bool is_first_of_its_word(const called *all, int r) {
    for (int i = 0; i < r; i++)
        if (all[i].known && all[i].word == all[r].word)
            return false;
    return true;
}

/* Read all ranks' words. Those that have not arrived get a moment, so that the text can name the odd one. */
static void mismatch_read_words(const tt_group *group, uint32_t seq, called *all) {
    enum { TRIES = 50 };
    int missing = group->size;
    for (int tries = 0; tries < TRIES && missing; tries++) {
        if (tries)
            tt__sleep_ms(2);
        missing = 0;
        for (int r = 0; r < group->size; r++) {
            uint64_t word = tt__word_in(tt__slot_of(group, r, seq));
            all[r].known = (uint32_t)word == seq;
            all[r].word = (uint32_t)((word & TT__SIGNATURE_MASK) >> 32);
            missing += !all[r].known;
        }
    }
    for (int r = 0; r < group->size; r++)
        if (all[r].known && is_first_of_its_word(all, r))
            tt__call_text(group, r, seq, all[r].text, sizeof all[r].text);
}

tt_status tt__fail_words(tt_work *work) {
    tt_group *group = work->group;
    if (work->parent)
        return tt__fail_differing(group->native->parent, work->parent->seq);
    called *all = calloc((size_t)group->size, sizeof *all);
    if (!all)
        return fail_unnamed(group, work->seq);
    mismatch_read_words(group, work->seq, all);
    tt_status status = fail_mismatch(group, work->seq, all);
    free(all);
    return status;
}

/* ---- words that came with messages */

static void mismatch_ask(const tt_group *group, int r, uint32_t seq, int64_t deadline_ms, called *answer) {
    tt__world *world = group->native->world;
    int left = tt__left_ms(deadline_ms);
    *answer = (called){0};
    if (world->peers[group->ranks[r]].local)
        answer->known =
            tt__find_call(world, group->ranks[r], group->id, seq, answer->text, sizeof answer->text, &answer->word);
    else if (left)
        answer->known = tt__ask_call(world->messages, group->ranks[r], group->id, seq, answer->text,
                                     sizeof answer->text, &answer->word, left < ASK_MS ? left : ASK_MS);
}

/* Ask the ranks that answer what they called; true: they differ. */
static bool ask_all(const tt_group *group, uint32_t seq, int64_t deadline_ms, called *all) {
    bool differ = false;
    const called *one = NULL;
    for (int r = 0; r < group->size; r++) {
        mismatch_ask(group, r, seq, deadline_ms, &all[r]);
        if (!all[r].known)
            continue;
        differ |= one && one->word != all[r].word;
        one = &all[r];
    }
    return differ;
}

/* If a rank that is gone, and can't be asked any more, published why the group fails, record the same. */
static tt_status fail_named_by_another(const tt_group *group, const called *all) {
    bool known = true;
    for (int r = 0; r < group->size; r++)
        known &= all[r].known;
    for (int r = 0; r < group->size && !known; r++) {
        tt_status said = r == group->rank ? TT_OK : tt__check_failed(group, r);
        if (said == TT_ERR_MISMATCH || said == TT_ERR_PEER)
            return said;
    }
    return TT_OK;
}

/* Find the first call in which ranks differ. If ranks need not wait for each other, it may lie some calls back. */
tt_status tt__fail_differing(tt_group *group, uint32_t seq) {
    tt__world *world = group->native->world;
    uint32_t at = seq;
    called *all = calloc((size_t)group->size, sizeof *all);
    if (!all)
        return fail_unnamed(group, seq);
    int64_t deadline_ms = tt__deadline_ms(ASK_ALL_MS);
    world->asking++;
    group->native->asking = true;
    while (!ask_all(group, at, deadline_ms, all) && at > 1 && at + CALLS_BACK > seq && tt__left_ms(deadline_ms))
        at--;
    group->native->asking = false;
    world->asking--;
    tt_status status = fail_named_by_another(group, all);
    if (!status)
        status = fail_mismatch(group, at, all);
    free(all);
    return status;
}

void tt__on_word(tt_group *group, uint32_t seq, uint32_t word) {
    const tt__begun *begun = &group->native->begun[seq % TT__BEGUN];
    tt_group *top = tt__top_group(group);
    if (begun->seq == seq && begun->word != word && !top->native->mismatch_seq)
        top->native->mismatch_seq = begun->top_seq;
}

void tt__note_begun(tt_work *work) {
    tt_group *group = work->group;
    uint32_t seq = work->seq, top_seq = work->parent ? work->parent->seq : seq;
    group->native->begun[seq % TT__BEGUN] = (tt__begun){seq, work->word, top_seq};
    tt__messages_compare(group->native->world->messages, group->ranks, group->size,
                         &(tt__key){.group = group->id, .seq = seq, .word = work->word});
}

void tt__compare_calls(const tt_work *work) {
    while (work->parent)
        work = work->parent;
    tt_group *group = work->group;
    const tt__world *world = group->native->world;
    char text[256];
    uint32_t word;
    if (group->native->shared || !work->seq)
        return;
    for (int r = 0; r < group->size; r++)
        if (r != group->rank && world->peers[group->ranks[r]].local &&
            tt__find_call(world, group->ranks[r], group->id, work->seq, text, sizeof text, &word))
            tt__on_word(group, work->seq, word);
}

/* ---- messages that failed */

/* "f32 x 4"; in bytes if no element type fits. */
static const char *data_text(uint32_t word, size_t bytes, char *text, size_t size) {
    size_t element = tt_dtype_size((tt_dtype)(word - 1));
    if (element && bytes % element == 0)
        snprintf(text, size, "%s x %zu", tt_dtype_name((tt_dtype)(word - 1)), bytes / element);
    else
        snprintf(text, size, "%zu bytes", bytes);
    return text;
}

static bool find_p2p_call(tt__world *world, int rank, uint32_t group, uint32_t record, char *text, size_t size) {
    if (world->peers[rank].control)
        return tt__find_p2p(world, rank, group, record, text, size);
    return record && tt__ask_record(world->messages, rank, group, record, text, size, ASK_MS);
}

/* Write "Rank 1 called send(f32 x 4, to 0, tag 7) at train.c:88". Is it known what the rank called? */
static bool p2p_call_text(tt_group *group, int rank, uint32_t record, char *text, size_t size) {
    char call[256];
    group->native->world->asking++;
    group->native->asking = true;
    bool known = find_p2p_call(group->native->world, rank, group->id, record, call, sizeof call);
    group->native->asking = false;
    group->native->world->asking--;
    if (known)
        snprintf(text, size, "Rank %d called %s.", rank, call);
    else
        snprintf(text, size, "What rank %d called is not known any more.", rank);
    return known;
}

static tt_status fail_p2p(const tt_work *work, tt__message m) {
    char sent[48], received[48], own_call[320], peer_call[320];
    tt_group *group = work->group;
    int rank = group->native->world->rank, peer = m.is_recv ? m.source : m.peer;
    p2p_call_text(group, rank, m.key.record, own_call, sizeof own_call);
    /* A peer that is gone has published its text, which names both calls. */
    if (!p2p_call_text(group, peer, m.got_record, peer_call, sizeof peer_call) &&
        tt__check_failed(group, tt__rank_in_group(group, peer)) == TT_ERR_MISMATCH)
        return TT_ERR_MISMATCH;
    data_text(m.is_recv ? m.got_word : m.key.word, m.is_recv ? m.got : m.bytes, sent, sizeof sent);
    data_text(m.is_recv ? m.key.word : m.got_word, m.is_recv ? m.bytes : m.got, received, sizeof received);
    return tt__fail(TT_ERR_MISMATCH,
                    "rank %d sends %s with tag %u to rank %d, which receives %s: both must name the same count and "
                    "type. %s %s",
                    m.is_recv ? peer : rank, sent, m.key.step, m.is_recv ? rank : peer, received,
                    m.is_recv ? peer_call : own_call, m.is_recv ? own_call : peer_call);
}

static tt_status fail_work(const tt_work *work) {
    const tt_work *top = work;
    while (top->parent)
        top = top->parent;
    return tt__fail_differing(top->group, top->seq);
}

static tt_status fail_message(tt_work *work, const tt__message *message) {
    int r = tt__rank_in_group(work->group, message->peer);
    char call[256];
    if (message->status == TT_ERR_MISMATCH)
        return work->seq ? fail_work(work) : fail_p2p(work, *message);
    tt_status status = r < 0 || r == work->group->rank ? TT_OK : tt__check_rank(work, r);
    if (status)
        return status;
    tt__work_text(work, call, sizeof call);
    return tt__fail(message->status, "the connection between rank %d and rank %d failed in call %u, %s",
                    work->group->native->world->rank, message->peer, tt__work_number(work), call);
}

tt_status tt__check_messages(tt_work *work) {
    for (size_t i = 0; i < work->message_used; i++)
        if (work->messages[i].done && work->messages[i].status)
            return fail_message(work, &work->messages[i]);
    return TT_OK;
}
