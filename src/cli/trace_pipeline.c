#include "cli/trace_pipeline.h"

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/format.h"
#include "base/json.h"
#include "base/planted.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_DRAWN_RANKS = 4096, TEXT_COLUMNS = 96 };

typedef struct drawn_act {
    int rank;
    char kind; /* F, B, I, W */
    long micro, stage;
    double begin_us, end_us;
} drawn_act;

typedef struct drawing {
    drawn_act *acts;
    size_t count;
    int ranks;
    double span_us;
    char schedule[40];
    double idle, simulated;
} drawing;

/* ---- reading ---- */

static tt_status not_a_trace(const char *path, const char *what) {
    return tt__fail(TT_ERR_FORMAT, "\"%s\" is no trace that tt_pipeline_write_trace() wrote: %s", path, what);
}

static bool read_act(const json_t *event, drawn_act *act) {
    const char *kind;
    json_int_t pid, stage, micro;
    double begin, length;
    if (json_unpack((json_t *)(uintptr_t)event, "{s:I, s:F, s:F, s:{s:s, s:I, s:I}}", "pid", &pid, "ts", &begin, "dur",
                    &length, "args", "kind", &kind, "stage", &stage, "micro_batch", &micro))
        return false;
    *act = (drawn_act){(int)pid - 1, *kind, (long)micro, (long)stage, begin, begin + length};
    return pid >= 1 && pid <= MOST_DRAWN_RANKS && *kind && strchr("FBIW", *kind) && micro >= 0 && begin >= 0 &&
           length >= 0;
}

static tt_status read_acts(const char *path, const json_t *events, drawing *d) {
    size_t i;
    const json_t *event;
    d->acts = calloc(json_array_size(events) + 1, sizeof *d->acts);
    if (!d->acts)
        return tt__fail(TT_ERR_MEMORY, "no memory to draw \"%s\"", path);
    json_array_foreach(events, i, event) {
        const char *category = json_string_value(json_object_get(event, "cat"));
        drawn_act *act = &d->acts[d->count];
        if (!category || strcmp(category, "pipeline") != 0)
            continue;
        if (!read_act(event, act))
            return not_a_trace(path, "an event of it lacks what a pipeline's has");
        d->count++;
        d->ranks = act->rank + 1 > d->ranks ? act->rank + 1 : d->ranks;
        d->span_us = act->end_us > d->span_us ? act->end_us : d->span_us;
    }
    return d->count && d->span_us > 0 ? TT_OK : not_a_trace(path, "it has no event of a pipeline");
}

static tt_status read_drawing(const char *path, drawing *d) {
    json_error_t error;
    const char *schedule = "?";
    int fd;
    TT__TRY(tt__open_regular(&fd, path));
    json_t *root = tt__json_loadfd(fd, 0, &error);
    close(fd);
    if (!root)
        return not_a_trace(path, error.text);
    tt_status status = read_acts(path, json_object_get(root, "traceEvents"), d);
    if (!status && json_unpack(root, "{s:{s:s, s:F, s:F}}", "otherData", "schedule", &schedule, "idle_share", &d->idle,
                               "simulated_idle_share", &d->simulated))
        status = not_a_trace(path, "it lacks the schedule's name or the idle shares");
    if (!status)
        for (size_t i = 0; i + 1 < sizeof d->schedule && isprint((unsigned char)schedule[i]); i++)
            d->schedule[i] = strchr("<>&\"", schedule[i]) ? '?' : schedule[i];
    json_decref(root);
    return status;
}

/* ---- as text ---- */

/* Odd micro-batches are small letters, so that neighbours can be told apart. */
static char letter_of(const drawn_act *act) {
    return act->micro % 2 ? (char)tolower((unsigned char)act->kind) : act->kind;
}

static void draw_text_row(const drawing *d, int rank) {
    char row[TEXT_COLUMNS + 1];
    memset(row, '.', TEXT_COLUMNS);
    row[TEXT_COLUMNS] = '\0';
    for (size_t i = 0; i < d->count; i++) {
        const drawn_act *act = &d->acts[i];
        if (act->rank != rank)
            continue;
        /* A column shows what runs in its middle, or else what only touches it. */
        int touched = (int)(act->begin_us / d->span_us * (TEXT_COLUMNS - 1));
        if (row[touched] == '.')
            row[touched] = letter_of(act);
        for (int c = touched; c < TEXT_COLUMNS; c++) {
            double middle = (c + 0.5) * d->span_us / TEXT_COLUMNS;
            if (middle >= act->begin_us && middle < act->end_us)
                row[c] = letter_of(act);
        }
    }
    printf("rank %-4d %s\n", rank, row);
}

static void draw_text(const drawing *d) {
    for (int r = 0; r < d->ranks; r++)
        draw_text_row(d, r);
    tt__print(stdout,
              "%s, %.3f ms; F forward, B backward, I and W its halves, small letters odd micro-batches, . idle\n"
              "idle: %.1f %% of all ranks' time; of the schedule with these stages' mean times: %.1f %%\n",
              d->schedule, d->span_us / 1e3, 100 * d->idle, 100 * d->simulated);
}

/* ---- as SVG ---- */

typedef struct svg_file {
    tt__atomic_file file;
    tt_status status;
} svg_file;

static void put_svg(svg_file *f, const char *format, ...) TT_PRINTF(2, 3);
static void put_svg(svg_file *f, const char *format, ...) {
    char line[512];
    va_list list;
    va_start(list, format);
    int n = tt__vformat(line, sizeof line, format, list);
    va_end(list);
    if (!f->status && n > 0)
        f->status = tt__atomic_write(&f->file, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
}

enum { SVG_WIDTH = 1200, SVG_LEFT = 70, SVG_ROW = 34, SVG_TOP = 30 };

static const char *color_of(char kind) {
    return kind == 'F' ? "#7fb3e6" : kind == 'B' ? "#8fce8f" : kind == 'I' ? "#6fc3b0" : "#e6b97f";
}

static void put_act(svg_file *f, const drawing *d, const drawn_act *act) {
    double scale = (SVG_WIDTH - SVG_LEFT - 10) / d->span_us, x = SVG_LEFT + act->begin_us * scale;
    double width = (act->end_us - act->begin_us) * scale;
    int y = SVG_TOP + act->rank * SVG_ROW;
    put_svg(f,
            "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\" stroke=\"#555\" stroke-width=\"0.4\">"
            "<title>%c of micro-batch %ld, stage %ld: %.3f ms</title></rect>\n",
            x, y, width, SVG_ROW - 6, color_of(act->kind), act->kind, act->micro, act->stage,
            (act->end_us - act->begin_us) / 1e3);
    if (width > 10)
        put_svg(f, "<text x=\"%.2f\" y=\"%d\" text-anchor=\"middle\">%ld</text>\n", x + width / 2, y + 19, act->micro);
}

static tt_status draw_svg(const drawing *d, const char *path) {
    svg_file f = {{0}, TT_OK};
    TT__TRY(tt__atomic_open(&f.file, path));
    put_svg(&f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
            "font-size=\"11\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            SVG_WIDTH, SVG_TOP + d->ranks * SVG_ROW + 10);
    put_svg(
        &f,
        "<text x=\"%d\" y=\"18\">%s, %.3f ms: idle %.1f %%, with these stages' mean times %.1f %%. Blue forward, green "
        "backward (or its first half), orange the weights' half</text>\n",
        SVG_LEFT, d->schedule, d->span_us / 1e3, 100 * d->idle, 100 * d->simulated);
    for (int r = 0; r < d->ranks; r++)
        put_svg(&f, "<text x=\"8\" y=\"%d\">rank %d</text>\n", SVG_TOP + r * SVG_ROW + 19, r);
    for (size_t i = 0; i < d->count; i++)
        put_act(&f, d, &d->acts[i]);
    put_svg(&f, "</svg>\n");
    if (!f.status)
        f.status = tt__atomic_commit(&f.file);
    tt__atomic_abort(&f.file);
    return f.status;
}

tt_status tt__trace_draw_pipeline(const char *path, const char *svg) {
    drawing d = {0};
    tt_status status = read_drawing(path, &d);
    if (!status && svg)
        status = draw_svg(&d, svg);
    if (!status && svg)
        tt__print(stdout, "%s: %s on %d ranks, idle %.1f %%\n", svg, d.schedule, d.ranks, 100 * d.idle);
    else if (!status)
        draw_text(&d);
    free(d.acts);
    return status;
}
