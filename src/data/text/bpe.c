#include "data/text/bpe.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

/* ---- merges ---- */

tt_status tt__merges_make(tt__merges *merges, const char *who, size_t count) {
    size_t slots = 16;
    while (slots < 2 * count)
        slots *= 2;
    *merges = (tt__merges){malloc(slots * sizeof *merges->slots), slots - 1};
    if (!merges->slots)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for %zu merges", who, count);
    memset(merges->slots, 0xff, slots * sizeof *merges->slots);
    return TT_OK;
}

tt__bpe_merge *tt__merges_slot(const tt__merges *merges, int32_t left, int32_t right) {
    uint64_t key = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * UINT64_C(0x9e3779b97f4a7c15);
    size_t at = (size_t)(key >> 32) & merges->mask;
    while (merges->slots[at].left >= 0 && (merges->slots[at].left != left || merges->slots[at].right != right))
        at = (at + 1) & merges->mask;
    return &merges->slots[at];
}

/* ---- a word ---- */

/* A token of the word, in a list. */
typedef struct piece {
    int32_t token;      /* -1: it has become part of the one before */
    int32_t prev, next; /* -1: none */
} piece;

/* A pair that could be merged when it was noted: the pieces may have changed since. */
typedef struct candidate {
    int32_t rank, at, left, right, result;
} candidate;

typedef struct word_work {
    const tt__merges *merges;
    piece *pieces;
    candidate *heap; /* the lowest rank first; of equal ones, the leftmost */
    size_t count;    /* in the heap */
} word_work;

static bool candidate_before(const candidate *a, const candidate *b) {
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void heap_push(word_work *w, candidate c) {
    size_t at = w->count++;
    for (; at > 0 && candidate_before(&c, &w->heap[(at - 1) / 2]); at = (at - 1) / 2)
        w->heap[at] = w->heap[(at - 1) / 2];
    w->heap[at] = c;
}

static candidate heap_pop(word_work *w) {
    candidate first = w->heap[0], last = w->heap[--w->count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < w->count; at = child) {
        child += child + 1 < w->count && candidate_before(&w->heap[child + 1], &w->heap[child]);
        if (!candidate_before(&w->heap[child], &last))
            break;
        w->heap[at] = w->heap[child];
    }
    w->heap[at] = last;
    return first;
}

/* Tell what becomes of the pair that begins at `at`; false: nothing. */
static bool find_candidate(const word_work *w, int32_t at, candidate *c) {
    int32_t next = at < 0 ? -1 : w->pieces[at].next;
    if (next < 0)
        return false;
    const tt__bpe_merge *merge = tt__merges_slot(w->merges, w->pieces[at].token, w->pieces[next].token);
    *c = (candidate){merge->rank, at, merge->left, merge->right, merge->result};
    return merge->left >= 0;
}

/* Merge, if the pair is still there. */
static bool merge_pair(word_work *w, const candidate *c) {
    piece *left = &w->pieces[c->at];
    if (left->token != c->left || left->next < 0 || w->pieces[left->next].token != c->right)
        return false;
    piece *right = &w->pieces[left->next];
    left->token = c->result;
    left->next = right->next;
    right->token = -1;
    if (left->next >= 0)
        w->pieces[left->next].prev = c->at;
    return true;
}

/* Merge all places of the lowest rank, then note the pairs that this made. `fresh` has room for them. */
static void merge_rank(word_work *w, candidate *fresh) {
    int32_t rank = w->heap[0].rank;
    size_t n = 0;
    while (w->count && w->heap[0].rank == rank) {
        candidate c = heap_pop(w);
        if (!merge_pair(w, &c))
            continue;
        n += find_candidate(w, w->pieces[c.at].prev, &fresh[n]);
        n += find_candidate(w, c.at, &fresh[n]);
    }
    for (size_t i = 0; i < n; i++)
        heap_push(w, fresh[i]);
}

tt_status tt__bpe_word(const tt_tokenizer *t, const tt__merges *merges, const uint8_t *word, size_t size,
                       tt__token_list *out) {
    if (size > INT32_MAX / 8)
        return tt__fail(TT_ERR_INVALID, "tt_tokenizer_encode: a word of %zu bytes is too long", size);
    /* each merge notes two candidates at most, and there are at most size - 1 merges */
    piece *pieces = malloc(size * sizeof *pieces);
    candidate *heap = malloc(6 * size * sizeof *heap);
    tt_status status = pieces && heap
                           ? TT_OK
                           : tt__fail(TT_ERR_MEMORY, "tt_tokenizer_encode: no memory for a word of %zu bytes", size);
    word_work w = {.merges = merges, .pieces = pieces, .heap = heap};
    for (size_t i = 0; !status && i < size; i++)
        pieces[i] = (piece){t->of_byte[word[i]], (int32_t)i - 1, i + 1 < size ? (int32_t)i + 1 : -1};
    candidate c;
    for (size_t i = 0; !status && i < size; i++)
        if (find_candidate(&w, (int32_t)i, &c))
            heap_push(&w, c);
    while (!status && w.count)
        merge_rank(&w, heap + 3 * size);
    for (int32_t i = 0; !status && i >= 0; i = pieces[i].next)
        tt__token_put(out, pieces[i].token);
    free(pieces);
    free(heap);
    return status;
}
