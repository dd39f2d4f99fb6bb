/* tutti plot: curves of training runs. */
#include "cli/plot/plot.h"

#include "base/process/waits.h"
#include "base/text/parse.h"
#include "cli/cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { SVG = 1, TAGS, X, SMOOTH, LOG_Y, TITLE, ASCII, WIDTH, FOLLOW };

static const tt__flag plot_table[] = {
    TT__VALUE("svg", SVG, "FILE", "write a picture, as SVG, instead", .offer = TT__OFFER_FILES),
    TT__VALUE("tags", TAGS, "PATTERNS", "draw these series only, separated by commas: \"*/loss,train/lr\""),
    TT__VALUE("x", X, "WHAT", "lay curves over \"step\" (default), \"time\" since the run began, or \"epoch\"",
              .offer = "step time epoch"),
    TT__VALUE("smooth", SMOOTH, "W",
              "smooth: a running mean in which what came before weighs W, 0 to below 1 (0.9 is much); pictures show "
              "the points behind it, too"),
    TT__SWITCH("log-y", LOG_Y, "logarithmic values; those that are not positive are left out"),
    TT__VALUE("title", TITLE, "TEXT", "a heading"),
    TT__VALUE("width", WIDTH, "COLUMNS", "of text; default: the terminal's, else 80"),
    TT__SWITCH("ascii", ASCII, "plain letters instead of Braille dots; default where the locale is not UTF-8"),
    TT__SWITCH("follow", FOLLOW, "draw again every two seconds, until interrupted"),
    {0}};

static int plot_main(int argc, char **argv);

const tt__command tt__cmd_plot = {
    .name = "plot",
    .what = "draw the curves of training runs, in the terminal or as a picture",
    .usage = "FILE|DIR... [FLAGS]",
    .text =
        "Draw what runs have logged: event files that Tutti wrote for TensorBoard, and CSV. A chart for each series; "
        "of several runs a "
        "line for each. DIR is a run if it holds such files, and each folder below it that does is another one. CSV "
        "has a first line with names: step,wall_time,tag,value as Tutti writes it, or a column for each series, "
        "with one called step or epoch, from any other program.",
    .flags = plot_table,
    .notes = "Examples:\n"
             "\n"
             "  tutti plot runs/first                                the curves of a run\n"
             "  tutti plot runs --tags 'eval/*' --x time             all runs below, over each other\n"
             "  tutti plot runs/first --follow --smooth 0.8          while it trains\n"
             "  tutti plot runs --log-y --svg loss.svg --title 'Loss'",
    .offer = TT__OFFER_FILES,
    .run = plot_main,
};

enum { PATHS_MOST = 4096 };

typedef struct plot_flags {
    tt__plot_wish wish;
    const char *svg;
    int64_t width;
    bool ascii, follow;
} plot_flags;

/* ---- the command line ---- */

static tt_status set_x(plot_flags *f, const char *text) {
    int x = tt__cli_choice("step time epoch", text);
    f->wish.x = (tt__plot_x)x;
    return x >= 0 ? TT_OK : tt_fail(TT_ERR_INVALID, "--x: expected step, time or epoch, got \"%s\"", text);
}

static tt_status set_smooth(plot_flags *f, const char *text) {
    tt_status status = tt__parse_f64("--smooth", text, &f->wish.smooth);
    if (!status && !(f->wish.smooth >= 0 && f->wish.smooth < 1))
        status = tt_fail(TT_ERR_INVALID, "--smooth: expected a number from 0 to below 1, got \"%s\"", text);
    return status;
}

static tt_status set_plot_flag(plot_flags *f, int id, const char *value) {
    switch (id) {
    case SVG:
        return f->svg = value, tt__cli_check_ending("--svg", value, ".svg");
    case TAGS:
        return f->wish.tags = value, TT_OK;
    case X:
        return set_x(f, value);
    case SMOOTH:
        return set_smooth(f, value);
    case LOG_Y:
        return f->wish.log_y = true, TT_OK;
    case TITLE:
        return f->wish.title = value, TT_OK;
    case WIDTH:
        return tt__parse_i64("--width", value, 30, 1000, &f->width);
    case ASCII:
        return f->ascii = true, TT_OK;
    default:
        return f->follow = true, TT_OK;
    }
}

/* Returns -1 to go on, else the exit code. */
static int parse_plot(plot_flags *f, int argc, char **argv, char **paths) {
    int count = 0;
    for (char *path; count <= PATHS_MOST && (path = tt__cli_take_word(&tt__cmd_plot, &argc, argv));)
        paths[count++] = path;
    for (int id; (id = tt__cli_next_flag(&tt__cmd_plot, argc, argv, NULL)) != -1;) {
        if (id == 'h' || id == '?')
            return id == 'h' ? TT__EXIT_OK : TT__EXIT_USAGE;
        if (set_plot_flag(f, id, optarg))
            return tt__cli_usage_error("plot", "%s", tt_last_error());
    }
    if (!count || count > PATHS_MOST)
        return tt__cli_usage_error("plot", "expected files or folders of runs, got %s", count ? "too many" : "none");
    if (f->follow && f->svg)
        return tt__cli_usage_error("plot", "--follow draws in the terminal: leave out --svg");
    paths[count] = NULL;
    return -1;
}

/* ---- the terminal ---- */

static bool locale_is_utf8(void) {
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (int i = 0; i < 3; i++) {
        const char *value = secure_getenv(names[i]);
        if (value && *value) /* the first one that is set decides */
            return strcasestr(value, "utf-8") || strcasestr(value, "utf8");
    }
    return false;
}

static tt__plot_terminal look_at_terminal(const plot_flags *f, const tt__plot *plot) {
    struct winsize size = {0};
    bool terminal = isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
    int columns = f->width ? (int)f->width : terminal && size.ws_col >= 30 ? size.ws_col : 80;
    int rows = terminal && size.ws_row >= 12 ? size.ws_row - 2 : 22;
    rows = plot->count > 1 && rows / 2 >= 14 ? rows / 2 : rows;
    const char *no_colour = getenv("NO_COLOR");
    return (tt__plot_terminal){.columns = columns,
                               .rows = rows < 22 ? rows : 22,
                               .ascii = f->ascii || !locale_is_utf8(),
                               .colours = terminal && !(no_colour && *no_colour)};
}

/* ---- drawing ---- */

static void tell_note(const char *text) { tt__cli_note("plot", "%s", text); }

static void no_note(const char *text) { (void)text; }

static tt_status draw_plot(const tt__plot *plot, const plot_flags *f) {
    if (f->svg)
        return tt__plot_write_svg(plot, f->svg);
    tt__plot_terminal terminal = look_at_terminal(f, plot);
    return tt__plot_print(plot, &terminal);
}

/* Draw over the last drawing, again and again. A run that is being written may end inside a record: no news here. */
static tt_status follow_runs(const plot_flags *f, char **paths) {
    for (;;) {
        tt__plot plot;
        tt_status status = tt__plot_load(&plot, paths, &f->wish, no_note);
        fputs("\033[H\033[J", stdout);
        if (!status)
            status = draw_plot(&plot, f);
        tt__plot_free(&plot);
        if (status && status != TT_ERR_NOT_FOUND)
            return status;
        if (status)
            tt__cli_print(stdout, "%s\n", tt_last_error());
        if (fflush(stdout) != 0)
            return TT_OK; /* main() tells it */
        tt__sleep_ms(2000);
    }
}

static int plot_main(int argc, char **argv) {
    plot_flags f = {.follow = false};
    static char *paths[PATHS_MOST + 2];
    tt__plot plot = {.count = 0};
    int code = parse_plot(&f, argc, argv, paths);
    if (code >= 0)
        return code;
    tt_status status = TT_OK;
    if (f.follow) {
        status = follow_runs(&f, paths);
    } else {
        status = tt__plot_load(&plot, paths, &f.wish, tell_note);
        if (!status)
            status = draw_plot(&plot, &f);
    }
    if (status)
        tt__cli_error("plot", "%s", tt_last_error());
    tt__plot_free(&plot);
    return status ? TT__EXIT_FAILED : TT__EXIT_OK;
}
