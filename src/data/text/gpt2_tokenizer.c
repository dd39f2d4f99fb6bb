/* GPT-2's tokenizer from its two files: vocab.json, an object of tokens' texts and numbers, and merges.txt, a pair of
 * texts in each line, the first to be merged first. In these texts each byte is written as a visible character. */

#include "base/error.h"
#include "base/text/json.h"
#include "base/text/plain_text.h"
#include "data/files/whole_file.h"
#include "data/text/bpe.h"
#include "data/text/unicode_classes.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- words ---- */

/* Decode the character at `text`, size > 0; *length: its bytes. UINT32_MAX, of one byte, for what is not UTF-8. */
static uint32_t utf8_decode(const uint8_t *text, size_t size, size_t *length) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    uint8_t first = text[0];
    size_t n = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
    *length = 1;
    if (n < 2 || n > size)
        return n == 1 ? first : UINT32_MAX;
    uint32_t c = first & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return UINT32_MAX;
        c = c << 6 | (text[i] & 0x3f);
    }
    if (c < least[n] || (c >= 0xd800 && c < 0xe000) || c > 0x10ffff)
        return UINT32_MAX;
    *length = n;
    return c;
}

typedef enum char_class { LETTER, NUMBER, SPACE, OTHER } char_class;

static char_class class_at(const uint8_t *text, size_t size, size_t *length) {
    uint32_t c = utf8_decode(text, size, length);
    if (c < 0x80 ? (c | 0x20) >= 'a' && (c | 0x20) <= 'z' : tt__is_letter(c))
        return LETTER;
    return tt__is_space(c) ? SPACE : tt__is_number(c) ? NUMBER : OTHER;
}

/* Return the length of a contraction at the beginning, such as "'s"; 0: there is none. */
static size_t contraction(const uint8_t *text, size_t size) {
    static const char *const endings[] = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t n = strlen(endings[i]);
        if (n <= size && !memcmp(text, endings[i], n))
            return n;
    }
    return 0;
}

/* Return where the run of characters of one class ends that begins at `at`; *last: where its last one begins. */
static size_t run_end(const uint8_t *text, size_t size, size_t at, char_class of, size_t *last) {
    size_t length;
    *last = at;
    while (at < size && class_at(text + at, size - at, &length) == of) {
        *last = at;
        at += length;
    }
    return at;
}

size_t tt__gpt2_word(const uint8_t *text, size_t size) {
    size_t length, last, begin = text[0] == ' ' && size > 1;
    size_t n = contraction(text, size);
    if (n)
        return n;
    char_class of = class_at(text + begin, size - begin, &length);
    if (of != SPACE) /* with the blank before it, if there is one */
        return run_end(text, size, begin, of, &last);
    size_t end = run_end(text, size, 0, SPACE, &last);
    return end < size && last > 0 ? last : end; /* the last space belongs to the word that follows */
}

/* ---- the alphabet ---- */

/* Does the byte stand for itself? The others, in their order, are characters 256, 257, ... */
static bool stands_for_itself(unsigned byte) {
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

/* Return the byte that a character of the alphabet stands for; -1: it is none. */
static int byte_of(uint32_t c) {
    if (c < 256)
        return stands_for_itself(c) ? (int)c : -1;
    for (unsigned byte = 0, others = 256; byte < 256; byte++)
        if (!stands_for_itself(byte) && others++ == c)
            return (int)byte;
    return -1;
}

/* Turn a text of the alphabet, `size` bytes, into the bytes that it stands for, which are no more. Returns their
 * number, or -1: it has another character. */
static int64_t alphabet_bytes(const char *text, size_t size, uint8_t *out) {
    int64_t n = 0;
    for (size_t at = 0, length; at < size; at += length) {
        int byte = byte_of(utf8_decode((const uint8_t *)text + at, size - at, &length));
        if (byte < 0)
            return -1;
        out[n++] = (uint8_t)byte;
    }
    return n;
}

/* ---- vocab.json ---- */

static tt_status read_token(const char *name, const char *text, size_t length, const json_t *number, tt__span *tokens,
                            int64_t count, uint8_t *at, size_t *used) {
    json_int_t id = json_is_integer(number) ? json_integer_value(number) : -1;
    if (id < 0 || id >= count)
        return tt__fail(TT_ERR_FORMAT, "%s: token \"%s\": expected a number from 0 to %" PRId64, name,
                        tt__make_printable(text).text, count - 1);
    if (tokens[id].data)
        return tt__fail(TT_ERR_FORMAT, "%s: the number %" PRId64 " is given twice, also to \"%s\"", name, (int64_t)id,
                        tt__make_printable(text).text);
    int64_t n = alphabet_bytes(text, length, at);
    if (n < 1)
        return tt__fail(TT_ERR_FORMAT, "%s: token \"%s\": expected characters that stand for bytes", name,
                        tt__make_printable(text).text);
    tokens[id] = (tt__span){at, (size_t)n};
    *used = (size_t)n;
    return TT_OK;
}

static tt_tokenizer *vocabulary_of(const char *name, json_t *object, size_t file_size) {
    int64_t count = (int64_t)json_object_size(object);
    tt__span *tokens = calloc((size_t)count + 1, sizeof *tokens);
    uint8_t *bytes = malloc(file_size + 1), *at = bytes;
    tt_status status = tokens && bytes ? TT_OK : tt__fail(TT_ERR_MEMORY, "%s: no memory for its tokens", name);
    const char *text;
    json_t *number;
    size_t used = 0;
    if (!status && (count < 1 || count > INT32_MAX / 4))
        status = tt__fail(TT_ERR_FORMAT, "%s: expected an object of tokens and their numbers", name);
    if (!status)
        json_object_foreach(object, text, number) {
            status = read_token(name, text, strlen(text), number, tokens, count, at, &used);
            if (status)
                break;
            at += used;
        }
    if (!status)
        return tt__tokenizer_new(name, tokens, count, bytes);
    free(tokens);
    free(bytes);
    return NULL;
}

static tt_tokenizer *read_vocabulary(const char *name, const tt__whole_file *file) {
    json_error_t error;
    json_t *object = tt__json_loadb((const char *)file->data, file->size, JSON_REJECT_DUPLICATES, &error);
    if (!object)
        return tt__fail_null(json_error_code(&error) == json_error_out_of_memory ? TT_ERR_MEMORY : TT_ERR_FORMAT,
                             "%s: no valid JSON: %s (line %d)", name, tt__make_printable(error.text).text, error.line);
    tt_tokenizer *t = vocabulary_of(name, object, file->size);
    json_decref(object);
    return t;
}

/* ---- merges.txt ---- */

/* What is read, and what is wrong with it so far. */
typedef struct merges_reading {
    tt_tokenizer *tokenizer;
    tt__merges *merges;
    uint8_t *scratch; /* as long as the longest line */
    int32_t rank;
    int line;
    tt__problem_list problems;
} merges_reading;

/* Add the pair of a line: two texts with a blank between. */
static void read_merge(merges_reading *r, const char *line, size_t size) {
    const char *blank = memchr(line, ' ', size);
    size_t first = blank ? (size_t)(blank - line) : size;
    int64_t left = blank ? alphabet_bytes(line, first, r->scratch) : -1;
    int64_t right = left > 0 ? alphabet_bytes(blank + 1, size - first - 1, r->scratch + left) : -1;
    if (right < 1) {
        tt__problem_add(&r->problems, TT_ERR_FORMAT, "line %d: expected two tokens with a blank between", r->line);
        return;
    }
    int64_t ids[] = {tt__tokenizer_find(r->tokenizer, r->scratch, (size_t)left),
                     tt__tokenizer_find(r->tokenizer, r->scratch + left, (size_t)right),
                     tt__tokenizer_find(r->tokenizer, r->scratch, (size_t)(left + right))};
    if (ids[0] < 0 || ids[1] < 0 || ids[2] < 0) {
        tt__problem_add(&r->problems, TT_ERR_FORMAT, "line %d: the vocabulary lacks %s", r->line,
                        ids[0] < 0   ? "the left token"
                        : ids[1] < 0 ? "the right token"
                                     : "what they become");
        return;
    }
    tt__bpe_merge *slot = tt__merges_slot(r->merges, (int32_t)ids[0], (int32_t)ids[1]);
    if (slot->left >= 0)
        tt__problem_add(&r->problems, TT_ERR_FORMAT, "line %d: this pair comes twice", r->line);
    else
        *slot = (tt__bpe_merge){(int32_t)ids[0], (int32_t)ids[1], r->rank++, (int32_t)ids[2]};
}

static void read_lines(merges_reading *r, const char *text, size_t size) {
    static const char version[] = "#version";
    const char *end = text + size;
    for (const char *line = text, *next; line < end; line = next) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        stop = stop ? stop : end;
        next = stop + 1;
        r->line++;
        stop -= stop > line && stop[-1] == '\r';
        bool is_version =
            r->line == 1 && (size_t)(stop - line) >= sizeof version - 1 && !memcmp(line, version, sizeof version - 1);
        if (stop > line && !is_version)
            read_merge(r, line, (size_t)(stop - line));
    }
}

static size_t count_merges(const uint8_t *text, size_t size) {
    size_t lines = 1;
    for (size_t i = 0; i < size; i++)
        lines += text[i] == '\n';
    return lines;
}

static tt_status read_merges(tt_tokenizer *t, tt__merges *merges, const char *name, const tt__whole_file *file) {
    TT__TRY(tt__merges_make(merges, name, count_merges(file->data, file->size)));
    merges_reading *r = calloc(1, sizeof *r);
    uint8_t *scratch = malloc(file->size + 1);
    tt_status status = r && scratch ? TT_OK : tt__fail(TT_ERR_MEMORY, "%s: no memory to read it", name);
    if (!status) {
        *r = (merges_reading){.tokenizer = t, .merges = merges, .scratch = scratch};
        for (int byte = 0; byte < 256; byte++)
            if (t->of_byte[byte] < 0)
                tt__problem_add(&r->problems, TT_ERR_FORMAT, "the vocabulary has no token for byte %02x", byte);
        read_lines(r, (const char *)file->data, file->size);
        status = tt__problems_report(&r->problems, name);
    }
    free(scratch);
    free(r);
    return status;
}

/* ---- the tokenizer ---- */

static tt_status encode_gpt2(const tt_tokenizer *t, const uint8_t *text, size_t size, tt__token_list *out) {
    while (size && !out->failed) {
        size_t word = tt__gpt2_word(text, size);
        int64_t whole = tt__tokenizer_find(t, text, word);
        if (word == 1 && whole >= 0)
            tt__token_put(out, whole);
        else
            TT__TRY(tt__bpe_word(t, t->rules, text, word, out));
        text += word;
        size -= word;
    }
    return TT_OK;
}

static void free_merges(void *rules) {
    tt__merges *merges = rules;
    if (merges)
        free(merges->slots);
    free(merges);
}

static tt_tokenizer *gpt2_of_files(const char *vocab_name, const tt__whole_file *vocab, const char *merges_name,
                                   const tt__whole_file *merges) {
    tt_tokenizer *t = read_vocabulary(vocab_name, vocab);
    if (!t)
        return NULL;
    t->encode = encode_gpt2;
    t->free_rules = free_merges;
    t->rules = calloc(1, sizeof(tt__merges));
    if (t->rules ? !read_merges(t, t->rules, merges_name, merges)
                 : !tt__fail(TT_ERR_MEMORY, "%s: out of memory", merges_name))
        return t;
    tt_tokenizer_free(t);
    return NULL;
}

tt_tokenizer *tt_gpt2_tokenizer(const char *vocab_path, const char *merges_path) {
    static const uint64_t most = UINT64_C(1) << 28; /* bytes of a file */
    tt__whole_file vocab = {0}, merges = {0};
    tt_tokenizer *t = NULL;
    if (!vocab_path || !merges_path)
        return tt__fail_null(TT_ERR_INVALID, "tt_gpt2_tokenizer: the path of the %s is NULL",
                             vocab_path ? "merges" : "vocabulary");
    if (!tt__whole_file_read(&vocab, vocab_path, most) && !tt__whole_file_read(&merges, merges_path, most))
        t = gpt2_of_files(vocab_path, &vocab, merges_path, &merges);
    tt__whole_file_free(&vocab);
    tt__whole_file_free(&merges);
    return t;
}
