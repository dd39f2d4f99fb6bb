/* How `tutti top` shows a view. */
#ifndef TT_CLI_TOP_H
#define TT_CLI_TOP_H

#include "cli/look/job_view.h"

#include <stdio.h>

/* How text is laid out. */
typedef struct tt__top_page {
    int columns; /* lines are wrapped to so many; 0: they are not */
    int rows;    /* of a screen, on which the whole should fit; 0: any number */
    bool colours;
} tt__top_page;

/* Write the rank's present call, or its last: "in all_reduce ..., for 3 s". Returns `text`. */
const char *tt__top_doing_text(const tt__view_rank *rank, char *text, size_t size);

/* Write a view as lines of text, or as one line of JSON. */
tt_status tt__top_text(const tt__view *view, const tt__top_page *page, FILE *out);
tt_status tt__top_json(const tt__view *view, FILE *out);

#endif
