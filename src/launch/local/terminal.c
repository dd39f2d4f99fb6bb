#include "launch/local/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static bool variable_is_set(const char *variable) {
    const char *text = secure_getenv(variable);
    return text && *text;
}

bool tt__terminal_colours(int fd) {
    const char *term = getenv("TERM"), *force = getenv("CLICOLOR_FORCE");
    if (variable_is_set("NO_COLOR"))
        return false;
    if (force && *force && strcmp(force, "0") != 0)
        return true;
    return isatty(fd) && term && *term && strcmp(term, "dumb") != 0;
}

int tt__terminal_columns(int fd) {
    struct winsize window = {0};
    if (ioctl(fd, TIOCGWINSZ, &window))
        return 0;
    return window.ws_col ? window.ws_col : 80;
}

const char *tt__terminal_colour(int fd, tt__colour colour) {
    static const char *const sequences[] = {[TT__PLAIN] = "\033[0m",  [TT__BOLD] = "\033[1m",    [TT__RED] = "\033[31m",
                                            [TT__GREEN] = "\033[32m", [TT__YELLOW] = "\033[33m", [TT__DIM] = "\033[2m"};
    return tt__terminal_colours(fd) ? sequences[colour] : "";
}

/* Count the columns of n bytes: one for each UTF-8 character. */
static int columns_of(const char *text, size_t n) {
    int columns = 0;
    for (size_t i = 0; i < n; i++)
        columns += (text[i] & 0xc0) != 0x80;
    return columns;
}

typedef struct wrapped {
    char *out;
    size_t size, n;
} wrapped;

static void wrapped_put(wrapped *w, const char *text, size_t n) {
    if (n > w->size - 1 - w->n)
        n = w->size - 1 - w->n;
    memcpy(w->out + w->n, text, n);
    w->n += n;
}

static void wrapped_break(wrapped *w, int indent) {
    wrapped_put(w, "\n", 1);
    for (int i = 0; i < indent; i++)
        wrapped_put(w, " ", 1);
}

size_t tt__wrap(char *out, size_t size, const char *text, int columns, int used, int indent) {
    wrapped w = {.out = out, .size = size};
    bool begun = false; /* the line has a word */
    while (columns && *text) {
        size_t spaces = strspn(text, " "), n = strcspn(text + spaces, " ");
        int gap = begun || !w.n ? (int)spaces : 0, width = columns_of(text + spaces, n);
        if (used + gap + width > columns && (begun || used > indent)) {
            wrapped_break(&w, indent);
            used = indent;
            gap = 0;
        }
        wrapped_put(&w, text + spaces - gap, (size_t)gap + n);
        used += gap + width;
        begun = true;
        text += spaces + n;
    }
    wrapped_put(&w, text, strlen(text));
    out[w.n] = '\0';
    return w.n;
}
