/* Charts in a terminal. A letter's cell is 2 x 4 dots of Braille; in plain ASCII it is one dot. */
#include "base/error.h"
#include "base/text/plain_text.h"
#include "cli/cli.h"
#include "cli/plot/plot.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct dot_grid {
    const tt__plot_terminal *terminal;
    int columns, rows;   /* cells */
    int dots_x, dots_y;  /* in a cell */
    unsigned char *dots; /* (rows, columns): bits of Braille, or 1 */
    unsigned char *run;  /* (rows, columns): whose dot was the last */
} dot_grid;

static const char marks[] = "*+ox#@%&";

/* Braille's bits, by row and column of a cell. */
static const unsigned char dot_bits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};

static void set_dot(dot_grid *g, int x, int y, int run) {
    int column = x / g->dots_x, row = y / g->dots_y;
    if (x < 0 || y < 0 || column >= g->columns || row >= g->rows)
        return;
    g->dots[row * g->columns + column] |= g->terminal->ascii ? 1 : dot_bits[y % 4][x % 2];
    g->run[row * g->columns + column] = (unsigned char)run;
}

/* A straight line of dots. */
static void set_dots(dot_grid *g, double x0, double y0, double x1, double y1, int run) {
    int steps = (int)ceil(fmax(fabs(x1 - x0), fabs(y1 - y0)));
    for (int i = 0; i <= steps; i++) {
        double part = steps ? (double)i / steps : 0;
        set_dot(g, (int)lround(x0 + part * (x1 - x0)), (int)lround(y0 + part * (y1 - y0)), run);
    }
}

static void draw_dots(dot_grid *g, const tt__plot_line *line, const tt__axis *x_axis, const tt__axis *y_axis) {
    double width = g->columns * g->dots_x - 1, height = g->rows * g->dots_y - 1, last_x = 0, last_y = 0;
    for (size_t i = 0; i < line->n; i++) {
        double x = tt__axis_place(x_axis, line->x[i]) * width;
        double y = (1 - tt__axis_place(y_axis, line->smooth[i])) * height;
        set_dots(g, i ? last_x : x, i ? last_y : y, x, y, line->run % (int)(sizeof marks - 1));
        last_x = x;
        last_y = y;
    }
}

/* ---- colours ---- */

static void begin_colour(const tt__plot_terminal *t, int run) {
    tt__rgb c = tt__plot_colour(run);
    if (t->colours && (c.r || c.g || c.b)) /* black is the terminal's own */
        printf("\033[38;2;%d;%d;%dm", c.r, c.g, c.b);
}

static void end_colour(const tt__plot_terminal *t) {
    if (t->colours)
        fputs("\033[0m", stdout);
}

/* ---- printing ---- */

static void print_cell(const dot_grid *g, int row, int column) {
    unsigned char dots = g->dots[row * g->columns + column];
    int run = g->run[row * g->columns + column], letter = 0x2800 + dots;
    if (!dots) {
        putchar(' ');
        return;
    }
    begin_colour(g->terminal, run);
    if (g->terminal->ascii)
        putchar(marks[run]);
    else
        printf("%c%c%c", 0xe0 | letter >> 12, 0x80 | (letter >> 6 & 63), 0x80 | (letter & 63));
    end_colour(g->terminal);
}

/* Return the label of the tick in this row; "": there is none. */
static const char *row_label(const tt__axis *axis, int row, int rows) {
    for (int i = 0; i < axis->count; i++) {
        double place = (axis->at[i] - axis->min) / (axis->max - axis->min);
        if ((int)lround((1 - place) * (rows - 1)) == row)
            return axis->text[i];
    }
    return "";
}

static void print_rows(const dot_grid *g, const tt__axis *y_axis, int label_width) {
    for (int row = 0; row < g->rows; row++) {
        const char *label = row_label(y_axis, row, g->rows);
        const char *bar = g->terminal->ascii ? (*label ? "+" : "|") : *label ? "\xe2\x94\xa4" : "\xe2\x94\x82";
        int last = g->columns - 1;
        while (last >= 0 && !g->dots[row * g->columns + last])
            last--;
        printf("%*s %s", label_width, label, bar);
        for (int column = 0; column <= last; column++)
            print_cell(g, row, column);
        putchar('\n');
    }
}

/* Print the x axis: a line, then those labels that have room. */
static tt_status print_x_axis(const dot_grid *g, const tt__axis *axis, int label_width, const char *name) {
    int width = g->columns + 24;
    char *labels = malloc((size_t)width + 1);
    if (!labels)
        return tt__fail(TT_ERR_MEMORY, "no memory for a chart");
    memset(labels, ' ', (size_t)width);
    printf("%*s %s", label_width, "", g->terminal->ascii ? "+" : "\xe2\x94\x94");
    for (int i = 0; i < g->columns; i++)
        fputs(g->terminal->ascii ? "-" : "\xe2\x94\x80", stdout);
    putchar('\n');
    int used = 0;
    for (int i = 0; i < axis->count; i++) {
        int length = (int)strlen(axis->text[i]);
        int at = (int)lround((axis->at[i] - axis->min) / (axis->max - axis->min) * (g->columns - 1)) - length / 2;
        at = at < 0 ? 0 : at > g->columns - length ? g->columns - length : at;
        if (at < used || at < 0)
            continue;
        memcpy(labels + at, axis->text[i], (size_t)length);
        used = at + length + 1;
    }
    int end = width;
    while (end > 0 && labels[end - 1] == ' ')
        end--;
    printf("%*s  %.*s  %s\n", label_width, "", end, labels, name);
    free(labels);
    return TT_OK;
}

static void print_tag(const char *tag, int label_width) {
    char *plain = strdup(tag);
    printf("%*s  %s\n", label_width, "", plain ? tt__make_plain_name(plain) : "");
    free(plain);
}

static int widest_label(const tt__axis *axis) {
    int widest = 0;
    for (int i = 0; i < axis->count; i++) {
        int length = (int)strlen(axis->text[i]);
        widest = length > widest ? length : widest;
    }
    return widest;
}

static tt_status print_chart(const tt__plot *plot, const tt__plot_chart *chart, const tt__plot_terminal *terminal) {
    enum { LABEL_ROWS = 4 }; /* tag, axis, labels, an empty one */
    tt__axis x, y;
    dot_grid g = {.terminal = terminal, .dots_x = terminal->ascii ? 1 : 2, .dots_y = terminal->ascii ? 1 : 4};
    g.rows = terminal->rows > LABEL_ROWS + 4 ? terminal->rows - LABEL_ROWS : 4;
    tt__axis_make(&y, chart->y_min, chart->y_max, g.rows / 3 > 2 ? g.rows / 3 : 2, plot->log_y, 1);
    int label_width = widest_label(&y);
    g.columns = terminal->columns - label_width - 3 - (int)strlen(plot->x_name);
    g.columns = g.columns > 10 ? g.columns : 10;
    tt__axis_make(&x, chart->x_min, chart->x_max, g.columns / 12 > 2 ? g.columns / 12 : 2, false, plot->x_unit);
    g.dots = calloc((size_t)g.columns * (size_t)g.rows, 2);
    if (!g.dots)
        return tt__fail(TT_ERR_MEMORY, "no memory for a chart");
    g.run = g.dots + (size_t)g.columns * (size_t)g.rows;
    for (int i = 0; i < chart->count; i++)
        draw_dots(&g, &chart->lines[i], &x, &y);
    print_tag(chart->tag, label_width);
    print_rows(&g, &y, label_width);
    tt_status status = print_x_axis(&g, &x, label_width, plot->x_name);
    free(g.dots);
    return status;
}

static void print_legend(const tt__plot *plot, const tt__plot_terminal *terminal) {
    for (int r = 0; r < plot->run_count && plot->run_count > 1; r++) {
        char *plain = strdup(plot->runs[r]);
        begin_colour(terminal, r);
        if (terminal->ascii)
            putchar(marks[r % (int)(sizeof marks - 1)]);
        else
            fputs("\xe2\x94\x81\xe2\x94\x81", stdout);
        end_colour(terminal);
        printf(" %s\n", plain ? tt__make_plain_name(plain) : "");
        free(plain);
    }
    if (plot->run_count > 1)
        putchar('\n');
}

tt_status tt__plot_print(const tt__plot *plot, const tt__plot_terminal *terminal) {
    if (plot->title)
        tt__cli_print(stdout, "%s\n\n", plot->title);
    print_legend(plot, terminal);
    for (int i = 0; i < plot->count; i++) {
        if (i)
            putchar('\n');
        TT__TRY(print_chart(plot, &plot->charts[i], terminal));
    }
    return TT_OK;
}
