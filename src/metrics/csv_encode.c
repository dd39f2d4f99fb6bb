/* Writing scalars as CSV. */
#include "base/text/format.h"
#include "metrics/scalar_csv.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void csv_put(tt__bytes *line, const char *text) { tt__bytes_put(line, text, strlen(text)); }

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
    char text[512]; /* a double as %f may have 317 characters */
    line->size = 0;
    line->failed = false;
    snprintf(text, sizeof text, "%" PRId64 ",", step);
    csv_put(line, text);
    tt__format(text, sizeof text, "%.6f", wall_time);
    csv_put(line, text);
    csv_put(line, ",");
    csv_put_cell(line, tag);
    csv_put(line, ",");
    tt__format_shortest(text, sizeof text, 9, value);
    csv_put(line, text);
    csv_put(line, "\r\n");
}
