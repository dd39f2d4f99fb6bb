/* Pseudo-terminals: what a worker's stderr is where the launcher's is a terminal, so that programs show there what they
 * show on terminals. They only carry bytes and the window's size: no signals, no input, nothing is translated. */
#ifndef TT_LAUNCH_LOCAL_PTY_H
#define TT_LAUNCH_LOCAL_PTY_H

#include <stdbool.h>

/* Open one with the size of terminal `like`: ends[0], non-blocking, reads what is written to ends[1]. Both are
 * close-on-exec. False: `like` is no terminal, or the system has none to give. */
bool tt__pty_open(int like, int ends[2]);

/* Give the terminal behind reading end `reader` the size of `like`. False: it has that already. */
bool tt__pty_resize(int reader, int like);

#endif
