/* How GPT-2 cuts a text into words before it looks for merges. */
#ifndef TT_DATA_GPT2_TOKENIZER_H
#define TT_DATA_GPT2_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

/* Return the length of the first word of `size` bytes, size > 0. The words of a text, one behind the other, are those
 * that this pattern finds:
 *   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 * A byte that is not UTF-8 counts as a character that is none of these. */
size_t tt__gpt2_word(const uint8_t *text, size_t size);

#endif
