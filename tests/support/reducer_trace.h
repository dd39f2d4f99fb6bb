/* A reducer's events, kept. */
#ifndef TESTS_SUPPORT_REDUCER_TRACE_H
#define TESTS_SUPPORT_REDUCER_TRACE_H

#include "support/ranks.h"

#include <tutti/reducer.h>

typedef struct reducer_trace {
    tt_reducer_event events[64];
    size_t count;
} reducer_trace;

/* For tt_reducer_set_trace(); `user` is a reducer_trace. */
static inline void reducer_trace_note(const tt_reducer_event *event, void *user) {
    reducer_trace *t = user;
    CHECK(t->count < sizeof t->events / sizeof *t->events);
    t->events[t->count++] = *event;
}

#endif
