/* The next round of the job, as the launcher announces it in its store. */
#ifndef TT_RECOVERY_NEXT_ROUND_H
#define TT_RECOVERY_NEXT_ROUND_H

#include "comm/rendezvous/round.h"
#include "recovery/stop_wish.h"

#include <tutti/store.h>

/* The launcher's store. */
typedef struct tt__launcher_store {
    char host[256];
    int port; /* 0: no launcher serves one */
    tt_store *connection;
} tt__launcher_store;

void tt__launcher_disconnect(tt__launcher_store *launcher);

/* What a round's key says. */
typedef struct tt__round_news {
    tt__seat seat;    /* rank -1: this process is not in it */
    char reason[512]; /* one line */
} tt__round_news;

/* Read it, as the rank `rank` of a world of `world` in the round before. TT_ERR_PROTOCOL: it makes no sense. */
tt_status tt__round_parse(tt__round_news *news, const char *text, int round, int rank, int world);

/* Wait until the launcher announces round `round`. TT_ERR_TIMEOUT it doesn't; TT_ERR_ABORTED `stop` came. */
tt_status tt__round_await(tt__launcher_store *launcher, tt__round_news *news, int round, int rank, int world,
                          int64_t wait_ms, const tt__stop_wish *stop);

/* Does the launcher want a round above `round`? Never waits long; what goes wrong is left for the next time. */
bool tt__round_wanted(tt__launcher_store *launcher, int round);

#endif
