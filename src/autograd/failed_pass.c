#include "autograd/failed_pass.h"

#include <pthread.h>

static pthread_mutex_t watch_lock = PTHREAD_MUTEX_INITIALIZER;
static tt__pass_watcher *watchers;

void tt__watch_passes(tt__pass_watcher *watcher, void (*failed)(void *user, const tt__reach *reach), void *user) {
    pthread_mutex_lock(&watch_lock);
    *watcher = (tt__pass_watcher){.next = watchers, .at = &watchers, .failed = failed, .user = user};
    if (watchers)
        watchers->at = &watcher->next;
    watchers = watcher;
    pthread_mutex_unlock(&watch_lock);
}

void tt__unwatch_passes(tt__pass_watcher *watcher) {
    if (!watcher->at)
        return;
    pthread_mutex_lock(&watch_lock);
    *watcher->at = watcher->next;
    if (watcher->next)
        watcher->next->at = watcher->at;
    *watcher = (tt__pass_watcher){NULL, NULL, NULL, NULL};
    pthread_mutex_unlock(&watch_lock);
}

void tt__pass_failed(const tt__reach *reach) {
    pthread_mutex_lock(&watch_lock);
    for (const tt__pass_watcher *w = watchers; w; w = w->next)
        w->failed(w->user, reach);
    pthread_mutex_unlock(&watch_lock);
}
