/* Which round of its job this process is in, and who it is there. A job begins with round 0; where ranks are replaced,
 * or come and go, a later round follows, and processes that go on are told their new rank instead of reading it in
 * their environment again. */
#ifndef TT_COMM_RENDEZVOUS_ROUND_H
#define TT_COMM_RENDEZVOUS_ROUND_H

#include <tutti/base.h>

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
