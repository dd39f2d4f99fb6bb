/* tutti trace: write the last calls of every rank of a job as a file for Perfetto; with --pipeline draw what ran in a
 * pipeline's step, from the file that tt_pipeline_write_trace() wrote. */
#include "base/error.h"
#include "base/files/planted.h"
#include "base/text/format.h"
#include "base/text/json.h"
#include "base/text/parse.h"
#include "cli/cli.h"
#include "cli/look/job_view.h"
#include "cli/plot/plot.h"

#include <tutti/base.h>

#include <ctype.h>
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

/* Odd micro-batches get small letters, to tell neighbours apart. */
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
        /* A column shows what runs in its middle, else what touches it. */
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

/* ---- as a picture ---- */

enum { PICTURE_WIDTH = 1200, LEFT = 70, ROW = 34, TOP = 30 };

static const double LETTER = 8; /* height of capitals */
static const tt__rgb INK = {0, 0, 0};

static tt__rgb colour_of(char kind) {
    return kind == 'F'   ? (tt__rgb){0x7f, 0xb3, 0xe6}
           : kind == 'B' ? (tt__rgb){0x8f, 0xce, 0x8f}
           : kind == 'I' ? (tt__rgb){0x6f, 0xc3, 0xb0}
                         : (tt__rgb){0xe6, 0xb9, 0x7f};
}

static void draw_act(tt__bytes *svg, const drawing *d, const drawn_act *act) {
    double scale = (PICTURE_WIDTH - LEFT - 10) / d->span_us, x = LEFT + act->begin_us * scale;
    double width = (act->end_us - act->begin_us) * scale, y = TOP + act->rank * ROW;
    char text[128];
    tt__format(text, sizeof text, "%c of micro-batch %ld, stage %ld: %.3f ms", act->kind, act->micro, act->stage,
               (act->end_us - act->begin_us) / 1e3);
    tt__svg_box(svg, x, y, width, ROW - 6, colour_of(act->kind), text);
    snprintf(text, sizeof text, "%ld", act->micro);
    if (width > 10)
        tt__svg_text(svg, x + width / 2, y + 19, LETTER, TT__ALIGN_CENTRE, INK, text);
}

static void draw_step(tt__bytes *svg, const drawing *d) {
    char text[256];
    tt__format(text, sizeof text,
               "%s, %.3f ms: idle %.1f %%, with these stages' mean times %.1f %%. Blue forward, green backward (or its "
               "first half), orange the weights' half",
               d->schedule, d->span_us / 1e3, 100 * d->idle, 100 * d->simulated);
    tt__svg_text(svg, LEFT, 18, LETTER, TT__ALIGN_LEFT, INK, text);
    for (int r = 0; r < d->ranks; r++) {
        snprintf(text, sizeof text, "rank %d", r);
        tt__svg_text(svg, 8, TOP + r * ROW + 19, LETTER, TT__ALIGN_LEFT, INK, text);
    }
    for (size_t i = 0; i < d->count; i++)
        draw_act(svg, d, &d->acts[i]);
}

static tt_status draw_picture(const drawing *d, const char *path) {
    tt__bytes svg = {0};
    tt__svg_begin(&svg, PICTURE_WIDTH, TOP + d->ranks * ROW + 10);
    draw_step(&svg, d);
    tt_status status = tt__svg_write(&svg, path);
    tt__bytes_free(&svg);
    return status;
}

/* Draw the step in `path`: as text on stdout, or as SVG into `picture` if that is not NULL. The idle share comes with
 * both. Errors: TT_ERR_IO; TT_ERR_FORMAT no such trace; TT_ERR_MEMORY. */
static tt_status trace_draw_pipeline(const char *path, const char *picture) {
    drawing d = {0};
    tt_status status = read_drawing(path, &d);
    if (!status && picture)
        status = draw_picture(&d, picture);
    if (!status && picture)
        tt__print(stdout, "%s: %s on %d ranks, idle %.1f %%\n", picture, d.schedule, d.ranks, 100 * d.idle);
    else if (!status)
        draw_text(&d);
    free(d.acts);
    return status;
}

static const tt__flag trace_flags[] = {
    TT__VALUE("output", 'o', "FILE",
              "where to (default trace.json; of --pipeline a picture as SVG, default: a drawing in letters on stdout)",
              .letter = 'o', .offer = TT__OFFER_FILES),
    TT__VALUE("pid", 'p', "PID",
              "a process that \"tutti run\" did not start, and all ranks that it shares memory with"),
    TT__VALUE("pipeline", 'l', "FILE",
              "draw the pipeline's step in a file that tt_pipeline_write_trace() wrote, with its idle share",
              .offer = TT__OFFER_FILES),
    {0}};

static int trace_main(int argc, char **argv);

const tt__command tt__cmd_trace = {
    .name = "trace",
    .what = "write what they called lately as a trace for Perfetto",
    .usage = "[FLAGS] [JOB] [-o FILE]",
    .text = "Write the last 1024 calls of every rank of a running job as a trace that https://ui.perfetto.dev and "
            "chrome://tracing show: one process per rank, one thread per group, arrows from who came last to those who "
            "waited, all on one clock. What ran on a GPU has a thread of its own. Ranks that hang or are dead are in "
            "it, too. \"tutti run --trace FILE\" writes it when a job ends.\n"
            "\n"
            "JOB is the pid of the job's \"tutti run\", or its run id (--rdzv-id). Without it, the only job there is.",
    .flags = trace_flags,
    .run = trace_main,
};

static tt_status trace_write_view(const tt__view_source *source, const char *path) {
    tt__view view;
    TT__TRY(tt__view_take(&view, source));
    long calls = 0;
    for (int i = 0; i < view.n; i++)
        calls += view.ranks[i].n;
    tt_status status = tt__trace_write(&view, path);
    if (!status)
        tt__cli_print(stdout, "%s: %ld calls of %d rank%s\n", path, calls, view.n, view.n == 1 ? "" : "s");
    tt__view_free(&view);
    return status;
}

static int trace_main(int argc, char **argv) {
    tt__view_source source;
    const char *path = NULL, *pipeline = NULL;
    int64_t pid = 0;
    int letter;
    const char *job = tt__cli_take_word(&tt__cmd_trace, &argc, argv);
    while ((letter = tt__cli_next_flag(&tt__cmd_trace, argc, argv, NULL)) != -1) {
        if (letter == 'h' || letter == '?')
            return letter == 'h' ? TT__EXIT_OK : TT__EXIT_USAGE;
        if (letter == 'o')
            path = optarg;
        else if (letter == 'l')
            pipeline = optarg;
        else if (tt__parse_i64("--pid", optarg, 1, INT32_MAX, &pid))
            return tt__cli_usage_error("trace", "%s", tt_last_error());
    }
    if ((job != NULL) + (pid != 0) + (pipeline != NULL) > 1)
        return tt__cli_usage_error("trace", "%s were given: expected one of them",
                                   pipeline ? "--pipeline and a job" : "a job and --pid");
    if (tt__cli_check_ending(pipeline ? "-o of --pipeline" : "-o", path, pipeline ? ".svg" : ".json"))
        return tt__cli_usage_error("trace", "%s", tt_last_error());
    tt_status status = pipeline ? trace_draw_pipeline(pipeline, path) : tt__view_find(&source, job, (pid_t)pid);
    if (!status && !pipeline)
        status = trace_write_view(&source, path ? path : "trace.json");
    if (status)
        tt__cli_error("trace", "%s", tt_last_error());
    return status ? TT__EXIT_FAILED : TT__EXIT_OK;
}
