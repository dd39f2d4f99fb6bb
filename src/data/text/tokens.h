/* Files of tokens: a plain run of numbers, or one behind llm.c's header: 256 ints, of which the first three are a magic
 * number, a version and the number of tokens. */
#ifndef TT_DATA_TOKENS_H
#define TT_DATA_TOKENS_H

#include <tutti/datasets.h>

enum { TT__TOKENS_HEADER = 1024 };

typedef struct tt__tokens {
    tt_token_type type;
    uint64_t offset; /* of the first */
    int64_t count;
} tt__tokens;

/* Tell what a file of `file_size` bytes, which begins with `head`, holds. `type`: if it doesn't say so itself.
 * TT_ERR_FORMAT: a header that does not fit it; no whole number of tokens. */
tt_status tt__tokens_look(tt__tokens *t, const char *name, const uint8_t *head, size_t head_size, uint64_t file_size,
                          tt_token_type type);

/* Widen n tokens, as they stand in the file, to i64, in place. TT_ERR_FORMAT: one that is negative or beyond the
 * vocabulary; the first of these n is number `first` of the file. */
tt_status tt__tokens_widen(const tt__tokens *t, const char *name, void *data, int64_t n, int64_t first,
                           int64_t vocab_size);

#endif
