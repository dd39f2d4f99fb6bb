/* A page of charts as SVG. */
#include "base/error.h"
#include "cli/plot/plot.h"

#include <math.h>
#include <stdlib.h>

/* Of the page and of a chart on it: its plot area, and the room around it for labels. */
enum {
    PAGE_MARGIN = 20,
    TITLE_ROOM = 32,
    LEGEND_ROOM = 24,
    CHART_WIDTH = 520,
    CHART_HEIGHT = 320,
    ROOM_LEFT = 70,
    ROOM_RIGHT = 24,
    ROOM_TOP = 34,
    ROOM_BOTTOM = 50
};

static const double LABEL = 9, HEADING = 11, TITLE = 14; /* heights of capitals */
static const tt__rgb INK = {40, 40, 40}, PALE = {226, 226, 226}, FRAME = {150, 150, 150};

static int chart_columns(const tt__plot *plot) { return plot->count == 1 ? 1 : 2; }

static double chart_width(const tt__plot *plot) { return plot->count == 1 ? 1.5 * CHART_WIDTH : CHART_WIDTH; }

static double chart_height(const tt__plot *plot) { return plot->count == 1 ? 1.5 * CHART_HEIGHT : CHART_HEIGHT; }

/* ---- the legend: runs by colour, as many in a line as fit ---- */

static double legend_entry_width(const char *name) { return 24 + 7 + tt__svg_text_width(name, LABEL) + 22; }

/* Lay the legend out, and draw it if there is a picture. Returns its height. */
static double lay_legend(const tt__plot *plot, tt__bytes *svg, double top, double width) {
    if (plot->run_count < 2)
        return 0;
    double x = PAGE_MARGIN, y = top + LEGEND_ROOM / 2.0;
    for (int r = 0; r < plot->run_count; r++) {
        double entry = legend_entry_width(plot->runs[r]);
        if (x + entry > width - PAGE_MARGIN && x > PAGE_MARGIN) {
            x = PAGE_MARGIN;
            y += LEGEND_ROOM;
        }
        if (svg) {
            tt__svg_line(svg, (double[]){x, x + 24}, (double[]){y, y}, 2, 3, tt__plot_colour(r), 1);
            tt__svg_text(svg, x + 31, y + LABEL / 2, LABEL, TT__ALIGN_LEFT, INK, plot->runs[r]);
        }
        x += entry;
    }
    return y + LEGEND_ROOM / 2.0 - top;
}

static double page_width(const tt__plot *plot) { return chart_columns(plot) * chart_width(plot) + 2 * PAGE_MARGIN; }

static double head_height(const tt__plot *plot) {
    return PAGE_MARGIN + (plot->title ? TITLE_ROOM : 0) + lay_legend(plot, NULL, 0, page_width(plot));
}

static double page_height(const tt__plot *plot) {
    int columns = chart_columns(plot), rows = (plot->count + columns - 1) / columns;
    return head_height(plot) + rows * chart_height(plot) + PAGE_MARGIN;
}

/* ---- a chart ---- */

typedef struct chart_frame {
    tt__bytes *svg;
    double left, top, right, bottom; /* of the area that lines are in */
    tt__axis x, y;
} chart_frame;

static void frame_line(const chart_frame *f, double x0, double y0, double x1, double y1, tt__rgb colour) {
    tt__svg_line(f->svg, (double[]){x0, x1}, (double[]){y0, y1}, 2, 1, colour, 1);
}

static double frame_x(const chart_frame *f, double place) { return f->left + place * (f->right - f->left); }
static double frame_y(const chart_frame *f, double place) { return f->bottom - place * (f->bottom - f->top); }

static double tick_place(const tt__axis *axis, int i) { return (axis->at[i] - axis->min) / (axis->max - axis->min); }

static void draw_axes(const chart_frame *f, const char *x_name) {
    for (int i = 0; i < f->y.count; i++) {
        double y = frame_y(f, tick_place(&f->y, i));
        frame_line(f, f->left, y, f->right, y, PALE);
        tt__svg_text(f->svg, f->left - 8, y + LABEL / 2, LABEL, TT__ALIGN_RIGHT, INK, f->y.text[i]);
    }
    for (int i = 0; i < f->x.count; i++) {
        double x = frame_x(f, tick_place(&f->x, i));
        frame_line(f, x, f->bottom, x, f->bottom + 5, FRAME);
        tt__svg_text(f->svg, x, f->bottom + 9 + LABEL, LABEL, TT__ALIGN_CENTRE, INK, f->x.text[i]);
    }
    frame_line(f, f->left, f->bottom, f->right, f->bottom, FRAME);
    frame_line(f, f->left, f->top, f->left, f->bottom, FRAME);
    tt__svg_text(f->svg, (f->left + f->right) / 2, f->bottom + 26 + LABEL, LABEL, TT__ALIGN_CENTRE, INK, x_name);
}

/* Points outside of the axes, which are laid around smoothed values, end at the edge. */
static double into_frame(double place) { return place < 0 ? 0 : place > 1 ? 1 : place; }

/* The points of a curve within half a unit of width. They are drawn as a stroke from the least to the greatest. */
typedef struct curve_column {
    double at;
    double first, low, high, last;
    size_t n;
} curve_column;

static void column_add(curve_column *c, double y) {
    c->first = c->n ? c->first : y;
    c->low = c->n && c->low < y ? c->low : y;
    c->high = c->n && c->high > y ? c->high : y;
    c->last = y;
    c->n++;
}

/* Put the points of a column, repeated ones once; returns how many. */
static size_t column_put(const curve_column *c, double *x, double *y) {
    const double all[] = {c->first, c->low, c->high, c->last};
    size_t n = 0;
    for (size_t i = 0; i < 4 && c->n; i++) {
        if (n && all[i] == y[n - 1])
            continue;
        x[n] = c->at;
        y[n++] = all[i];
    }
    return n;
}

/* Draw values over x. */
static tt_status draw_curve(const chart_frame *f, const tt__plot_line *line, const double *values, double width,
                            double opacity) {
    double *x = malloc((8 * line->n + 8) * sizeof *x), *y = x + 4 * line->n + 4;
    if (!x)
        return tt__fail(TT_ERR_MEMORY, "no memory for a curve");
    size_t n = 0;
    curve_column column = {.n = 0};
    for (size_t i = 0; i < line->n; i++) {
        double to_x = frame_x(f, tt__axis_place(&f->x, line->x[i]));
        if (column.n && to_x - column.at > 0.5) {
            n += column_put(&column, x + n, y + n);
            column.n = 0;
        }
        column.at = column.n ? column.at : to_x;
        column_add(&column, frame_y(f, into_frame(tt__axis_place(&f->y, values[i]))));
    }
    n += column_put(&column, x + n, y + n);
    tt__svg_line(f->svg, x, y, n, n == 1 ? 2.5 * width : width, tt__plot_colour(line->run), opacity);
    free(x);
    return TT_OK;
}

static bool is_smoothed(const tt__plot_line *line) {
    for (size_t i = 0; i < line->n; i++)
        if (line->smooth[i] != line->y[i])
            return true;
    return false;
}

static tt_status draw_chart(const tt__plot *plot, const tt__plot_chart *chart, tt__bytes *svg, double left,
                            double top) {
    chart_frame f = {.svg = svg,
                     .left = left + ROOM_LEFT,
                     .top = top + ROOM_TOP,
                     .right = left + chart_width(plot) - ROOM_RIGHT,
                     .bottom = top + chart_height(plot) - ROOM_BOTTOM};
    /* No line should lie on the frame. */
    double room = plot->log_y ? pow(chart->y_max / chart->y_min, 0.04) : 0.04 * (chart->y_max - chart->y_min);
    tt__axis_make(&f.x, chart->x_min, chart->x_max, plot->count == 1 ? 8 : 5, false, plot->x_unit);
    tt__axis_make(&f.y, plot->log_y ? chart->y_min / room : chart->y_min - room,
                  plot->log_y ? chart->y_max * room : chart->y_max + room, 6, plot->log_y, 1);
    tt__svg_text(svg, f.left, top + ROOM_TOP - 12, HEADING, TT__ALIGN_LEFT, INK, chart->tag);
    draw_axes(&f, plot->x_name);
    for (int i = 0; i < chart->count; i++)
        if (is_smoothed(&chart->lines[i]))
            TT__TRY(draw_curve(&f, &chart->lines[i], chart->lines[i].y, 1.2, 0.25));
    for (int i = 0; i < chart->count; i++)
        TT__TRY(draw_curve(&f, &chart->lines[i], chart->lines[i].smooth, 1.8, 1));
    return TT_OK;
}

static tt_status draw_page(const tt__plot *plot, tt__bytes *svg) {
    double top = PAGE_MARGIN;
    if (plot->title) {
        tt__svg_text(svg, page_width(plot) / 2, top + TITLE, TITLE, TT__ALIGN_CENTRE, INK, plot->title);
        top += TITLE_ROOM;
    }
    lay_legend(plot, svg, top, page_width(plot));
    int columns = chart_columns(plot);
    for (int i = 0; i < plot->count; i++) {
        int column = i % columns, row = i / columns;
        TT__TRY(draw_chart(plot, &plot->charts[i], svg, PAGE_MARGIN + column * chart_width(plot),
                           head_height(plot) + row * chart_height(plot)));
    }
    return TT_OK;
}

tt_status tt__plot_write_svg(const tt__plot *plot, const char *path) {
    tt__bytes svg = {0};
    tt__svg_begin(&svg, page_width(plot), page_height(plot));
    tt_status status = draw_page(plot, &svg);
    if (!status)
        status = tt__svg_write(&svg, path);
    tt__bytes_free(&svg);
    return status;
}
