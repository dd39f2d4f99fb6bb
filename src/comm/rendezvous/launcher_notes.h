/* What our launcher tells the ranks: how ranks ended, in its store; and which round of the job this process is in,
 * under which rank. A job begins with round 0. If ranks are replaced, or come and go, a later round follows, and
 * processes that go on are told their new rank instead of reading it in their environment again. */
#ifndef TT_COMM_RENDEZVOUS_LAUNCHER_NOTES_H
#define TT_COMM_RENDEZVOUS_LAUNCHER_NOTES_H

#include "comm/rendezvous/rendezvous.h"
#include "net/secure/secret.h"

#include <tutti/base.h>

/* Is there a launcher of ours that knows how the ranks of this rendezvous end, and notes it? */
bool tt__launcher_notes_ends(const tt__rendezvous *rendezvous);

/* Find the place where that launcher serves the store with its notes; false: unknown. */
bool tt__launcher_notes_place(tt__agent_store *place);

/* Read the launcher's note of how rank r ended, "signal 9 (SIGKILL)"; "": there is none, or the launcher's store is
 * another one and can't be asked. Fails if the store of the rendezvous, which may be interrupted, does. */
tt_status tt__launcher_note(const tt__rendezvous *rendezvous, const tt__secret *secret, int r, char *text, size_t size);

typedef struct tt__seat {
    int round, rank, world;
    char host[256]; /* of the launcher's store */
    int port;
} tt__seat;

/* The round's number: TT_ROUND's, until tt__round_move(). Nonsense there counts as 0. */
int tt__round_number(void);

/* Fail if TT_ROUND, which our launcher sets, is no round's number. */
tt_status tt__round_check(void);

/* Go on as another rank: env:// gives this seat from now on. */
void tt__round_move(const tt__seat *seat);

/* Copy the seat; false: this process never moved, and its environment says who it is. */
bool tt__round_seat(tt__seat *seat);

#endif
