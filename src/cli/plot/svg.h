/* Pictures as SVG: shapes are appended to a text. Lengths are in units of which a letter is about 12 high; y grows
 * downwards. A text that memory ran out for says so when it is written. */
#ifndef TT_CLI_SVG_H
#define TT_CLI_SVG_H

#include "base/bytes.h"

#include <tutti/base.h>

typedef struct tt__rgb {
    unsigned char r, g, b;
} tt__rgb;

typedef enum tt__align { TT__ALIGN_LEFT, TT__ALIGN_CENTRE, TT__ALIGN_RIGHT } tt__align;

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
