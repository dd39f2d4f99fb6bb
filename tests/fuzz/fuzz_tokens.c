/* A file of tokens from memory: what its header says, and its tokens as each type. */
#include "data/text/tokens.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void widen_all(const tt__tokens *t, const uint8_t *data, size_t size) {
    size_t width = t->type == TT_TOKEN_U16 ? 2 : 4, bytes = (size_t)t->count * width;
    if (t->offset > size || bytes > size - t->offset)
        abort();
    int64_t *tokens = malloc((size_t)t->count * sizeof *tokens + 1);
    if (!tokens)
        abort();
    if (bytes)
        memcpy(tokens, data + t->offset, bytes);
    if (!tt__tokens_widen(t, "fuzz", tokens, t->count, 0, 50257))
        for (int64_t i = 0; i < t->count; i++)
            if (tokens[i] < 0 || tokens[i] >= 50257)
                abort();
    free(tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    for (int type = TT_TOKEN_U16; type <= TT_TOKEN_I32; type++) {
        tt__tokens t;
        if (!tt__tokens_look(&t, "fuzz", data, size < TT__TOKENS_HEADER ? size : TT__TOKENS_HEADER, size,
                             (tt_token_type)type))
            widen_all(&t, data, size);
    }
    return 0;
}
