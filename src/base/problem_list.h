/* Several things that are wrong, told in one error. */
#ifndef TT_BASE_PROBLEM_LIST_H
#define TT_BASE_PROBLEM_LIST_H

#include "base/export.h"

enum { TT__PROBLEM_TEXT_SIZE = 1600 };

/* Zeroed = none. */
typedef struct tt__problem_list {
    tt_status first;     /* status of the first */
    size_t count, shown; /* how many there are, and how many the text has room for */
    size_t used;
    char text[TT__PROBLEM_TEXT_SIZE];
} tt__problem_list;

/* Add one. */
TT__EXPORT void tt__problem_add(tt__problem_list *list, tt_status status, const char *format, ...) TT_PRINTF(3, 4);

/* Record "WHO: first; second; and 3 more" and return the first one's status; TT_OK if there is none. */
TT__EXPORT tt_status tt__problems_report(const tt__problem_list *list, const char *who);

#endif
