/* SIGTERM and SIGUSR1 as a wish to stop, on which ranks agree. */
#ifndef TT_ELASTIC_STOP_WISH_H
#define TT_ELASTIC_STOP_WISH_H

#include <signal.h>
#include <stdbool.h>

/* What the program did with them before. Zeroed: not watching. */
typedef struct tt__stop_wish {
    bool watching;
    struct sigaction term, usr1;
} tt__stop_wish;

/* Note these signals, instead of what the program did with them, until tt__stop_wish_end(). */
void tt__stop_wish_begin(tt__stop_wish *wish);
void tt__stop_wish_end(tt__stop_wish *wish);

/* Return the one that came first since; 0: none. */
int tt__stop_wish_signal(const tt__stop_wish *wish);

#endif
