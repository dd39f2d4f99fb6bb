/* Axes with round numbers. */
#include "base/text/format.h"
#include "cli/plot/plot.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Return the number of 1, 2, 5, 10, ... that is near `x`. */
static double round_step(double x) {
    double power = pow(10, floor(log10(x))), part = x / power;
    return (part < 1.4 ? 1 : part < 3 ? 2 : part < 7 ? 5 : 10) * power;
}

/* Write a tick's label with as few digits as tell ticks apart. */
static void format_tick(char *text, size_t size, double value, double step) {
    int digits = (int)ceil(-log10(step) - 1e-9);
    if (fabs(value) < step / 1e6)
        value = 0;
    if (digits < 0)
        digits = 0;
    if (fabs(value) >= 1e6 || (value != 0 && digits > 5))
        tt__format(text, size, "%.*g", 4, value);
    else
        tt__format(text, size, "%.*f", digits, value);
    if (fabs(value) >= 1e4 && fabs(value) < 1e6 && !digits && fmod(value, 100) == 0)
        tt__format(text, size, "%gk", value / 1000);
}

static void linear_ticks(tt__axis *axis, int wanted, double divide_by) {
    double step = round_step((axis->max - axis->min) / divide_by / (wanted > 0 ? wanted : 1)) * divide_by;
    double first = ceil(axis->min / step - 1e-9);
    for (; axis->count < TT__TICKS_MAX && (first + axis->count) * step <= axis->max + step * 1e-9; axis->count++) {
        axis->at[axis->count] = (first + axis->count) * step;
        format_tick(axis->text[axis->count], sizeof *axis->text, axis->at[axis->count] / divide_by, step / divide_by);
    }
}

/* Put ticks at decades: with 2 and 5 in between if they are few, at every so many if they are many. Within less than
 * one decade, put the ticks of a linear axis. */
static void log_ticks(tt__axis *axis, int wanted) {
    static const double parts[] = {1, 2, 5};
    if (axis->max - axis->min < 1) {
        tt__axis linear = {.min = pow(10, axis->min), .max = pow(10, axis->max)};
        linear_ticks(&linear, wanted, 1);
        for (int i = 0; i < linear.count; i++)
            linear.at[i] = log10(linear.at[i]);
        linear.min = axis->min;
        linear.max = axis->max;
        linear.is_log = true;
        *axis = linear;
        return;
    }
    double decades = axis->max - axis->min;
    int every = decades > wanted ? (int)ceil(decades / wanted) : 1, shown = decades < 3 ? 3 : 1;
    for (int e = (int)floor(axis->min) / every * every - every; e <= (int)ceil(axis->max); e += every)
        for (int i = 0; i < shown && axis->count < TT__TICKS_MAX; i++) {
            double at = e + log10(parts[i]);
            if (at < axis->min - 1e-9 || at > axis->max + 1e-9)
                continue;
            axis->at[axis->count] = at;
            tt__format(axis->text[axis->count++], sizeof *axis->text, "%g", parts[i] * pow(10, e));
        }
}

void tt__axis_make(tt__axis *axis, double min, double max, int wanted, bool is_log, double divide_by) {
    *axis = (tt__axis){.is_log = is_log, .min = is_log ? log10(min) : min, .max = is_log ? log10(max) : max};
    double span = axis->max - axis->min, least = fmax(fabs(axis->min), fabs(axis->max)) * 1e-9;
    if (!(span > least)) { /* one value: some room around it */
        double room = is_log ? 0.5 : axis->min != 0 ? fabs(axis->min) * 0.1 : 1;
        axis->min -= room;
        axis->max += room;
    }
    if (is_log)
        log_ticks(axis, wanted);
    else
        linear_ticks(axis, wanted, divide_by);
}

double tt__axis_place(const tt__axis *axis, double value) {
    double x = axis->is_log ? log10(value) : value;
    return (x - axis->min) / (axis->max - axis->min);
}

tt__rgb tt__plot_colour(int run) {
    static const tt__rgb colours[] = {{0, 114, 178}, {213, 94, 0},   {0, 158, 115}, {204, 121, 167},
                                      {230, 159, 0}, {86, 180, 233}, {0, 0, 0},     {150, 140, 0}};
    return colours[run % (int)(sizeof colours / sizeof *colours)];
}
