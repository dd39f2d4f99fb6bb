/* The thread that advances calls on a device. No other thread waits for such a call; the program may wait for the
 * device, and the device for a rank that is gone. Only this thread would notice, and abort the call so that the device
 * goes on. */
#include "base/machine/clock.h"
#include "base/process/threads.h"
#include "comm/backend/plugin.h"

enum { WATCH_MS = 20 };

static bool has_device_works(const tt_group *group) {
    const tt_work *lists[] = {group->queue, group->unordered};
    for (int i = 0; i < 2; i++)
        for (const tt_work *work = lists[i]; work; work = work->next)
            if (work->call.device != TT_DEVICE_CPU && work->phase != TT__DONE)
                return true;
    return false;
}

static void *watch_thread(void *arg) {
    tt_group *group = arg;
    tt__plugin *plugin = tt__plugin_of(group);
    tt__plugin_lock(plugin);
    while (!plugin->watch_ends) {
        if (!has_device_works(group)) {
            pthread_cond_wait(&plugin->watch_wanted, &plugin->lock);
            continue;
        }
        struct timespec until = tt__timespec_ms(tt__now_ms() + WATCH_MS);
        pthread_cond_timedwait(&plugin->watch_wanted, &plugin->lock, &until);
        if (plugin->watch_ends)
            break;
        tt__plugin_unlock(plugin);
        (void)group->engine->progress(group); /* the group keeps a failure, and its next call returns it */
        tt__plugin_lock(plugin);
    }
    tt__plugin_unlock(plugin);
    return NULL;
}

tt_status tt__plugin_watch(tt_group *group) {
    tt__plugin *plugin = tt__plugin_of(group);
    if (plugin->watches)
        return TT_OK;
    tt__cond_init(&plugin->watch_wanted);
    tt_status status = tt__thread_create(&plugin->watcher, watch_thread, group, "the thread that watches a device");
    if (status)
        pthread_cond_destroy(&plugin->watch_wanted);
    plugin->watches = !status;
    return status;
}

void tt__plugin_watch_more(tt__plugin *plugin) {
    if (plugin->watches)
        pthread_cond_signal(&plugin->watch_wanted);
}

void tt__plugin_watch_end(tt__plugin *plugin) {
    if (!plugin->watches)
        return;
    tt__plugin_lock(plugin);
    plugin->watch_ends = true;
    pthread_cond_signal(&plugin->watch_wanted);
    tt__plugin_unlock(plugin);
    pthread_join(plugin->watcher, NULL);
    pthread_cond_destroy(&plugin->watch_wanted);
    plugin->watches = false;
}
