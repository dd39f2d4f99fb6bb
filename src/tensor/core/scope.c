/* Each thread has a stack of the scopes it is in. The outer few block scopes lie in the thread's own memory, so that
 * opening one can't fail. */
#include "tensor/core/scope.h"

#include "base/error.h"
#include "base/quarantine.h"
#include "base/text/format.h"
#include "tensor/core/pool.h"

#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { SCOPES_AT_HAND = 8 };

/* The first error of an expression; TT_OK: none. */
typedef struct first_error {
    tt_status status;
    char *text; /* a block of the pool; NULL where there was no memory for it */
} first_error;

struct tt_scope {
    tt_scope *outer;              /* the next one in that thread's stack */
    int id;                       /* of a block scope; 0: a scope object */
    _Atomic(const void *) thread; /* the one that is in this scope; NULL: none */
    atomic_flag lock;             /* of the lists */
    tt__entry *newest[TT__ENTRY_KINDS];
    first_error error;
};

static _Thread_local struct {
    tt_scope *inner; /* the open one, NULL: none */
    int blocks;
    int last_id;
    struct {
        tt_status status;   /* TT_OK: none */
        unsigned clearings; /* tt__error_clearings() when it came */
        char text[512];
    } outside; /* the first error outside of scopes */
    tt_scope at_hand[SCOPES_AT_HAND];
} mine;

/* ---- lists: short critical sections, since another thread may take something out ---- */

static void scope_lock(tt_scope *s) {
    while (atomic_flag_test_and_set_explicit(&s->lock, memory_order_acquire))
        ;
}

static void scope_unlock(tt_scope *s) { atomic_flag_clear_explicit(&s->lock, memory_order_release); }

bool tt__scope_add(tt__entry *entry, tt__entry_kind kind, void (*ended)(tt__entry *)) {
    tt_scope *s = mine.inner;
    entry->scope = s;
    entry->ended = ended;
    entry->newer = entry->older = NULL;
    if (!s)
        return false;
    scope_lock(s);
    entry->older = s->newest[kind];
    if (entry->older)
        entry->older->newer = entry;
    s->newest[kind] = entry;
    scope_unlock(s);
    return true;
}

static void unlink_entry(tt_scope *s, tt__entry *entry, tt__entry_kind kind) {
    if (entry->newer)
        entry->newer->older = entry->older;
    else
        s->newest[kind] = entry->older;
    if (entry->older)
        entry->older->newer = entry->newer;
    entry->older = entry->newer = NULL;
    entry->scope = NULL;
}

void tt__scope_remove(tt__entry *entry, tt__entry_kind kind) {
    tt_scope *s = entry->scope;
    if (!s)
        return;
    scope_lock(s);
    unlink_entry(s, entry, kind);
    scope_unlock(s);
}

bool tt__scope_is_innermost(const tt__entry *entry) { return entry->scope && entry->scope == mine.inner; }

static void end_entries(tt_scope *s, tt__entry_kind kind) {
    for (;;) {
        scope_lock(s);
        tt__entry *entry = s->newest[kind];
        if (entry)
            unlink_entry(s, entry, kind);
        scope_unlock(s);
        if (!entry)
            return;
        entry->ended(entry);
    }
}

/* ---- the stack ---- */

static void scope_enter(tt_scope *s) {
    s->outer = mine.inner;
    mine.inner = s;
    atomic_store_explicit(&s->thread, &mine, memory_order_relaxed);
}

/* Take `s` out of this thread's stack, wherever it stands there. */
static void scope_leave(tt_scope *s) {
    for (tt_scope **at = &mine.inner; *at; at = &(*at)->outer)
        if (*at == s) {
            *at = s->outer;
            break;
        }
    s->outer = NULL;
    atomic_store_explicit(&s->thread, NULL, memory_order_relaxed);
}

/* Pass an error that was not fetched to the enclosing scope, unless that has one: the NULL that came of it may have
 * been used there. */
static void pass_error_on(tt_scope *s, tt_scope *outer) {
    if (s->error.status && outer && !outer->error.status)
        outer->error = s->error;
    else
        tt__pool_free(s->error.text);
    s->error = (first_error){TT_OK, NULL};
}

static void scope_empty(tt_scope *s) {
    end_entries(s, TT__ENTRY_RECORD);
    end_entries(s, TT__ENTRY_TENSOR);
}

/* ---- block scopes ---- */

static void scope_init(tt_scope *s, int id) {
    memset(s, 0, sizeof *s);
    atomic_flag_clear(&s->lock);
    s->id = id;
}

int tt_scope_begin(void) {
    tt_scope *s = mine.blocks < SCOPES_AT_HAND ? &mine.at_hand[mine.blocks] : tt__pool_alloc(sizeof *s);
    if (!s) {
        tt__fail(TT_ERR_MEMORY, "tt_scope_begin: no memory for a scope");
        return 0;
    }
    mine.last_id = mine.last_id == INT_MAX ? 1 : mine.last_id + 1;
    scope_init(s, mine.last_id);
    scope_enter(s);
    mine.blocks++;
    return s->id;
}

static tt_scope *block_with(int id) {
    tt_scope *s = mine.inner;
    while (s && s->id != id)
        s = s->outer;
    return id ? s : NULL;
}

static tt_scope *innermost_block(void) {
    tt_scope *s = mine.inner;
    while (s && !s->id)
        s = s->outer;
    return s;
}

/* End a block scope. Its tensors end while it is still open, as functions that end them may allocate or fail. */
static void end_block(tt_scope *s) {
    scope_empty(s);
    pass_error_on(s, s->outer);
    scope_leave(s);
    if (--mine.blocks >= SCOPES_AT_HAND)
        tt__pool_free(s);
}

/* End the scope. Scope objects that were entered inside it are left, not ended. */
void tt_scope_end(int id) {
    tt_scope *s = block_with(id);
    if (!s)
        return;
    while (mine.inner != s) {
        if (mine.inner->id)
            end_block(mine.inner);
        else
            scope_leave(mine.inner);
    }
    end_block(s);
}

void tt_scope_cleanup(const int *id) { tt_scope_end(id ? *id : 0); }

/* ---- scope objects ---- */

tt_scope *tt_scope_new(void) {
    tt_scope *s = tt__pool_alloc(sizeof *s);
    if (!s)
        return tt__fail_null(TT_ERR_MEMORY, "tt_scope_new: no memory for a scope");
    scope_init(s, 0);
    return s;
}

tt_status tt_scope_enter(tt_scope *scope) {
    if (!scope)
        return tt__fail_argument("tt_scope_enter: the scope is NULL");
    if (atomic_load_explicit(&scope->thread, memory_order_relaxed))
        return tt__fail(TT_ERR_STATE, "tt_scope_enter: a thread is in this scope already; tt_scope_leave() it first");
    scope_enter(scope);
    return TT_OK;
}

tt_status tt_scope_leave(tt_scope *scope) {
    if (!scope || atomic_load_explicit(&scope->thread, memory_order_relaxed) != &mine)
        return tt__fail(TT_ERR_STATE, "tt_scope_leave: this thread is not in the scope; tt_scope_enter() comes before");
    scope_leave(scope);
    return TT_OK;
}

void tt_scope_free(tt_scope *scope) {
    if (!scope || tt__freed_before("tt_scope_free", scope))
        return;
    const void *thread = atomic_load_explicit(&scope->thread, memory_order_relaxed);
    if (thread && thread != &mine) {
        tt__fail(TT_ERR_STATE, "tt_scope_free: another thread is in the scope, which must leave it first");
        return;
    }
    if (thread)
        scope_leave(scope);
    scope_empty(scope);
    pass_error_on(scope, innermost_block());
    tt__quarantine(scope, sizeof *scope, tt__pool_free);
}

/* ---- errors ---- */

static void keep_in_scope(first_error *e, tt_status status, const char *text) {
    if (e->status)
        return;
    size_t size = strlen(text) + 1;
    e->status = status;
    e->text = tt__pool_alloc(size);
    if (e->text)
        memcpy(e->text, text, size);
}

static bool has_error_outside(void) { return mine.outside.status && mine.outside.clearings == tt__error_clearings(); }

/* Outside of scopes, keep the first error until it is fetched or the program calls tt_clear_error(): nothing else ends
 * an expression there. */
static void keep_outside(tt_status status, const char *text) {
    if (has_error_outside())
        return;
    mine.outside.status = status;
    mine.outside.clearings = tt__error_clearings();
    size_t length = strnlen(text, sizeof mine.outside.text - 1);
    memcpy(mine.outside.text, text, length);
    mine.outside.text[length] = '\0';
}

void *tt__tensor_fail(tt_status status, const char *format, ...) {
    char text[TT__ERROR_TEXT_SIZE];
    va_list args;
    va_start(args, format);
    tt__vformat(text, sizeof text, format, args);
    va_end(args);
    if (mine.inner)
        keep_in_scope(&mine.inner->error, status, text);
    else
        keep_outside(status, text);
    return tt__fail_null(status, "%s", text);
}

static first_error *error_of_scopes(void) {
    for (tt_scope *s = mine.inner; s; s = s->outer)
        if (s->error.status)
            return &s->error;
    return NULL;
}

static tt_status take_error_outside(void) {
    tt_status status = tt__fail(mine.outside.status, "%s", mine.outside.text);
    mine.outside.status = TT_OK;
    return status;
}

tt_status tt__tensor_first_error(const char *who) {
    first_error *e = error_of_scopes();
    if (!e && !mine.inner && has_error_outside())
        return take_error_outside();
    if (!e)
        return tt__fail_argument("%s: the tensor is NULL", who);
    tt_status status = tt__fail(e->status, "%s", e->text ? e->text : tt_status_text(e->status));
    tt__pool_free(e->text);
    *e = (first_error){TT_OK, NULL};
    return status;
}

void tt__tensor_forget_error(void) { mine.outside.status = TT_OK; }
