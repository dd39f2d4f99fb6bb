/* Reading files of runs, and making charts of them. */
#include "base/error.h"
#include "cli/plot/plot.h"
#include "metrics/scalar_log.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { DEPTH_MAX = 16 };

typedef struct plot_run {
    char *name;
    tt__scalar_log log;
    double first_time; /* of its points; infinite: it has no times */
} plot_run;

typedef struct plot_loader {
    plot_run *runs;
    int count;
    void (*note)(const char *text);
} plot_loader;

static tt_status plot_memory(void) { return tt__fail(TT_ERR_MEMORY, "no memory for the curves"); }

/* ---- reading ---- */

/* Add a run under its path without a slash at its end. */
static tt_status add_run(plot_loader *l, const char *path, plot_run **run) {
    plot_run *runs = realloc(l->runs, (size_t)(l->count + 1) * sizeof *runs);
    if (!runs)
        return plot_memory();
    l->runs = runs;
    runs[l->count] = (plot_run){.name = strdup(path)};
    if (!runs[l->count].name)
        return plot_memory();
    for (size_t n = strlen(path); n > 1 && runs[l->count].name[n - 1] == '/'; n--)
        runs[l->count].name[n - 1] = 0;
    *run = &runs[l->count++];
    return TT_OK;
}

static tt_status read_run(plot_loader *l, const char *path, bool folder) {
    plot_run *run = NULL;
    TT__TRY(add_run(l, path, &run));
    tt_status status = folder ? tt__log_read_folder(&run->log, path) : tt__log_read_file(&run->log, path);
    if (*run->log.note)
        l->note(run->log.note);
    return status;
}

static int only_names(const struct dirent *entry) { return entry->d_name[0] != '.'; }

static tt_status read_tree(plot_loader *l, const char *path, int depth);

static tt_status read_below(plot_loader *l, const char *path, const char *name, int depth) {
    char *below;
    struct stat info;
    if (asprintf(&below, "%s/%s", path, name) < 0)
        return plot_memory();
    tt_status status = TT_OK;
    if (lstat(below, &info) == 0 && S_ISDIR(info.st_mode))
        status = read_tree(l, below, depth + 1);
    free(below);
    return status;
}

/* Read a folder as a run if it is one, and those below it. */
static tt_status read_tree(plot_loader *l, const char *path, int depth) {
    struct dirent **entries;
    if (depth > DEPTH_MAX)
        return TT_OK;
    int n = scandir(path, &entries, only_names, alphasort);
    if (n < 0)
        return tt__fail_errno(TT_ERR_IO, errno, "can't read the folder %s", path);
    bool is_run = false;
    for (int i = 0; i < n; i++) {
        const char *name = entries[i]->d_name, *dot = strrchr(name, '.');
        is_run = is_run || tt__log_is_event_name(name) || (dot && !strcmp(dot, ".csv"));
    }
    tt_status status = is_run ? read_run(l, path, true) : TT_OK;
    for (int i = 0; i < n; i++) {
        if (!status)
            status = read_below(l, path, entries[i]->d_name, depth);
        free(entries[i]);
    }
    free(entries);
    return status;
}

static tt_status read_path(plot_loader *l, const char *path) {
    struct stat info;
    int before = l->count;
    if (stat(path, &info) != 0)
        return tt__fail_errno(TT_ERR_IO, errno, "can't open %s", path);
    if (!S_ISDIR(info.st_mode))
        return read_run(l, path, false);
    TT__TRY(read_tree(l, path, 0));
    if (l->count == before)
        return tt__fail(
            TT_ERR_NOT_FOUND,
            "%s: expected event files (*tfevents*) or CSV files (*.csv) in it or in folders below it, found "
            "none",
            path);
    return TT_OK;
}

/* Shorten the runs' names: drop the beginning that all paths share. */
static void shorten_names(plot_loader *l) {
    size_t shared = l->count ? strlen(l->runs[0].name) : 0;
    for (int i = 0; i < l->count; i++) {
        size_t same = 0;
        while (same < shared && l->runs[i].name[same] == l->runs[0].name[same])
            same++;
        shared = same;
    }
    while (shared && l->runs[0].name[shared - 1] != '/')
        shared--;
    for (int i = 0; i < l->count; i++)
        memmove(l->runs[i].name, l->runs[i].name + shared, strlen(l->runs[i].name) - shared + 1);
}

/* ---- one line ---- */

/* Steps may be as far apart as integers can be. */
static double steps_between(int64_t from, int64_t to) { return (double)to - (double)from; }

/* Interpolate the epoch of a step between the points of the series "epoch". */
static double epoch_of_step(const tt__series *epochs, int64_t step) {
    size_t i = 0, high = epochs->count; /* i: the first point at or behind the step */
    while (i < high) {
        size_t middle = i + (high - i) / 2;
        if (epochs->points[middle].step < step)
            i = middle + 1;
        else
            high = middle;
    }
    if (i == epochs->count)
        return epochs->points[i - 1].step == step ? epochs->points[i - 1].value : NAN;
    const tt__scalar_point *after = &epochs->points[i];
    if (after->step == step)
        return after->value;
    tt__scalar_point before = i ? epochs->points[i - 1] : (tt__scalar_point){.value = 0};
    return before.value +
           (after->value - before.value) * steps_between(before.step, step) / steps_between(before.step, after->step);
}

static double first_time(const tt__scalar_log *log) {
    double first = INFINITY;
    for (size_t i = 0; i < log->count; i++)
        if (log->series[i].count)
            first = fmin(first, log->series[i].points[0].wall_time);
    return first;
}

static tt_status check_x(plot_run *run, tt__plot_x x) {
    const tt__series *epochs = tt__scalar_log_find(&run->log, "epoch");
    run->first_time = first_time(&run->log);
    if (x == TT__PLOT_EPOCH && (!epochs || !epochs->count))
        return tt__fail(TT_ERR_NOT_FOUND, "--x epoch: %s has no series \"epoch\"; try --x step", run->name);
    if (x == TT__PLOT_TIME && !isfinite(run->first_time))
        return tt__fail(TT_ERR_NOT_FOUND, "--x time: %s has no times; try --x step", run->name);
    return TT_OK;
}

static double place_on_x(const plot_run *run, const tt__scalar_point *p, tt__plot_x x) {
    if (x == TT__PLOT_EPOCH)
        return epoch_of_step(tt__scalar_log_find(&run->log, "epoch"), p->step);
    return x == TT__PLOT_TIME ? p->wall_time - run->first_time : (double)p->step;
}

/* An exponential mean without the bias of its beginning, as TensorBoard's. */
static void smooth_line(tt__plot_line *line, double weight) {
    double sum = 0, weights = 0;
    for (size_t i = 0; i < line->n; i++) {
        sum = sum * weight + line->y[i] * (1 - weight);
        weights = weights * weight + 1 - weight;
        line->smooth[i] = sum / weights;
    }
}

static tt_status make_line(tt__plot_line *line, int number, const plot_run *run, const tt__series *series,
                           const tt__plot_wish *wish) {
    double *all = malloc((3 * series->count + 1) * sizeof *all);
    if (!all)
        return plot_memory();
    *line = (tt__plot_line){.run = number, .x = all, .y = all + series->count, .smooth = all + 2 * series->count};
    for (size_t i = 0; i < series->count; i++) {
        double x = place_on_x(run, &series->points[i], wish->x), y = series->points[i].value;
        bool later = !line->n || x >= line->x[line->n - 1];
        if (!isfinite(x) || !isfinite(y) || !later || (wish->log_y && y <= 0))
            continue;
        line->x[line->n] = x;
        line->y[line->n++] = y;
    }
    smooth_line(line, wish->smooth);
    return TT_OK;
}

/* ---- charts ---- */

static void chart_take_bounds(tt__plot_chart *chart, const tt__plot_line *line, bool first) {
    for (size_t i = 0; i < line->n; i++) {
        bool begin = first && i == 0;
        chart->x_min = begin ? line->x[i] : fmin(chart->x_min, line->x[i]);
        chart->x_max = begin ? line->x[i] : fmax(chart->x_max, line->x[i]);
        chart->y_min = begin ? line->smooth[i] : fmin(chart->y_min, line->smooth[i]);
        chart->y_max = begin ? line->smooth[i] : fmax(chart->y_max, line->smooth[i]);
    }
}

/* A series and the run that it is of. */
typedef struct run_series {
    const char *tag;
    const tt__series *series;
    int run;
} run_series;

static int compare_series(const void *a, const void *b) {
    const run_series *x = a, *y = b;
    int order = strcmp(x->tag, y->tag);
    return order ? order : (x->run > y->run) - (x->run < y->run);
}

/* List the series of all runs by tag, then run; allocated. */
static tt_status list_series(const plot_loader *l, run_series **list, size_t *count) {
    size_t n = 0;
    for (int r = 0; r < l->count; r++)
        n += l->runs[r].log.count;
    *count = 0;
    *list = malloc((n + 1) * sizeof **list);
    if (!*list)
        return plot_memory();
    for (int r = 0; r < l->count; r++)
        for (size_t i = 0; i < l->runs[r].log.count; i++) {
            const tt__series *series = &l->runs[r].log.series[i];
            (*list)[(*count)++] = (run_series){series->tag, series, r};
        }
    qsort(*list, n, sizeof **list, compare_series);
    return TT_OK;
}

/* Add the chart of a tag, with the `n` series that it has; none if no run has a point to show. */
static tt_status add_chart(tt__plot *plot, const plot_loader *l, const run_series *of, size_t n,
                           const tt__plot_wish *wish) {
    tt__plot_chart *chart = &plot->charts[plot->count++];
    *chart = (tt__plot_chart){.tag = strdup(of->tag), .lines = calloc(n, sizeof *chart->lines)};
    if (!chart->tag || !chart->lines)
        return plot_memory();
    for (size_t i = 0; i < n; i++) {
        tt__plot_line *line = &chart->lines[chart->count];
        TT__TRY(make_line(line, of[i].run, &l->runs[of[i].run], of[i].series, wish));
        chart_take_bounds(chart, line, chart->count == 0);
        if (line->n)
            chart->count++;
        else
            free(line->x);
    }
    if (chart->x_min > 0 && chart->x_min < 0.2 * chart->x_max)
        chart->x_min = 0; /* where runs begin */
    return TT_OK;
}

static void drop_last_if_empty(tt__plot *plot) {
    tt__plot_chart *last = &plot->charts[plot->count - 1];
    if (last->count)
        return;
    free(last->tag);
    free(last->lines);
    plot->count--;
}

/* Is the tag wanted? The series "epoch" says where steps lie: it is drawn only if it is named. */
static bool tag_is_wanted(const char *tag, const char *patterns) {
    if (!patterns)
        return strcmp(tag, "epoch") != 0;
    char *list = strdup(patterns), *rest = list;
    bool wanted = false;
    for (char *pattern; list && (pattern = strsep(&rest, ","));)
        wanted = wanted || fnmatch(pattern, tag, 0) == 0;
    free(list);
    return wanted;
}

/* Add a chart for each wanted tag, in order. */
static tt_status add_charts(tt__plot *plot, const plot_loader *l, const tt__plot_wish *wish) {
    run_series *list;
    size_t count, tags = 0;
    TT__TRY(list_series(l, &list, &count));
    for (size_t i = 0; i < count; i++)
        tags += !i || strcmp(list[i - 1].tag, list[i].tag) != 0;
    plot->charts = calloc(tags + 1, sizeof *plot->charts);
    tt_status status = plot->charts ? TT_OK : plot_memory();
    for (size_t i = 0, n; i < count && !status; i += n) {
        for (n = 1; i + n < count && !strcmp(list[i].tag, list[i + n].tag);)
            n++;
        if (!tag_is_wanted(list[i].tag, wish->tags))
            continue;
        status = add_chart(plot, l, &list[i], n, wish);
        if (!status)
            drop_last_if_empty(plot);
    }
    free(list);
    return status;
}

/* Choose the unit that times are shown in: the largest that the longest time has several of. */
static void choose_unit(tt__plot *plot, tt__plot_x x) {
    double longest = 0;
    for (int i = 0; i < plot->count; i++)
        longest = fmax(longest, plot->charts[i].x_max);
    plot->x_unit = x != TT__PLOT_TIME || longest < 180 ? 1 : longest < 3 * 3600 ? 60 : 3600;
    plot->x_name = x == TT__PLOT_STEP    ? "step"
                   : x == TT__PLOT_EPOCH ? "epoch"
                   : plot->x_unit == 1   ? "seconds"
                   : plot->x_unit == 60  ? "minutes"
                                         : "hours";
}

static tt_status fill_plot(tt__plot *plot, plot_loader *l, const tt__plot_wish *wish) {
    shorten_names(l);
    plot->runs = calloc((size_t)l->count, sizeof *plot->runs);
    if (!plot->runs)
        return plot_memory();
    for (; plot->run_count < l->count; plot->run_count++) {
        TT__TRY(check_x(&l->runs[plot->run_count], wish->x));
        plot->runs[plot->run_count] = l->runs[plot->run_count].name;
        l->runs[plot->run_count].name = NULL;
    }
    TT__TRY(add_charts(plot, l, wish));
    choose_unit(plot, wish->x);
    if (plot->count)
        return TT_OK;
    return tt__fail(TT_ERR_NOT_FOUND, "nothing to draw: no series%s%s%s with a finite%s value",
                    wish->tags ? " that --tags \"" : "", wish->tags ? wish->tags : "", wish->tags ? "\" names" : "",
                    wish->log_y ? ", positive" : "");
}

tt_status tt__plot_load(tt__plot *plot, char *const *paths, const tt__plot_wish *wish, void (*note)(const char *text)) {
    plot_loader l = {.note = note};
    tt_status status = TT_OK;
    *plot = (tt__plot){.log_y = wish->log_y, .title = wish->title};
    for (int i = 0; paths[i] && !status; i++)
        status = read_path(&l, paths[i]);
    if (!status)
        status = fill_plot(plot, &l, wish);
    for (int i = 0; i < l.count; i++) {
        tt__scalar_log_free(&l.runs[i].log);
        free(l.runs[i].name);
    }
    free(l.runs);
    return status;
}

void tt__plot_free(tt__plot *plot) {
    for (int i = 0; i < plot->count; i++) {
        for (int k = 0; k < plot->charts[i].count; k++)
            free(plot->charts[i].lines[k].x);
        free(plot->charts[i].lines);
        free(plot->charts[i].tag);
    }
    for (int i = 0; i < plot->run_count; i++)
        free(plot->runs[i]);
    free(plot->runs);
    free(plot->charts);
    *plot = (tt__plot){.count = 0};
}
