/* Reading the table of algorithms, and where it comes from. choose.h has its format. */
#include "comm/collective/choose.h"

#include "base/bytes.h"
#include "base/error.h"
#include "base/files/fd.h"
#include "comm/op.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COLUMNS = 5, LINE_MAX_BYTES = 256, TABLE_MAX_BYTES = 64 << 10 };

/* ---- one line */

static const tt__algorithm *algorithm_named(tt_op op, const char *name) {
    for (size_t i = 0; i < tt__algorithm_count; i++)
        if (tt__algorithms[i]->op == op && !strcmp(tt__algorithms[i]->name, name))
            return tt__algorithms[i];
    return NULL;
}

/* "direct, slices and ring": the algorithms of an op. */
static void algorithm_names(tt_op op, char *text, size_t size) {
    size_t used = 0;
    *text = '\0';
    for (size_t i = 0; i < tt__algorithm_count && used < size; i++)
        if (tt__algorithms[i]->op == op)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", tt__algorithms[i]->name);
}

static tt_status find_algorithm(const char *op_name, const char *name, const tt__algorithm **algorithm) {
    tt_op op;
    char names[256];
    *algorithm = NULL;
    if (!tt__op_named(op_name, &op))
        return tt__fail(TT_ERR_INVALID, "expected an operation (all_reduce, broadcast, ...), got \"%s\"", op_name);
    if (tt__op_is(op, TT__OP_CHOICE))
        *algorithm = algorithm_named(op, name);
    if (*algorithm)
        return TT_OK;
    algorithm_names(op, names, sizeof names);
    if (!tt__op_is(op, TT__OP_CHOICE))
        return tt__fail(TT_ERR_INVALID, "%s has no algorithms to choose from", op_name);
    return tt__fail(TT_ERR_INVALID, "%s has no algorithm \"%s\"; expected %s", op_name, name, names);
}

/* Read a decimal number at *text, which moves behind it. */
static bool parse_number(const char **text, uint64_t max, uint64_t *value) {
    char *end;
    if (**text < '0' || **text > '9')
        return false;
    errno = 0;
    unsigned long long n = strtoull(*text, &end, 10);
    *text = end;
    *value = n;
    return !errno && n <= max;
}

static tt_status parse_span(const char *column, const char *text, tt__span_of *span) {
    const char *at = text;
    uint64_t from = 0, to;
    *span = (tt__span_of){0, UINT32_MAX};
    if (!strcmp(text, "*"))
        return TT_OK;
    bool good = parse_number(&at, UINT32_MAX, &from);
    to = from;
    if (good && *at == '-') {
        at++;
        to = UINT32_MAX;
        good = !*at || parse_number(&at, UINT32_MAX, &to);
    }
    if (!good || *at || from > to)
        return tt__fail(TT_ERR_INVALID, "%s: expected a number, \"A-B\", \"A-\" or \"*\", got \"%s\"", column, text);
    *span = (tt__span_of){(uint32_t)from, (uint32_t)to};
    return TT_OK;
}

static tt_status parse_bytes(const char *text, uint64_t *bytes) {
    static const char suffixes[] = "KMG";
    const char *at = text, *suffix;
    *bytes = UINT64_MAX;
    if (!strcmp(text, "*"))
        return TT_OK;
    bool good = parse_number(&at, UINT64_C(1) << 33, bytes);
    if (good && *at && (suffix = strchr(suffixes, *at))) {
        *bytes <<= 10 * (suffix - suffixes + 1);
        at++;
    }
    if (!good || *at)
        return tt__fail(TT_ERR_INVALID, "bytes: expected a number, with K, M or G, or \"*\", got \"%s\"", text);
    return TT_OK;
}

static tt_status parse_line(char *line, tt__tuning *tuning) {
    char *columns[COLUMNS + 1], *rest = NULL;
    size_t n = 0;
    line[strcspn(line, "#")] = '\0';
    for (char *word = strtok_r(line, " \t\r", &rest); word && n <= COLUMNS; word = strtok_r(NULL, " \t\r", &rest))
        columns[n++] = word;
    if (!n)
        return TT_OK;
    if (n != COLUMNS)
        return tt__fail(TT_ERR_INVALID, "expected 5 columns (op, ranks, hosts, bytes, algorithm), got %zu%s", n,
                        n > COLUMNS ? " or more" : "");
    if (tuning->count == TT__RULES)
        return tt__fail(TT_ERR_INVALID, "more than %d rules", TT__RULES);
    tt__algorithm_rule *rule = &tuning->rules[tuning->count];
    TT__TRY(find_algorithm(columns[0], columns[4], &rule->algorithm));
    TT__TRY(parse_span("ranks", columns[1], &rule->ranks));
    TT__TRY(parse_span("hosts", columns[2], &rule->hosts));
    TT__TRY(parse_bytes(columns[3], &rule->bytes));
    tuning->on_shared_memory += rule->algorithm->shared;
    tuning->count++;
    return TT_OK;
}

tt_status tt__tuning_parse(tt__tuning *tuning, const char *text, const char *source) {
    char line[LINE_MAX_BYTES];
    tuning->count = tuning->on_shared_memory = 0;
    for (int n = 1; *text; n++) {
        size_t length = strcspn(text, "\n");
        if (length >= sizeof line)
            return tt__fail(TT_ERR_INVALID, "%s, line %d: expected at most %d characters, got %zu", source, n,
                            LINE_MAX_BYTES - 1, length);
        memcpy(line, text, length);
        line[length] = '\0';
        if (parse_line(line, tuning))
            return tt__fail_prefix("%s, line %d", source, n);
        text += length + (text[length] == '\n');
    }
    return TT_OK;
}

/* ---- where the text comes from */

/* "all_reduce=ring,broadcast=chain" as lines. */
static tt_status put_forced(tt__bytes *text, const char *algorithms) {
    static const char separators[] = ", \t\r\n";
    char copy[1024], line[LINE_MAX_BYTES], *rest = NULL;
    if (strlen(algorithms) >= sizeof copy)
        return tt__fail(TT_ERR_INVALID, "expected at most %zu characters", sizeof copy - 1);
    memcpy(copy, algorithms, strlen(algorithms) + 1);
    for (char *pair = strtok_r(copy, separators, &rest); pair; pair = strtok_r(NULL, separators, &rest)) {
        const tt__algorithm *algorithm;
        char *name = strchr(pair, '=');
        if (!name)
            return tt__fail(TT_ERR_INVALID, "expected OP=ALGORITHM, got \"%s\"", pair);
        *name++ = '\0';
        TT__TRY(find_algorithm(pair, name, &algorithm));
        int length = snprintf(line, sizeof line, "%s * * * %s\n", tt_op_name(algorithm->op), algorithm->name);
        tt__bytes_put(text, line, (size_t)length);
    }
    return TT_OK;
}

static tt_status read_table(FILE *file, const char *path, tt__bytes *text) {
    char piece[4096];
    for (size_t n; (n = fread(piece, 1, sizeof piece, file)) > 0;) {
        if (memchr(piece, '\0', n) || text->size + n > TABLE_MAX_BYTES)
            return tt__fail(TT_ERR_INVALID, "%s: expected a text of at most %d bytes", path, TABLE_MAX_BYTES);
        tt__bytes_put(text, piece, n);
    }
    return ferror(file) ? tt__fail_errno(TT_ERR_IO, errno, "%s can't be read", path) : TT_OK;
}

bool tt__tuning_users_path(char *path, size_t size) {
    const char *config = secure_getenv("XDG_CONFIG_HOME"), *home = secure_getenv("HOME");
    int n = config && *config ? snprintf(path, size, "%s/tutti/tuning", config)
            : home && *home   ? snprintf(path, size, "%s/.config/tutti/tuning", home)
                              : -1;
    return n > 0 && (size_t)n < size;
}

/* Open a file or character device; a FIFO, for example, could block. NULL with errno set. */
static FILE *open_table(const char *path) {
    struct stat info;
    int fd = tt__fd(open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
    if (fd >= 0 && fstat(fd, &info) == 0 && (S_ISREG(info.st_mode) || S_ISCHR(info.st_mode)))
        return fdopen(fd, "r");
    int errnum = fd < 0 ? errno : S_ISDIR(info.st_mode) ? EISDIR : EINVAL;
    if (fd >= 0)
        close(fd);
    errno = errnum;
    return NULL;
}

/* Append the table of a file. The user's file may be missing; one that TT_TUNING names may not. */
static tt_status put_table(tt__bytes *text, char source[PATH_MAX]) {
    const char *named = secure_getenv("TT_TUNING");
    bool is_named = named && *named;
    FILE *file = NULL;
    if (is_named)
        snprintf(source, PATH_MAX, "%s", named);
    if (is_named || tt__tuning_users_path(source, PATH_MAX))
        file = open_table(source);
    if (!file && is_named)
        return tt__fail_errno(TT_ERR_IO, errno, "TT_TUNING: %s can't be opened", named);
    if (!file) {
        snprintf(source, PATH_MAX, "the built-in table");
        tt__bytes_put(text, tt__tuning_default(), strlen(tt__tuning_default()));
        return TT_OK;
    }
    tt_status status = read_table(file, source, text);
    fclose(file);
    return status;
}

/* Append a table after checking its lines here, where errors can name the file. */
static tt_status put_checked_table(tt__bytes *text) {
    char source[PATH_MAX] = "";
    tt__bytes table = {0};
    tt__tuning *tuning = malloc(sizeof *tuning);
    tt_status status =
        tuning ? put_table(&table, source) : tt__fail(TT_ERR_MEMORY, "no memory for a table of algorithms");
    tt__bytes_put(&table, "", 1);
    if (!status && table.failed)
        status = tt__fail(TT_ERR_MEMORY, "no memory for %s", source);
    if (!status)
        status = tt__tuning_parse(tuning, (const char *)table.data, source);
    if (!status)
        tt__bytes_put(text, table.data, table.size);
    free(tuning);
    tt__bytes_free(&table);
    return status;
}

tt_status tt__tuning_text(const char *algorithms, char **text) {
    tt__bytes bytes = {0};
    bool from_option = algorithms != NULL;
    if (!from_option)
        algorithms = getenv("TT_ALGORITHMS");
    tt_status status = TT_OK;
    if (algorithms && put_forced(&bytes, algorithms))
        status = tt__fail_prefix("%s \"%s\"", from_option ? ".algorithms" : "TT_ALGORITHMS", algorithms);
    if (!status)
        status = put_checked_table(&bytes);
    if (!status && bytes.failed)
        status = tt__fail(TT_ERR_MEMORY, "no memory for a table of algorithms");
    *text = status ? NULL : (char *)bytes.data;
    if (status)
        tt__bytes_free(&bytes);
    return status;
}

tt_status tt__tuning_forced(tt__tuning *tuning, const char *algorithms) {
    tt__bytes lines = {0};
    tt_status status = put_forced(&lines, algorithms);
    tt__bytes_put(&lines, "", 1);
    if (!status && lines.failed)
        status = tt__fail(TT_ERR_MEMORY, "no memory for a table of algorithms");
    if (!status)
        status = tt__tuning_parse(tuning, (const char *)lines.data, "forced algorithms");
    tt__bytes_free(&lines);
    return status ? tt__fail_prefix(".algorithms (or TT_ALGORITHMS) of rank 0, \"%.100s\"", algorithms) : TT_OK;
}
