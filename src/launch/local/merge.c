#include "launch/local/merge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char OWN[] = "tutti: rank ";

/* A rank that wrote the line. */
typedef struct speaker {
    int from, rank;
} speaker;

struct tt__merged {
    tt__merged *next;
    speaker *speakers; /* (count), by rank */
    int count;
    size_t n, words_n;
    bool same_text;  /* all ranks' texts agree to the letter */
    bool same_words; /* they agree with each own rank as "this rank"; at least one of the two holds */
    char *words;     /* (words_n) `text` with its rank as "this rank" */
    char text[];     /* (n) of the first rank, without "tutti: rank N: ", with the line end */
};

enum { WORDS_SIZE = 4608 };

size_t tt__words_of_any(char *out, size_t size, const char *text, size_t n, int rank) {
    static const char any[] = "this rank";
    char own[24];
    size_t used = 0, length = (size_t)snprintf(own, sizeof own, "rank %d", rank);
    for (size_t i = 0; i < n && used + sizeof any < size;) {
        bool whole = n - i >= length && !memcmp(text + i, own, length) &&
                     (n - i == length || text[i + length] < '0' || text[i + length] > '9');
        if (!whole) {
            out[used++] = text[i++];
            continue;
        }
        memcpy(out + used, any, sizeof any - 1);
        used += sizeof any - 1;
        i += length;
    }
    out[used] = '\0';
    return used;
}

/* Find the rank that the line names, and where its text begins; false: another kind of line. */
static bool split_line(const char *line, size_t n, int *rank, size_t *begin) {
    size_t at = sizeof OWN - 1;
    long number = 0;
    if (n <= at || memcmp(line, OWN, at) != 0 || line[at] < '0' || line[at] > '9')
        return false;
    for (; at < n && line[at] >= '0' && line[at] <= '9' && number < 1000000; at++)
        number = 10 * number + line[at] - '0';
    if (n < at + 2 || line[at] != ':' || line[at + 1] != ' ' || line[n - 1] != '\n')
        return false;
    *rank = (int)number;
    *begin = at + 2;
    return true;
}

/* A text of one rank: to the letter, and as any rank could write it. */
typedef struct said {
    const char *text, *words;
    size_t n, words_n;
} said;

static bool says_same_text(const tt__merged *m, const said *s) {
    return m->same_text && m->n == s->n && !memcmp(m->text, s->text, s->n);
}

static bool says_same_words(const tt__merged *m, const said *s) {
    return m->same_words && m->words_n == s->words_n && !memcmp(m->words, s->words, s->words_n);
}

static tt__merged *find_alike(const tt__line_merge *merge, const said *s) {
    tt__merged *m = merge->first;
    while (m && !says_same_text(m, s) && !says_same_words(m, s))
        m = m->next;
    return m;
}

static bool said_by(const tt__merged *m, int from) {
    for (int i = 0; i < m->count; i++)
        if (m->speakers[i].from == from)
            return true;
    return false;
}

static void free_merged(tt__merged *m) {
    free(m->speakers);
    free(m->words);
    free(m);
}

static bool add_speaker(tt__merged *m, int from, int rank) {
    speaker *speakers = realloc(m->speakers, (size_t)(m->count + 1) * sizeof *speakers);
    int i = m->count;
    if (!speakers)
        return false;
    m->speakers = speakers;
    for (; i > 0 && speakers[i - 1].rank > rank; i--)
        speakers[i] = speakers[i - 1];
    speakers[i] = (speaker){from, rank};
    m->count++;
    return true;
}

/* One more rank says what `m` holds. */
static bool join_merged(tt__merged *m, const said *s, int from, int rank) {
    if (said_by(m, from) || !add_speaker(m, from, rank))
        return false;
    bool text = says_same_text(m, s), words = says_same_words(m, s);
    m->same_text = text;
    m->same_words = words;
    return true;
}

static tt__merged *merged_new(const said *s, int from, int rank) {
    tt__merged *m = calloc(1, sizeof *m + s->n);
    if (!m || !(m->words = strdup(s->words)) || !add_speaker(m, from, rank)) {
        if (m)
            free_merged(m);
        return NULL;
    }
    m->same_text = m->same_words = true;
    m->words_n = s->words_n;
    m->n = s->n;
    memcpy(m->text, s->text, s->n);
    return m;
}

bool tt__merge_hold(tt__line_merge *merge, int from, const char *line, size_t n) {
    int rank;
    size_t begin;
    if (!split_line(line, n, &rank, &begin))
        return false;
    char words[WORDS_SIZE];
    if (n > WORDS_SIZE / 2 || memchr(line, '\0', n)) /* strdup() and printf() would end the text at the NUL */
        return false;
    said s = {.text = line + begin, .words = words, .n = n - begin};
    s.words_n = tt__words_of_any(words, sizeof words, s.text, s.n, rank);
    tt__merged *m = find_alike(merge, &s);
    if (m)
        return join_merged(m, &s, from, rank);
    m = merged_new(&s, from, rank);
    if (!m)
        return false;
    if (!merge->first)
        merge->end = &merge->first;
    *merge->end = m;
    merge->end = &m->next;
    return true;
}

bool tt__merge_holds(const tt__line_merge *merge, int from) {
    for (const tt__merged *m = merge->first; m; m = m->next)
        if (said_by(m, from))
            return true;
    return false;
}

bool tt__merge_holds_any(const tt__line_merge *merge) { return merge->first != NULL; }

bool tt__merge_complete(const tt__line_merge *merge, int writers) {
    for (const tt__merged *m = merge->first; m; m = m->next)
        if (m->count < writers)
            return false;
    return true;
}

/* "rank 3", "ranks 0-2, 5" */
static size_t ranks_text(const tt__merged *m, char *text, size_t size) {
    size_t used = (size_t)snprintf(text, size, "rank%s ", m->count > 1 ? "s" : "");
    for (int i = 0, last; i < m->count && used + 32 < size; i = last + 1) {
        for (last = i; last + 1 < m->count && m->speakers[last + 1].rank == m->speakers[last].rank + 1;)
            last++;
        used += (size_t)snprintf(text + used, size - used, last > i ? "%s%d-%d" : "%s%d", i ? ", " : "",
                                 m->speakers[i].rank, m->speakers[last].rank);
    }
    return used;
}

char *tt__merge_take(tt__line_merge *merge, size_t *n) {
    tt__merged *m = merge->first;
    char ranks[512], *line;
    if (!m)
        return NULL;
    merge->first = m->next;
    ranks_text(m, ranks, sizeof ranks);
    int length = asprintf(&line, "tutti: %s: %.*s", ranks, (int)(m->same_text ? m->n : m->words_n),
                          m->same_text ? m->text : m->words);
    free_merged(m);
    *n = length < 0 ? 0 : (size_t)length;
    return length < 0 ? tt__merge_take(merge, n) : line;
}

void tt__merge_free(tt__line_merge *merge) {
    while (merge->first) {
        tt__merged *m = merge->first;
        merge->first = m->next;
        free_merged(m);
    }
}
