/* Writing scalars as CSV. */
#include "metrics/scalar_csv.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void csv_put(tt__bytes *line, const char *text) { tt__bytes_put(line, text, strlen(text)); }

/* A number as it is written everywhere: programs may have set a locale whose decimal point is a comma. */
static void csv_put_number(tt__bytes *line, const char *format, double x) {
    char text[64];
    snprintf(text, sizeof text, format, x);
    for (char *comma; (comma = strchr(text, ','));)
        *comma = '.';
    csv_put(line, text);
}

/* As few digits as give the same number again. */
static const char *shortest_format(double x) {
    char text[64];
    snprintf(text, sizeof text, "%.9g", x);
    return strtod(text, NULL) == x ? "%.9g" : "%.17g";
}

static void csv_put_cell(tt__bytes *line, const char *text) {
    if (!strpbrk(text, ",\"")) {
        csv_put(line, text);
        return;
    }
    csv_put(line, "\"");
    for (const char *c = text; *c; c++) {
        if (*c == '"')
            csv_put(line, "\"");
        tt__bytes_put(line, c, 1);
    }
    csv_put(line, "\"");
}

void tt__csv_encode_header(tt__bytes *line) {
    line->size = 0;
    line->failed = false;
    csv_put(line, "step,wall_time,tag,value\r\n");
}

void tt__csv_encode_scalar(tt__bytes *line, double wall_time, int64_t step, const char *tag, double value) {
    char text[32];
    line->size = 0;
    line->failed = false;
    snprintf(text, sizeof text, "%" PRId64 ",", step);
    csv_put(line, text);
    csv_put_number(line, "%.6f", wall_time);
    csv_put(line, ",");
    csv_put_cell(line, tag);
    csv_put(line, ",");
    csv_put_number(line, shortest_format(value), value);
    csv_put(line, "\r\n");
}
