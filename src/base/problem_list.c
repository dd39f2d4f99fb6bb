#include "base/problem_list.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/error.h"
#include "base/text/format.h"

void tt__problem_add(tt__problem_list *list, tt_status status, const char *format, ...) {
    size_t room = sizeof list->text - list->used;
    va_list args;
    va_start(args, format);
    int n = snprintf(list->text + list->used, room, "%s", list->count ? "; " : "");
    n += tt__vformat(list->text + list->used + n, room - (size_t)n, format, args);
    va_end(args);
    list->first = list->count++ ? list->first : status;
    if ((size_t)n + sizeof "; " < room) { /* room for the next one's separator stays */
        list->used += (size_t)n;
        list->shown++;
    }
    list->text[list->used] = 0;
}

tt_status tt__problems_report(const tt__problem_list *list, const char *who) {
    if (list->count == 0)
        return TT_OK;
    if (list->shown < list->count)
        return tt__fail(list->first, "%s: %s; and %zu more", who, list->text, list->count - list->shown);
    return tt__fail(list->first, "%s: %s", who, list->text);
}
