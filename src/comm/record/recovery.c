#include "comm/record/recovery.h"

#include <pthread.h>

enum { SHOWN = 16 };

static pthread_mutex_t words_lock = PTHREAD_MUTEX_INITIALIZER;
static tt__recovery said;
static tt__recorder *shown[SHOWN];

/* A forked child is no rank: it must not write into its parent's recorders. */
static void forget_words(void) {
    pthread_mutex_init(&words_lock, NULL);
    said = (tt__recovery){0};
    memset(shown, 0, sizeof shown);
}

static void words_watch_forks(void) { pthread_atfork(NULL, NULL, forget_words); }

/* A reader that sees wants_round sees what was said with it. */
static void show_words(tt__recorder *recorder) {
    tt__recovery_words *words = &recorder->recovery;
    atomic_store_explicit(&words->recovers, said.recovers, memory_order_relaxed);
    atomic_store_explicit(&words->lost, said.lost, memory_order_relaxed);
    atomic_store_explicit(&words->stopped_by, said.stopped_by, memory_order_relaxed);
    atomic_store_explicit(&words->wants_round, said.wants_round, memory_order_release);
}

void tt__recovery_attach(tt__recorder *recorder) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, words_watch_forks);
    pthread_mutex_lock(&words_lock);
    show_words(recorder);
    for (int i = 0; i < SHOWN; i++)
        if (!shown[i]) {
            shown[i] = recorder;
            break;
        }
    pthread_mutex_unlock(&words_lock);
}

void tt__recovery_detach(tt__recorder *recorder) {
    pthread_mutex_lock(&words_lock);
    for (int i = 0; i < SHOWN; i++)
        if (shown[i] == recorder)
            shown[i] = NULL;
    pthread_mutex_unlock(&words_lock);
}

void tt__recovery_say(tt__recovery words) {
    pthread_mutex_lock(&words_lock);
    said = words;
    for (int i = 0; i < SHOWN; i++)
        if (shown[i])
            show_words(shown[i]);
    pthread_mutex_unlock(&words_lock);
}

tt__recovery tt__recovery_said(void) {
    pthread_mutex_lock(&words_lock);
    tt__recovery copy = said;
    pthread_mutex_unlock(&words_lock);
    return copy;
}

bool tt__recovery_is_on(void) { return tt__recovery_said().recovers != 0; }
