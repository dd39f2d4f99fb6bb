/* Scopes: a stack in each thread. A scope knows its tensors (a list), when it began, and its first error. */
#include "base/error.h"
#include "tensor/pool.h"
#include "tensor/tensor.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct first_error {
    tt_status status; /* TT_OK: none */
    char text[TT__ERROR_TEXT_SIZE];
} first_error;

typedef struct scope {
    struct scope *outer;
    int id;
    uint64_t began;
    tt_tensor *newest; /* of its tensors, linked by prev */
    first_error error;
} scope;

static _Thread_local struct {
    scope *inner; /* the open one, NULL: none */
    int last_id;
    uint64_t clock;
    first_error error; /* of expressions outside any scope */
} mine;

static void (*_Atomic ending)(uint64_t began);

void tt__scope_set_ending(void (*fn)(uint64_t began)) { atomic_store_explicit(&ending, fn, memory_order_relaxed); }

uint64_t tt__scope_clock(void) { return ++mine.clock; }

int tt_scope_begin(void) {
    scope *s = tt__pool_alloc(sizeof *s);
    if (!s) {
        tt__fail(TT_ERR_MEMORY, "tt_scope_begin: no memory for a scope");
        return 0;
    }
    mine.last_id = mine.last_id == INT_MAX ? 1 : mine.last_id + 1;
    s->outer = mine.inner;
    s->id = mine.last_id;
    s->began = tt__scope_clock();
    s->newest = NULL;
    s->error.status = TT_OK;
    mine.inner = s;
    return s->id;
}

/* Newest first, so that no tensor goes before the records that use it. */
static void end_innermost(void) {
    scope *s = mine.inner;
    void (*fn)(uint64_t) = atomic_load_explicit(&ending, memory_order_relaxed);
    if (fn)
        fn(s->began);
    while (s->newest) {
        tt_tensor *x = s->newest;
        tt__scope_remove(x);
        tt__tensor_unref(x);
    }
    mine.inner = s->outer;
    if (s->error.status && s->outer && !s->outer->error.status)
        s->outer->error = s->error;
    tt__pool_free(s);
}

static bool is_open(int id) {
    for (const scope *s = mine.inner; s; s = s->outer)
        if (s->id == id)
            return true;
    return false;
}

void tt_scope_end(int id) {
    while (is_open(id))
        end_innermost();
}

void tt_scope_cleanup(const int *id) { tt_scope_end(*id); }

void tt__scope_add(tt_tensor *x) {
    scope *s = mine.inner;
    x->owner = s ? TT__OWNER_SCOPE : TT__OWNER_CALLER;
    if (!s)
        return;
    x->prev = s->newest;
    if (s->newest)
        s->newest->next = x;
    s->newest = x;
}

void tt__scope_remove(tt_tensor *x) {
    if (x->next) {
        x->next->prev = x->prev;
    } else { /* the newest of one of the open scopes */
        for (scope *s = mine.inner; s; s = s->outer)
            if (s->newest == x)
                s->newest = x->prev;
    }
    if (x->prev)
        x->prev->next = x->next;
    x->prev = x->next = NULL;
    x->owner = TT__OWNER_CALLER;
}

void *tt__tensor_fail(tt_status status, const char *format, ...) {
    char text[TT__ERROR_TEXT_SIZE];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    first_error *first = mine.inner ? &mine.inner->error : &mine.error;
    if (!first->status) {
        first->status = status;
        memcpy(first->text, text, sizeof text);
    }
    return tt__fail_null(status, "%s", text);
}

tt_status tt__tensor_first_error(const char *who) {
    first_error *first = &mine.error;
    for (scope *s = mine.inner; s; s = s->outer) {
        if (s->error.status) {
            first = &s->error;
            break;
        }
    }
    if (first->status) {
        tt_status status = tt__fail(first->status, "%s", first->text);
        first->status = TT_OK;
        return status;
    }
    return tt_last_status() ? tt_last_status() : tt__fail(TT_ERR_INVALID, "%s: the tensor is NULL", who);
}
