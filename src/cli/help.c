/* The help of a command, from its table. */
#include "cli/cli.h"

#include "launch/local/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIPE_COLUMNS = 80, MAX_COLUMNS = 120, MIN_COLUMNS = 30, LEFT_MAX = 30, LINE_SIZE = 8192 };

const char *tt__cli_program = "tutti";

/* Where a text goes, how wide. */
typedef struct page {
    FILE *out;
    int fd, columns;
} page;

static int page_columns(int fd) {
    const char *text = getenv("COLUMNS");
    int columns = tt__terminal_columns(fd);
    if (!columns && text)
        columns = atoi(text);
    if (!columns)
        return PIPE_COLUMNS;
    return columns < MIN_COLUMNS ? MIN_COLUMNS : columns < MAX_COLUMNS ? columns : MAX_COLUMNS;
}

void tt__cli_print_wrapped(FILE *out, const char *text, int columns, int used, int indent) {
    char wrapped[LINE_SIZE];
    tt__wrap(wrapped, sizeof wrapped, text, columns, used, indent);
    fprintf(out, "%s\n", wrapped);
}

static void print_bold(const page *p, const char *text) {
    fprintf(p->out, "%s%s%s", tt__terminal_colour(p->fd, TT__BOLD), text, tt__terminal_colour(p->fd, TT__PLAIN));
}

/* Print paragraphs, which are separated by line ends. */
static void print_text(const page *p, const char *text) {
    while (text && *text) {
        char line[LINE_SIZE];
        size_t n = strcspn(text, "\n");
        snprintf(line, sizeof line, "%.*s", (int)n, text);
        if (*line == ' ')
            fprintf(p->out, "%s\n", line);
        else
            tt__cli_print_wrapped(p->out, line, p->columns, 0, 0);
        text += n + (text[n] == '\n');
    }
}

static void print_usage(const page *p, const tt__command *command) {
    const char *usage = command->usage ? command->usage : "";
    for (int i = 0; !i || *usage; i++) {
        char form[LINE_SIZE];
        size_t n = strcspn(usage, "\n");
        int used = snprintf(form, sizeof form, "%s%s%s", tt__cli_program, *command->name ? " " : "", command->name);
        if (i)
            fprintf(p->out, "       %s", form);
        else
            print_bold(p, "usage:"), fprintf(p->out, " %s", form);
        snprintf(form, sizeof form, "%s%.*s", n ? " " : "", (int)n, usage);
        tt__cli_print_wrapped(p->out, form, p->columns, 7 + used, 9 + used < p->columns / 2 ? 8 + used : 10);
        usage += n + (usage[n] == '\n');
    }
}

/* "-o, --output FILE" */
static int left_text(const tt__flag *flag, char *text, size_t size) {
    char letter[8] = "";
    if (flag->letter)
        snprintf(letter, sizeof letter, "-%c, ", flag->letter);
    return snprintf(text, size, "  %s--%s%s%s", letter, flag->name, flag->value ? " " : "",
                    flag->value ? flag->value : "");
}

/* Print two columns: `left`, and its description. */
static void print_row(const page *p, const char *left, int width, const char *what) {
    int indent = width + 2;
    fputs(left, p->out);
    if ((int)strlen(left) > width || indent > p->columns / 2) {
        indent = indent > p->columns / 2 ? 6 : indent;
        fprintf(p->out, "\n%*s", indent, "");
    } else {
        fprintf(p->out, "%*s", indent - (int)strlen(left), "");
    }
    tt__cli_print_wrapped(p->out, what, p->columns, indent, indent);
}

static void print_flags(const page *p, const tt__flag *flags) {
    static const tt__flag own = {.name = "help", .letter = 'h', .what = "this text"};
    char left[96];
    int width = left_text(&own, left, sizeof left);
    for (const tt__flag *f = flags; f && (f->name || f->what); f++)
        if (f->name && f->what && left_text(f, left, sizeof left) > width && (int)strlen(left) <= LEFT_MAX)
            width = (int)strlen(left);
    fputc('\n', p->out);
    for (const tt__flag *f = flags; f && (f->name || f->what); f++) {
        if (!f->name) {
            fputs(f == flags ? "" : "\n", p->out);
            print_bold(p, f->what);
            fputc('\n', p->out);
        } else if (f->what) {
            left_text(f, left, sizeof left);
            print_row(p, left, width, f->what);
        }
    }
    left_text(&own, left, sizeof left);
    print_row(p, left, width, own.what);
}

static void print_parts(const page *p, const tt__command *command) {
    const tt__command *const *parts = command->parts();
    size_t skipped = strlen(command->name) + (*command->name != '\0'), width = 0;
    for (int i = 0; parts[i]; i++)
        if (strlen(parts[i]->name) - skipped > width)
            width = strlen(parts[i]->name) - skipped;
    fputc('\n', p->out);
    for (int i = 0; parts[i]; i++) {
        char left[96];
        snprintf(left, sizeof left, "  %s", parts[i]->name + skipped);
        print_row(p, left, (int)width + 2, parts[i]->what);
    }
}

int tt__cli_help(const tt__command *command, FILE *out) {
    int fd = fileno(out);
    page p = {.out = out, .fd = fd, .columns = page_columns(fd)};
    print_usage(&p, command);
    fputc('\n', out);
    print_text(&p, command->text);
    if (command->parts)
        print_parts(&p, command);
    if (command->flags || !command->parts)
        print_flags(&p, command->flags);
    if (command->notes)
        fputc('\n', out);
    print_text(&p, command->notes);
    return TT__EXIT_OK;
}
