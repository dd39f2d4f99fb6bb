/* SIGTERM and SIGUSR1 as a wish to stop, on which ranks agree. */
#include "elastic/elastic.h"

#include <stddef.h>

static volatile sig_atomic_t wished;

static void note_wish(int sig) {
    if (!wished)
        wished = sig;
}

void tt__stop_wish_begin(tt__stop_wish *wish) {
    struct sigaction note = {.sa_handler = note_wish, .sa_flags = SA_RESTART};
    sigemptyset(&note.sa_mask);
    wished = 0;
    sigaction(SIGTERM, &note, &wish->term);
    sigaction(SIGUSR1, &note, &wish->usr1);
    wish->watching = true;
}

void tt__stop_wish_end(tt__stop_wish *wish) {
    if (!wish->watching)
        return;
    sigaction(SIGTERM, &wish->term, NULL);
    sigaction(SIGUSR1, &wish->usr1, NULL);
    wish->watching = false;
}

int tt__stop_wish_signal(const tt__stop_wish *wish) { return wish->watching ? (int)wished : 0; }
