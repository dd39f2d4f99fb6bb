/* Pictures as SVG, appended to a text shape by shape. */
#include "cli/plot/plot.h"

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/text/format.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const double CAPITAL = 0.72; /* the height of capitals in parts of a font's size */

static void svg_put(tt__bytes *svg, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Short pieces: at most 511 bytes. */
static void svg_put(tt__bytes *svg, const char *format, ...) {
    char piece[512];
    va_list values;
    va_start(values, format);
    int n = tt__vformat(piece, sizeof piece, format, values);
    va_end(values);
    tt__bytes_put(svg, piece, n < (int)sizeof piece ? (size_t)n : sizeof piece - 1);
}

void tt__svg_line(tt__bytes *svg, const double *x, const double *y, size_t n, double width, tt__rgb colour,
                  double opacity) {
    svg_put(svg,
            "<polyline fill=\"none\" stroke=\"#%02x%02x%02x\" stroke-width=\"%.4g\" stroke-linejoin=\"round\" "
            "stroke-linecap=\"%s\"",
            colour.r, colour.g, colour.b, width, n == 2 && width <= 1 ? "butt" : "round");
    if (opacity < 1)
        svg_put(svg, " opacity=\"%.4g\"", opacity);
    svg_put(svg, " points=\"");
    for (size_t i = 0; i < n; i++)
        svg_put(svg, "%s%.2f,%.2f", i ? " " : "", x[i], y[i]);
    if (n == 1) /* a dot */
        svg_put(svg, " %.2f,%.2f", x[0], y[0]);
    svg_put(svg, "\"/>\n");
}

void tt__svg_text(tt__bytes *svg, double x, double y, double height, tt__align align, tt__rgb colour,
                  const char *text) {
    static const char *const anchors[] = {"start", "middle", "end"};
    svg_put(svg, "<text x=\"%.2f\" y=\"%.2f\" font-size=\"%.4g\" text-anchor=\"%s\" fill=\"#%02x%02x%02x\">", x, y,
            height / CAPITAL, anchors[align], colour.r, colour.g, colour.b);
    for (const char *c = text; *c; c++) {
        const char *entity = *c == '<' ? "&lt;" : *c == '>' ? "&gt;" : *c == '&' ? "&amp;" : NULL;
        bool control = (unsigned char)*c < ' ' || *c == 127;
        tt__bytes_put(svg, entity ? entity : control ? "?" : c, entity ? strlen(entity) : 1);
    }
    svg_put(svg, "</text>\n");
}

double tt__svg_text_width(const char *text, double height) {
    size_t letters = 0;
    for (const char *c = text; *c; c++)
        letters += ((unsigned char)*c & 0xc0) != 0x80; /* not a later byte of UTF-8 */
    return (double)letters * 0.6 * height / CAPITAL;
}

void tt__svg_box(tt__bytes *svg, double x, double y, double width, double height, tt__rgb colour, const char *title) {
    svg_put(svg,
            "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"#%02x%02x%02x\" stroke=\"#555\" "
            "stroke-width=\"0.4\"><title>%s</title></rect>\n",
            x, y, width, height, colour.r, colour.g, colour.b, title);
}

void tt__svg_begin(tt__bytes *svg, double width, double height) {
    svg_put(svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
            "font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\">\n",
            width, height, width, height);
    svg_put(svg, "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n");
}

tt_status tt__svg_write(tt__bytes *svg, const char *path) {
    tt__atomic_file file;
    svg_put(svg, "</svg>\n");
    if (svg->failed)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for the picture", path);
    TT__TRY(tt__atomic_open(&file, path));
    tt_status status = tt__atomic_write(&file, svg->data, svg->size);
    if (!status)
        return tt__atomic_commit(&file);
    tt__atomic_abort(&file);
    return status;
}
