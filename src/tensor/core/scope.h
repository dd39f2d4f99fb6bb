/* Scopes: tensors that are freed together, and the first error of an expression.
 *
 * A scope holds entries: tensors, and records of the tape (autograd). It only knows how to end them. Block scopes
 * (tt_scope_begin) nest in a thread; scope objects (tt_scope_new) are entered and left in any order, by one thread at a
 * time. An entry goes to the innermost scope that is open. */
#ifndef TT_TENSOR_SCOPE_H
#define TT_TENSOR_SCOPE_H

#include <tutti/tensor.h>

/* A scope that ends frees its records first, since they refer to tensors; of each kind the newest first. */
typedef enum tt__entry_kind { TT__ENTRY_RECORD, TT__ENTRY_TENSOR, TT__ENTRY_KINDS } tt__entry_kind;

/* The first member of each struct that a scope can hold. */
typedef struct tt__entry {
    struct tt__entry *older, *newer;
    tt_scope *scope;                       /* the scope that holds this entry, or NULL */
    void (*ended)(struct tt__entry *self); /* called once, after the ending scope has let go of the entry */
} tt__entry;

/* Put the entry into the open scope of the thread; false: none is open. */
bool tt__scope_add(tt__entry *entry, tt__entry_kind kind, void (*ended)(tt__entry *));

/* Take the entry out of its scope, if it is in one. From any thread, while the scope lives. */
void tt__scope_remove(tt__entry *entry, tt__entry_kind kind);

/* Is the entry in the innermost scope of this thread? */
bool tt__scope_is_innermost(const tt__entry *entry);

/* Record an error as tt__fail_null() does, and as the first one of the open scope (or, without one, of the thread) if
 * there is none yet. Returns NULL. */
void *tt__tensor_fail(tt_status status, const char *format, ...) TT_PRINTF(2, 3);

/* Fetch and clear the first error, of the innermost scope that has one or else of the thread; it becomes the thread's
 * last error. Without one: the thread's last error if there is one, else TT_ERR_INVALID "`who`: the tensor is NULL".
 * Never TT_OK. */
tt_status tt__tensor_first_error(const char *who);

/* Forget the first error outside of scopes, because a later expression succeeded. */
void tt__tensor_forget_error(void);

#endif
