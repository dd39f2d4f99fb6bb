/* GPT-2's byte pair encoding: how a text is cut into words, and in what order pairs of tokens in a word become one
 * token. */
#ifndef TT_DATA_BPE_H
#define TT_DATA_BPE_H

#include "data/text/tokenizer.h"

#include <stddef.h>
#include <stdint.h>

/* A pair and what becomes of it. Merges of lower rank come first. */
typedef struct tt__bpe_merge {
    int32_t left, right; /* left -1: a free slot */
    int32_t rank, result;
} tt__bpe_merge;

typedef struct tt__merges {
    tt__bpe_merge *slots;
    size_t mask; /* slots - 1, of a power of two */
} tt__merges;

/* Make room for `count` merges. */
tt_status tt__merges_make(tt__merges *merges, const char *who, size_t count);

/* Return the slot of a pair: the merge, or the free slot where it would stand. */
tt__bpe_merge *tt__merges_slot(const tt__merges *merges, int32_t left, int32_t right);

/* Cut one word into tokens: as long as some pair in it can be merged, merge the pair of the lowest rank at all of its
 * places, from the left. All bytes have tokens. TT_ERR_MEMORY. */
tt_status tt__bpe_word(const tt_tokenizer *t, const tt__merges *merges, const uint8_t *word, size_t size,
                       tt__token_list *out);

/* Return the length of the first word of `size` bytes, size > 0. The words of a text, one behind the other, are those
 * that this pattern finds:
 *   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 * A byte that is not UTF-8 counts as a character that is none of these. */
size_t tt__gpt2_word(const uint8_t *text, size_t size);

#endif
