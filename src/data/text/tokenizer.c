/* Tokenizers of any kind, and the one whose vocabulary is a text's own bytes. */
#include "data/text/tokenizer.h"

#include "base/error.h"
#include "base/hash.h"
#include "tensor/core/tensor.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void tt__token_put(tt__token_list *list, int64_t token) {
    if (list->count == list->room) {
        size_t room = list->room ? 2 * list->room : 256;
        int64_t *grown = realloc(list->tokens, room * sizeof *grown);
        list->failed |= !grown;
        if (!grown)
            return;
        list->tokens = grown;
        list->room = room;
    }
    list->tokens[list->count++] = token;
}

/* ---- the vocabulary ---- */

/* Return the slot of these bytes: the token's, or the free one where it would stand. */
static size_t token_slot(const tt_tokenizer *t, const uint8_t *bytes, size_t size) {
    size_t at = (size_t)tt__siphash_own(bytes, size) & t->map.mask; /* else files could make tokens collide */
    for (; t->map.slots[at] >= 0; at = (at + 1) & t->map.mask) {
        const tt__span *token = &t->tokens[t->map.slots[at]];
        if (token->size == size && !memcmp(token->data, bytes, size))
            break;
    }
    return at;
}

int64_t tt__tokenizer_find(const tt_tokenizer *t, const uint8_t *bytes, size_t size) {
    return t->map.slots[token_slot(t, bytes, size)];
}

static tt_status make_map(tt_tokenizer *t, const char *who) {
    size_t slots = 16;
    while (slots < 2 * (size_t)t->size)
        slots *= 2;
    t->map = (tt__token_map){malloc(slots * sizeof *t->map.slots), slots - 1};
    if (!t->map.slots)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for %" PRId64 " tokens", who, t->size);
    memset(t->map.slots, 0xff, slots * sizeof *t->map.slots);
    memset(t->of_byte, 0xff, sizeof t->of_byte);
    for (int64_t i = 0; i < t->size; i++) {
        const tt__span *token = &t->tokens[i];
        size_t slot = token_slot(t, token->data, token->size);
        if (t->map.slots[slot] >= 0)
            return tt__fail(TT_ERR_FORMAT, "%s: tokens %d and %" PRId64 " are the same bytes", who, t->map.slots[slot],
                            i);
        t->map.slots[slot] = (int32_t)i;
        if (token->size == 1)
            t->of_byte[token->data[0]] = (int32_t)i;
    }
    return TT_OK;
}

tt_tokenizer *tt__tokenizer_new(const char *who, tt__span *tokens, int64_t size, uint8_t *bytes) {
    tt_tokenizer *t = calloc(1, sizeof *t);
    if (!t) {
        free(tokens);
        free(bytes);
        return tt__fail_null(TT_ERR_MEMORY, "%s: out of memory", who);
    }
    t->size = size;
    t->tokens = tokens;
    t->bytes = bytes;
    if (!make_map(t, who))
        return t;
    tt_tokenizer_free(t);
    return NULL;
}

int64_t tt_tokenizer_size(const tt_tokenizer *tokenizer) { return tokenizer ? tokenizer->size : 0; }

int64_t tt_tokenizer_find(const tt_tokenizer *tokenizer, const char *text, size_t size) {
    return tokenizer && text ? tt__tokenizer_find(tokenizer, (const uint8_t *)text, size) : -1;
}

void tt_tokenizer_free(tt_tokenizer *tokenizer) {
    if (!tokenizer)
        return;
    if (tokenizer->free_rules)
        tokenizer->free_rules(tokenizer->rules);
    free(tokenizer->map.slots);
    free(tokenizer->tokens);
    free(tokenizer->bytes);
    free(tokenizer);
}

/* ---- texts ---- */

static tt_status tensor_of_list(tt_tensor **out, const tt__token_list *list) {
    tt_tensor *x = tt_keep(tt__tensor_new("tt_tokenizer_encode", TT_SHAPE((int64_t)list->count), TT_I64));
    if (!x)
        return tt_last_status();
    if (list->count)
        memcpy(x->data, list->tokens, list->count * sizeof *list->tokens);
    *out = x;
    return TT_OK;
}

tt_status tt_tokenizer_encode(tt_tensor **out, const tt_tokenizer *tokenizer, const char *text, size_t size) {
    tt__token_list list = {0};
    if (out)
        *out = NULL;
    if (!tokenizer)
        return tt__fail_argument("tt_tokenizer_encode: the tokenizer is NULL");
    if (!out || (!text && size))
        return tt__fail(TT_ERR_INVALID, "tt_tokenizer_encode: %s is NULL", out ? "the text" : "out");
    tt_status status = size ? tokenizer->encode(tokenizer, (const uint8_t *)text, size, &list) : TT_OK;
    if (!status && list.failed)
        status = tt__fail(TT_ERR_MEMORY, "tt_tokenizer_encode: no memory for the tokens of %zu bytes", size);
    if (!status)
        status = tensor_of_list(out, &list);
    free(list.tokens);
    return status;
}

tt_status tt_tokenizer_decode(size_t *length, const tt_tokenizer *tokenizer, const int64_t *tokens, int64_t n,
                              char *out, size_t size) {
    static const char who[] = "tt_tokenizer_decode";
    size_t all = 0;
    if (!tokenizer)
        return tt__fail_argument("%s: the tokenizer is NULL", who);
    if (!length || n < 0 || (!tokens && n) || (!out && size))
        return tt__fail(TT_ERR_INVALID, "%s: expected n >= 0 tokens and where to write, got n = %" PRId64 " and NULL",
                        who, n);
    for (int64_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || tokens[i] >= tokenizer->size)
            return tt__fail(TT_ERR_INVALID, "%s: token %" PRId64 ": expected 0 to %" PRId64 ", got %" PRId64, who, i,
                            tokenizer->size - 1, tokens[i]);
        const tt__span *token = &tokenizer->tokens[tokens[i]];
        size_t room = all < size ? size - all : 0;
        if (room)
            memcpy(out + all, token->data, token->size < room ? token->size : room);
        all += token->size;
    }
    *length = all;
    return TT_OK;
}

/* ---- the vocabulary of a text's own bytes ---- */

static tt_status encode_chars(const tt_tokenizer *t, const uint8_t *text, size_t size, tt__token_list *out) {
    for (size_t i = 0; i < size && !out->failed; i++) {
        if (t->of_byte[text[i]] < 0)
            return tt__fail(TT_ERR_INVALID,
                            "tt_tokenizer_encode: byte %zu of the text, %02x, is not among the %" PRId64
                            " of the vocabulary",
                            i, text[i], t->size);
        tt__token_put(out, t->of_byte[text[i]]);
    }
    return TT_OK;
}

tt_tokenizer *tt_char_vocab(const char *text, size_t size) {
    static const char who[] = "tt_char_vocab";
    bool seen[256] = {false};
    int n = 0;
    if (!text || !size)
        return tt__fail_null(TT_ERR_INVALID, "%s: expected a text, got %s", who, text ? "an empty one" : "NULL");
    for (size_t i = 0; i < size; i++)
        seen[(uint8_t)text[i]] = true;
    uint8_t *bytes = malloc(256);
    tt__span *tokens = malloc(256 * sizeof *tokens);
    if (!bytes || !tokens) {
        free(bytes);
        free(tokens);
        return tt__fail_null(TT_ERR_MEMORY, "%s: out of memory", who);
    }
    for (int byte = 0; byte < 256; byte++)
        if (seen[byte]) {
            bytes[n] = (uint8_t)byte;
            tokens[n] = (tt__span){&bytes[n], 1};
            n++;
        }
    tt_tokenizer *t = tt__tokenizer_new(who, tokens, n, bytes);
    if (t)
        t->encode = encode_chars;
    return t;
}
