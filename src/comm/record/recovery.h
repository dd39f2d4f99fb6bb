/* This process's words about recovery (net/job/job_socket.h): kept once, and shown in all recorders that it has at
 * the moment, whichever of them its launcher looks at. */
#ifndef TT_COMM_RECORD_RECOVERY_H
#define TT_COMM_RECORD_RECOVERY_H

#include "comm/record/recorder.h"

/* Show the words here, too, until tt__recovery_detach(). */
void tt__recovery_attach(tt__recorder *recorder);
void tt__recovery_detach(tt__recorder *recorder);

/* Say all four. Any thread. */
void tt__recovery_say(tt__recovery words);

/* Return what was said last. */
tt__recovery tt__recovery_said(void);

/* Does this process survive a failure of others? Then such a failure is no news for its launcher. */
bool tt__recovery_is_on(void);

#endif
