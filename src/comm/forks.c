#include "comm/forks.h"

#include <pthread.h>

uint32_t tt__forks;

static void in_child(void) { tt__forks++; }

static void register_atfork(void) { pthread_atfork(NULL, NULL, in_child); }

void tt__watch_forks(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_atfork);
}
