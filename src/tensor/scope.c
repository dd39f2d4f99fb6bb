/* Scopes: a stack in each thread. A scope knows its tensors (a list), when it began, and its first error. The outer few lie in the thread's own
 * memory, so that opening one can't fail where it is not expected to. */
#include "base/error.h"
#include "tensor/pool.h"
#include "tensor/tensor.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { SCOPES_AT_HAND = 16 };

typedef struct scope {
    struct scope *outer;
    int id;
    uint64_t began;
    tt_tensor *newest; /* of its tensors, linked by prev */
    tt_status error;   /* the first one, TT_OK: none */
    char *error_text;  /* a block of the pool; NULL where there was no memory for it */
} scope;

static _Thread_local struct {
    scope *inner; /* the open one, NULL: none */
    int depth;
    int last_id;
    uint64_t clock;
    scope at_hand[SCOPES_AT_HAND];
} mine;

static void (*_Atomic ending)(uint64_t began);

void tt__scope_set_ending(void (*fn)(uint64_t began)) { atomic_store_explicit(&ending, fn, memory_order_relaxed); }

uint64_t tt__scope_clock(void) { return ++mine.clock; }

int tt_scope_begin(void) {
    scope *s = mine.depth < SCOPES_AT_HAND ? &mine.at_hand[mine.depth] : tt__pool_alloc(sizeof *s);
    if (!s) {
        tt__fail(TT_ERR_MEMORY, "tt_scope_begin: no memory for a scope");
        return 0;
    }
    mine.last_id = mine.last_id == INT_MAX ? 1 : mine.last_id + 1;
    *s = (scope){.outer = mine.inner, .id = mine.last_id, .began = tt__scope_clock()};
    mine.inner = s;
    mine.depth++;
    return s->id;
}

/* An error that nobody asked for goes to the scope outside, if that has none: its NULL may have gone there too. */
static void pass_error_on(scope *s) {
    if (s->error && s->outer && !s->outer->error) {
        s->outer->error = s->error;
        s->outer->error_text = s->error_text;
    } else {
        tt__pool_free(s->error_text);
    }
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
    pass_error_on(s);
    mine.inner = s->outer;
    if (--mine.depth >= SCOPES_AT_HAND)
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
    scope *s = mine.inner;
    if (s && !s->error) {
        s->error = status;
        s->error_text = tt__pool_alloc(sizeof text);
        if (s->error_text)
            memcpy(s->error_text, text, sizeof text);
    }
    return tt__fail_null(status, "%s", text);
}

static scope *scope_with_error(void) {
    scope *s = mine.inner;
    while (s && !s->error)
        s = s->outer;
    return s;
}

tt_status tt__tensor_first_error(const char *who) {
    scope *s = scope_with_error();
    if (!s)
        return tt_last_status() ? tt_last_status() : tt__fail(TT_ERR_INVALID, "%s: the tensor is NULL", who);
    tt_status status = tt__fail(s->error, "%s", s->error_text ? s->error_text : tt_status_text(s->error));
    tt__pool_free(s->error_text);
    s->error_text = NULL;
    s->error = TT_OK;
    return status;
}
