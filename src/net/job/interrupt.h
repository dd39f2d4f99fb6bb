/* What ends the waits of a thread for the net early: ranks that join, and wait for a store or a peer that will never
 * come, hear from their launcher that the job goes on without it. */
#ifndef TT_NET_INTERRUPT_H
#define TT_NET_INTERRUPT_H

#include <tutti/base.h>

/* From now on this thread's waits for connections, for bytes of them, and for the peers of the library's own transports
 * fail with TT_ERR_ABORTED and the text `why` as soon as `fd` has something to read, or its other side has ended. Both
 * are borrowed; -1: nothing interrupts them. */
void tt__net_interrupt_by(int fd, const char *why);

/* Nothing interrupts this thread's waits, or what did again: for what others have to be told when one was. May be
 * nested. */
void tt__net_interrupt_hold(bool hold);

/* For poll(), which passes over -1. */
int tt__net_interrupt_fd(void);

/* Fail if there is something to read. Never blocks. */
tt_status tt__net_interrupted(void);

#endif
