/* The inside of tokenizers: a list of tokens, each a run of bytes, and a function that cuts a text into them. */
#ifndef TT_DATA_TOKENIZER_H
#define TT_DATA_TOKENIZER_H

#include "base/bytes.h"

#include <tutti/datasets.h>

/* A hash table that finds the number of a token by its bytes. */
typedef struct tt__token_map {
    int32_t *slots; /* numbers, -1: free */
    size_t mask;    /* slots - 1, of a power of two */
} tt__token_map;

/* Numbers that grow one by one; `failed` when memory is out. Zeroed = none. */
typedef struct tt__token_list {
    int64_t *tokens;
    size_t count, room;
    bool failed;
} tt__token_list;

void tt__token_put(tt__token_list *list, int64_t token);

struct tt_tokenizer {
    int64_t size;     /* of the vocabulary */
    tt__span *tokens; /* the bytes of each, in `bytes` */
    uint8_t *bytes;
    tt__token_map map;
    int32_t of_byte[256]; /* tokens of one byte; -1: there is none */
    tt_status (*encode)(const tt_tokenizer *t, const uint8_t *text, size_t size, tt__token_list *out);
    void *rules;                     /* of this kind of tokenizer; or NULL */
    void (*free_rules)(void *rules); /* or NULL */
};

/* Make a tokenizer of `size` tokens; their spans lie in `bytes`. Both are taken over, also on failure. */
tt_tokenizer *tt__tokenizer_new(const char *who, tt__span *tokens, int64_t size, uint8_t *bytes);

/* Find a token by its bytes; -1: there is none. */
int64_t tt__tokenizer_find(const tt_tokenizer *t, const uint8_t *bytes, size_t size);

#endif
