/* What the opcodes of the pickle machine, and the functions that they call, stand on: its errors and its values. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/text/format.h"
#include "checkpoint/pickle.h"

tt_status tt__pickle_fail(const tt__pickle *p, tt_status status, const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    tt__vformat(text, sizeof text, format, args);
    va_end(args);
    return tt__fail(status, "%s: data.pkl, before byte %zu: %s", p->name, (size_t)(p->at - p->begin), text);
}

tt_status tt__pickle_values_add(tt__pickle_values *values, tt_value *v) {
    if (values->count == values->room) {
        size_t room = values->room ? 2 * values->room : 64;
        tt_value **item = realloc(values->item, room * sizeof *item);
        if (!item)
            return tt__fail(TT_ERR_MEMORY, "no memory for %zu values of a pickle", room);
        values->item = item;
        values->room = room;
    }
    values->item[values->count++] = v;
    return TT_OK;
}

tt_value *tt__pickle_new(tt__pickle *p, int type) {
    tt_value *v = tt__value_new(type);
    if (!v || !tt__pickle_values_add(&p->objects, v))
        return v;
    tt__value_release(v);
    return NULL;
}

tt_status tt__pickle_push(tt__pickle *p, tt_value *v) {
    return v ? tt__pickle_values_add(&p->stack, v) : tt_last_status();
}
