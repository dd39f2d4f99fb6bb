/* Autocast inside: operators ask here for the types that they compute in. Which operator wants what is one table, in
 * autocast.c. */
#ifndef TT_AUTOGRAD_AUTOCAST_H
#define TT_AUTOGRAD_AUTOCAST_H

#include <tutti/autograd.h>

/* Cast the inputs of operator `who` in place, as the table says, where autocast is on in this thread; casts are
 * recorded. at: (n) where the operator keeps its inputs; NULLs and what is no float stay. False, and an error: no
 * memory, or a type that autocast does not know. */
bool tt__autocast(const char *who, int n, tt_tensor **const *at);
#define TT__AUTOCAST(who, ...) \
    tt__autocast((who), (int)(sizeof((tt_tensor **[]){__VA_ARGS__}) / sizeof(void *)), (tt_tensor * *[]){__VA_ARGS__})

/* The same for a list of any length: returns x, or a list in its place; NULL and an error. */
tt_tensor *const *tt__autocast_list(const char *who, int64_t n, tt_tensor *const *x);
void tt__autocast_list_done(tt_tensor *const *list, tt_tensor *const *x);

/* What autocast does in this thread now, for calls that are repeated later: tt_autocast_end(tt__autocast_again(state))
 * around them. */
int tt__autocast_state(void);
int tt__autocast_again(int state);

#endif
