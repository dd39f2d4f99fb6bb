/* Shared by all subcommands: flags and their spellings, errors, guesses at misspelt words. */
#include "cli/cli.h"

#include "base/error.h"
#include "base/text/format.h"
#include "base/text/parse.h"
#include "base/text/plain_text.h"
#include "launch/local/terminal.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ERROR_SIZE = 4096, USAGE_SIZE = 1024, HINT_SIZE = 128 };

void tt__cli_normalise_flag(char *arg) {
    if (strncmp(arg, "--", 2) != 0)
        return;
    for (char *c = arg + 2; *c && *c != '='; c++)
        if (*c == '_')
            *c = '-';
}

/* ---- errors and notes */

void tt__cli_print(FILE *out, const char *format, ...) {
    char *text;
    va_list args;
    va_start(args, format);
    int length = tt__vformat_new(&text, format, args);
    va_end(args);
    if (length < 0)
        return;
    fputs(tt__make_plain(text), out);
    free(text);
}

static void write_message(FILE *out, tt__colour colour, const char *command, const char *text) {
    int used = (int)(strlen(tt__cli_program) + strlen(" : ") + strlen(command) - !*command);
    const char *begin = colour == TT__PLAIN ? "" : tt__terminal_colour(STDERR_FILENO, colour);
    fprintf(out, "%s%s%s%s:%s ", begin, tt__cli_program, *command ? " " : "", command,
            *begin ? tt__terminal_colour(STDERR_FILENO, TT__PLAIN) : "");
    for (size_t n; *text; text += n) {
        char line[ERROR_SIZE];
        n = strcspn(text, "\n");
        snprintf(line, sizeof line, "%.*s", (int)n, text);
        tt__cli_print_wrapped(out, line, tt__terminal_columns(STDERR_FILENO), used, 2);
        n += text[n] == '\n';
        used = 0;
    }
}

/* `text` quotes what was typed and what files hold: it becomes plain. The message is written at once, as launchers of
 * several nodes may share one stderr. */
static void print_message(tt__colour colour, const char *command, char *text) {
    char *whole = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&whole, &size);
    tt__make_plain(text);
    write_message(out ? out : stderr, colour, command, text);
    if (out && fclose(out) == 0)
        fputs(whole, stderr);
    free(whole);
}

static void print_formatted(tt__colour colour, const char *command, const char *format, va_list args) {
    char text[ERROR_SIZE];
    tt__vformat(text, sizeof text, format, args);
    print_message(colour, command, text);
}

void tt__cli_error(const char *command, const char *format, ...) {
    va_list args;
    va_start(args, format);
    print_formatted(TT__RED, command, format, args);
    va_end(args);
}

void tt__cli_note(const char *command, const char *format, ...) {
    va_list args;
    va_start(args, format);
    print_formatted(TT__PLAIN, command, format, args);
    va_end(args);
}

/* The text quotes the command line, which may be long and hold any characters. */
int tt__cli_usage_error(const char *command, const char *format, ...) {
    char text[USAGE_SIZE];
    va_list args;
    va_start(args, format);
    int length = tt__vformat(text, sizeof text, format, args);
    va_end(args);
    if (length >= (int)sizeof text)
        memcpy(text + sizeof text - sizeof "...", "...", sizeof "...");
    tt__make_readable(text);
    for (char *c = text; *c; c++)
        if (*c == '\n' || *c == '\t')
            *c = '?';
    print_message(TT__RED, command, text);
    fprintf(stderr, "Try '%s %s%s--help'.\n", tt__cli_program, command, *command ? " " : "");
    return TT__EXIT_USAGE;
}

void tt__write_shell_word(const char *word, FILE *out) {
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
    if (*word && !word[strspn(word, safe)]) {
        fputs(word, out);
        return;
    }
    fputc('\'', out);
    for (; *word; word++)
        fputs(*word == '\'' ? "'\\''" : (const char[2]){*word, '\0'}, out);
    fputc('\'', out);
}

/* ---- guesses */

/* Count the letters to add, drop or change, and neighbours to swap, from one word to the other. */
static int edit_distance(const char *a, const char *b) {
    enum { MAX = 32 };
    int rows[3][MAX + 1], n = (int)strlen(a), m = (int)strlen(b);
    if (n > MAX || m > MAX)
        return MAX;
    for (int j = 0; j <= m; j++)
        rows[0][j] = j;
    for (int i = 1; i <= n; i++) {
        int *row = rows[i % 3];
        const int *above = rows[(i + 2) % 3], *higher = rows[(i + 1) % 3];
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            int best = above[j - 1] + (a[i - 1] != b[j - 1]);
            best = above[j] + 1 < best ? above[j] + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && higher[j - 2] + 1 < best)
                best = higher[j - 2] + 1;
            row[j] = best;
        }
    }
    return rows[n % 3][m];
}

/* Guess which of `words` (NULL after the last) a user who typed `word` meant; NULL: none is near. */
static const char *guess_word(const char *word, const char *const *words) {
    const char *guess = NULL;
    int length = (int)strlen(word), nearest = 1 + length / 4;
    for (; *words; words++) {
        int d = length > 1 && !strncmp(word, *words, (size_t)length) ? 0 : edit_distance(word, *words);
        if (d > nearest || (guess && d == nearest) || d >= length)
            continue;
        guess = *words;
        nearest = d;
    }
    return guess;
}

const char *tt__cli_guess_flag(const char *arg, const tt__flag *flags) {
    const char *names[TT__FLAGS_MAX + 2] = {"help"};
    char word[64];
    int n = 1;
    for (; flags && (flags->name || flags->what) && n < TT__FLAGS_MAX; flags++)
        if (flags->name)
            names[n++] = flags->name;
    if (strncmp(arg, "--", 2) != 0)
        return NULL;
    snprintf(word, sizeof word, "%.*s", (int)strcspn(arg + 2, "="), arg + 2);
    return guess_word(word, names);
}

/* "; did you mean "run"?", or "". Returns `text`. */
static const char *format_hint(char text[HINT_SIZE], const char *quote, const char *before, const char *guess) {
    text[0] = '\0';
    if (guess)
        snprintf(text, HINT_SIZE, "; did you mean %s%s%s%s?", quote, before, guess, quote);
    return text;
}

/* ---- flags */

tt_status tt__cli_check_ending(const char *flag, const char *path, const char *ending) {
    static const char *const kinds[] = {".svg", ".png",  ".pdf", ".jpg", ".jpeg", ".gif", ".webp", ".html",
                                        ".htm", ".json", ".csv", ".txt", ".md",   ".xml", ".gz",   ".zip"};
    for (size_t i = 0; path && i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i], ending) != 0 && tt__ends_with(path, kinds[i]))
            return tt__fail(TT_ERR_INVALID, "%s writes %s: expected a name that ends in that, got \"%.200s\"", flag,
                            ending, path);
    return TT_OK;
}

int tt__cli_choice(const char *words, const char *text) {
    size_t length = strlen(text);
    for (int i = 0; *words; i++) {
        size_t n = strcspn(words, " ");
        if (n == length && !strncmp(words, text, n))
            return i;
        words += n + (words[n] == ' ');
    }
    return -1;
}

const char *tt__cli_choices_text(const char *words, char *text, size_t size) {
    size_t used = 0;
    text[0] = '\0';
    for (const char *before = ""; *words && used < size;) {
        size_t n = strcspn(words, " ");
        used += (size_t)snprintf(text + used, size - used, "%s%.*s", before, (int)n, words);
        words += n + (words[n] == ' ');
        before = strchr(words, ' ') ? ", " : " or ";
    }
    return text;
}

_Static_assert(TT_STORE_AUTH_LOCAL == 0 && TT_STORE_AUTH_REQUIRED == 1 && TT_STORE_AUTH_NONE == 2,
               "the order of TT__STORE_AUTHS");

const tt__flag *tt__cli_find_flag(const tt__flag *flags, const char *arg) {
    size_t n = strcspn(arg, "=");
    for (; flags && (flags->name || flags->what); flags++)
        if (flags->name && (arg[1] == '-' ? strlen(flags->name) == n - 2 && !strncmp(arg + 2, flags->name, n - 2)
                                          : flags->letter && arg[1] == flags->letter && !arg[2]))
            return flags;
    return NULL;
}

/* Translate the flags for getopt_long(). `letters` starts with "+:h". */
static void translate_flags(const tt__flag *flags, struct option *options, char *letters) {
    *options++ = (struct option){"help", no_argument, NULL, 'h'};
    letters += strlen(letters);
    for (int n = 1; flags && (flags->name || flags->what) && n < TT__FLAGS_MAX; flags++) {
        if (!flags->name)
            continue;
        *options++ = (struct option){flags->name, flags->value ? required_argument : no_argument, NULL, flags->id};
        n++;
        if (flags->letter)
            *letters++ = flags->letter;
        if (flags->letter && flags->value)
            *letters++ = ':';
    }
    *options = (struct option){0};
    *letters = '\0';
}

static int id_of_letter(const tt__flag *flags, int letter) {
    for (; flags && (flags->name || flags->what); flags++)
        if (flags->name && flags->letter == letter && letter)
            return flags->id;
    return letter;
}

int tt__cli_next_flag(const tt__command *command, int argc, char **argv, const char **flag) {
    struct option options[TT__FLAGS_MAX + 2];
    char letters[2 * TT__FLAGS_MAX + 8] = "+:h", text[HINT_SIZE];
    const char *typed = optind < argc ? argv[optind] : "";
    translate_flags(command->flags, options, letters);
    opterr = 0;
    int id = getopt_long(argc, argv, letters, options, NULL);
    if (flag)
        *flag = typed;
    if (id == ':')
        tt__cli_usage_error(command->name, "%s needs a value", typed);
    else if (id == '?')
        tt__cli_usage_error(command->name, "unknown flag %s%s", typed,
                            format_hint(text, "", "--", tt__cli_guess_flag(typed, command->flags)));
    else if (id == -1 && optind < argc)
        tt__cli_usage_error(command->name, "unexpected argument \"%s\"", argv[optind]);
    else if (id == 'h')
        return tt__cli_help(command, stdout), 'h';
    else
        return id_of_letter(command->flags, id);
    return '?';
}

/* Is the value of flag `arg` the next argument? */
static bool value_is_next(const char *arg, const tt__flag *flags) {
    const tt__flag *flag = tt__cli_find_flag(flags, arg);
    return flag && flag->value && !strchr(arg, '=');
}

char *tt__cli_take_word(const tt__command *command, int *argc, char **argv) {
    for (int i = 1; i < *argc; i++) {
        char *word = argv[i];
        if (word[0] == '-') {
            i += value_is_next(word, command->flags);
            continue;
        }
        memmove(argv + i, argv + i + 1, (size_t)(*argc - i) * sizeof *argv); /* the NULL at the end, too */
        --*argc;
        return word;
    }
    return NULL;
}

/* ---- subcommands */

const char *tt__cli_last_word(const char *name) {
    const char *space = strrchr(name, ' ');
    return space ? space + 1 : name;
}

/* Find the part that `word` names; NULL: there is none, and the error is printed. */
static const tt__command *find_part(const tt__command *command, const char *kind, const char *word) {
    const tt__command *const *parts = command->parts();
    const char *names[TT__PARTS_MAX + 1] = {NULL};
    char text[HINT_SIZE];
    int n = 0;
    for (; parts[n] && n < TT__PARTS_MAX; n++) {
        names[n] = tt__cli_last_word(parts[n]->name);
        if (!strcmp(word, names[n]))
            return parts[n];
    }
    format_hint(text, "\"", "", guess_word(word, names));
    if (n == 2)
        tt__cli_usage_error(command->name, "expected \"%s\" or \"%s\", got \"%s\"%s", names[0], names[1], word, text);
    else
        tt__cli_usage_error(command->name, "unknown %s \"%s\"%s", kind, word, text);
    return NULL;
}

int tt__cli_dispatch(const tt__command *command, const char *kind, int argc, char **argv) {
    if (argc < 2) {
        tt__cli_help(command, stderr);
        return TT__EXIT_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
        return tt__cli_help(command, stdout);
    const tt__command *part = find_part(command, kind, argv[1]);
    for (int i = 2; part && !part->runs_program && i < argc && strcmp(argv[i], "--") != 0; i++)
        tt__cli_normalise_flag(argv[i]);
    return part ? part->run(argc - 1, argv + 1) : TT__EXIT_USAGE;
}
