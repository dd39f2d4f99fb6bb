/* SIGTERM and SIGUSR1 as a wish to stop, which the loop looks at. */
#ifndef TT_TRAINER_STOP_SIGNALS_H
#define TT_TRAINER_STOP_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

/* What the program did with them before. Zeroed: not watching. */
typedef struct tt__stop_signals {
    bool watching;
    struct sigaction term, usr1;
} tt__stop_signals;

/* Note these signals instead of what the program did with them, until tt__stop_signals_end(). */
void tt__stop_signals_begin(tt__stop_signals *signals);
void tt__stop_signals_end(tt__stop_signals *signals);

/* Has one come since? */
bool tt__stop_signals_came(const tt__stop_signals *signals);

#endif
