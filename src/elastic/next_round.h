/* The next round of the job, as this process's launcher tells it (net/job/recovery_words.h). */
#ifndef TT_ELASTIC_NEXT_ROUND_H
#define TT_ELASTIC_NEXT_ROUND_H

#include "comm/rendezvous/launcher_notes.h"
#include "elastic/stop_wish.h"
#include "net/job/job_socket.h"

/* What it tells. */
typedef struct tt__round_news {
    tt__seat seat;    /* rank -1: this process is not in it */
    char reason[400]; /* one line */
} tt__round_news;

/* Read it. TT_ERR_PROTOCOL: it makes no sense. */
tt_status tt__round_read(tt__round_news *news, const tt__job_round *told);

/* Wait until the launcher tells, over `socket`, of a round after `round`. TT_ERR_TIMEOUT it doesn't; TT_ERR_NET it has
 * ended; TT_ERR_ABORTED `stop` came; the thread's last error with the launcher's words: it says that none follows. */
tt_status tt__round_await(int socket, tt__round_news *news, int round, int64_t wait_ms, const tt__stop_wish *stop);

/* Has the launcher told since the last call that it wants a round above `round`? Does not wait. */
bool tt__round_wanted(int socket, int round);

#endif
