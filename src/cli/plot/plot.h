/* What `tutti plot` draws: charts, one for each tag, with a line for each run. Its floors: plot.c > plot_data.c,
 * plot_text.c, plot_page.c > plot_axis.c, svg.c (which `tutti trace` uses, too). */
#ifndef TT_CLI_PLOT_H
#define TT_CLI_PLOT_H

#include "base/bytes.h"

#include <tutti/base.h>

typedef struct tt__rgb {
    unsigned char r, g, b;
} tt__rgb;

typedef enum tt__align { TT__ALIGN_LEFT, TT__ALIGN_CENTRE, TT__ALIGN_RIGHT } tt__align;

typedef enum tt__plot_x { TT__PLOT_STEP, TT__PLOT_TIME, TT__PLOT_EPOCH } tt__plot_x;

typedef struct tt__plot_wish {
    const char *tags; /* patterns separated by commas; NULL: all */
    tt__plot_x x;
    double smooth; /* weight of what came before, 0 to below 1 */
    bool log_y;
    const char *title; /* NULL: none */
} tt__plot_wish;

/* One run's curve: n finite points by rising x. `smooth` equals y if nothing is smoothed. */
typedef struct tt__plot_line {
    int run;
    size_t n;
    double *x, *y, *smooth;
} tt__plot_line;

typedef struct tt__plot_chart {
    char *tag;
    tt__plot_line *lines;
    int count;
    double x_min, x_max, y_min, y_max; /* of all lines, as they are drawn: smoothed or not */
} tt__plot_chart;

/* Zeroed = empty. */
typedef struct tt__plot {
    char **runs; /* their names */
    int run_count;
    tt__plot_chart *charts;
    int count;
    const char *x_name; /* what stands below an x axis */
    double x_unit;      /* of times: seconds in a unit */
    bool log_y;
    const char *title;
} tt__plot;

/* Read the runs at `paths` (files, run folders, folders of run folders) and choose what is drawn. `note` is called with
 * a text for each file of which something was left out. Errors: those of reading, TT_ERR_NOT_FOUND nothing to draw;
 * TT_ERR_MEMORY. */
tt_status tt__plot_load(tt__plot *plot, char *const *paths, const tt__plot_wish *wish, void (*note)(const char *text));
void tt__plot_free(tt__plot *plot);

/* ---- axes */

enum { TT__TICKS_MAX = 16 };

typedef struct tt__axis {
    double min, max; /* of the axis, in the units that are drawn: logarithms where it is logarithmic */
    bool is_log;
    int count;
    double at[TT__TICKS_MAX]; /* where ticks are, in the same units */
    char text[TT__TICKS_MAX][24];
} tt__axis;

/* Lay an axis around min..max with about `wanted` round ticks. Labels show values divided by `divide_by`. */
void tt__axis_make(tt__axis *axis, double min, double max, int wanted, bool is_log, double divide_by);

/* Return where a value lies: 0 at the axis' beginning, 1 at its end. */
double tt__axis_place(const tt__axis *axis, double value);

/* ---- pictures */

/* Return the colour of a run, one of eight that people with any colour vision tell apart (Okabe and Ito, 2008). */
tt__rgb tt__plot_colour(int run);

/* Write all charts as SVG into a file that appears whole or not at all. TT_ERR_IO; TT_ERR_MEMORY. */
tt_status tt__plot_write_svg(const tt__plot *plot, const char *path);

/* ---- the terminal */

typedef struct tt__plot_terminal {
    int columns, rows; /* of one chart, with its labels */
    bool ascii, colours;
} tt__plot_terminal;

tt_status tt__plot_print(const tt__plot *plot, const tt__plot_terminal *terminal);

/* Begin a picture of this size on white. */
void tt__svg_begin(tt__bytes *svg, double width, double height);

/* A line through n points; a dot if n is 1. */
void tt__svg_line(tt__bytes *svg, const double *x, const double *y, size_t n, double width, tt__rgb colour,
                  double opacity);

/* y: of the baseline; height: of capitals. */
void tt__svg_text(tt__bytes *svg, double x, double y, double height, tt__align align, tt__rgb colour, const char *text);

/* About how wide a text is: no font is measured. */
double tt__svg_text_width(const char *text, double height);

/* A filled box; browsers show `title`, which has no special characters, while the pointer is on it. */
void tt__svg_box(tt__bytes *svg, double x, double y, double width, double height, tt__rgb colour, const char *title);

/* End the picture and write it into a file that appears whole or not at all. TT_ERR_IO; TT_ERR_MEMORY. */
tt_status tt__svg_write(tt__bytes *svg, const char *path);

#endif
