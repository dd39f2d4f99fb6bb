/* What the launcher of a job of ours notes in its store: how ranks ended. */
#ifndef TT_COMM_RENDEZVOUS_LAUNCHER_NOTES_H
#define TT_COMM_RENDEZVOUS_LAUNCHER_NOTES_H

#include "comm/rendezvous/rendezvous.h"
#include "net/secure/secret.h"

#include <tutti/base.h>

/* Is there a launcher of ours that knows how the ranks of this rendezvous end, and notes it? */
bool tt__launcher_notes_ends(const tt__rendezvous *rendezvous);

/* Where that launcher serves the store with its notes; false: nothing says it. */
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

/* Fail if TT_ROUND, which our launcher sets, is no such number. */
tt_status tt__round_check(void);

/* Go on as another rank: env:// gives this seat from now on. */
void tt__round_move(const tt__seat *seat);

/* Copy the seat; false: this process never moved, and its environment says who it is. */
bool tt__round_seat(tt__seat *seat);

#endif
