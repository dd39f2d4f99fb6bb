/* What must not be inherited by a forked child: some descriptors, and what layers have noted of the parent. */
#ifndef TT_BASE_FORK_H
#define TT_BASE_FORK_H

#include "base/export.h"

/* Mark `fd`, a socket: children forked from now on don't inherit it. The peer of a connection learns of its end when no
 * process has the socket any more, so a child that kept it and outlived its parent would hide the parent's end. In the
 * child the number stands for an unused eventfd, so that the child's copy of the owner can close it as usual.
 * Descriptors from 65536 on are not marked. */
void tt__fork_fd_drop(int fd);

/* Remove the mark, before `fd` is closed. `fd` may be negative or unmarked. */
void tt__fork_fd_forget(int fd);

/* Have `begin` called by tt__new_process_begins(), in children forked from now on: what a layer has noted of the
 * parent's threads is wrong there. At most 8 functions in a process, each registered once. */
TT__EXPORT void tt__on_new_process(void (*begin)(void));

/* Call the registered functions. For a child of tt_spawn(), whose program runs in a new thread: before that starts. */
void tt__new_process_begins(void);

#endif
