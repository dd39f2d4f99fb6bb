/* The vocabulary of a text's own bytes. */
#include "base/error.h"
#include "data/text/tokenizer.h"

#include <inttypes.h>
#include <stdlib.h>

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
