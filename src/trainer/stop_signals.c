#include "trainer/stop_signals.h"

#include <stddef.h>

static volatile sig_atomic_t came;

static void note_signal(int sig) {
    (void)sig;
    came = 1;
}

void tt__stop_signals_begin(tt__stop_signals *signals) {
    struct sigaction note = {.sa_handler = note_signal, .sa_flags = SA_RESTART};
    sigemptyset(&note.sa_mask);
    came = 0;
    sigaction(SIGTERM, &note, &signals->term);
    sigaction(SIGUSR1, &note, &signals->usr1);
    signals->watching = true;
}

void tt__stop_signals_end(tt__stop_signals *signals) {
    if (!signals->watching)
        return;
    sigaction(SIGTERM, &signals->term, NULL);
    sigaction(SIGUSR1, &signals->usr1, NULL);
    signals->watching = false;
}

bool tt__stop_signals_came(const tt__stop_signals *signals) { return signals->watching && came; }
