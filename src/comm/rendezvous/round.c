#include "comm/rendezvous/round.h"

#include "base/error.h"
#include "base/process/fork.h"
#include "base/text/parse.h"

#include <pthread.h>
#include <stdlib.h>

static pthread_mutex_t seat_lock = PTHREAD_MUTEX_INITIALIZER;
static tt__seat own_seat; /* world 0: none */

static tt_status read_round_number(int64_t *number) {
    const char *text = getenv("TT_ROUND");
    *number = 0;
    return text && *text ? tt__parse_i64("TT_ROUND", text, 0, INT32_MAX, number) : TT_OK;
}

tt_status tt__round_check(void) {
    int64_t number;
    return read_round_number(&number);
}

/* The launcher gave the seat to the parent, not to a process that tt_spawn() made of it. */
static void round_leave_seat(void) {
    pthread_mutex_init(&seat_lock, NULL);
    own_seat = (tt__seat){0};
}

static void round_watch_spawned(void) { tt__on_new_process(round_leave_seat); }

int tt__round_number(void) {
    tt__seat seat;
    int64_t number;
    if (tt__round_seat(&seat))
        return seat.round;
    tt__saved_error saved;
    tt__error_save(&saved);
    if (read_round_number(&number))
        number = 0; /* tt__round_check() has said so */
    tt__error_restore(&saved);
    return (int)number;
}

void tt__round_move(const tt__seat *seat) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, round_watch_spawned);
    pthread_mutex_lock(&seat_lock);
    own_seat = *seat;
    pthread_mutex_unlock(&seat_lock);
}

bool tt__round_seat(tt__seat *seat) {
    pthread_mutex_lock(&seat_lock);
    *seat = own_seat;
    pthread_mutex_unlock(&seat_lock);
    return seat->world > 0;
}
