/* Descriptors that no forked child may keep. A connection ends for its other end when nobody has its socket any more; a
 * child that inherited it, and outlives its parent, would keep the parent's peers from learning that it is gone. */
#ifndef TT_BASE_FORK_FDS_H
#define TT_BASE_FORK_FDS_H

/* Mark `fd`, a socket of this process: in children forked from now on its number stands for an eventfd that nobody
 * uses, so that the child's copies of what owns it can be ended as usual. Descriptors from 65536 on are not marked. */
void tt__fork_fd_drop(int fd);

/* Take the mark away; to be called before `fd` is closed. A negative or unmarked one is allowed. */
void tt__fork_fd_forget(int fd);

#endif
