/* Events on their way from the thread to the launcher, and orders on theirs to the thread. */
#include "elastic/nodes_own.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

void tt__nodes_wake(int fd) {
    uint64_t one = 1;
    while (write(fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

int tt__nodes_fd(const tt__nodes *nodes) { return nodes->events_fd; }

void tt__nodes_post(tt__nodes *nodes, tt__nodes_event *event) {
    event->next = NULL;
    pthread_mutex_lock(&nodes->lock);
    *nodes->events_end = event;
    nodes->events_end = &event->next;
    pthread_mutex_unlock(&nodes->lock);
    tt__nodes_wake(nodes->events_fd);
}

tt__nodes_event *tt__nodes_next(tt__nodes *nodes) {
    uint64_t count;
    pthread_mutex_lock(&nodes->lock);
    tt__nodes_event *event = nodes->events;
    if (event && !(nodes->events = event->next))
        nodes->events_end = &nodes->events;
    if (!event && nodes->events_fd >= 0 && read(nodes->events_fd, &count, sizeof count) < 0)
        count = 0; /* nobody had written: fine */
    pthread_mutex_unlock(&nodes->lock);
    return event;
}

void tt__nodes_event_free(tt__nodes_event *event) {
    if (!event)
        return;
    free(event->text);
    free(event->round);
    free(event->worker.message);
    free(event->worker.account);
    tt__snapshot_free(&event->snapshot);
    free(event);
}

void tt__order_free(tt__order *order) {
    free(order->bytes);
    json_decref(order->news);
    free(order);
}
