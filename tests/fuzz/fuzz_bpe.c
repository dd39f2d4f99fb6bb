/* GPT-2's two files and a text: merges, a zero byte, then the text, of a vocabulary of all bytes and a few pairs; and
 * the whole as a vocabulary. A tokenizer that is made gives any text back. */
#include "fuzz/folder.h"

#include <tutti/datasets.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The texts of the 256 bytes, then what pairs of "a" to "d" become. */
static size_t make_vocabulary(char *out, size_t room) {
    size_t n = (size_t)snprintf(out, room, "{");
    int id = 0, others = 256;
    for (int byte = 0; byte < 256; byte++) {
        int own = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
        n += (size_t)snprintf(out + n, room - n, "\"\\u%04x\":%d,", (unsigned)(own ? byte : others++), id++);
    }
    for (int a = 'a'; a <= 'd'; a++)
        for (int b = 'a'; b <= 'd'; b++) {
            n += (size_t)snprintf(out + n, room - n, "\"%c%c\":%d,", a, b, id++);
            n += (size_t)snprintf(out + n, room - n, "\"%c%c%c\":%d,", a, b, a, id++);
        }
    out[n - 1] = '}';
    return n;
}

static void check_text(const tt_tokenizer *t, const char *text, size_t size) {
    tt_tensor *x = NULL;
    size_t length = 0;
    char *back = malloc(size + 1);
    if (!back || tt_tokenizer_encode(&x, t, text, size) ||
        tt_tokenizer_decode(&length, t, tt_tensor_i64(x), tt_tensor_numel(x), back, size) || length != size ||
        memcmp(back, text, size))
        abort();
    free(back);
    tt_tensor_free(x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char vocabulary[16384];
    if (!size)
        return 0;
    size_t merges_size = strnlen((const char *)data, size), text = merges_size < size ? merges_size + 1 : size;
    const char *vocab = fuzz_file("vocab", vocabulary, make_vocabulary(vocabulary, sizeof vocabulary));
    const char *merges = fuzz_file("merges", data, merges_size), *whole = fuzz_file("whole", data, size);
    tt_tokenizer *t = tt_gpt2_tokenizer(vocab, merges);
    if (t)
        check_text(t, (const char *)data + text, size - text);
    tt_tokenizer_free(t);
    tt_tokenizer_free(tt_gpt2_tokenizer(whole, merges));
    return 0;
}
